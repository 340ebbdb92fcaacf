"""Ensemble of models: a `TranslationModel` that search treats like a single model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mtcli.models.base import State, TranslationModel


@dataclass(frozen=True)
class EnsembleState(State):
    """States of all members."""

    members: tuple[State, ...]

    def reorder(self, rows: Tensor) -> "EnsembleState":
        """Return the reordered states of all members."""
        return EnsembleState(tuple(member.reorder(rows) for member in self.members))


class Ensemble(TranslationModel[EnsembleState]):
    """Mean of the probabilities of several models with the same vocabularies."""

    def __init__(self, members: Sequence[TranslationModel[Any]]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.special = members[0].special

    @property
    def n_positions(self) -> int | None:
        """Smallest maximum length among the members; None means unlimited."""
        limits = [member.n_positions for member in self._models()]
        return min((limit for limit in limits if limit is not None), default=None)

    def encode(self, source: Tensor) -> EnsembleState:
        """Encode padded source ids [B, S] with all members."""
        return EnsembleState(tuple(member.encode(source) for member in self._models()))

    def decode(self, target: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """Decode the next target ids [B, T]; return log-probabilities [B, T, V] and the new state.

        The log-probabilities are the logarithms of the members' mean probabilities.
        """
        outputs = [
            member.decode(target, member_state)
            for member, member_state in zip(self._models(), state.members, strict=True)
        ]
        log_probs = torch.stack([logits.log_softmax(dim=-1) for logits, _ in outputs])
        mean = log_probs.logsumexp(dim=0) - math.log(len(outputs))  # [B, T, V]
        return mean, EnsembleState(tuple(member_state for _, member_state in outputs))

    def alignment(self, source: Tensor, target: Tensor) -> Tensor | None:
        """Return the mean alignment [B, T, S] of the members with attention; None if none has."""
        all_weights = [member.alignment(source, target) for member in self._models()]
        alignments = [weights for weights in all_weights if weights is not None]
        return torch.stack(alignments).mean(dim=0) if alignments else None

    def _models(self) -> Sequence[TranslationModel[Any]]:
        return list(self.members)  # type: ignore[arg-type]
