"""Our tensors in CTranslate2's words: one small function for each layer it has."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
from ctranslate2.specs.common_spec import Activation, LayerNormSpec, LinearSpec
from ctranslate2.specs.transformer_spec import (
    FeedForwardSpec,
    TransformerDecoderModelSpec,
    TransformerDecoderSpec,
    TransformerEncoderSpec,
)

from mtcli.config import NORM_EPSILON, AttentionConfig, DecoderOnlyConfig, TransformerConfig
from mtcli.export.tensors import (
    Array,
    Layers,
    Tensors,
    encoder_and_decoder,
    only_layers,
    with_as_many_keys,
    with_plain_residuals,
)

_ACTIVATIONS = {"relu": Activation.RELU, "gelu": Activation.GELU, "swish": Activation.SWISH}
Spec: TypeAlias = TransformerSpec | TransformerDecoderModelSpec
_NEVER = np.float32(-3e4)  # added to a score its weight is zero, and 16 bits can represent it


def model_spec(
    config: AttentionConfig,
    weights: Mapping[str, Array],
    vocabularies: tuple[Sequence[str], Sequence[str]],
    *,
    n_positions: int,
) -> Spec:
    """The model that has these weights, for sentences of up to `n_positions` pieces."""
    spec, tensors = _SPECS[config.arch](config, weights, vocabularies, n_positions)
    tensors.check_all_used()
    spec.config.layer_norm_epsilon = NORM_EPSILON
    return spec


def _transformer(
    config: TransformerConfig,
    weights: Mapping[str, Array],
    vocabularies: tuple[Sequence[str], Sequence[str]],
    n_positions: int,
) -> tuple[Spec, Tensors]:
    encoder, decoder = encoder_and_decoder(config)
    tensors = _plain_tensors(config, weights, encoder, decoder)
    spec = TransformerSpec(
        Stack(config, tensors, encoder, n_positions).encoder(),
        Stack(config, tensors, decoder, n_positions).decoder(config.alignment_layer),
    )
    spec.config.add_source_eos = True
    spec.register_source_vocabulary(list(vocabularies[0]))
    spec.register_target_vocabulary(list(vocabularies[1]))
    return spec, tensors


def _language_model(
    config: DecoderOnlyConfig,
    weights: Mapping[str, Array],
    vocabularies: tuple[Sequence[str], Sequence[str]],
    n_positions: int,
) -> tuple[Spec, Tensors]:
    """Source and target are one text.

    CTranslate2 takes distances in a text that is read at once for larger than they are, all by the
    same number, which a bias that falls with the distance does not mind.
    """
    layers = only_layers(config)
    tensors = _plain_tensors(config, weights, layers)
    stack = Stack(config, tensors, layers, 2 * n_positions)
    spec = TransformerDecoderModelSpec(stack.language_model())
    spec.register_vocabulary(list(vocabularies[1]))
    return spec, tensors


_SPECS: dict[str, Callable[..., tuple[Spec, Tensors]]] = {
    "transformer": _transformer,
    "decoder_only": _language_model,
}


def _plain_tensors(
    config: AttentionConfig, weights: Mapping[str, Array], *stacks: Layers
) -> Tensors:
    return Tensors(with_as_many_keys(with_plain_residuals(weights, stacks), config))


@dataclass(frozen=True)
class Stack:
    """The layers of one side, as `config` describes them."""

    config: AttentionConfig
    tensors: Tensors
    layers: Layers
    n_positions: int

    def encoder(self) -> TransformerEncoderSpec:
        """What reads the source."""
        spec = TransformerEncoderSpec(self.layers.n, self.config.n_heads, **self._options())
        spec.embeddings[0].weight = self.tensors["source_embedding.weight"]
        bias = self._bias()
        # Keys behind a query have a half of their own; for us only the distance counts.
        self._set_layers(spec, np.concatenate([bias, bias]))
        return spec

    def decoder(self, alignment_layer: int) -> TransformerDecoderSpec:
        """What writes the target, and looks at the source."""
        heads = {"alignment_layer": alignment_layer, "alignment_heads": 0}  # all of them, averaged
        spec = TransformerDecoderSpec(
            self.layers.n, self.config.n_heads, **heads, **self._options()
        )
        self._set_embeddings(spec)
        self._set_layers(spec, self._bias())
        for layer, part in self._parts(spec):
            self._set_cross_attention(layer.attention, part)
        return spec

    def language_model(self) -> TransformerDecoderSpec:
        """What reads the source, and goes on with the target."""
        spec = TransformerDecoderSpec(
            self.layers.n, self.config.n_heads, with_encoder_attention=False, **self._options()
        )
        self._set_embeddings(spec)
        self._set_layers(spec, self._bias())
        return spec

    def _set_embeddings(self, spec: TransformerDecoderSpec) -> None:
        """A matrix that serves several purposes is saved under the first of its names."""
        embedding = self.tensors.get("target_embedding.weight")
        embedding = self.tensors["source_embedding.weight"] if embedding is None else embedding
        projection = self.tensors.get("to_logits.weight")
        spec.embeddings.weight = embedding
        spec.projection.weight = embedding if projection is None else projection

    def _set_layers(
        self, spec: TransformerEncoderSpec | TransformerDecoderSpec, bias: Array
    ) -> None:
        """What every stack has: positions, attention to itself, feed-forward, a norm at the end."""
        self._set_positions(spec)
        for layer, part in self._parts(spec):
            self._set_self_attention(layer.self_attention, part, bias)
            self._set_feed_forward(layer.ffn, part)
        if spec.pre_norm:
            _set_norm(spec.layer_norm, self.tensors.part(self.layers.norm))

    def _parts(
        self, spec: TransformerEncoderSpec | TransformerDecoderSpec
    ) -> Iterator[tuple[Any, Tensors]]:
        """The layers, and the weights of each."""
        for i, layer in enumerate(spec.layer):
            yield layer, self.tensors.part(f"{self.layers.name}.{i}")

    def _options(self) -> dict[str, Any]:
        """What all stacks have in common."""
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
        slopes = config.slopes() if config.positions == "alibi" else [0.0] * config.n_heads
        bias: Array = -np.array(slopes, np.float32) * distances
        return bias if config.window is None else np.where(distances > config.window, _NEVER, bias)

    def _set_positions(self, spec: TransformerEncoderSpec | TransformerDecoderSpec) -> None:
        """Always as a table: CTranslate2's own sinusoids begin at position 1, ours at 0."""
        shape = self.n_positions, self.config.d_model
        if self.config.deep_norm:
            spec.scale_embeddings = np.float32(self.layers.scale * self.config.d_model**0.5)
        match self.config.positions:
            case "sinusoidal":
                spec.position_encodings.encodings = _sinusoids(*shape) * np.float32(
                    self.layers.scale
                )
            case "learned":
                vectors = self.tensors.part(self.layers.positions)["vectors.weight"]
                spec.position_encodings.encodings = vectors * np.float32(self.layers.scale)
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
