"""Our tensors in CTranslate2's words: one small function for each layer it has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
from ctranslate2.specs.common_spec import Activation, LayerNormSpec, LinearSpec
from ctranslate2.specs.transformer_spec import (
    FeedForwardSpec,
    TransformerDecoderSpec,
    TransformerEncoderSpec,
)

from mtcli.config import TransformerConfig
from mtcli.export.tensors import (
    Array,
    Tensors,
    residual_scales,
    with_as_many_keys,
    with_plain_residuals,
)

_ACTIVATIONS = {"relu": Activation.RELU, "gelu": Activation.GELU, "swish": Activation.SWISH}
NORM_EPSILON = 1e-5  # torch's
_NEVER = np.float32(-3e4)  # added to a score its weight is zero, and 16 bits can represent it


def transformer_spec(
    config: TransformerConfig,
    weights: Mapping[str, Array],
    vocabularies: tuple[Sequence[str], Sequence[str]],
    *,
    n_positions: int,
) -> TransformerSpec:
    """The model that has these weights, for sentences of up to `n_positions` pieces."""
    tensors = Tensors(with_as_many_keys(with_plain_residuals(weights, config), config))
    scales = residual_scales(config)
    spec = TransformerSpec(
        Stack(config, tensors, scales[0], n_positions).encoder(),
        Stack(config, tensors, scales[1], n_positions).decoder(),
    )
    tensors.check_all_used()
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = NORM_EPSILON
    spec.register_source_vocabulary(list(vocabularies[0]))
    spec.register_target_vocabulary(list(vocabularies[1]))
    return spec


@dataclass(frozen=True)
class Stack:
    """The layers of one side, as `config` describes them."""

    config: TransformerConfig
    tensors: Tensors
    scale: float  # of the embeddings: see `with_plain_residuals`
    n_positions: int

    def encoder(self) -> TransformerEncoderSpec:
        """What reads the source."""
        n_layers, n_heads = self.config.n_encoder_layers, self.config.n_heads
        spec = TransformerEncoderSpec(n_layers, n_heads, **self._options())
        spec.embeddings[0].weight = self.tensors["source_embedding.weight"]
        self._set_positions(spec, self.tensors.part("source_positions"))
        bias = self._bias()
        for i, layer in enumerate(spec.layer):
            part = self.tensors.part(f"encoder.{i}")
            # Keys behind a query have a half of their own; for us only the distance counts.
            self._set_self_attention(layer.self_attention, part, np.concatenate([bias, bias]))
            self._set_feed_forward(layer.ffn, part)
        if spec.pre_norm:
            _set_norm(spec.layer_norm, self.tensors.part("encoder_norm"))
        return spec

    def decoder(self) -> TransformerDecoderSpec:
        """What writes the target."""
        spec = TransformerDecoderSpec(
            self.config.n_decoder_layers,
            self.config.n_heads,
            alignment_layer=self.config.alignment_layer,
            alignment_heads=0,  # all of them, averaged
            **self._options(),
        )
        # A matrix that serves several purposes is saved under the first of its names.
        embedding = self.tensors.get("target_embedding.weight")
        embedding = self.tensors["source_embedding.weight"] if embedding is None else embedding
        projection = self.tensors.get("to_logits.weight")
        spec.embeddings.weight = embedding
        spec.projection.weight = embedding if projection is None else projection
        self._set_positions(spec, self.tensors.part("target_positions"))
        bias = self._bias()
        for i, layer in enumerate(spec.layer):
            part = self.tensors.part(f"decoder.{i}")
            self._set_self_attention(layer.self_attention, part, bias)
            self._set_cross_attention(layer.attention, part)
            self._set_feed_forward(layer.ffn, part)
        if spec.pre_norm:
            _set_norm(spec.layer_norm, self.tensors.part("decoder_norm"))
        return spec

    def _options(self) -> dict[str, Any]:
        """What both sides have in common."""
        config = self.config
        return {
            "pre_norm": config.norm == "pre",
            "activation": _ACTIVATIONS[config.activation],
            "ffn_glu": config.gated,
            "rms_norm": config.norm_kind == "rms",
            "qk_norm": config.qk_norm,
            "relative_position": config.positions == "relative",
            "relative_attention_bias": self._has_bias,
            "rotary_dim": config.d_head if config.positions == "rotary" else None,
            "rotary_interleave": False,
        }

    @property
    def _has_bias(self) -> bool:
        return self.config.positions == "alibi" or self.config.window is not None

    def _bias(self) -> Array:
        """What is added to the scores of each distance and head [2 * n_positions, H].

        CTranslate2 has alibi only for decoders, and with other slopes unless heads are a power of
        two; it has windows nowhere. But it can add anything to the scores of a distance, as for T5,
        which tells distances apart up to half of the rows of a table.
        """
        config = self.config
        distances = np.arange(2 * self.n_positions, dtype=np.float32)[:, None]
        heads = np.arange(1, config.n_heads + 1, dtype=np.float32)
        slopes = np.exp2(-8 * heads / config.n_heads) if config.positions == "alibi" else 0 * heads
        bias: Array = -slopes * distances
        return bias if config.window is None else np.where(distances > config.window, _NEVER, bias)

    def _set_positions(
        self, spec: TransformerEncoderSpec | TransformerDecoderSpec, tensors: Tensors
    ) -> None:
        """Always as a table: CTranslate2's own sinusoids begin at position 1, ours at 0."""
        shape = self.n_positions, self.config.d_model
        if self.config.deep_norm:
            spec.scale_embeddings = np.float32(self.scale * self.config.d_model**0.5)
        match self.config.positions:
            case "sinusoidal":
                spec.position_encodings.encodings = _sinusoids(*shape) * np.float32(self.scale)
            case "learned":
                vectors = tensors["vectors.weight"]
                spec.position_encodings.encodings = vectors * np.float32(self.scale)
            case "none" if not self._has_bias:  # without a table it would take its own sinusoids
                spec.position_encodings.encodings = np.zeros(shape, np.float32)

    def _set_self_attention(
        self, spec: MultiHeadAttentionSpec, layer: Tensors, bias: Array
    ) -> None:
        attention = layer.part("self_attention")
        self._set_linear(spec.linear[0], attention, "to_queries", "to_keys", "to_values")
        self._set_linear(spec.linear[1], attention, "to_output")
        self._set_head_norms(spec, attention)
        _set_norm(spec.layer_norm, layer.part("self_residual.norm"))
        if self.config.positions == "relative":
            # Its distances are those of the key from the query, ours those of the query.
            relation = attention.part("relation")
            spec.relative_position_keys = relation["of_keys"][::-1].copy()
            spec.relative_position_values = relation["of_values"][::-1].copy()
        if self._has_bias:
            spec.relative_attention_bias = bias
            spec.relative_attention_max_distance = np.int32(2 * self.n_positions)

    def _set_cross_attention(self, spec: MultiHeadAttentionSpec, layer: Tensors) -> None:
        attention = layer.part("cross_attention")
        self._set_linear(spec.linear[0], attention, "to_queries")
        self._set_linear(spec.linear[1], attention, "to_keys", "to_values")
        self._set_linear(spec.linear[2], attention, "to_output")
        self._set_head_norms(spec, attention)
        _set_norm(spec.layer_norm, layer.part("cross_residual.norm"))

    def _set_feed_forward(self, spec: FeedForwardSpec, layer: Tensors) -> None:
        feed_forward = layer.part("feed_forward")
        self._set_linear(spec.linear_0, feed_forward, "to_inner")
        self._set_linear(spec.linear_1, feed_forward, "to_output")
        if self.config.gated:
            self._set_linear(spec.linear_0_noact, feed_forward, "to_gate")
        _set_norm(spec.layer_norm, layer.part("feed_forward_residual.norm"))

    def _set_linear(self, spec: LinearSpec, tensors: Tensors, *names: str) -> None:
        """One linear map, or several that read the same vector as one larger map."""
        spec.weight = np.concatenate([tensors[f"{name}.weight"] for name in names])
        if self.config.biases:
            spec.bias = np.concatenate([tensors[f"{name}.bias"] for name in names])

    def _set_head_norms(self, spec: MultiHeadAttentionSpec, attention: Tensors) -> None:
        if self.config.qk_norm:
            _set_norm(spec.q_norm, attention.part("query_norm"))
            _set_norm(spec.k_norm, attention.part("key_norm"))


def _set_norm(spec: LayerNormSpec, tensors: Tensors) -> None:
    spec.gamma = tensors["weight"]
    if hasattr(spec, "beta"):  # RMS norms have none
        spec.beta = tensors["bias"]


def _sinusoids(n: int, width: int) -> Array:
    frequencies = np.float32(10_000) ** (-np.arange(0, width, 2, dtype=np.float32) / width)
    angles = np.arange(n, dtype=np.float32)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
