"""What CTranslate2 can express of a model, and why it cannot express the rest.

Every option of transformers and language models stands here, so that one that nobody has thought of
is refused and not left out of an export in silence.
"""

from collections.abc import Callable, Iterator
from typing import Any

from mtcli.config import AttentionConfig, DecoderOnlyConfig, ModelConfig, TransformerConfig

_ARCHITECTURES = {"rnn": "it has no recurrent layers (model.arch=rnn)"}
_EXPRESSIBLE: dict[str, tuple[object, ...]] = {
    "arch": ("transformer", "decoder_only"),
    "activation": ("relu", "gelu", "swish"),
    "biases": (False, True),
    "deep_norm": (False, True),
    "gated": (False, True),
    "norm": ("pre", "post"),
    "norm_kind": ("layer", "rms"),
    "positions": ("sinusoidal", "learned", "relative", "rotary", "alibi", "none"),
    "qk_norm": (False, True),  # these three not with all others: see below
    "source_attention": ("full", "causal"),
    "tied_embeddings": ("all", "target", "none"),
}
_SIZES = {  # any number will do
    "d_feed_forward",
    "d_model",
    "max_distance",
    "max_positions",
    "n_decoder_layers",
    "n_encoder_layers",
    "n_heads",
    "n_kv_heads",
    "n_layers",
    "window",  # not with all others: see below
}
_ONLY_FOR_TRAINING = {"activation_dropout", "attention_dropout", "dropout", "loss_on"}


def obstacles(config: ModelConfig) -> list[str]:
    """Every reason why CTranslate2 cannot run such a model."""
    if not isinstance(config, AttentionConfig):
        unheard_of = f"it has nothing like model.arch={config.arch}"
        return [_ARCHITECTURES.get(config.arch, unheard_of)]
    unknown = [_unknown(key, value) for key, value in config]
    return [*filter(None, unknown), *_TOGETHER[config.arch](config)]


def _unknown(key: str, value: Any) -> str | None:
    if key in _SIZES | _ONLY_FOR_TRAINING:
        return None
    if key not in _EXPRESSIBLE:
        return f"mtcli has not been taught to tell it of model.{key}"
    return None if value in _EXPRESSIBLE[key] else f"it has nothing like model.{key}={value}"


def _of_transformers(config: TransformerConfig) -> Iterator[str]:
    """What is expressible by itself, but not together."""
    if config.qk_norm and config.n_heads > 1:
        yield (
            "it normalises the queries of cross-attention over all heads at once, not in every "
            "head (model.qk_norm=true)"
        )
    if config.window is not None and config.positions in ("sinusoidal", "learned"):
        yield (
            "it has no self-attention with a window where positions are added to the embeddings "
            f"(model.window={config.window} with model.positions={config.positions})"
        )


def _of_language_models(config: DecoderOnlyConfig) -> Iterator[str]:
    """What its encoders and decoders have, but its language models have not."""
    if config.source_attention == "full":
        yield (
            "its language models read from left to right: no piece of the source sees those "
            "behind it (model.source_attention=full)"
        )
    if config.window is not None:
        yield (
            "its language models do not keep to a window in what they read at once "
            f"(model.window={config.window})"
        )
    if config.tied_embeddings != "all":
        yield (
            "its language models have one matrix of embeddings for all they read "
            f"(model.tied_embeddings={config.tied_embeddings})"
        )


_TOGETHER: dict[str, Callable[[Any], Iterator[str]]] = {
    "transformer": _of_transformers,
    "decoder_only": _of_language_models,
}
