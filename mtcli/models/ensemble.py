"""Several models that vote: one more `TranslationModel`, so that search does not know of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mtcli.models.base import State, TranslationModel


@dataclass(frozen=True)
class EnsembleState(State):
    """The states of all members."""

    members: tuple[State, ...]

    def reorder(self, rows: Tensor) -> "EnsembleState":
        """Each member knows what of its state depends on the target."""
        return EnsembleState(tuple(member.reorder(rows) for member in self.members))


class Ensemble(TranslationModel[EnsembleState]):
    """The mean of what its members think; they have the vocabularies in common."""

    def __init__(self, members: Sequence[TranslationModel[Any]]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    @property
    def n_positions(self) -> int | None:
        """What all members can represent."""
        limits = [member.n_positions for member in self._each()]
        return min((limit for limit in limits if limit is not None), default=None)

    def encode(self, source: Tensor) -> EnsembleState:
        """Read padded source ids [B, S]."""
        return EnsembleState(tuple(member.encode(source) for member in self._each()))

    def decode(self, target: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """Read the next target ids [B, T]; the logits are the logarithms of mean probabilities."""
        decoded = [
            member.decode(target, own)
            for member, own in zip(self._each(), state.members, strict=True)
        ]
        log_probs = torch.stack([logits.log_softmax(dim=-1) for logits, _ in decoded])
        mean = log_probs.logsumexp(dim=0) - math.log(len(decoded))  # [B, T, V]
        return mean, EnsembleState(tuple(own for _, own in decoded))

    def alignment(self, source: Tensor, target: Tensor) -> Tensor | None:
        """The mean of the members that show any."""
        each = [member.alignment(source, target) for member in self._each()]
        shown = [weights for weights in each if weights is not None]
        return torch.stack(shown).mean(dim=0) if shown else None

    def _each(self) -> Sequence[TranslationModel[Any]]:
        return list(self.members)  # type: ignore[arg-type]
