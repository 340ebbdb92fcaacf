"""Recording of attention weights during a forward pass."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mtcli.config.alignment import AlignmentHeads


class AttentionRecorder:
    """Attention weights [B, H, T, S] of modules, recorded while a model runs.

    The caller passes a recorder to the model, which passes it to its attention modules. Without a
    recorder, a model computes no weights.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._weights: dict[nn.Module, Tensor | None] = dict.fromkeys(modules)

    def records(self, module: nn.Module) -> bool:
        """Return whether the weights of `module` are requested."""
        return module in self._weights

    def add(self, module: nn.Module, weights: Tensor) -> None:
        """Record the weights of a module that is called once."""
        self._weights[module] = weights

    def __getitem__(self, module: nn.Module) -> Tensor:
        weights = self._weights[module]
        assert weights is not None  # the model has called the module
        return weights

    def stack(self, modules: Sequence[nn.Module]) -> Tensor:
        """Return the weights of the same module in all layers [B, L, H, T, S]."""
        return torch.stack([self[module] for module in modules], dim=1)


@dataclass(frozen=True)
class AttentionWeights:
    """Attention weights of all layers and heads; None for a kind that the model does not have.

    Row t of the target is the position that predicts target token t. Its input is token t-1.
    """

    encoder: Tensor | None = None  # [B, L, H, S, S], from source to source
    decoder: Tensor | None = None  # [B, L, H, T, T]; decoder-only: [B, L, H, T, S+T]
    cross: Tensor | None = None  # [B, L, H, T, S], from target to source
    alignment: AlignmentHeads = AlignmentHeads(0, (0,))  # heads that the alignment uses

    def by_kind(self) -> dict[str, Tensor]:
        """Return the weights of the kinds that the model has, by field name."""
        kinds = {"cross": self.cross, "decoder": self.decoder, "encoder": self.encoder}
        return {kind: weights for kind, weights in kinds.items() if weights is not None}

    @property
    def to_source(self) -> Tensor:
        """Weights from target to source [B, L, H, T, S]."""
        if self.cross is not None:
            return self.cross
        assert self.decoder is not None  # a model with attention attends to its source
        return self.decoder[..., : self.decoder.size(-1) - self.decoder.size(-2)]
