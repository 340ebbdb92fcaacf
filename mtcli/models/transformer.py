"""The encoder-decoder transformer of "Attention is all you need" (Vaswani et al. 2017)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mtcli.config import TransformerConfig
from mtcli.models.attention import Attention, KeyValues, Past
from mtcli.models.base import State
from mtcli.models.layers import (
    Depth,
    FeedForward,
    LayerWithPast,
    PieceModel,
    Residual,
    SelfLayer,
    final_norm,
    stack,
)
from mtcli.models.positions import added_positions
from mtcli.models.relations import Relation
from mtcli.models.view import View
from mtcli.tokenizer import PAD_ID


@dataclass(frozen=True)
class TransformerState(State):
    """The encoded source, and the target as far as it is known."""

    memory: tuple[KeyValues, ...]  # per layer: the encoded source, [B, H, S, E]
    words: Tensor  # [B, S]: where the source is not padding
    past: tuple[Past, ...] = ()  # per layer: the target so far; empty before the first step

    @property
    def n_known(self) -> int:
        """How many target positions are already in `past`."""
        return self.past[0].length if self.past else 0

    def reorder(self, rows: Tensor) -> "TransformerState":
        """Only the target differs between the rows of a sentence; the source stays where it is."""
        return replace(self, past=tuple(past.select(rows) for past in self.past))


@dataclass(frozen=True)
class Sight:
    """What new target positions may look at: the target so far, and the source."""

    target: View
    source: View


class DecoderLayer(LayerWithPast):
    """Masked self-attention over the target, cross-attention to the source, feed-forward."""

    def __init__(self, config: TransformerConfig, depth: Depth) -> None:
        super().__init__(config, depth)
        self.cross_attention = Attention(config, Relation())
        self.cross_residual = Residual(config, depth)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config, depth)

    def forward(
        self, x: Tensor, past: Past | None, memory: KeyValues, sight: Sight
    ) -> tuple[Tensor, Past]:
        """Read new positions `x` [B, T, D]; return them and all target positions seen so far."""
        x, past = self.look_back(x, past, sight.target)
        y = self.cross_residual.before(x)
        x = self.cross_residual.after(x, self.cross_attention(y, memory, sight.source))
        return self.feed_forward_residual.around(x, self.feed_forward), past

    def alignment(self, x: Tensor, memory: KeyValues, sight: Sight) -> Tensor:
        """How much the positions of `x` [B, T, D] look at the source, on average of the heads."""
        x, _ = self.look_back(x, None, sight.target)
        y = self.cross_residual.before(x)
        return self.cross_attention.weights(y, memory, sight.source).mean(dim=1)  # [B, T, S]


class Transformer(PieceModel[TransformerState]):
    """Encoder and decoder stacks between tied or separate embeddings."""

    def __init__(self, config: TransformerConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        self.config = config
        self.source_positions = added_positions(config)
        self.target_positions = added_positions(config)
        encoder, decoder = _depths(config)
        self.encoder = stack(SelfLayer(config, encoder) for _ in range(config.n_encoder_layers))
        self.decoder = stack(DecoderLayer(config, decoder) for _ in range(config.n_decoder_layers))
        self.encoder_norm = final_norm(config)
        self.decoder_norm = final_norm(config)
        self._finish(config, target_size)

    def encode(self, source: Tensor) -> TransformerState:
        """Read padded source ids [B, S]."""
        words, n, device = source != PAD_ID, source.size(1), source.device
        view = View(n, n, device, words, window=self.config.window)
        places = torch.arange(n, device=device)
        x = self.dropout(self.source_positions(self.source_embedding(source), places))  # [B, S, D]
        for layer in self.encoder:
            x, _ = layer(x, None, view)
        x = self.encoder_norm(x)
        memory = tuple(layer.cross_attention.key_values(x) for layer in self.decoder)
        return TransformerState(memory, words)

    def read(self, target: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Read the next target ids [B, T]."""
        x, sight = self._embed_target(target, state)
        pasts = []
        for i, layer in enumerate(self.decoder):
            past = state.past[i] if state.past else None
            x, past = layer(x, past, state.memory[i], sight)
            pasts.append(past)
        return self.decoder_norm(x), replace(state, past=tuple(pasts))

    def alignment(self, source: Tensor, target: Tensor) -> Tensor:
        """How much each position of `target` [B, T] looks at each of `source` [B, S]: [B, T, S]."""
        state, at = self.encode(source), self.config.alignment_layer
        x, sight = self._embed_target(target, state)
        for memory, layer in zip(state.memory, self.decoder[:at], strict=False):
            x, _ = layer(x, None, memory, sight)
        return self.decoder[at].alignment(x, state.memory[at], sight)

    def _embed_target(self, target: Tensor, state: TransformerState) -> tuple[Tensor, Sight]:
        """The vectors [B, T, D] of new target positions, and what they may look at."""
        n_new, start, device = target.size(1), state.n_known, target.device
        places = torch.arange(start, start + n_new, device=device)
        x = self.dropout(self.target_positions(self.target_embedding(target), places))
        own = View(
            n_new, start + n_new, device, start=start, is_causal=True, window=self.config.window
        )
        return x, Sight(own, View(n_new, state.words.size(1), device, state.words))


def _depths(config: TransformerConfig) -> tuple[Depth, Depth]:
    """The balance of encoder and decoder, as DeepNorm's authors derive it for both together."""
    if not config.deep_norm:
        return Depth(), Depth()
    n, m = config.n_encoder_layers, config.n_decoder_layers
    gains = 0.87 / (n**4 * m) ** (1 / 16), (12 * m) ** -0.25
    encoder, decoder = map(Depth, config.residual_scales, gains)
    return encoder, decoder
