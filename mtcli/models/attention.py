"""Multi-head attention, and the keys and values that it looks at."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mtcli.config import NORM_EPSILON, AttentionConfig
from mtcli.models.base import State
from mtcli.models.relations import Relation
from mtcli.models.view import Blocks, View


class RmsNorm(nn.RMSNorm):
    """torch's own, in the precision of its weights, as torch by itself computes layer norms."""

    def __init__(self, width: int) -> None:
        super().__init__(width, NORM_EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        """`x` [..., width], of which each vector has the same mean square."""
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


@dataclass(frozen=True)
class KeyValues(State):
    """What attention looks at."""

    keys: Tensor  # [B, K, S, E]: K heads, of which each may serve several heads of queries
    values: Tensor  # [B, K, S, E]


@dataclass(frozen=True)
class Past(State):
    """The keys and values of the target so far: what search keeps between steps.

    They stand in buffers with room for more, so that a new position is written beside the old ones
    instead of copying them all (only a beam search that reorders its rows has to copy). It is a
    value all the same: room that another one has taken (they share `taken`) is left alone, and the
    buffers are copied then.
    """

    buffers: KeyValues  # [B, K, room, E]
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
            room = end if torch.is_grad_enabled() else 2 * end  # who learns reads no further
            return self._copied(rows, room=room).append(new)
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

    def __init__(self, config: AttentionConfig, relation: Relation) -> None:
        super().__init__()
        width, bias = config.d_model, config.biases
        self.n_heads = config.n_heads
        self.d_head = config.d_head
        self.dropout = config.attention_dropout
        self.relation = relation
        self.to_queries = nn.Linear(width, width, bias=bias)
        self.to_keys = nn.Linear(width, config.d_keys, bias=bias)
        self.to_values = nn.Linear(width, config.d_keys, bias=bias)
        self.to_output = nn.Linear(width, width, bias=bias)
        self.query_norm = self._head_norm(config)
        self.key_norm = self._head_norm(config)

    def key_values(self, x: Tensor, start: int = 0) -> KeyValues:
        """What `x` [B, S, D], whose first place is `start`, offers to whoever looks at it."""
        keys = self.key_norm(self._split_heads(self.to_keys(x)))
        return KeyValues(self.relation.turned(keys, start), self._split_heads(self.to_values(x)))

    def forward(self, x: Tensor, seen: KeyValues, view: View) -> Tensor:
        """Let positions of `x` [B, T, D] look at `seen` as `view` allows it."""
        queries, keys, values = self._compared(x, seen, view)
        dropout = self.dropout if self.training else 0.0
        mix = self._mix_in_blocks if view.is_long else self.relation.mix
        mixed: Tensor = mix(queries, keys, values, view, dropout)  # [B, H, T, E]
        output: Tensor = self.to_output(mixed.transpose(1, 2).flatten(2))  # [B, T, D]
        return output

    # Blocks of any length are not for torch.compile, which needs minutes for each.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _mix_in_blocks(
        self, queries: Tensor, keys: Tensor, values: Tensor, view: View, dropout: float
    ) -> Tensor:
        blocks = Blocks.of(view)
        short = blocks.short_view(len(queries))
        parts = blocks.queries(queries), blocks.keys(keys), blocks.keys(values)
        return blocks.joined(self.relation.mix(*parts, short, dropout))

    def weights(self, x: Tensor, seen: KeyValues, view: View) -> Tensor:
        """How much each position of `x` [B, T, D] looks at each of `seen`: [B, H, T, S]."""
        queries, keys, _ = self._compared(x, seen, view)
        return self.relation.weights(queries, keys, view)

    def _compared(self, x: Tensor, seen: KeyValues, view: View) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, and for each of their heads keys and values, all [B, H, .., E]."""
        queries = self.query_norm(self._split_heads(self.to_queries(x)))
        n_served = self.n_heads // seen.keys.size(1)
        keys, values = seen.keys, seen.values
        if n_served > 1:
            keys = keys.repeat_interleave(n_served, dim=1)
            values = values.repeat_interleave(n_served, dim=1)
        return self.relation.turned(queries, view.start), keys, values

    def _split_heads(self, x: Tensor) -> Tensor:
        heads = torch.unflatten(x, -1, (-1, self.d_head))  # [B, T, H, E]
        return heads.transpose(1, 2)  # [B, H, T, E]

    def _head_norm(self, config: AttentionConfig) -> nn.Module:
        return RmsNorm(self.d_head) if config.qk_norm else nn.Identity()
