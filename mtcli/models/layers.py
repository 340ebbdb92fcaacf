"""Attention, feed-forward, positions: the parts that architectures are made of."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own name for it)
from torch import Tensor, nn

from mtcli.models.base import State

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": partial(F.relu, inplace=True),  # what it reads is not needed again
    "gelu": F.gelu,
    "swish": F.silu,
}


@dataclass(frozen=True)
class KeyValues(State):
    """What attention looks at."""

    keys: Tensor  # [B, H, S, E]
    values: Tensor  # [B, H, S, E]


@dataclass(frozen=True)
class Past(State):
    """The keys and values of the target so far: what search keeps between steps.

    They stand in buffers with room for more, so that a new position is written beside the old ones
    instead of copying them all (only a beam search that reorders its rows has to copy). It is a
    value all the same: room that another one has taken (they share `taken`) is left alone, and the
    buffers are copied then.
    """

    buffers: KeyValues  # [B, H, room, E]
    length: int
    taken: list[int]  # one number: how many positions of the buffers are in use

    @classmethod
    def begin(cls, first: KeyValues) -> "Past":
        """A past of these positions, with no room yet: training needs none."""
        length = first.keys.size(2)
        return cls(first, length, [length])

    @property
    def seen(self) -> KeyValues:
        """All positions there are."""
        keys, values = self.buffers.keys, self.buffers.values
        return KeyValues(keys[:, :, : self.length], values[:, :, : self.length])

    def append(self, new: KeyValues) -> "Past":
        """The old positions followed by the new ones."""
        end = self.length + new.keys.size(2)
        if self.taken[0] != self.length or end > self.buffers.keys.size(2):
            rows = torch.arange(len(new.keys), device=new.keys.device)
            return self._copied(rows, room=2 * end).append(new)
        self.buffers.keys[:, :, self.length : end] = new.keys
        self.buffers.values[:, :, self.length : end] = new.values
        self.taken[0] = end
        return Past(self.buffers, end, self.taken)

    def select(self, rows: Tensor) -> "Past":
        """The past of the given rows, with as much room as before."""
        return self._copied(rows, room=self.buffers.keys.size(2))

    def _copied(self, rows: Tensor, *, room: int) -> "Past":
        def copied(tensor: Tensor) -> Tensor:
            _, n_heads, _, width = tensor.shape
            buffer = tensor.new_empty(len(rows), n_heads, room, width)
            buffer[:, :, : self.length] = tensor[:, :, : self.length].index_select(0, rows)
            return buffer

        buffers = KeyValues(copied(self.buffers.keys), copied(self.buffers.values))
        return Past(buffers, self.length, [self.length])


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017, section 3.2).

    Making keys and values is separate from looking at them. Self-attention appends to a past,
    cross-attention makes them once per sentence, and neither needs a flag in here.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout
        self.to_queries = nn.Linear(d_model, d_model)
        self.to_keys = nn.Linear(d_model, d_model)
        self.to_values = nn.Linear(d_model, d_model)
        self.to_output = nn.Linear(d_model, d_model)

    def key_values(self, x: Tensor) -> KeyValues:
        """What `x` [B, S, D] offers to whoever looks at it."""
        return KeyValues(self._split_heads(self.to_keys(x)), self._split_heads(self.to_values(x)))

    def forward(self, x: Tensor, seen: KeyValues, mask: Tensor | None) -> Tensor:
        """Let positions of `x` [B, T, D] look at `seen` where `mask` [B, 1, T, S] allows it."""
        queries = self._split_heads(self.to_queries(x))  # [B, H, T, E]
        mixed = F.scaled_dot_product_attention(
            queries,
            seen.keys,
            seen.values,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
        )  # [B, H, T, E]
        output: Tensor = self.to_output(mixed.transpose(1, 2).flatten(2))  # [B, T, D]
        return output

    def weights(self, x: Tensor, seen: KeyValues, mask: Tensor | None) -> Tensor:
        """How much each position of `x` [B, T, D] looks at each of `seen`: [B, H, T, S]."""
        queries = self._split_heads(self.to_queries(x))  # [B, H, T, E]
        # Where each position offers a unit vector of its own, the mixture is the weights.
        units = torch.eye(seen.keys.size(2), dtype=x.dtype, device=x.device)  # [S, S]
        units = units.expand(*seen.keys.shape[:2], -1, -1)  # [B, H, S, S]
        return F.scaled_dot_product_attention(queries, seen.keys, units, attn_mask=mask)

    def _split_heads(self, x: Tensor) -> Tensor:
        heads = torch.unflatten(x, -1, (self.n_heads, -1))  # [B, T, H, E]
        return heads.transpose(1, 2)  # [B, H, T, E]


class Dropout(nn.Module):
    """Leave out a share of all numbers while training, and enlarge the others in proportion.

    torch draws a double for every number, which on a CPU takes longer than the layer norms. Here
    sixteen random bits decide; what is kept is enlarged by exactly what the rounding to sixteen
    bits asks for.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """`x` with gaps, or as it is outside of training."""
        if not self.training or self.share == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.share)
        n_kept = round((1 - self.share) * 2**16)  # of the 2**16 cases
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        cases = words.view(torch.int16)[: x.numel()].view(x.shape)
        mask = cases.to(x.dtype).lt_(n_kept - 2**15).mul_(2**16 / n_kept)
        return x * mask


class FeedForward(nn.Module):
    """The same two linear maps at every position (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, d_model: int, d_inner: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.to_inner = nn.Linear(d_model, d_inner)
        self.to_output = nn.Linear(d_inner, d_model)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position of `x` [B, T, D] by itself."""
        # In two dimensions, for a linear map of three gives a view, and changing that costs a copy.
        inner = self.activation(self.to_inner(x.flatten(0, 1)))  # [B * T, inner]
        output: Tensor = self.to_output(self.dropout(inner))
        return output.view(x.shape)


class SinusoidalPositions(nn.Module):
    """Sines and cosines of falling frequency (section 3.5), in two halves; nothing is learned."""

    frequencies: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        exponents = torch.arange(0, d_model, 2) / d_model
        self.register_buffer("frequencies", 10_000.0**-exponents, persistent=False)  # [D/2]

    def forward(self, start: int, n: int) -> Tensor:
        """The vectors [n, D] of the positions from `start` on."""
        places = torch.arange(start, start + n, device=self.frequencies.device)
        angles = places[:, None] * self.frequencies  # [n, D/2]
        return torch.cat([angles.sin(), angles.cos()], dim=-1)  # [n, D]


class LearnedPositions(nn.Module):
    """One learned vector for each position, up to a limit."""

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(max_positions, d_model)
        nn.init.normal_(self.vectors.weight, std=0.02)

    def forward(self, start: int, n: int) -> Tensor:
        """The vectors [n, D] of the positions from `start` on."""
        return self.vectors.weight[start : start + n]


class ScaledEmbedding(nn.Embedding):
    """Embeddings multiplied by sqrt(D), so that they are as large as the positions (3.4)."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        self.scale = math.sqrt(d_model)
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        """The vectors [B, T, D] of `ids` [B, T]."""
        return super().forward(ids) * self.scale


def causal_mask(n_new: int, n_known: int, device: torch.device) -> Tensor | None:
    """Each new position may look at all known ones, at itself, and at new ones before it."""
    if n_new == 1:
        return None  # a single new position may look at everything there is
    everything = torch.ones(n_new, n_known + n_new, dtype=torch.bool, device=device)
    return everything.tril(diagonal=n_known)[None, None]  # [1, 1, T, n_known + T]
