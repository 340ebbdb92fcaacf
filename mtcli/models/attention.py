"""Multi-head attention, and the key-value cache of self-attention."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mtcli.config.transformers import NORM_EPSILON, AttentionConfig
from mtcli.models.base import State
from mtcli.models.linear import Linear
from mtcli.models.masks import AttentionBlocks, AttentionMask
from mtcli.models.positions import DotProductAttention
from mtcli.models.recording import AttentionRecorder


class RmsNorm(nn.RMSNorm):
    """RMSNorm computed in the precision of its weights, like torch's LayerNorm under autocast."""

    def __init__(self, width: int) -> None:
        super().__init__(width, NORM_EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize each vector of `x` [..., width]."""
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


@dataclass(frozen=True)
class KeyValues(State):
    """Keys and values to attend to."""

    keys: Tensor  # [B, K, S, E]; each key-value head serves H / K query heads
    values: Tensor  # [B, K, S, E]


@dataclass(frozen=True)
class KeyValueCache(State):
    """Keys and values of the positions decoded so far.

    The buffers have spare capacity, so `append` can write new positions without copying the old
    ones. Caches are immutable, but several caches may share the same buffers. Such caches also
    share `n_used`. It tells `append` whether another cache has already used the spare capacity; if
    so, `append` copies the buffers.
    """

    buffers: KeyValues  # [B, K, capacity, E]
    length: int
    n_used: list[int]  # shared list with one number: how many buffer positions are in use

    @classmethod
    def create(cls, first: KeyValues) -> "KeyValueCache":
        """Return a cache of the first positions, without spare capacity."""
        length = first.keys.size(2)
        return cls(first, length, [length])

    @property
    def key_values(self) -> KeyValues:
        """Keys and values of all cached positions."""
        keys, values = self.buffers.keys, self.buffers.values
        return KeyValues(keys[:, :, : self.length], values[:, :, : self.length])

    def append(self, new: KeyValues) -> "KeyValueCache":
        """Return this cache extended by `new`, without changing this cache."""
        end = self.length + new.keys.size(2)
        if self.n_used[0] != self.length or end > self.buffers.keys.size(2):
            rows = torch.arange(len(new.keys), device=new.keys.device)
            # Training decodes all positions at once, so it needs no spare capacity.
            capacity = end if torch.is_grad_enabled() else 2 * end
            return self._copy(rows, capacity=capacity).append(new)
        self.buffers.keys[:, :, self.length : end] = new.keys
        self.buffers.values[:, :, self.length : end] = new.values
        self.n_used[0] = end
        return KeyValueCache(self.buffers, end, self.n_used)

    def select(self, rows: Tensor) -> "KeyValueCache":
        """Return the cache of the given rows, with the same capacity."""
        return self._copy(rows, capacity=self.buffers.keys.size(2))

    def _copy(self, rows: Tensor, *, capacity: int) -> "KeyValueCache":
        def copy(tensor: Tensor) -> Tensor:
            _, n_heads, _, width = tensor.shape
            buffer = tensor.new_empty(len(rows), n_heads, capacity, width)
            buffer[:, :, : self.length] = tensor[:, :, : self.length].index_select(0, rows)
            return buffer

        buffers = KeyValues(copy(self.buffers.keys), copy(self.buffers.values))
        return KeyValueCache(buffers, self.length, [self.length])


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017, section 3.2).

    `key_values` and `forward` are separate methods, so that self-attention can append to a cache
    and cross-attention can project the source once per sentence.
    """

    def __init__(self, config: AttentionConfig, dot_product: DotProductAttention) -> None:
        super().__init__()
        width, bias = config.d_model, config.biases
        self.n_heads = config.n_heads
        self.d_head = config.d_head
        self.dropout = config.attention_dropout
        self.relation = dot_product  # this name is part of the names of saved weights
        self.to_queries = Linear(width, width, bias=bias)
        self.to_keys = Linear(width, config.d_keys, bias=bias)
        self.to_values = Linear(width, config.d_keys, bias=bias)
        self.to_output = Linear(width, width, bias=bias)
        self.query_norm = self._build_head_norm(config)
        self.key_norm = self._build_head_norm(config)

    def key_values(self, x: Tensor, start: int = 0) -> KeyValues:
        """Return the keys and values of `x` [B, S, D], whose first position is `start`."""
        keys = self.key_norm(self._split_heads(self.to_keys(x)))
        return KeyValues(self.relation.rotate(keys, start), self._split_heads(self.to_values(x)))

    def forward(
        self,
        x: Tensor,
        memory: KeyValues,
        mask: AttentionMask,
        recorder: AttentionRecorder | None = None,
    ) -> Tensor:
        """Attend from `x` [B, T, D] to `memory` under `mask`; return the output [B, T, D]."""
        queries, keys, values = self._prepare_heads(x, memory, mask)
        if recorder is not None and recorder.records(self):
            recorder.add(self, self.relation.weights(queries, keys, mask))
        dropout = self.dropout if self.training else 0.0
        attend = self._attend_in_blocks if mask.is_blockwise else self.relation.attend
        with self._autocast(x.device):
            context: Tensor = attend(queries, keys, values, mask, dropout)  # [B, H, T, E]
        output: Tensor = self.to_output(context.transpose(1, 2).flatten(2))  # [B, T, D]
        return output

    # torch.compile would recompile for each number of blocks, which takes minutes.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _attend_in_blocks(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: AttentionMask, dropout: float
    ) -> Tensor:
        blocks = AttentionBlocks.from_mask(mask)
        block_mask = blocks.block_mask(len(queries))
        parts = blocks.split_queries(queries), blocks.split_keys(keys), blocks.split_keys(values)
        return blocks.merge(self.relation.attend(*parts, block_mask, dropout))

    def weights(self, x: Tensor, memory: KeyValues, mask: AttentionMask) -> Tensor:
        """Return the attention weights [B, H, T, S] from `x` [B, T, D] to `memory`."""
        queries, keys, _ = self._prepare_heads(x, memory, mask)
        return self.relation.weights(queries, keys, mask)

    def _prepare_heads(
        self, x: Tensor, memory: KeyValues, mask: AttentionMask
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries [B, H, T, E], and keys and values [B, H, S, E] copied to all H heads."""
        queries = self.query_norm(self._split_heads(self.to_queries(x)))
        group_size = self.n_heads // memory.keys.size(1)
        keys, values = memory.keys, memory.values
        if group_size > 1:
            keys = keys.repeat_interleave(group_size, dim=1)
            values = values.repeat_interleave(group_size, dim=1)
        return self.relation.rotate(queries, mask.start), keys, values

    def _split_heads(self, x: Tensor) -> Tensor:
        heads = torch.unflatten(x, -1, (-1, self.d_head))  # [B, T, H, E]
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            heads = heads.float()
        return heads.transpose(1, 2)  # [B, H, T, E]

    @staticmethod
    def _autocast(device: torch.device) -> AbstractContextManager[None]:
        """Return a context that disables autocast on CPUs, where attention in bfloat16 is slow.

        torch 2.13's fused attention takes five times as long to compute gradients in bfloat16 as in
        float32.
        """
        return torch.autocast("cpu", enabled=False) if device.type == "cpu" else nullcontext()

    def _build_head_norm(self, config: AttentionConfig) -> nn.Module:
        return RmsNorm(self.d_head) if config.qk_norm else nn.Identity()
