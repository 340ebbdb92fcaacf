"""Building blocks of the architectures, such as dropout, layers and embeddings."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's convention)
from torch import Tensor, nn

from mtcli.config.base import ModelConfig
from mtcli.config.transformers import NORM_EPSILON, AttentionConfig
from mtcli.models.attention import Attention, KeyValueCache, RmsNorm
from mtcli.models.base import StateT, TrainableModel
from mtcli.models.linear import Linear
from mtcli.models.masks import AttentionMask
from mtcli.models.positions import build_self_dot_product
from mtcli.models.recording import AttentionRecorder

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": partial(F.relu, inplace=True),  # safe: the backward pass needs only the output
    "gelu": F.gelu,
    "swish": F.silu,
}

LayerT = TypeVar("LayerT", bound=nn.Module)


@dataclass(frozen=True)
class DeepNormScales:
    """Scales that stabilize deep post-norm stacks (DeepNorm, Wang et al. 2022)."""

    residual: float = 1.0  # alpha: multiplier for the skip connection
    gain: float = 1.0  # beta: Xavier gain of all linear layers except queries and keys


class Dropout(nn.Module):
    """Inverted dropout that is fast on CPUs.

    On a CPU, torch draws a random double per element, which takes longer than computing the layer
    norms. This module draws only 16 random bits per element. It rounds the keep probability to 16
    bits and multiplies the kept values by the exact inverse of the rounded probability.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Zero a random fraction `p` of `x` in training; return `x` unchanged in evaluation."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        n_kept = max(1, round((1 - self.p) * 2**16))  # out of the 2**16 values of an int16
        random_bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        values = random_bits.view(torch.int16)[: x.numel()].view(x.shape)
        # float32 represents all 16-bit integers exactly; bfloat16 does not.
        mask = values.float().lt_(n_kept - 2**15).mul_(2**16 / n_kept)
        return x * mask


class FeedForward(nn.Module):
    """Position-wise feed-forward network, optionally gated (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        width, inner, bias = config.d_model, config.d_feed_forward, config.biases
        self.to_inner = Linear(width, inner, bias=bias)
        self.to_output = Linear(inner, width, bias=bias)
        self.to_gate = Linear(width, inner, bias=bias) if config.gated else None
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position of `x` [B, T, D] independently."""
        # Flatten, because a linear layer returns a view for 3-D inputs, and the in-place activation
        # would copy it.
        flat = x.flatten(0, 1)  # [B*T, D]
        inner = self.activation(self.to_inner(flat))  # [B*T, d_feed_forward]
        if self.to_gate is not None:
            inner = inner * self.to_gate(flat)
        output: Tensor = self.to_output(self.dropout(inner))
        return output.view(x.shape)  # [B, T, D]


