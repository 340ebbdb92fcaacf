"""Embeddings, feed-forward, residuals: the parts that architectures are made of."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own name for it)
from torch import Tensor, nn

from mtcli.config import NORM_EPSILON, AttentionConfig, ModelConfig
from mtcli.models.attention import Attention, Past, RmsNorm
from mtcli.models.base import S, TrainableModel
from mtcli.models.relations import self_relation
from mtcli.models.view import View

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": partial(F.relu, inplace=True),  # what it reads is not needed again
    "gelu": F.gelu,
    "swish": F.silu,
}

Layer = TypeVar("Layer", bound=nn.Module)


@dataclass(frozen=True)
class Depth:
    """How a stack of many layers is kept in balance (DeepNorm, Wang et al. 2022)."""

    residual: float = 1.0  # how much the sum so far counts in a residual
    gain: float = 1.0  # of the maps that write into it, when training begins


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
        n_kept = max(1, round((1 - self.share) * 2**16))  # of the 2**16 cases
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        cases = words.view(torch.int16)[: x.numel()].view(x.shape)
        mask = cases.to(x.dtype).lt_(n_kept - 2**15).mul_(2**16 / n_kept)
        return x * mask


class FeedForward(nn.Module):
    """The same linear maps at every position (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        width, inner, bias = config.d_model, config.d_feed_forward, config.biases
        self.to_inner = nn.Linear(width, inner, bias=bias)
        self.to_output = nn.Linear(inner, width, bias=bias)
        self.to_gate = nn.Linear(width, inner, bias=bias) if config.gated else None
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position of `x` [B, T, D] by itself."""
        # In two dimensions, for a linear map of three gives a view, and changing that costs a copy.
        flat = x.flatten(0, 1)  # [B * T, D]
        inner = self.activation(self.to_inner(flat))  # [B * T, inner]
        if self.to_gate is not None:
            inner = inner * self.to_gate(flat)
        output: Tensor = self.to_output(self.dropout(inner))
        return output.view(x.shape)


class Residual(nn.Module):
    """What surrounds a sub-layer: x + dropout(sublayer(x)), and a norm before or after."""

    def __init__(self, config: AttentionConfig, depth: Depth) -> None:
        super().__init__()
        self.norm = build_norm(config)
        self.dropout = Dropout(config.dropout)
        self.is_pre_norm = config.norm == "pre"
        self.scale = depth.residual

    def around(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """`x` [B, T, D] after a sub-layer that needs nothing else."""
        return self.after(x, sublayer(self.before(x)))

    def before(self, x: Tensor) -> Tensor:
        """What the sub-layer reads of `x` [B, T, D]."""
        read: Tensor = self.norm(x) if self.is_pre_norm else x
        return read

    def after(self, x: Tensor, y: Tensor) -> Tensor:
        """`x` with what the sub-layer wrote, `y`, added to it."""
        total = torch.add(self.dropout(y), x, alpha=self.scale)
        return total if self.is_pre_norm else cast(Tensor, self.norm(total))


class LayerWithPast(nn.Module):
    """What layers begin with: self-attention, which also looks at positions of the past."""

    def __init__(self, config: AttentionConfig, depth: Depth) -> None:
        super().__init__()
        self.depth = depth
        self.self_attention = Attention(config, self_relation(config))
        self.self_residual = Residual(config, depth)

    def look_back(self, x: Tensor, past: Past | None, view: View) -> tuple[Tensor, Past]:
        """Let new positions look at each other and at the past, as `view` allows it."""
        y = self.self_residual.before(x)
        past = self._with(past, y, view)
        return self.self_residual.after(x, self.self_attention(y, past.seen, view)), past

    def weights(self, x: Tensor, past: Past | None, view: View) -> Tensor:
        """How much new positions look at all there are [B, T, S], on average of the heads."""
        y = self.self_residual.before(x)
        seen = self._with(past, y, view).seen
        return self.self_attention.weights(y, seen, view).mean(dim=1)

    def _with(self, past: Past | None, y: Tensor, view: View) -> Past:
        new = self.self_attention.key_values(y, view.start)
        return past.append(new) if past else Past.begin(new)


class SelfLayer(LayerWithPast):
    """Self-attention, then feed-forward: the layer of an encoder, and of a decoder alone."""

    def __init__(self, config: AttentionConfig, depth: Depth) -> None:
        super().__init__(config, depth)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config, depth)

    def forward(self, x: Tensor, past: Past | None, view: View) -> tuple[Tensor, Past]:
        """Read new positions `x` [B, T, D]; return them and all positions seen so far."""
        x, past = self.look_back(x, past, view)
        return self.feed_forward_residual.around(x, self.feed_forward), past


class ScaledEmbedding(nn.Embedding):
    """Embeddings multiplied by sqrt(D), so that they are as large as the positions (3.4)."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        self.scale = math.sqrt(d_model)
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        """The vectors [B, T, D] of `ids` [B, T]."""
        return super().forward(ids) * self.scale


class PieceModel(TrainableModel[S]):
    """A model that begins with embeddings and ends with logits, tied or separate.

    What is between them is made by each architecture, before `_finish`.
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
        self._limit = config.n_positions

    def _finish(self, config: ModelConfig, target_size: int) -> None:
        """Add the output, and draw all maps; tied matrices are those of the embeddings."""
        self.to_logits = nn.Linear(config.d_model, target_size, bias=False)
        initialise(self)
        if config.tied_embeddings != "none":
            self.to_logits.weight = self.target_embedding.weight

    @property
    def output_weight(self) -> Tensor:
        """The matrix [V, D] that makes logits."""
        return self.to_logits.weight

    @property
    def n_positions(self) -> int | None:
        """What can be learned is limited."""
        return self._limit


def build_norm(config: AttentionConfig) -> nn.Module:
    """The norm that `config` names."""
    if config.norm_kind == "rms":
        return RmsNorm(config.d_model)
    return nn.LayerNorm(config.d_model, NORM_EPSILON)


def final_norm(config: AttentionConfig) -> nn.Module:
    """With norms before the sub-layers the sum itself is never normalised, so it is in the end."""
    return build_norm(config) if config.norm == "pre" else nn.Identity()


def stack(layers: Iterable[Layer]) -> Sequence[Layer]:
    """A registered list of layers that keeps their type, which nn.ModuleList forgets."""
    return cast(Sequence[Layer], nn.ModuleList(layers))


def initialise(model: nn.Module) -> None:
    """Xavier's uniform distribution for all maps, as in the authors' code."""
    gains = {
        id(module): layer.depth.gain
        for layer in model.modules()
        if isinstance(layer, LayerWithPast)
        for name, module in layer.named_modules()
        if not name.endswith(("to_queries", "to_keys"))
    }
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, gains.get(id(module), 1.0))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
