"""Settings for the transformer architectures: encoder-decoder and decoder-only."""

from typing import Literal, Self

from pydantic import Field, model_validator

from mtcli.config.alignment import AlignmentHeads
from mtcli.config.base import Float, Int, LinearGroup, ModelConfig, Side
from mtcli.counts import format_count

NORM_EPSILON = 1e-5  # added to the variance or mean square in every norm


class AttentionConfig(ModelConfig):
    """Settings that both transformer architectures share."""

    n_heads: Int = Field(6, gt=0)
    """Number of attention heads. Must divide d_model."""
    n_kv_heads: Int | None = Field(None, gt=0)
    """Number of key-value heads (grouped-query attention). Must divide n_heads. null: equal to
    n_heads."""
    d_feed_forward: Int = Field(768, gt=0)
    """Inner width of the feed-forward layers."""
    activation: Literal["relu", "gelu", "swish"] = "relu"
    """Activation function of the feed-forward layers."""
    gated: bool = False
    """Use gated linear units in the feed-forward layers. With activation=swish, this is SwiGLU."""
    norm: Literal["pre", "post"] = "pre"
    """Normalize before each sub-layer (pre), or after it as in Vaswani et al. 2017 (post)."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """Layer norm or RMS norm."""
    deep_norm: bool = False
    """Use DeepNorm (Wang et al. 2022): scaled skip connections that make training stable with 100
    or more layers. Requires norm=post."""
    qk_norm: bool = False
    """Normalize the queries and keys of every head."""
    biases: bool = True
    """Use biases in the linear layers."""
    positions: Literal["sinusoidal", "learned", "relative", "rotary", "alibi", "none"] = (
        "sinusoidal"
    )
    """Position encoding. sinusoidal and learned positions are added to the embeddings. relative
    (Shaw et al. 2018), rotary and alibi positions are part of self-attention."""
    max_positions: Int = Field(512, gt=1)
    """Number of learned positions. Other position encodings have no limit."""
    max_distance: Int = Field(16, gt=0)
    """Clipping distance of relative positions; larger distances are treated as equal."""
    window: Int | None = Field(None, gt=0)
    """Local attention: number of positions on each side that self-attention may attend to. The time
    and memory of self-attention then grow linearly with the length. null: all positions."""
    attention_dropout: Float = Field(0.0, ge=0, lt=1)
    """Dropout on the attention weights. Values above 0 make attention slower."""
    activation_dropout: Float = Field(0.0, ge=0, lt=1)
    """Dropout after the activation function of the feed-forward layers."""

    def check_length(self, max_length: int) -> None:
        """Raise `ValueError` if the model has too few positions for `max_length` pieces."""
        if self.n_positions is not None and self.n_positions < max_length:
            needed = max_length * self.max_positions // self.n_positions
            raise ValueError(
                f"model.max_positions={self.max_positions} is too small; data.max_length and "
                f"search.max_length require at least {needed}"
            )

    @property
    def d_head(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_heads

    @property
    def d_keys(self) -> int:
        """Total width of the keys of all heads; the values have the same width."""
        return (self.n_kv_heads or self.n_heads) * self.d_head

    def slopes(self) -> list[float]:
        """Return the ALiBi slope of each head: the decrease in attention score per position."""
        return [2.0 ** (-8 * head / self.n_heads) for head in range(1, self.n_heads + 1)]

    def _describe(self) -> str:
        """Return the width, the number of heads and the main non-default options as text."""
        heads = format_count(self.n_heads, "head")
        options = {
            f"positions: {self.positions}": self.positions != "sinusoidal",
            f"window {self.window}": self.window is not None,
            f"key-value heads: {self.n_kv_heads}": self.n_kv_heads is not None,
            "post-norm": self.norm == "post" and not self.deep_norm,
            "deep norm": self.deep_norm,
            "RMS norm": self.norm_kind == "rms",
            "query-key norm": self.qk_norm,
            f"gated {self.activation}": self.gated,
            "no biases": not self.biases,
        }
        changed = [text for text, is_changed in options.items() if is_changed]
        return ", ".join([f"width {self.d_model}", heads, *changed])

    def _linear(
        self, rows: int, columns: int, sides: tuple[Side, ...], n_layers: int
    ) -> LinearGroup:
        return LinearGroup(rows, columns, sides, n_layers, n_biases=int(self.biases))

    def _attention(
        self, queries: tuple[Side, ...], keys: tuple[Side, ...], n_layers: int
    ) -> list[LinearGroup]:
        """Return the linear layers of `n_layers` attention layers."""
        width = self.d_model
        return [
            self._linear(width, width, queries, 2 * n_layers),
            self._linear(self.d_keys, width, keys, 2 * n_layers),
        ]

    def _feed_forward(self, sides: tuple[Side, ...], n_layers: int) -> list[LinearGroup]:
        """Return the linear layers of `n_layers` feed-forward layers."""
        width, inner = self.d_model, self.d_feed_forward
        n_inner = 2 * n_layers if self.gated else n_layers
        return [
            self._linear(inner, width, sides, n_inner),
            self._linear(width, inner, sides, n_layers),
        ]

    def _self_attention_flops(self, n_queries: float, n_keys: float) -> float:
        """Return the FLOPs of one self-attention layer, without its linear layers.

        Masked positions count, too, unless they are outside the window.
        """
        n_keys = n_keys if self.window is None else min(n_keys, 2 * self.window + 1)
        return 4 * n_queries * n_keys * self.d_model

    def _n_norm_parameters(self) -> int:
        return self.d_model if self.norm_kind == "rms" else 2 * self.d_model

    def _n_attention_parameters(self, *, is_self: bool) -> int:
        """Return the number of parameters in one attention layer, outside its linear layers."""
        n = 2 * self.d_head if self.qk_norm else 0
        if is_self and self.positions == "relative":
            n += 2 * (2 * self.max_distance + 1) * self.d_head
        return n

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if self.d_model % self.n_heads:
            raise ValueError(f"n_heads={self.n_heads} does not divide d_model={self.d_model}")
        if self.n_heads % (self.n_kv_heads or self.n_heads):
            raise ValueError(f"n_kv_heads={self.n_kv_heads} does not divide n_heads={self.n_heads}")
        if self.positions == "rotary" and self.d_head % 2:
            raise ValueError(
                f"positions=rotary requires an even head width; d_model / n_heads is {self.d_head}"
            )
        if self.deep_norm and self.norm == "pre":
            raise ValueError("deep_norm=true requires norm=post")
        return self


class TransformerConfig(AttentionConfig):
    """Encoder-decoder transformer (Vaswani et al. 2017)."""

    arch: Literal["transformer"] = "transformer"
    """Architecture. It determines the other keys of this section."""
    n_encoder_layers: Int = Field(4, gt=0)
    """Number of encoder layers."""
    n_decoder_layers: Int = Field(3, gt=0)
    """Number of decoder layers. Fewer layers make translation faster."""

    @property
    def n_positions(self) -> int | None:
        """Maximum length of a source or target; None means unlimited."""
        return self.max_positions if self.positions == "learned" else None

    @property
    def default_alignment_heads(self) -> AlignmentHeads:
        """Heads that give the alignment by default: all heads of the last decoder layer.

        In the demo model and two Multi30k models, this layer agrees best with IBM Model 1.
        """
        return AlignmentHeads(self.n_decoder_layers - 1, tuple(range(self.n_heads)))

    @property
    def n_alignment_layers(self) -> int:
        """Number of layers whose attention to the source can give the alignment."""
        return self.n_decoder_layers

    @property
    def residual_scales(self) -> tuple[float, float]:
        """Multipliers for encoder and decoder skip connections (DeepNorm, Wang et al. 2022)."""
        if not self.deep_norm:
            return 1.0, 1.0
        n, m = self.n_encoder_layers, self.n_decoder_layers
        return 0.81 * (n**4 * m) ** (1 / 16), (3 * m) ** 0.25

    def summary(self) -> str:
        """Return a one-line description of the architecture."""
        layers = f"{self.n_encoder_layers}+{self.n_decoder_layers} layers"
        return f"{self.arch}, {layers}, {self._describe()}"

    def linear_groups(self) -> list[LinearGroup]:
        """Return the linear layers between the embeddings and the output layer."""
        n_encoder, n_decoder = self.n_encoder_layers, self.n_decoder_layers
        return [
            *self._attention(("source",), ("source",), n_encoder),
            *self._feed_forward(("source",), n_encoder),
            *self._attention(("target",), ("target",), n_decoder),
            *self._attention(("target",), ("source",), n_decoder),
            *self._feed_forward(("target",), n_decoder),
        ]

    def attention_flops(self, source_length: float, target_length: float) -> float:
        """Return the FLOPs of attention, without linear layers, in the forward pass of one pair."""
        in_encoder = self._self_attention_flops(source_length, source_length)
        in_decoder = self._self_attention_flops(target_length, target_length)
        in_decoder += 4 * target_length * source_length * self.d_model
        return self.n_encoder_layers * in_encoder + self.n_decoder_layers * in_decoder

    def n_other_parameters(self) -> int:
        """Return the number of parameters in norms and position encodings."""
        n_self = self.n_encoder_layers + self.n_decoder_layers
        n_norms = 2 * self.n_encoder_layers + 3 * self.n_decoder_layers
        n_norms += 2 if self.norm == "pre" else 0
        learned = 2 * self.max_positions * self.d_model if self.positions == "learned" else 0
        return (
            n_norms * self._n_norm_parameters()
            + n_self * self._n_attention_parameters(is_self=True)
            + self.n_decoder_layers * self._n_attention_parameters(is_self=False)
            + learned
        )

    @staticmethod
    def settings_for_size(
        width: int, n_encoder_layers: int, n_decoder_layers: int
    ) -> dict[str, int]:
        """Return the settings for a model of about the given size."""
        return {
            "d_model": width,
            "d_feed_forward": 4 * width,
            "n_encoder_layers": n_encoder_layers,
            "n_decoder_layers": n_decoder_layers,
        }


class DecoderOnlyConfig(AttentionConfig):
    """Decoder-only transformer: a language model that continues the source with its translation."""

    arch: Literal["decoder_only"]
    """Architecture. It determines the other keys of this section."""
    n_layers: Int = Field(6, gt=0)
    """Number of layers, which process both source and target."""
    source_attention: Literal["full", "causal"] = "full"
    """Source pieces that a source piece may attend to. full: all (a prefix language model); causal:
    itself and the previous ones."""
    loss_on: Literal["target", "both"] = "target"
    """Tokens that count toward the loss: target tokens, or source and target tokens. both requires
    source_attention=causal and tied_embeddings=all."""

    @property
    def n_positions(self) -> int | None:
        """Maximum length of a source or target; None means unlimited.

        Source and target form one sequence, so each gets half of the learned positions.
        """
        return self.max_positions // 2 if self.positions == "learned" else None

    @property
    def default_alignment_heads(self) -> AlignmentHeads:
        """Heads that give the alignment by default: all heads of the second-to-last layer."""
        return AlignmentHeads(max(0, self.n_layers - 2), tuple(range(self.n_heads)))

    @property
    def n_alignment_layers(self) -> int:
        """Number of layers whose attention to the source can give the alignment."""
        return self.n_layers

    @property
    def predicted_sides(self) -> tuple[Side, ...]:
        """Sides whose tokens count toward the training loss."""
        return ("source", "target") if self.loss_on == "both" else ("target",)

    @property
    def residual_scale(self) -> float:
        """Multiplier for the skip connections (DeepNorm, Wang et al. 2022)."""
        return (2 * self.n_layers) ** 0.25 if self.deep_norm else 1.0

    def summary(self) -> str:
        """Return a one-line description of the architecture."""
        causal = "causal, " if self.source_attention == "causal" else ""
        layers = format_count(self.n_layers, "layer")
        return f"{self.arch}, {causal}{layers}, {self._describe()}"

    def linear_groups(self) -> list[LinearGroup]:
        """Return the linear layers between the embeddings and the output layer."""
        both: tuple[Side, ...] = ("source", "target")
        return [
            *self._attention(both, both, self.n_layers),
            *self._feed_forward(both, self.n_layers),
        ]

    def attention_flops(self, source_length: float, target_length: float) -> float:
        """Return the FLOPs of attention, without linear layers, in the forward pass of one pair."""
        # The source attends to itself; then the target attends to the source and to itself.
        in_source = self._self_attention_flops(source_length, source_length)
        in_target = self._self_attention_flops(target_length, source_length + target_length)
        return self.n_layers * (in_source + in_target)

    def n_other_parameters(self) -> int:
        """Return the number of parameters in norms and position encodings."""
        n_norms = 2 * self.n_layers + (1 if self.norm == "pre" else 0)
        learned = self.max_positions * self.d_model if self.positions == "learned" else 0
        in_attention = self.n_layers * self._n_attention_parameters(is_self=True)
        return n_norms * self._n_norm_parameters() + in_attention + learned

    @staticmethod
    def settings_for_size(
        width: int, n_encoder_layers: int, n_decoder_layers: int
    ) -> dict[str, int]:
        """Return the settings for a model of about the given size."""
        n_layers = n_encoder_layers + n_decoder_layers
        return {"d_model": width, "d_feed_forward": 4 * width, "n_layers": n_layers}

    @model_validator(mode="after")
    def _check_loss(self) -> Self:
        if self.loss_on == "both" and self.source_attention == "full":
            raise ValueError(
                "loss_on=both requires source_attention=causal: with full attention, the model "
                "already attends to the source tokens that it predicts"
            )
        if self.loss_on == "both" and self.tied_embeddings != "all":
            raise ValueError(
                "loss_on=both requires tied_embeddings=all: one output layer predicts both sides"
            )
        return self
