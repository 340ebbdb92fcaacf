"""Position encodings.

Absolute positions (sinusoidal, learned) are added to the embeddings. Relative positions (rotary,
ALiBi, Shaw et al.) are part of the dot-product attention.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's convention)
from torch import Tensor, nn

from mtcli.config.transformers import AttentionConfig
from mtcli.models.masks import AttentionMask


class SinusoidalPositions(nn.Module):
    """Sines and cosines of decreasing frequency (Vaswani et al. 2017, section 3.5).

    The first half of a vector contains the sines, the second half the cosines.
    """

    frequencies: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        exponents = torch.arange(0, d_model, 2) / d_model
        self.register_buffer("frequencies", 10_000.0**-exponents, persistent=False)  # [D/2]

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the encodings of `positions` [T] or [B, T] to `x` [B, T, D]."""
        angles = positions[..., None] * self.frequencies  # [..., T, D/2]
        return x + torch.cat([angles.sin(), angles.cos()], dim=-1)


class LearnedPositions(nn.Module):
    """A learned vector for each position, up to a limit."""

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(max_positions, d_model)
        nn.init.normal_(self.vectors.weight, std=0.02)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the vectors of `positions` [T] or [B, T] to `x` [B, T, D]."""
        # Left padding has negative positions.
        vectors: Tensor = self.vectors(positions.clamp(min=0))
        return x + vectors


class NoPositions(nn.Module):
    """Adds nothing: the attention encodes the positions, or the model does not use positions."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return `x` unchanged."""
        del positions
        return x


def build_added_positions(config: AttentionConfig) -> nn.Module:
    """Return the module that adds positions to the embeddings."""
    match config.positions:
        case "sinusoidal":
            return SinusoidalPositions(config.d_model)
        case "learned":
            return LearnedPositions(config.d_model, config.max_positions)
        case _:
            return NoPositions()


class DotProductAttention(nn.Module):
    """Scaled dot-product attention without positions.

    Subclasses encode the distance between query and key, which does not depend on left padding.
    """

    def rotate(self, heads: Tensor, start: int) -> Tensor:
        """Return queries or keys [B, H, T, E]; a subclass may encode the positions from `start`."""
        del start
        return heads

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: AttentionMask,
        dropout: float = 0.0,
    ) -> Tensor:
        """Return the weighted mean of the values for each query [B, H, T, E]."""
        return F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=self._bias(mask), dropout_p=dropout
        )

    def weights(self, queries: Tensor, keys: Tensor, mask: AttentionMask) -> Tensor:
        """Return the attention weights [B, H, T, S]."""
        # With unit vectors as values, the weighted means are the weights themselves.
        units = torch.eye(keys.size(2), dtype=keys.dtype, device=keys.device)  # [S, S]
        units = units.expand(*keys.shape[:2], -1, -1)  # [B, H, S, S]
        return DotProductAttention.attend(self, queries, keys, units, mask)

    def _bias(self, mask: AttentionMask) -> Tensor | None:
        """Return the tensor to add to the scores, broadcastable to [B, H, T, S]."""
        return mask.additive_mask


class RotaryAttention(DotProductAttention):
    """Rotary positions (Su et al. 2021): rotate pairs of dimensions by position times frequency.

    The dot product of a query and a key depends only on the difference between their angles.
    """

    frequencies: Tensor

    def __init__(self, d_head: int) -> None:
        super().__init__()
        exponents = torch.arange(0, d_head, 2) / d_head
        self.register_buffer("frequencies", 10_000.0**-exponents, persistent=False)  # [E/2]

    def rotate(self, heads: Tensor, start: int) -> Tensor:
        """Rotate queries or keys [B, H, T, E] by the angles of the positions from `start`."""
        positions = torch.arange(start, start + heads.size(2), device=heads.device)
        angles = positions[:, None] * self.frequencies  # [T, E/2]
        sin, cos = angles.sin(), angles.cos()
        first, second = heads.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class AlibiAttention(DotProductAttention):
    """ALiBi (Press et al. 2022): scores decrease linearly with distance, with a slope per head."""

    slopes: Tensor

    def __init__(self, slopes: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(slopes), persistent=False)  # [H]

    def _bias(self, mask: AttentionMask) -> Tensor:
        bias = -self.slopes[:, None, None] * mask.distances.abs()  # [H, T, S]
        additive_mask = mask.additive_mask
        return bias[None] if additive_mask is None else bias + additive_mask


class RelativeAttention(DotProductAttention):
    """Relative positions (Shaw et al. 2018): a learned vector per distance, for keys and values.

    Distances are clipped to `max_distance`. All heads share the vectors.
    """

    def __init__(self, d_head: int, max_distance: int) -> None:
        super().__init__()
        self.max_distance = max_distance
        shape = 2 * max_distance + 1, d_head
        self.of_keys = nn.Parameter(torch.empty(shape))
        self.of_values = nn.Parameter(torch.empty(shape))
        nn.init.xavier_uniform_(self.of_keys)
        nn.init.xavier_uniform_(self.of_values)

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: AttentionMask,
        dropout: float = 0.0,
    ) -> Tensor:
        """Return, for each query, the weighted mean of the values plus their distance vectors."""
        weights = F.dropout(self.weights(queries, keys, mask), dropout)  # [B, H, T, S]
        n_distances = len(self.of_values)
        by_distance = weights.new_zeros(*weights.shape[:3], n_distances)
        by_distance = by_distance.scatter_add(-1, self._distance_indices(weights, mask), weights)
        return weights @ values + by_distance @ self.of_values  # [B, H, T, E]

    def weights(self, queries: Tensor, keys: Tensor, mask: AttentionMask) -> Tensor:
        """Return the attention weights [B, H, T, S]."""
        by_content = queries @ keys.mT  # [B, H, T, S]
        by_distance = queries @ self.of_keys.T  # [B, H, T, n_distances]
        scores = by_content + by_distance.gather(-1, self._distance_indices(by_content, mask))
        scores = scores / math.sqrt(queries.size(-1))
        allowed = mask.allowed
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        return scores.softmax(dim=-1)

    def _distance_indices(self, like: Tensor, mask: AttentionMask) -> Tensor:
        """Return the index of each query-key distance, in the shape of `like` [B, H, T, S]."""
        limit = self.max_distance
        return (mask.distances.clamp(-limit, limit) + limit).expand(like.shape)


def build_self_dot_product(config: AttentionConfig) -> DotProductAttention:
    """Return the dot-product attention for self-attention, with position encoding if configured."""
    match config.positions:
        case "rotary":
            return RotaryAttention(config.d_head)
        case "alibi":
            return AlibiAttention(config.slopes())
        case "relative":
            return RelativeAttention(config.d_head, config.max_distance)
        case _:
            return DotProductAttention()
