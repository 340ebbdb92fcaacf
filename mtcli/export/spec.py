"""Our tensors in CTranslate2's words: one small function for each layer it has."""

from collections.abc import Mapping, Sequence

import numpy as np
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
from ctranslate2.specs.common_spec import Activation, LayerNormSpec, LinearSpec
from ctranslate2.specs.transformer_spec import (
    FeedForwardSpec,
    PositionEncoderSpec,
    TransformerDecoderSpec,
    TransformerEncoderSpec,
)
from numpy.typing import NDArray

from mtcli.config import TransformerConfig

Array = NDArray[np.float32]
Tensors = Mapping[str, Array]

_ACTIVATIONS = {"relu": Activation.RELU, "gelu": Activation.GELU, "swish": Activation.SWISH}
_EXPRESSIBLE: dict[str, set[str]] = {
    "arch": {"transformer"},
    "activation": set(_ACTIVATIONS),
    "norm": {"pre", "post"},
    "positions": {"sinusoidal", "learned"},
    "tied_embeddings": {"all", "target", "none"},
}
_NORM_EPSILON = 1e-5  # torch's


def obstacles(config: TransformerConfig) -> list[str]:
    """Every reason why CTranslate2 cannot run such a model."""
    return [
        f"it has nothing like model.{key}={value}"
        for key, values in _EXPRESSIBLE.items()
        if (value := getattr(config, key, None)) not in {*values, None}
    ]


def transformer_spec(
    config: TransformerConfig,
    tensors: Tensors,
    vocabularies: tuple[Sequence[str], Sequence[str]],
    *,
    n_positions: int,
) -> TransformerSpec:
    """The model whose weights are `tensors`, for sentences of up to `n_positions` pieces."""
    spec = TransformerSpec.from_config(
        (config.n_encoder_layers, config.n_decoder_layers),
        config.n_heads,
        pre_norm=config.norm == "pre",
        activation=_ACTIVATIONS[config.activation],
        alignment_layer=config.alignment_layer,
        alignment_heads=0,  # all of them, averaged
    )
    _set_encoder(spec.encoder, tensors)
    _set_decoder(spec.decoder, tensors)
    _set_positions(spec.encoder.position_encodings, "source_positions", tensors, n_positions)
    _set_positions(spec.decoder.position_encodings, "target_positions", tensors, n_positions)
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = _NORM_EPSILON
    spec.register_source_vocabulary(list(vocabularies[0]))
    spec.register_target_vocabulary(list(vocabularies[1]))
    return spec


def _set_encoder(spec: TransformerEncoderSpec, tensors: Tensors) -> None:
    spec.embeddings[0].weight = tensors["source_embedding.weight"]
    for i, layer in enumerate(spec.layer):
        part = _part(tensors, f"encoder.{i}")
        _set_self_attention(layer.self_attention, part)
        _set_feed_forward(layer.ffn, part)
    if spec.pre_norm:
        _set_norm(spec.layer_norm, "encoder_norm", tensors)


def _set_decoder(spec: TransformerDecoderSpec, tensors: Tensors) -> None:
    # A matrix that serves several purposes is saved under the first of its names.
    embedding = tensors.get("target_embedding.weight", tensors.get("source_embedding.weight"))
    spec.embeddings.weight = embedding
    spec.projection.weight = tensors.get("to_logits.weight", embedding)
    for i, layer in enumerate(spec.layer):
        part = _part(tensors, f"decoder.{i}")
        _set_self_attention(layer.self_attention, part)
        _set_cross_attention(layer.attention, part)
        _set_feed_forward(layer.ffn, part)
    if spec.pre_norm:
        _set_norm(spec.layer_norm, "decoder_norm", tensors)


def _set_self_attention(spec: MultiHeadAttentionSpec, layer: Tensors) -> None:
    attention = _part(layer, "self_attention")
    _set_linear(spec.linear[0], attention, "to_queries", "to_keys", "to_values")
    _set_linear(spec.linear[1], attention, "to_output")
    _set_norm(spec.layer_norm, "self_residual.norm", layer)


def _set_cross_attention(spec: MultiHeadAttentionSpec, layer: Tensors) -> None:
    attention = _part(layer, "cross_attention")
    _set_linear(spec.linear[0], attention, "to_queries")
    _set_linear(spec.linear[1], attention, "to_keys", "to_values")
    _set_linear(spec.linear[2], attention, "to_output")
    _set_norm(spec.layer_norm, "cross_residual.norm", layer)


def _set_feed_forward(spec: FeedForwardSpec, layer: Tensors) -> None:
    feed_forward = _part(layer, "feed_forward")
    _set_linear(spec.linear_0, feed_forward, "to_inner")
    _set_linear(spec.linear_1, feed_forward, "to_output")
    _set_norm(spec.layer_norm, "feed_forward_residual.norm", layer)


def _set_linear(spec: LinearSpec, tensors: Tensors, *names: str) -> None:
    """One linear map, or several that read the same vector as one larger map."""
    spec.weight = np.concatenate([tensors[f"{name}.weight"] for name in names])
    spec.bias = np.concatenate([tensors[f"{name}.bias"] for name in names])


def _set_norm(spec: LayerNormSpec, name: str, tensors: Tensors) -> None:
    spec.gamma, spec.beta = tensors[f"{name}.weight"], tensors[f"{name}.bias"]


def _set_positions(spec: PositionEncoderSpec, name: str, tensors: Tensors, n: int) -> None:
    """Always as a table: CTranslate2's own sinusoids begin at position 1, ours at 0."""
    learned = tensors.get(f"{name}.vectors.weight")
    width = tensors["source_embedding.weight"].shape[1]
    spec.encodings = _sinusoids(n, width) if learned is None else learned


def _sinusoids(n: int, width: int) -> Array:
    frequencies = np.float32(10_000) ** (-np.arange(0, width, 2, dtype=np.float32) / width)
    angles = np.arange(n, dtype=np.float32)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)


def _part(tensors: Tensors, name: str) -> Tensors:
    start = f"{name}."
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
