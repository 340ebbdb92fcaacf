"""Model settings that CTranslate2 supports, and reasons why a model cannot be exported.

This module lists all settings of transformers and decoder-only models. The export rejects a model
with a setting that is not listed, so that new settings cannot be silently ignored.
"""

from collections.abc import Callable, Iterator
from typing import Any

from mtcli.config.base import ModelConfig
from mtcli.config.transformers import AttentionConfig, DecoderOnlyConfig, TransformerConfig

_UNSUPPORTED_ARCHITECTURES = {"rnn": "recurrent layers are not supported (model.arch=rnn)"}
_SUPPORTED_VALUES: dict[str, tuple[object, ...]] = {
    "arch": ("transformer", "decoder_only"),
    "activation": ("relu", "gelu", "swish"),
    "biases": (False, True),
    "deep_norm": (False, True),
    "gated": (False, True),
    "norm": ("pre", "post"),
    "norm_kind": ("layer", "rms"),
    "positions": ("sinusoidal", "learned", "relative", "rotary", "alibi", "none"),
    # The next three are supported only in some combinations: see _COMBINATION_CHECKS.
    "qk_norm": (False, True),
    "source_attention": ("full", "causal"),
    "tied_embeddings": ("all", "target", "none"),
}
_SIZES = {  # any value is supported
    "d_feed_forward",
    "d_model",
    "max_distance",
    "max_positions",
    "n_decoder_layers",
    "n_encoder_layers",
    "n_heads",
    "n_kv_heads",
    "n_layers",
    "window",  # only in some combinations: see _COMBINATION_CHECKS
}
_TRAINING_ONLY = {"activation_dropout", "attention_dropout", "dropout", "loss_on"}


def incompatibilities(config: ModelConfig) -> list[str]:
    """Return all reasons why CTranslate2 cannot run a model; the list is empty if it can."""
    if not isinstance(config, AttentionConfig):
        default = f"model.arch={config.arch} is not supported"
        return [_UNSUPPORTED_ARCHITECTURES.get(config.arch, default)]
    single = [_check_setting(key, value) for key, value in config]
    return [*filter(None, single), *_COMBINATION_CHECKS[config.arch](config)]


def _check_setting(key: str, value: Any) -> str | None:
    """Return the reason why a single setting cannot be exported, or None."""
    if key in _SIZES | _TRAINING_ONLY:
        return None
    if key not in _SUPPORTED_VALUES:
        return f"cannot export model.{key}"
    return None if value in _SUPPORTED_VALUES[key] else f"model.{key}={value} is not supported"


def _check_transformer(config: TransformerConfig) -> Iterator[str]:
    """Yield a reason for each combination of settings that CTranslate2 does not support."""
    if config.qk_norm and config.n_heads > 1:
        yield (
            "CTranslate2's cross-attention normalizes queries across all heads, not per head "
            "(model.qk_norm=true)"
        )
    if config.window is not None and config.positions in ("sinusoidal", "learned"):
        yield (
            "windowed self-attention with absolute positions is not supported "
            f"(model.window={config.window} with model.positions={config.positions})"
        )


def _check_decoder_only(config: DecoderOnlyConfig) -> Iterator[str]:
    """Yield a reason for each setting that CTranslate2's language models do not support."""
    if config.source_attention == "full":
        yield (
            "CTranslate2's language models always use causal attention, even for the source "
            "(model.source_attention=full)"
        )
    if config.window is not None:
        yield (
            "CTranslate2's language models do not apply a window to prompt tokens "
            f"(model.window={config.window})"
        )
    if config.tied_embeddings != "all":
        yield (
            "CTranslate2's language models have one embedding matrix for source and target "
            f"(model.tied_embeddings={config.tied_embeddings})"
        )


_COMBINATION_CHECKS: dict[str, Callable[[Any], Iterator[str]]] = {
    "transformer": _check_transformer,
    "decoder_only": _check_decoder_only,
}
