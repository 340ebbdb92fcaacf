"""The encoder-decoder transformer of "Attention is all you need" (Vaswani et al. 2017)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from torch import Tensor, nn

from mtcli.config import TransformerConfig
from mtcli.models.base import State, TrainableModel
from mtcli.models.layers import (
    Attention,
    Dropout,
    FeedForward,
    KeyValues,
    LearnedPositions,
    Past,
    ScaledEmbedding,
    SinusoidalPositions,
    causal_mask,
)
from mtcli.tokenizer import PAD_ID

Layer = TypeVar("Layer", bound=nn.Module)


@dataclass(frozen=True)
class TransformerState(State):
    """The encoded source, and the target as far as it is known."""

    memory: tuple[KeyValues, ...]  # per layer: the encoded source, [B, H, S, E]
    memory_mask: Tensor  # [B, 1, 1, S]
    past: tuple[Past, ...] = ()  # per layer: the target so far; empty before the first step

    @property
    def n_known(self) -> int:
        """How many target positions are already in `past`."""
        return self.past[0].length if self.past else 0

    def reorder(self, rows: Tensor) -> "TransformerState":
        """Only the target differs between the rows of a sentence; the source stays where it is."""
        return replace(self, past=tuple(past.select(rows) for past in self.past))


class Residual(nn.Module):
    """What surrounds a sub-layer: x + dropout(sublayer(x)), and a layer norm before or after."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)
        self.is_pre_norm = config.norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        """What the sub-layer reads of `x` [B, T, D]."""
        read: Tensor = self.norm(x) if self.is_pre_norm else x
        return read

    def after(self, x: Tensor, y: Tensor) -> Tensor:
        """`x` with what the sub-layer wrote, `y`, added to it."""
        total = x + self.dropout(y)
        return total if self.is_pre_norm else cast(Tensor, self.norm(total))


class EncoderLayer(nn.Module):
    """Self-attention over the source, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = _attention(config)
        self.self_residual = Residual(config)
        self.feed_forward = _feed_forward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Let the positions of `x` [B, S, D] look at each other where `mask` allows it."""
        y = self.self_residual.before(x)
        seen = self.self_attention.key_values(y)
        x = self.self_residual.after(x, self.self_attention(y, seen, mask))
        y = self.feed_forward_residual.before(x)
        return self.feed_forward_residual.after(x, self.feed_forward(y))


