"""Attention masks (causal, padding, local window), and blocks for local attention."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's convention)
from torch import Tensor


@dataclass(frozen=True)
class AttentionMask:
    """Keys that each query may attend to."""

    n_queries: int
    n_keys: int
    device: torch.device
    is_token: Tensor | None = None  # [B, S], False for padding keys; None: no padding
    start: int = 0  # position of the first query among the keys
    is_causal: bool = False  # attend only to the query's own position and earlier ones
    window: int | None = None  # maximum distance in either direction

    @property
    def distances(self) -> Tensor:
        """Query position minus key position [T, S]."""
        queries = torch.arange(self.start, self.start + self.n_queries, device=self.device)
        return queries[:, None] - torch.arange(self.n_keys, device=self.device)

    @property
    def allowed(self) -> Tensor | None:
        """Boolean mask [B or 1, 1, T or 1, S]; None allows everything."""
        by_position = self._allowed_by_position()
        if self.is_token is None:
            return None if by_position is None else by_position[None, None]
        by_token = self.is_token[:, None, None, :]  # [B, 1, 1, S]
        if by_position is None:
            return by_token
        # Let padding attend to itself: the softmax of a row without any allowed key is NaN.
        return (by_token & by_position) | (self.distances == 0)

    @property
    def additive_mask(self) -> Tensor | None:
        """Mask to add to scores: 0 where allowed, minus infinity elsewhere; None allows all."""
        allowed = self.allowed
        return None if allowed is None else torch.where(allowed, 0.0, -torch.inf)

    def _allowed_by_position(self) -> Tensor | None:
        """Return the causal and window mask [T, S]; None allows everything."""
        parts = []
        if self.is_causal and self.n_queries > 1:
            parts.append(self.distances >= 0)
        if self.window is not None and self.n_keys > self.window + 1:
            parts.append(self.distances.abs() <= self.window)
        return torch.stack(parts).all(dim=0) if parts else None

    @property
    def is_blockwise(self) -> bool:
        """Whether to compute attention in blocks: True if there are more than `2 * window` keys."""
        return self.window is not None and self.n_keys > 2 * self.window


@dataclass(frozen=True)
class AttentionBlocks:
    """Local attention over long sequences, computed in blocks stacked along the batch dimension.

    The keys of a block start one window before its first query. They end one window after its last
    query or, with a causal mask, at its last query. Time and memory therefore grow linearly with
    the length.
    """

    mask: AttentionMask
    window: int

    @classmethod
    def from_mask(cls, mask: AttentionMask) -> "AttentionBlocks":
        """Return the blocks of a mask that has a window."""
        assert mask.window is not None
        return cls(mask, mask.window)

    @property
    def n_queries(self) -> int:
        """Number of queries per block."""
        return min(self.window, self.mask.n_queries)

    @property
    def n_blocks(self) -> int:
        """Number of blocks per sentence."""
        return -(-self.mask.n_queries // self.n_queries)

    @property
    def n_keys(self) -> int:
        """Number of keys per block."""
        n_after = 0 if self.mask.is_causal else self.window
        return self.window + self.n_queries + n_after

    def split_queries(self, x: Tensor) -> Tensor:
        """Split queries [B, H, T, E] into [B * n_blocks, H, n_queries, E]."""
        x = F.pad(x, (0, 0, 0, self.n_blocks * self.n_queries - x.size(2)))
        return _fold_into_batch(torch.unflatten(x, 2, (self.n_blocks, self.n_queries)))

    def split_keys(self, x: Tensor) -> Tensor:
        """Split keys or values [B, H, S, E] into overlapping blocks.

        The result has shape [B * n_blocks, H, n_keys, E].
        """
        keys = self._pad_keys(x).unfold(2, self.n_keys, self.n_queries)
        return _fold_into_batch(keys.transpose(3, 4))  # from [B, H, n_blocks, E, n_keys]

    def block_mask(self, batch_size: int) -> AttentionMask:
        """Return the mask of all blocks of `batch_size` sentences."""
        mask, is_token = self.mask, self.mask.is_token
        if is_token is None:
            is_token = torch.ones(1, 1, dtype=torch.bool, device=mask.device)
        is_token = is_token.expand(batch_size, mask.n_keys)[:, None, :, None]  # [B, 1, S, 1]
        return AttentionMask(
            n_queries=self.n_queries,
            n_keys=self.n_keys,
            device=mask.device,
            is_token=self.split_keys(is_token).flatten(1),  # [B * n_blocks, n_keys]
            start=self.window,
            is_causal=mask.is_causal,
            window=self.window,
        )

    def merge(self, x: Tensor) -> Tensor:
        """Merge the block outputs [B * n_blocks, H, n_queries, E] into [B, H, T, E]."""
        rows = torch.unflatten(x, 0, (-1, self.n_blocks)).transpose(1, 2).flatten(2, 3)
        return rows[:, :, : self.mask.n_queries]

    def _pad_keys(self, x: Tensor) -> Tensor:
        """Crop or pad keys [B, H, S, E] so that they start one window before the first query."""
        x = x[:, :, max(0, self.mask.start - self.window) :]
        n_before = max(0, self.window - self.mask.start)
        length = (self.n_blocks - 1) * self.n_queries + self.n_keys
        n_after = length - n_before - x.size(2)
        return F.pad(x, (0, 0, n_before, n_after))


def _fold_into_batch(x: Tensor) -> Tensor:
    """Reshape [B, H, n_blocks, T, E] to [B * n_blocks, H, T, E]."""
    return x.transpose(1, 2).flatten(0, 1)
