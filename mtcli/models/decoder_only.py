"""A decoder-only transformer: a language model reads the source and goes on with the target."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mtcli.config import DecoderOnlyConfig
from mtcli.feed import IGNORED
from mtcli.models.attention import Past
from mtcli.models.base import Lesson, State
from mtcli.models.layers import (
    Depth,
    PieceModel,
    SelfLayer,
    final_norm,
    stack,
)
from mtcli.models.positions import added_positions
from mtcli.models.view import View
from mtcli.tokenizer import PAD_ID


@dataclass(frozen=True)
class PrefixState(State):
    """All that has been read: the source, then the target so far.

    The source's padding stands in front of it, so that the words of a row are next to each other
    and the distance of two positions is that of their words.
    """

    words: Tensor  # [B, S]: which positions are not padding
    n_padding: Tensor  # [B, 1]
    past: tuple[Past, ...] = ()  # per layer; empty before anything is read
    source: Tensor | None = None  # [B, S, D]: its vectors, if it is to be learned, too


class DecoderOnly(PieceModel[PrefixState]):
    """One stack for source and target between tied or separate embeddings."""

    def __init__(self, config: DecoderOnlyConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        self.config = config
        self.positions = added_positions(config)
        depth = _depth(config)
        self.layers = stack(SelfLayer(config, depth) for _ in range(config.n_layers))
        self.norm = final_norm(config)
        self._finish(config, target_size)

    def encode(self, source: Tensor) -> PrefixState:
        """Read padded source ids [B, S]."""
        source = _padded_in_front(source)
        words, n = source != PAD_ID, source.size(1)
        n_padding = n - words.sum(dim=1, keepdim=True)
        is_causal = self.config.source_attention == "causal"
        view = View(n, n, source.device, words, is_causal=is_causal, window=self.config.window)
        places = torch.arange(n, device=source.device) - n_padding
        x = self.dropout(self.positions(self.source_embedding(source), places))
        x, state = self._through_layers(x, PrefixState(words, n_padding), view)
        return replace(state, source=x) if self.config.loss_on == "both" else state

    def read(self, target: Tensor, state: PrefixState) -> tuple[Tensor, PrefixState]:
        """Read the next target ids [B, T]."""
        x, state, view = self._embed_target(target, state)
        return self._through_layers(x, state, view)

    def lessons(self, source: Tensor, target: Tensor, labels: Tensor) -> list[Lesson]:
        """To write the target, and if so configured the source."""
        state = self.encode(source)
        vectors, _ = self.read(target, state)
        if state.source is None:
            return [(vectors, labels)]
        # Nobody can know the first word; what comes before it is padding.
        source = _padded_in_front(source)
        source_labels = source[:, 1:].masked_fill(source[:, :-1] == PAD_ID, IGNORED)
        return [(vectors, labels), (state.source[:, :-1], source_labels)]

    def alignment(self, source: Tensor, target: Tensor) -> Tensor:
        """How much each position of `target` [B, T] looks at each of `source` [B, S]: [B, T, S].

        Of what it looks at in the source: it looks at the target, too.
        """
        at = self.config.alignment_layer
        state = self.encode(source)
        past = state.past
        x, state, view = self._embed_target(target, state)
        for layer, known in zip(self.layers[:at], past, strict=False):
            x, _ = layer(x, known, view)
        weights = self.layers[at].weights(x, past[at], view)[:, :, : source.size(1)]
        total = weights.sum(dim=-1, keepdim=True)
        weights = torch.where(total > 0, weights / total, 0.0)  # a window may not reach so far
        # Back to where the padding stands behind the words.
        n = source.size(1)
        places = torch.arange(n, device=source.device) + state.n_padding  # [B, S]
        return weights.gather(2, (places % n)[:, None].expand_as(weights))

    def _embed_target(self, target: Tensor, state: PrefixState) -> tuple[Tensor, PrefixState, View]:
        """New target positions [B, T, D], the state with room for them, and what they may see."""
        n_new, start = target.size(1), state.words.size(1)
        words = torch.cat([state.words, torch.ones_like(target, dtype=torch.bool)], dim=1)
        places = torch.arange(start, start + n_new, device=target.device) - state.n_padding
        x = self.dropout(self.positions(self.target_embedding(target), places))
        view = View(
            n_queries=n_new,
            n_keys=start + n_new,
            device=target.device,
            words=words,
            start=start,
            is_causal=True,
            window=self.config.window,
        )
        return x, replace(state, words=words), view

    def _through_layers(
        self, x: Tensor, state: PrefixState, view: View
    ) -> tuple[Tensor, PrefixState]:
        pasts = []
        for i, layer in enumerate(self.layers):
            x, past = layer(x, state.past[i] if state.past else None, view)
            pasts.append(past)
        return self.norm(x), replace(state, past=tuple(pasts))


def _padded_in_front(source: Tensor) -> Tensor:
    """Rows [B, S] whose padding has moved from their end to their beginning."""
    n = source.size(1)
    n_padding = (source == PAD_ID).sum(dim=1, keepdim=True)
    places = torch.arange(n, device=source.device) - n_padding
    return source.gather(1, places % n)


def _depth(config: DecoderOnlyConfig) -> Depth:
    if not config.deep_norm:
        return Depth()
    return Depth(config.residual_scale, (8 * config.n_layers) ** -0.25)
