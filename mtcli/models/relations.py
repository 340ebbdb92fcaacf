"""How attention mixes values, and what it knows of where they stand."""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own name for it)
from torch import Tensor, nn

from mtcli.config import AttentionConfig
from mtcli.models.view import View


class Relation(nn.Module):
    """Attention that sees what positions say, and not where they stand.

    Those below know distances as well, which are the same wherever a text begins.
    """

    def turned(self, heads: Tensor, start: int) -> Tensor:
        """Queries or keys [B, H, T, E] of the places from `start` on, as they are compared."""
        del start
        return heads

    def mix(
        self, queries: Tensor, keys: Tensor, values: Tensor, view: View, dropout: float = 0.0
    ) -> Tensor:
        """For each query the mean of the values, weighted by how well their keys fit it."""
        return F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=self._bias(view), dropout_p=dropout
        )  # [B, H, T, E]

    def weights(self, queries: Tensor, keys: Tensor, view: View) -> Tensor:
        """How much each query looks at each key [B, H, T, S]."""
        # Where each position offers a unit vector of its own, the mixture is the weights.
        units = torch.eye(keys.size(2), dtype=keys.dtype, device=keys.device)  # [S, S]
        units = units.expand(*keys.shape[:2], -1, -1)  # [B, H, S, S]
        return Relation.mix(self, queries, keys, units, view)

    def _bias(self, view: View) -> Tensor | None:
        """What is added to the scores [B, H, T, S]."""
        return view.penalty


class Rotary(Relation):
    """Pairs of numbers turned by an angle that grows with the place (Su et al. 2021).

    Of two places only the difference of their angles is left in a product.
    """

    frequencies: Tensor

    def __init__(self, d_head: int) -> None:
        super().__init__()
        exponents = torch.arange(0, d_head, 2) / d_head
        self.register_buffer("frequencies", 10_000.0**-exponents, persistent=False)  # [E/2]

    def turned(self, heads: Tensor, start: int) -> Tensor:
        """Queries or keys [B, H, T, E], each by the angles of its place."""
        places = torch.arange(start, start + heads.size(2), device=heads.device)
        angles = places[:, None] * self.frequencies  # [T, E/2]
        sin, cos = angles.sin(), angles.cos()
        first, second = heads.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Alibi(Relation):
    """Scores that fall with the distance, in each head at a pace of its own (Press et al. 2022)."""

    slopes: Tensor

    def __init__(self, slopes: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(slopes), persistent=False)  # [H]

    def _bias(self, view: View) -> Tensor:
        bias = -self.slopes[:, None, None] * view.distances.abs()  # [H, T, S]
        penalty = view.penalty
        return bias[None] if penalty is None else bias + penalty


class Relative(Relation):
    """A learned vector for each distance, added to keys and to values (Shaw et al. 2018).

    Distances above a limit count as the limit. All heads share the vectors.
    """

    def __init__(self, d_head: int, max_distance: int) -> None:
        super().__init__()
        self.max_distance = max_distance
        shape = 2 * max_distance + 1, d_head
        self.of_keys = nn.Parameter(torch.empty(shape))
        self.of_values = nn.Parameter(torch.empty(shape))
        nn.init.xavier_uniform_(self.of_keys)
        nn.init.xavier_uniform_(self.of_values)

    def mix(
        self, queries: Tensor, keys: Tensor, values: Tensor, view: View, dropout: float = 0.0
    ) -> Tensor:
        """The weighted mean of the values, and of the vectors of their distances."""
        weights = F.dropout(self.weights(queries, keys, view), dropout)  # [B, H, T, S]
        n_distances = len(self.of_values)
        by_distance = weights.new_zeros(*weights.shape[:3], n_distances)
        by_distance = by_distance.scatter_add(-1, self._numbers(weights, view), weights)
        return weights @ values + by_distance @ self.of_values

    def weights(self, queries: Tensor, keys: Tensor, view: View) -> Tensor:
        """How much each query looks at each key [B, H, T, S]."""
        content = queries @ keys.mT  # [B, H, T, S]
        distance = queries @ self.of_keys.T  # [B, H, T, n_distances]
        scores = content + distance.gather(-1, self._numbers(content, view))
        scores = scores / math.sqrt(queries.size(-1))
        mask = view.mask
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return scores.softmax(dim=-1)

    def _numbers(self, like: Tensor, view: View) -> Tensor:
        """Which vector stands for the distance of each query from each key [B, H, T, S]."""
        limit = self.max_distance
        return (view.distances.clamp(-limit, limit) + limit).expand(like.shape)


_RELATIONS: dict[str, Callable[[AttentionConfig], Relation]] = {
    "rotary": lambda config: Rotary(config.d_head),
    "alibi": lambda config: Alibi(config.slopes()),
    "relative": lambda config: Relative(config.d_head, config.max_distance),
}


def self_relation(config: AttentionConfig) -> Relation:
    """What self-attention knows of places."""
    build = _RELATIONS.get(config.positions)
    return build(config) if build else Relation()
