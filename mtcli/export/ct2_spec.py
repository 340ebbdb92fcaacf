"""CTranslate2 specifications of mtcli models, including their weights."""

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

from mtcli.config.alignment import AlignmentHeads
from mtcli.config.transformers import (
    NORM_EPSILON,
    AttentionConfig,
    DecoderOnlyConfig,
    TransformerConfig,
)
from mtcli.export.tensors import (
    Array,
    LayerStack,
    Tensors,
    decoder_only_stack,
    encoder_decoder_stacks,
    fold_residual_scales,
    move_heads_first,
    repeat_key_value_heads,
)

_ACTIVATIONS = {"relu": Activation.RELU, "gelu": Activation.GELU, "swish": Activation.SWISH}
Spec: TypeAlias = TransformerSpec | TransformerDecoderModelSpec
_MASKED_SCORE = np.float32(-3e4)  # makes an attention weight zero; representable in float16


def model_spec(
    config: AttentionConfig,
    weights: Mapping[str, Array],
    vocabularies: tuple[Sequence[str], Sequence[str]],
    *,
    n_positions: int,
    alignment_heads: AlignmentHeads | None = None,
) -> Spec:
    """Return the specification of a model for sentences of up to `n_positions` pieces.

    `alignment_heads` are the heads used for the alignment; None means the model's default.
    """
    spec, tensors = _SPECS[config.arch](config, weights, vocabularies, n_positions, alignment_heads)
    tensors.check_all_used()
    spec.config.layer_norm_epsilon = NORM_EPSILON
    return spec


def _transformer_spec(
    config: TransformerConfig,
    weights: Mapping[str, Array],
    vocabularies: tuple[Sequence[str], Sequence[str]],
    n_positions: int,
    alignment_heads: AlignmentHeads | None,
) -> tuple[Spec, Tensors]:
    encoder, decoder = encoder_decoder_stacks(config)
    heads = alignment_heads or config.default_alignment_heads
    tensors = _convert_weights(config, weights, encoder, decoder)
    # CTranslate2 takes a number of heads instead of a list, so the alignment heads must come first.
    tensors = Tensors(move_heads_first(tensors.weights, decoder, heads, config.d_head))
    spec = TransformerSpec(
        StackBuilder(config, tensors, encoder, n_positions).encoder(),
        StackBuilder(config, tensors, decoder, n_positions).decoder(heads),
    )
    spec.config.add_source_eos = True
    spec.register_source_vocabulary(list(vocabularies[0]))
    spec.register_target_vocabulary(list(vocabularies[1]))
    return spec, tensors


def _decoder_only_spec(
    config: DecoderOnlyConfig,
    weights: Mapping[str, Array],
    vocabularies: tuple[Sequence[str], Sequence[str]],
    n_positions: int,
    alignment_heads: AlignmentHeads | None,
) -> tuple[Spec, Tensors]:
    """Return the specification of a language model for sequences of source and target.

    In a prompt, CTranslate2 adds a constant to the relative distances. This does not affect ALiBi,
    because its bias is linear in the distance, and softmax is invariant to an added constant.
    """
    del alignment_heads  # CTranslate2 returns no attention for language models
    stack = decoder_only_stack(config)
    tensors = _convert_weights(config, weights, stack)
    builder = StackBuilder(config, tensors, stack, 2 * n_positions)
    spec = TransformerDecoderModelSpec(builder.language_model())
    spec.register_vocabulary(list(vocabularies[1]))
    return spec, tensors


_SPECS: dict[str, Callable[..., tuple[Spec, Tensors]]] = {
    "transformer": _transformer_spec,
    "decoder_only": _decoder_only_spec,
}


def _convert_weights(
    config: AttentionConfig, weights: Mapping[str, Array], *stacks: LayerStack
) -> Tensors:
    return Tensors(repeat_key_value_heads(fold_residual_scales(weights, stacks), config))


