"""Our tensors in CTranslate2's words: one small function for each layer it has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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

from mtcli.config import ModelConfig, TransformerConfig
from mtcli.errors import CheckpointError

Array = NDArray[np.float32]

_ACTIVATIONS = {"relu": Activation.RELU, "gelu": Activation.GELU, "swish": Activation.SWISH}
_EXPRESSIBLE: dict[str, set[str]] = {
    "arch": {"transformer"},
    "activation": set(_ACTIVATIONS),
    "norm": {"pre", "post"},
    "positions": {"sinusoidal", "learned"},
    "tied_embeddings": {"all", "target", "none"},
}
_NORM_EPSILON = 1e-5  # torch's


def obstacles(config: ModelConfig) -> list[str]:
    """Every reason why CTranslate2 cannot run such a model."""
    return [
        f"it has nothing like model.{key}={value}"
        for key, values in _EXPRESSIBLE.items()
        if (value := getattr(config, key, None)) not in {*values, None}
    ]


def transformer_spec(
    config: TransformerConfig,
    weights: Mapping[str, Array],
    vocabularies: tuple[Sequence[str], Sequence[str]],
    *,
    n_positions: int,
) -> TransformerSpec:
    """The model that has these weights, for sentences of up to `n_positions` pieces."""
    spec = TransformerSpec.from_config(
        (config.n_encoder_layers, config.n_decoder_layers),
        config.n_heads,
        pre_norm=config.norm == "pre",
        activation=_ACTIVATIONS[config.activation],
        alignment_layer=config.alignment_layer,
        alignment_heads=0,  # all of them, averaged
    )
    tensors = Tensors(weights)
    _set_encoder(spec.encoder, tensors, n_positions)
    _set_decoder(spec.decoder, tensors, n_positions)
    tensors.check_all_used()
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = _NORM_EPSILON
    spec.register_source_vocabulary(list(vocabularies[0]))
    spec.register_target_vocabulary(list(vocabularies[1]))
    return spec


@dataclass(frozen=True)
class Tensors:
    """The weights under a common prefix; what nobody asks for does not belong to the model."""

    weights: Mapping[str, Array]
    prefix: str = ""
    used: set[str] = field(default_factory=set)  # shared by all parts

    def part(self, name: str) -> "Tensors":
        """Those of a layer."""
        return Tensors(self.weights, f"{self.prefix}{name}.", self.used)

    def get(self, name: str) -> Array | None:
        """One of them, if it is there."""
        self.used.add(self.prefix + name)
        return self.weights.get(self.prefix + name)

    def __getitem__(self, name: str) -> Array:
        tensor = self.get(name)
        if tensor is None:
            raise CheckpointError(f"the weights lack {self.prefix + name}, which config.yaml needs")
        return tensor

    def check_all_used(self) -> None:
        """Refuse weights that the model of config.yaml does not have."""
        if others := sorted(self.weights.keys() - self.used):
            names = "".join(f"\n  {name}" for name in others)
            raise CheckpointError(f"the weights do not fit the model of config.yaml:{names}")


def _set_encoder(spec: TransformerEncoderSpec, tensors: Tensors, n_positions: int) -> None:
    spec.embeddings[0].weight = embedding = tensors["source_embedding.weight"]
    width = embedding.shape[1]
    _set_positions(spec.position_encodings, tensors.part("source_positions"), n_positions, width)
    for i, layer in enumerate(spec.layer):
        part = tensors.part(f"encoder.{i}")
        _set_self_attention(layer.self_attention, part)
        _set_feed_forward(layer.ffn, part)
    if spec.pre_norm:
        _set_norm(spec.layer_norm, tensors.part("encoder_norm"))


def _set_decoder(spec: TransformerDecoderSpec, tensors: Tensors, n_positions: int) -> None:
    # A matrix that serves several purposes is saved under the first of its names.
    embedding = tensors.get("target_embedding.weight")
    embedding = tensors["source_embedding.weight"] if embedding is None else embedding
    projection = tensors.get("to_logits.weight")
    spec.embeddings.weight = embedding
    spec.projection.weight = embedding if projection is None else projection
    width = embedding.shape[1]
    _set_positions(spec.position_encodings, tensors.part("target_positions"), n_positions, width)
    for i, layer in enumerate(spec.layer):
        part = tensors.part(f"decoder.{i}")
        _set_self_attention(layer.self_attention, part)
        _set_cross_attention(layer.attention, part)
        _set_feed_forward(layer.ffn, part)
    if spec.pre_norm:
        _set_norm(spec.layer_norm, tensors.part("decoder_norm"))


def _set_self_attention(spec: MultiHeadAttentionSpec, layer: Tensors) -> None:
    attention = layer.part("self_attention")
    _set_linear(spec.linear[0], attention, "to_queries", "to_keys", "to_values")
    _set_linear(spec.linear[1], attention, "to_output")
    _set_norm(spec.layer_norm, layer.part("self_residual.norm"))


def _set_cross_attention(spec: MultiHeadAttentionSpec, layer: Tensors) -> None:
    attention = layer.part("cross_attention")
    _set_linear(spec.linear[0], attention, "to_queries")
    _set_linear(spec.linear[1], attention, "to_keys", "to_values")
    _set_linear(spec.linear[2], attention, "to_output")
    _set_norm(spec.layer_norm, layer.part("cross_residual.norm"))


def _set_feed_forward(spec: FeedForwardSpec, layer: Tensors) -> None:
    feed_forward = layer.part("feed_forward")
    _set_linear(spec.linear_0, feed_forward, "to_inner")
    _set_linear(spec.linear_1, feed_forward, "to_output")
    _set_norm(spec.layer_norm, layer.part("feed_forward_residual.norm"))


def _set_linear(spec: LinearSpec, tensors: Tensors, *names: str) -> None:
    """One linear map, or several that read the same vector as one larger map."""
    spec.weight = np.concatenate([tensors[f"{name}.weight"] for name in names])
    spec.bias = np.concatenate([tensors[f"{name}.bias"] for name in names])


def _set_norm(spec: LayerNormSpec, tensors: Tensors) -> None:
    spec.gamma, spec.beta = tensors["weight"], tensors["bias"]


def _set_positions(spec: PositionEncoderSpec, tensors: Tensors, n: int, width: int) -> None:
    """Always as a table: CTranslate2's own sinusoids begin at position 1, ours at 0."""
    learned = tensors.get("vectors.weight")
    spec.encodings = _sinusoids(n, width) if learned is None else learned


def _sinusoids(n: int, width: int) -> Array:
    frequencies = np.float32(10_000) ** (-np.arange(0, width, 2, dtype=np.float32) / width)
    angles = np.arange(n, dtype=np.float32)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