class Residual(nn.Module):
    """Residual connection around a sublayer, with dropout and pre- or post-norm."""

    def __init__(self, config: AttentionConfig, scales: DeepNormScales) -> None:
        super().__init__()
        self.norm = build_norm(config)
        self.dropout = Dropout(config.dropout)
        self.is_pre_norm = config.norm == "pre"
        self.scale = scales.residual

    def run(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply `sublayer` to `x` [B, T, D] with the norm, dropout and residual connection."""
        return self.add_output(x, sublayer(self.sublayer_input(x)))

    def sublayer_input(self, x: Tensor) -> Tensor:
        """Return the input of the sublayer: `x` [B, T, D], normalized in a pre-norm model."""
        normalized: Tensor = self.norm(x) if self.is_pre_norm else x
        return normalized

    def add_output(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the sublayer's output `y` to `x`; normalize the sum in a post-norm model."""
        total = torch.add(self.dropout(y), x, alpha=self.scale)
        return total if self.is_pre_norm else cast(Tensor, self.norm(total))


class SelfAttentionLayer(nn.Module):
    """Base class of layers that start with self-attention, with or without a cache."""

    def __init__(self, config: AttentionConfig, scales: DeepNormScales) -> None:
        super().__init__()
        self.scales = scales
        self.self_attention = Attention(config, build_self_dot_product(config))
        self.self_residual = Residual(config, scales)

    def self_attend(
        self,
        x: Tensor,
        cache: KeyValueCache | None,
        mask: AttentionMask,
        recorder: AttentionRecorder | None = None,
    ) -> tuple[Tensor, KeyValueCache]:
        """Attend from `x` [B, T, D] to `x` and the cache; return the output and the new cache."""
        y = self.self_residual.sublayer_input(x)
        new = self.self_attention.key_values(y, mask.start)
        cache = cache.append(new) if cache else KeyValueCache.create(new)
        output = self.self_attention(y, cache.key_values, mask, recorder)
        return self.self_residual.add_output(x, output), cache


class TransformerLayer(SelfAttentionLayer):
    """Self-attention and feed-forward: a layer of an encoder or of a decoder-only model."""

    def __init__(self, config: AttentionConfig, scales: DeepNormScales) -> None:
        super().__init__(config, scales)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config, scales)

    def forward(
        self,
        x: Tensor,
        cache: KeyValueCache | None,
        mask: AttentionMask,
        recorder: AttentionRecorder | None = None,
    ) -> tuple[Tensor, KeyValueCache]:
        """Transform new positions `x` [B, T, D]; return them and the extended cache."""
        x, cache = self.self_attend(x, cache, mask, recorder)
        return self.feed_forward_residual.run(x, self.feed_forward), cache


class ScaledEmbedding(nn.Embedding):
    """Embeddings multiplied by sqrt(D) (Vaswani et al. 2017, section 3.4)."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        self.scale = math.sqrt(d_model)
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the embeddings [B, T, D] of `ids` [B, T]."""
        return super().forward(ids) * self.scale


class EmbeddedModel(TrainableModel[StateT]):
    """Base class of all architectures: embeddings and output projection, tied or separate.

    A subclass creates its layers and then calls `_build_output`.
    """

    def __init__(self, config: ModelConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.source_embedding = ScaledEmbedding(source_size, config.d_model)
        self.target_embedding = (
            self.source_embedding
            if config.tied_embeddings == "all"
            else ScaledEmbedding(target_size, config.d_model)
        )
        self.dropout = Dropout(config.dropout)
        self._n_positions = config.n_positions

    def _build_output(self, config: ModelConfig, target_size: int) -> None:
        """Add the output projection, initialize all linear layers, and tie the embeddings."""
        self.to_logits = Linear(config.d_model, target_size, bias=False)
        initialize_linears(self)
        if config.tied_embeddings != "none":
            self.to_logits.weight = self.target_embedding.weight

    @property
    def output_weight(self) -> Tensor:
        """Output projection [V, D] from hidden states to logits."""
        return self.to_logits.weight

    @property
    def n_positions(self) -> int | None:
        """Maximum length of a source or target; None means unlimited."""
        return self._n_positions


def build_norm(config: AttentionConfig) -> nn.Module:
    """Return a new normalization layer of the kind `config.norm_kind`."""
    if config.norm_kind == "rms":
        return RmsNorm(config.d_model)
    return nn.LayerNorm(config.d_model, NORM_EPSILON)


def build_final_norm(config: AttentionConfig) -> nn.Module:
    """Return the final norm of a pre-norm stack, or the identity for a post-norm stack."""
    return build_norm(config) if config.norm == "pre" else nn.Identity()


def module_list(layers: Iterable[LayerT]) -> Sequence[LayerT]:
    """Return an `nn.ModuleList` of the layers, typed as a sequence of their class."""
    return cast(Sequence[LayerT], nn.ModuleList(layers))


def initialize_linears(model: nn.Module) -> None:
    """Initialize all linear layers with Xavier uniform values, scaled by the DeepNorm gains."""
    gains = {
        id(module): layer.scales.gain
        for layer in model.modules()
        if isinstance(layer, SelfAttentionLayer)
        for name, module in layer.named_modules()
        if not name.endswith(("to_queries", "to_keys"))
    }
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, gains.get(id(module), 1.0))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
