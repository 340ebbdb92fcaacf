"""Recording of attention weights during a forward pass."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mtcli.config.alignment import AlignmentHeads


class AttentionRecorder:
    """Attention weights [B, H, T, S] of the given modules, recorded during a forward pass.

    The caller passes a recorder to the model, which passes it to its attention modules. Without a
    recorder, the model does not compute the weights explicitly.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._weights: dict[nn.Module, Tensor | None] = dict.fromkeys(modules)

    def records(self, module: nn.Module) -> bool:
        """Return whether the weights of `module` should be recorded."""
        return module in self._weights

    def add(self, module: nn.Module, weights: Tensor) -> None:
        """Record the weights of `module`, which the model must call only once."""
        self._weights[module] = weights

    def __getitem__(self, module: nn.Module) -> Tensor:
        weights = self._weights[module]
        assert weights is not None  # the forward pass has called the module
        return weights

    def stack(self, modules: Sequence[nn.Module]) -> Tensor:
        """Return the stacked weights [B, L, H, T, S] of `modules`, one module per layer."""
        return torch.stack([self[module] for module in modules], dim=1)


@dataclass(frozen=True)
class AttentionWeights:
    """Attention weights of all layers and heads; None for a kind that the model lacks.

    Target row t is the position that predicts target token t. The input at this position is target
    token t-1.
    """

    encoder: Tensor | None = None  # [B, L, H, S, S], from source to source
    decoder: Tensor | None = None  # [B, L, H, T, T]; decoder-only: [B, L, H, T, S+T]
    cross: Tensor | None = None  # [B, L, H, T, S], from target to source
    alignment: AlignmentHeads = AlignmentHeads(0, (0,))  # heads used for the alignment

    def by_kind(self) -> dict[str, Tensor]:
        """Return the available weights by field name."""
        kinds = {"cross": self.cross, "decoder": self.decoder, "encoder": self.encoder}
        return {kind: weights for kind, weights in kinds.items() if weights is not None}

    @property
    def to_source(self) -> Tensor:
        """Target-to-source weights [B, L, H, T, S]."""
        if self.cross is not None:
            return self.cross
        assert self.decoder is not None  # a model with attention attends to its source
        return self.decoder[..., : self.decoder.size(-1) - self.decoder.size(-2)]