@dataclass(frozen=True)
class StackBuilder:
    """Builds the specification of one layer stack."""

    config: AttentionConfig
    tensors: Tensors
    stack: LayerStack
    n_positions: int

    def encoder(self) -> TransformerEncoderSpec:
        """Return the specification of an encoder."""
        spec = TransformerEncoderSpec(self.stack.n, self.config.n_heads, **self._options())
        spec.embeddings[0].weight = self.tensors["source_embedding.weight"]
        bias = self._bias()
        # The second half of the table is for keys after the query, which have the same bias.
        self._set_layers(spec, np.concatenate([bias, bias]))
        return spec

    def decoder(self, alignment: AlignmentHeads) -> TransformerDecoderSpec:
        """Return the specification of a decoder with cross-attention.

        The `alignment` heads must be the first heads of their layer.
        """
        n_heads = len(alignment.heads)
        is_all = n_heads == self.config.n_heads
        spec = TransformerDecoderSpec(
            self.stack.n,
            self.config.n_heads,
            alignment_layer=alignment.layer,
            alignment_heads=0 if is_all else n_heads,  # 0: the mean of all heads
            **self._options(),
        )
        self._set_embeddings(spec)
        self._set_layers(spec, self._bias())
        for layer, tensors in self._layers(spec):
            self._set_cross_attention(layer.attention, tensors)
        return spec

    def language_model(self) -> TransformerDecoderSpec:
        """Return the specification of a decoder without cross-attention."""
        spec = TransformerDecoderSpec(
            self.stack.n, self.config.n_heads, with_encoder_attention=False, **self._options()
        )
        self._set_embeddings(spec)
        self._set_layers(spec, self._bias())
        return spec

    def _set_embeddings(self, spec: TransformerDecoderSpec) -> None:
        """Set the embedding and output matrices; a tied matrix is saved under its first name."""
        embedding = self.tensors.get("target_embedding.weight")
        embedding = self.tensors["source_embedding.weight"] if embedding is None else embedding
        projection = self.tensors.get("to_logits.weight")
        spec.embeddings.weight = embedding
        spec.projection.weight = embedding if projection is None else projection

    def _set_layers(
        self, spec: TransformerEncoderSpec | TransformerDecoderSpec, bias: Array
    ) -> None:
        """Set positions, self-attention, feed-forward layers and the final norm."""
        self._set_positions(spec)
        for layer, tensors in self._layers(spec):
            self._set_self_attention(layer.self_attention, tensors, bias)
            self._set_feed_forward(layer.ffn, tensors)
        if spec.pre_norm:
            _set_norm(spec.layer_norm, self.tensors.scope(self.stack.norm))

    def _layers(
        self, spec: TransformerEncoderSpec | TransformerDecoderSpec
    ) -> Iterator[tuple[Any, Tensors]]:
        """Yield the specification and the weights of each layer."""
        for i, layer in enumerate(spec.layer):
            yield layer, self.tensors.scope(f"{self.stack.name}.{i}")

    def _options(self) -> dict[str, Any]:
        """Return the options that encoders and decoders share."""
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
        """Return the attention bias for each distance and head [2 * n_positions, H].

        CTranslate2 supports ALiBi only in decoders, and uses different slopes if the number of
        heads is not a power of two. It has no local attention. A table of biases by distance, as
        in T5, can express both. It has twice as many rows as there are positions, because
        CTranslate2 distinguishes distances only up to half the number of rows.
        """
        config = self.config
        distances = np.arange(2 * self.n_positions, dtype=np.float32)[:, None]
        slopes = config.slopes() if config.positions == "alibi" else [0.0] * config.n_heads
        bias: Array = -np.array(slopes, np.float32) * distances
        return (
            bias
            if config.window is None
            else np.where(distances > config.window, _MASKED_SCORE, bias)
        )

    def _set_positions(self, spec: TransformerEncoderSpec | TransformerDecoderSpec) -> None:
        """Set the embedding scale and the position encodings.

        CTranslate2's own sinusoids are not used, because they start at position 1.
        """
        shape = self.n_positions, self.config.d_model
        if self.config.deep_norm:
            spec.scale_embeddings = np.float32(self.stack.scale * self.config.d_model**0.5)
        match self.config.positions:
            case "sinusoidal":
                spec.position_encodings.encodings = _sinusoids(*shape) * np.float32(
                    self.stack.scale
                )
            case "learned":
                vectors = self.tensors.scope(self.stack.positions)["vectors.weight"]
                spec.position_encodings.encodings = vectors * np.float32(self.stack.scale)
            case "none" if not self._has_bias:  # without a table, CTranslate2 uses sinusoids
                spec.position_encodings.encodings = np.zeros(shape, np.float32)

    def _set_self_attention(
        self, spec: MultiHeadAttentionSpec, layer: Tensors, bias: Array
    ) -> None:
        attention = layer.scope("self_attention")
        self._set_linear(spec.linear[0], attention, "to_queries", "to_keys", "to_values")
        self._set_linear(spec.linear[1], attention, "to_output")
        self._set_head_norms(spec, attention)
        _set_norm(spec.layer_norm, layer.scope("self_residual.norm"))
        if self.config.positions == "relative":
            # CTranslate2 defines the distance as key minus query, mtcli as query minus key.
            relation = attention.scope("relation")
            spec.relative_position_keys = relation["of_keys"][::-1].copy()
            spec.relative_position_values = relation["of_values"][::-1].copy()
        if self._has_bias:
            spec.relative_attention_bias = bias
            spec.relative_attention_max_distance = np.int32(2 * self.n_positions)

    def _set_cross_attention(self, spec: MultiHeadAttentionSpec, layer: Tensors) -> None:
        attention = layer.scope("cross_attention")
        self._set_linear(spec.linear[0], attention, "to_queries")
        self._set_linear(spec.linear[1], attention, "to_keys", "to_values")
        self._set_linear(spec.linear[2], attention, "to_output")
        self._set_head_norms(spec, attention)
        _set_norm(spec.layer_norm, layer.scope("cross_residual.norm"))

    def _set_feed_forward(self, spec: FeedForwardSpec, layer: Tensors) -> None:
        feed_forward = layer.scope("feed_forward")
        self._set_linear(spec.linear_0, feed_forward, "to_inner")
        self._set_linear(spec.linear_1, feed_forward, "to_output")
        if self.config.gated:
            self._set_linear(spec.linear_0_noact, feed_forward, "to_gate")
        _set_norm(spec.layer_norm, layer.scope("feed_forward_residual.norm"))

    def _set_linear(self, spec: LinearSpec, tensors: Tensors, *names: str) -> None:
        """Set a linear layer, or concatenate several that share an input into one wide layer."""
        spec.weight = np.concatenate([tensors[f"{name}.weight"] for name in names])
        if self.config.biases:
            spec.bias = np.concatenate([tensors[f"{name}.bias"] for name in names])

    def _set_head_norms(self, spec: MultiHeadAttentionSpec, attention: Tensors) -> None:
        if self.config.qk_norm:
            _set_norm(spec.q_norm, attention.scope("query_norm"))
            _set_norm(spec.k_norm, attention.scope("key_norm"))


def _set_norm(spec: LayerNormSpec, tensors: Tensors) -> None:
    spec.gamma = tensors["weight"]
    if hasattr(spec, "beta"):  # RMS norms have no beta
        spec.beta = tensors["bias"]


def _sinusoids(n: int, width: int) -> Array:
    frequencies = np.float32(10_000) ** (-np.arange(0, width, 2, dtype=np.float32) / width)
    angles = np.arange(n, dtype=np.float32)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