class DecoderLayer(nn.Module):
    """Masked self-attention over the target, cross-attention to the source, feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = _attention(config)
        self.self_residual = Residual(config)
        self.cross_attention = _attention(config)
        self.cross_residual = Residual(config)
        self.feed_forward = _feed_forward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        x: Tensor,
        past: Past | None,
        memory: KeyValues,
        causal: Tensor | None,
        memory_mask: Tensor,
    ) -> tuple[Tensor, Past]:
        """Read new positions `x` [B, T, D]; return them and all target positions seen so far."""
        x, past = self._look_back(x, past, causal)
        y = self.cross_residual.before(x)
        x = self.cross_residual.after(x, self.cross_attention(y, memory, memory_mask))
        y = self.feed_forward_residual.before(x)
        return self.feed_forward_residual.after(x, self.feed_forward(y)), past

    def alignment(
        self, x: Tensor, memory: KeyValues, causal: Tensor | None, memory_mask: Tensor
    ) -> Tensor:
        """How much the positions of `x` [B, T, D] look at the source, on average of the heads."""
        x, _ = self._look_back(x, None, causal)
        y = self.cross_residual.before(x)
        return self.cross_attention.weights(y, memory, memory_mask).mean(dim=1)  # [B, T, S]

    def _look_back(
        self, x: Tensor, past: Past | None, causal: Tensor | None
    ) -> tuple[Tensor, Past]:
        y = self.self_residual.before(x)
        new = self.self_attention.key_values(y)
        past = past.append(new) if past else Past.begin(new)
        return self.self_residual.after(x, self.self_attention(y, past.seen, causal)), past


class Transformer(TrainableModel[TransformerState]):
    """Encoder and decoder stacks between tied or separate embeddings."""

    def __init__(self, config: TransformerConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        width = config.d_model
        self.alignment_layer = config.alignment_layer
        self.source_embedding = ScaledEmbedding(source_size, width)
        self.target_embedding = (
            self.source_embedding
            if config.tied_embeddings == "all"
            else ScaledEmbedding(target_size, width)
        )
        self.source_positions = _positions(config)
        self.target_positions = _positions(config)
        self.dropout = Dropout(config.dropout)
        self.encoder = _stack(EncoderLayer(config) for _ in range(config.n_encoder_layers))
        self.decoder = _stack(DecoderLayer(config) for _ in range(config.n_decoder_layers))
        # With norms before the sub-layers the sum itself is never normalised, so it is here.
        is_pre_norm = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(width) if is_pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(width) if is_pre_norm else nn.Identity()
        self.to_logits = nn.Linear(width, target_size, bias=False)
        self._initialise()
        if config.tied_embeddings != "none":
            self.to_logits.weight = self.target_embedding.weight

    @property
    def output_weight(self) -> Tensor:
        """The matrix [V, D] that makes logits."""
        return self.to_logits.weight

    @property
    def n_positions(self) -> int | None:
        """What can be learned is limited."""
        positions = self.target_positions
        return len(positions.vectors.weight) if isinstance(positions, LearnedPositions) else None

    def encode(self, source: Tensor) -> TransformerState:
        """Read padded source ids [B, S]."""
        mask = (source != PAD_ID)[:, None, None, :]  # [B, 1, 1, S]
        x = self.source_embedding(source) + self.source_positions(0, source.size(1))
        x = self.dropout(x)  # [B, S, D]
        for layer in self.encoder:
            x = layer(x, mask)
        x = self.encoder_norm(x)
        memory = tuple(layer.cross_attention.key_values(x) for layer in self.decoder)
        return TransformerState(memory, mask)

    def read(self, target: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Read the next target ids [B, T]."""
        x, causal = self._embed_target(target, state.n_known)
        pasts = []
        for i, layer in enumerate(self.decoder):
            past = state.past[i] if state.past else None
            x, past = layer(x, past, state.memory[i], causal, state.memory_mask)
            pasts.append(past)
        return self.decoder_norm(x), replace(state, past=tuple(pasts))

    def alignment(self, source: Tensor, target: Tensor) -> Tensor:
        """How much each position of `target` [B, T] looks at each of `source` [B, S]: [B, T, S]."""
        state = self.encode(source)
        x, causal = self._embed_target(target, n_known=0)
        for memory, layer in zip(state.memory, self.decoder[: self.alignment_layer], strict=False):
            x, _ = layer(x, None, memory, causal, state.memory_mask)
        layer, memory = self.decoder[self.alignment_layer], state.memory[self.alignment_layer]
        return layer.alignment(x, memory, causal, state.memory_mask)

    def _embed_target(self, target: Tensor, n_known: int) -> tuple[Tensor, Tensor | None]:
        """The vectors [B, T, D] of new target positions, and what they may look at."""
        n_new = target.size(1)
        x = self.target_embedding(target) + self.target_positions(n_known, n_new)
        return self.dropout(x), causal_mask(n_new, n_known, target.device)

    def _initialise(self) -> None:
        """Xavier's uniform distribution for all maps, as in the authors' code."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


def _stack(layers: Iterable[Layer]) -> Sequence[Layer]:
    """A registered list of layers that keeps their type, which nn.ModuleList forgets."""
    return cast(Sequence[Layer], nn.ModuleList(layers))


def _attention(config: TransformerConfig) -> Attention:
    return Attention(config.d_model, config.n_heads, config.attention_dropout)


def _feed_forward(config: TransformerConfig) -> FeedForward:
    return FeedForward(
        config.d_model, config.d_feed_forward, config.activation, config.activation_dropout
    )


def _positions(config: TransformerConfig) -> SinusoidalPositions | LearnedPositions:
    if config.positions == "learned":
        return LearnedPositions(config.d_model, config.max_positions)
    return SinusoidalPositions(config.d_model)
