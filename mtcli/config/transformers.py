"""The settings of the architectures that are made of self-attention."""

from typing import Literal, Self

from pydantic import Field, model_validator

from mtcli.config.model import Maps, ModelConfig, Side
from mtcli.config.section import Real, Whole

NORM_EPSILON = 1e-5  # what a norm adds to the mean square, so that nothing is divided by zero


class AttentionConfig(ModelConfig):
    """What the architectures made of self-attention have in common."""

    n_heads: Whole = Field(6, gt=0)
    """Attention heads; must divide d_model."""
    n_kv_heads: Whole | None = Field(None, gt=0)
    """Heads of keys and values, each of which serves several heads of queries; must divide
    n_heads. null: as many."""
    d_feed_forward: Whole = Field(768, gt=0)
    """Inner width of the position-wise feed-forward layers."""
    activation: Literal["relu", "gelu", "swish"] = "relu"
    """Nonlinearity of the feed-forward layers."""
    gated: bool = False
    """Multiply what has passed the nonlinearity by the output of another map (swish: SwiGLU)."""
    norm: Literal["pre", "post"] = "pre"
    """Normalise before each sub-layer, or after it as in the paper."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """Layer norm, or RMS norm, which only divides."""
    deep_norm: bool = False
    """With norm=post: weigh the residuals so that a hundred layers and more can be trained."""
    qk_norm: bool = False
    """Normalise queries and keys in every head."""
    biases: bool = True
    """Whether linear maps have biases."""
    positions: Literal["sinusoidal", "learned", "relative", "rotary", "alibi", "none"] = (
        "sinusoidal"
    )
    """How the model knows where a piece stands. Added to the embeddings: sinusoidal, learned. In
    self-attention: relative (Shaw et al. 2018), rotary, alibi."""
    max_positions: Whole = Field(512, gt=1)
    """Positions that can be learned; all others than learned ones have no limit."""
    max_distance: Whole = Field(16, gt=0)
    """Relative positions: the distance from which on all are the same."""
    window: Whole | None = Field(None, gt=0)
    """Positions to each side that self-attention can look at; its time and memory then grow with
    the length, not with its square. null: all."""
    attention_dropout: Real = Field(0.0, ge=0, lt=1)
    """On the attention weights; the paper has none, and above 0 attention is slower."""
    activation_dropout: Real = Field(0.0, ge=0, lt=1)
    """Inside the feed-forward layers; the paper has none."""

    def check_length(self, longest: int) -> None:
        """Refuse sentences that are too long to be represented."""
        if self.n_positions is not None and self.n_positions < longest:
            needed = longest * self.max_positions // self.n_positions
            raise ValueError(
                f"model.max_positions={self.max_positions} is too small; data.max_length and "
                f"search.max_length need {needed}"
            )

    @property
    def d_head(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_heads

    @property
    def d_keys(self) -> int:
        """Width of the keys, or values, of all heads."""
        return (self.n_kv_heads or self.n_heads) * self.d_head

    def slopes(self) -> list[float]:
        """ALiBi: how much the score of each head falls from one place to the next."""
        return [2.0 ** (-8 * head / self.n_heads) for head in range(1, self.n_heads + 1)]

    def _words(self) -> str:
        heads = f"{self.n_heads} heads" if self.n_heads > 1 else "1 head"
        unusual = {
            f"positions: {self.positions}": self.positions != "sinusoidal",
            f"window {self.window}": self.window is not None,
            f"{self.n_kv_heads} of keys": self.n_kv_heads is not None,
            "post-norm": self.norm == "post" and not self.deep_norm,
            "deep norm": self.deep_norm,
            "RMS norm": self.norm_kind == "rms",
            "query-key norm": self.qk_norm,
            f"gated {self.activation}": self.gated,
            "no biases": not self.biases,
        }
        return ", ".join(
            [f"width {self.d_model}", heads, *(word for word, has in unusual.items() if has)]
        )

    def _map(self, rows: int, columns: int, reads: tuple[Side, ...], n: int) -> Maps:
        return Maps(rows, columns, reads, n, n_biases=int(self.biases))

    def _attention(self, queries: tuple[Side, ...], keys: tuple[Side, ...], n: int) -> list[Maps]:
        """The maps of `n` attentions."""
        width = self.d_model
        return [
            self._map(width, width, queries, 2 * n),
            self._map(self.d_keys, width, keys, 2 * n),
        ]

    def _feed_forward(self, reads: tuple[Side, ...], n: int) -> list[Maps]:
        width, inner = self.d_model, self.d_feed_forward
        n_inner = 2 * n if self.gated else n
        return [self._map(inner, width, reads, n_inner), self._map(width, inner, reads, n)]

    def _n_norm(self) -> int:
        return self.d_model if self.norm_kind == "rms" else 2 * self.d_model

    def _n_in_attention(self, *, is_self: bool) -> int:
        """Numbers of one attention that are in no map."""
        n = 2 * self.d_head if self.qk_norm else 0
        if is_self and self.positions == "relative":
            n += 2 * (2 * self.max_distance + 1) * self.d_head
        return n

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        if self.d_model % self.n_heads:
            raise ValueError(f"n_heads={self.n_heads} does not divide d_model={self.d_model}")
        if self.n_heads % (self.n_kv_heads or self.n_heads):
            raise ValueError(f"n_kv_heads={self.n_kv_heads} does not divide n_heads={self.n_heads}")
        if self.positions == "rotary" and self.d_head % 2:
            raise ValueError(
                f"rotary positions turn pairs of numbers; a head of {self.d_head} is not even"
            )
        if self.deep_norm and self.norm == "pre":
            raise ValueError("deep_norm=true needs norm=post")
        return self


class TransformerConfig(AttentionConfig):
    """The encoder-decoder of Vaswani et al. (2017)."""

    arch: Literal["transformer"] = "transformer"
    """Architecture; the other keys of this section depend on it."""
    n_encoder_layers: Whole = Field(4, gt=0)
    """Layers that read the source."""
    n_decoder_layers: Whole = Field(3, gt=0)
    """Layers that write the target; fewer of them translate faster."""

    @property
    def n_positions(self) -> int | None:
        """What can be learned is limited."""
        return self.max_positions if self.positions == "learned" else None

    @property
    def alignment_layer(self) -> int:
        """The decoder layer whose cross-attention shows best which word comes from which.

        Of the demo's and two Multi30k models the last one agrees best with IBM Model 1.
        """
        return self.n_decoder_layers - 1

    @property
    def residual_scales(self) -> tuple[float, float]:
        """How much the sum so far counts in the residuals of encoder and decoder (DeepNorm)."""
        if not self.deep_norm:
            return 1.0, 1.0
        n, m = self.n_encoder_layers, self.n_decoder_layers
        return 0.81 * (n**4 * m) ** (1 / 16), (3 * m) ** 0.25

    def summary(self) -> str:
        """The architecture in a few words."""
        layers = f"{self.n_encoder_layers}+{self.n_decoder_layers} layers"
        return f"{self.arch}, {layers}, {self._words()}"

    def maps(self) -> list[Maps]:
        """The matrices of all layers."""
        n_encoder, n_decoder = self.n_encoder_layers, self.n_decoder_layers
        return [
            *self._attention(("source",), ("source",), n_encoder),
            *self._feed_forward(("source",), n_encoder),
            *self._attention(("target",), ("target",), n_decoder),
            *self._attention(("target",), ("source",), n_decoder),
            *self._feed_forward(("target",), n_decoder),
        ]

    def n_other_parameters(self) -> int:
        """Of norms and positions."""
        n_self = self.n_encoder_layers + self.n_decoder_layers
        n_norms = 2 * self.n_encoder_layers + 3 * self.n_decoder_layers
        n_norms += 2 if self.norm == "pre" else 0
        learned = 2 * self.max_positions * self.d_model if self.positions == "learned" else 0
        return (
            n_norms * self._n_norm()
            + n_self * self._n_in_attention(is_self=True)
            + self.n_decoder_layers * self._n_in_attention(is_self=False)
            + learned
        )

    @staticmethod
    def of_size(width: int, n_encoder_layers: int, n_decoder_layers: int) -> dict[str, int]:
        """The settings of a model of about this size."""
        return {
            "d_model": width,
            "d_feed_forward": 4 * width,
            "n_encoder_layers": n_encoder_layers,
            "n_decoder_layers": n_decoder_layers,
        }


class DecoderOnlyConfig(AttentionConfig):
    """A language model that reads the source, and goes on with its translation."""

    arch: Literal["decoder_only"]
    """Architecture; the other keys of this section depend on it."""
    n_layers: Whole = Field(6, gt=0)
    """Layers that read the source and write the target."""
    source_attention: Literal["full", "causal"] = "full"
    """What source pieces see: all of it (a prefix language model), or those before them."""
    loss_on: Literal["target", "both"] = "target"
    """What is learned: to write the target, or the source as well (which must be causal then)."""

    @property
    def n_positions(self) -> int | None:
        """What can be learned is limited, and for source and target together."""
        return self.max_positions // 2 if self.positions == "learned" else None

    @property
    def alignment_layer(self) -> int:
        """The layer whose attention to the source is shown and aligned: the last but one."""
        return max(0, self.n_layers - 2)

    @property
    def guesses(self) -> tuple[Side, ...]:
        """The sides whose pieces are guessed in training."""
        return ("source", "target") if self.loss_on == "both" else ("target",)

    @property
    def residual_scale(self) -> float:
        """How much the sum so far counts in a residual (DeepNorm)."""
        return (2 * self.n_layers) ** 0.25 if self.deep_norm else 1.0

    def summary(self) -> str:
        """The architecture in a few words."""
        causal = "causal, " if self.source_attention == "causal" else ""
        return f"{self.arch}, {causal}{self.n_layers} layers, {self._words()}"

    def maps(self) -> list[Maps]:
        """The matrices of all layers."""
        both: tuple[Side, ...] = ("source", "target")
        return [
            *self._attention(both, both, self.n_layers),
            *self._feed_forward(both, self.n_layers),
        ]

    def n_other_parameters(self) -> int:
        """Of norms and positions."""
        n_norms = 2 * self.n_layers + (1 if self.norm == "pre" else 0)
        learned = self.max_positions * self.d_model if self.positions == "learned" else 0
        in_attention = self.n_layers * self._n_in_attention(is_self=True)
        return n_norms * self._n_norm() + in_attention + learned

    @staticmethod
    def of_size(width: int, n_encoder_layers: int, n_decoder_layers: int) -> dict[str, int]:
        """The settings of a model of about this size."""
        n_layers = n_encoder_layers + n_decoder_layers
        return {"d_model": width, "d_feed_forward": 4 * width, "n_layers": n_layers}

    @model_validator(mode="after")
    def _source_can_be_learned(self) -> Self:
        if self.loss_on == "both" and self.source_attention == "full":
            raise ValueError(
                "loss_on=both needs source_attention=causal: who sees all of the source has "
                "nothing to guess"
            )
        if self.loss_on == "both" and self.tied_embeddings != "all":
            raise ValueError("loss_on=both needs tied_embeddings=all: one vocabulary for both")
        return self
