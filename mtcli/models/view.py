"""Who may look at whom: what self-attention and cross-attention see of a row of positions."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own name for it)
from torch import Tensor


@dataclass(frozen=True)
class View:
    """What `n_queries` positions may see of `n_keys`; the first query stands where `start` says."""

    n_queries: int
    n_keys: int
    device: torch.device
    words: Tensor | None = None  # [B, S]: which keys are words and not padding; None: all
    start: int = 0
    is_causal: bool = False  # positions see themselves and what comes before them
    window: int | None = None  # how far they see, to each side

    @property
    def distances(self) -> Tensor:
        """How far each query stands behind each key [T, S]."""
        queries = torch.arange(self.start, self.start + self.n_queries, device=self.device)
        return queries[:, None] - torch.arange(self.n_keys, device=self.device)

    @property
    def mask(self) -> Tensor | None:
        """What is allowed [B, 1, T, S], or with 1 for B; None: everything."""
        by_place = self._by_place()
        if self.words is None:
            return None if by_place is None else by_place[None, None]
        by_word = self.words[:, None, None, :]  # [B, 1, 1, S]
        if by_place is None:
            return by_word
        # Padding that sees nothing but padding may see itself: weights of nothing are not numbers.
        return (by_word & by_place) | (self.distances == 0)

    @property
    def penalty(self) -> Tensor | None:
        """The mask to add to scores: 0 where attention is allowed, else minus infinity."""
        mask = self.mask
        return None if mask is None else torch.where(mask, 0.0, -torch.inf)

    def _by_place(self) -> Tensor | None:
        """What is allowed by where positions stand [T, S]."""
        parts = []
        if self.is_causal and self.n_queries > 1:
            parts.append(self.distances >= 0)
        if self.window is not None and self.n_keys > self.window + 1:
            parts.append(self.distances.abs() <= self.window)
        return torch.stack(parts).all(dim=0) if parts else None

    @property
    def is_long(self) -> bool:
        """Whether it pays to look at the neighbourhood of each block of queries by itself."""
        return self.window is not None and self.n_keys > 2 * self.window


@dataclass(frozen=True)
class Blocks:
    """A long view with a window, cut into short ones that lie side by side in the batch.

    Each block of queries sees the keys from a window before its first query to a window behind
    its last one, so that time and memory grow with the length and not with its square.
    """

    view: View
    window: int

    @classmethod
    def of(cls, view: View) -> "Blocks":
        """The blocks of a view that has a window."""
        assert view.window is not None
        return cls(view, view.window)

    @property
    def size(self) -> int:
        """Queries of a block."""
        return min(self.window, self.view.n_queries)

    @property
    def n(self) -> int:
        """Blocks of a row."""
        return -(-self.view.n_queries // self.size)

    @property
    def span(self) -> int:
        """Keys that a block sees."""
        behind = 0 if self.view.is_causal else self.window
        return self.window + self.size + behind

    def queries(self, x: Tensor) -> Tensor:
        """Queries [B, H, T, E] as [B * n, H, size, E]."""
        x = F.pad(x, (0, 0, 0, self.n * self.size - x.size(2)))
        return _into_batch(torch.unflatten(x, 2, (self.n, self.size)))

    def keys(self, x: Tensor) -> Tensor:
        """Keys or values [B, H, S, E] as [B * n, H, span, E]."""
        spans = self._placed(x).unfold(2, self.span, self.size)  # [B, H, n, E, span]
        return _into_batch(spans.transpose(3, 4))

    def short_view(self, n_rows: int) -> View:
        """What the blocks of so many rows see of their keys."""
        view, words = self.view, self.view.words
        if words is None:
            words = torch.ones(1, 1, dtype=torch.bool, device=view.device)
        words = words.expand(n_rows, view.n_keys)[:, None, :, None]  # [B, 1, S, 1]
        return View(
            n_queries=self.size,
            n_keys=self.span,
            device=view.device,
            words=self.keys(words).flatten(1),  # [B * n, span]
            start=self.window,
            is_causal=view.is_causal,
            window=self.window,
        )

    def joined(self, x: Tensor) -> Tensor:
        """What blocks have made [B * n, H, size, E] as one row again [B, H, T, E]."""
        rows = torch.unflatten(x, 0, (-1, self.n)).transpose(1, 2).flatten(2, 3)
        return rows[:, :, : self.view.n_queries]

    def _placed(self, x: Tensor) -> Tensor:
        """Keys [.., S, E] cut or filled up so that the first block's span begins at the first."""
        x = x[:, :, max(0, self.view.start - self.window) :]
        before = max(0, self.window - self.view.start)
        length = (self.n - 1) * self.size + self.span
        behind = length - before - x.size(2)
        return F.pad(x, (0, 0, before, behind))


def _into_batch(x: Tensor) -> Tensor:
    """[B, H, n, T, E] as [B * n, H, T, E]."""
    return x.transpose(1, 2).flatten(0, 1)
