"""What every architecture offers to training and to search.

Shapes are written with these letters everywhere in mtcli:
    B sentences   S source positions   T target positions   V vocabulary entries
    D model width H attention heads    E width of one head  W beam width
Masks are boolean and say what is ALLOWED: True means "may be looked at".
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Self, TypeVar

import torch.nn.functional as F  # noqa: N812  (torch's own name for it)
from torch import Tensor, nn


@dataclass(frozen=True)
class State:
    """All that decoding remembers. Every tensor inside has the batch as its first dimension."""

    def select(self, rows: Tensor) -> Self:
        """The state of the given rows, repeated or dropped as `rows` says."""
        parts = {f.name: _select(getattr(self, f.name), rows) for f in fields(self)}
        return replace(self, **parts)

    def reorder(self, rows: Tensor) -> Self:
        """The same, where each row is replaced by one of the same sentence, if not by itself."""
        return self.select(rows)


def _select(value: Any, rows: Tensor) -> Any:
    match value:
        case Tensor():
            return value.index_select(0, rows)
        case State():
            return value.select(rows)
        case tuple():
            return tuple(_select(item, rows) for item in value)
        case _:
            return value


S = TypeVar("S", bound=State)


class TranslationModel(nn.Module, ABC, Generic[S]):
    """Source ids in, target logits out; one `decode` serves both training and search."""

    @abstractmethod
    def encode(self, source: Tensor) -> S:
        """Read padded source ids [B, S]; return the state in which no target is yet known."""

    @abstractmethod
    def decode(self, target: Tensor, state: S) -> tuple[Tensor, S]:
        """Read the next target ids [B, T] (T >= 1); return logits [B, T, V] and the new state."""

    @property
    def n_positions(self) -> int | None:
        """The longest source or target that can be represented; None: any."""
        return None

    def alignment(self, source: Tensor, target: Tensor) -> Tensor | None:
        """How much each position of `target` [B, T] looks at each of `source` [B, S]: [B, T, S].

        None if the architecture has nothing that shows it.
        """
        del source, target
        return None

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Teacher forcing: the logits [B, T, V] that follow each position of `target`."""
        logits, _ = self.decode(target, self.encode(source))
        return logits


Lesson = tuple[Tensor, Tensor]  # what logits are made of [B, T, D], and their labels [B, T]


class TrainableModel(TranslationModel[S]):
    """A model that can be trained: its logits are products with the rows of one matrix.

    Training stops short of the logits, for the loss makes them itself, a few at a time.
    """

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """The matrix [V, D] that makes the logits: a row for every piece."""

    @abstractmethod
    def read(self, target: Tensor, state: S) -> tuple[Tensor, S]:
        """Read the next target ids [B, T]; return what logits are made of [B, T, D], and state."""

    def lessons(self, source: Tensor, target: Tensor, labels: Tensor) -> list[Lesson]:
        """What is learned from pairs: first of all, to write the target."""
        vectors, _ = self.read(target, self.encode(source))
        return [(vectors, labels)]

    def decode(self, target: Tensor, state: S) -> tuple[Tensor, S]:
        """Read the next target ids [B, T]; return logits [B, T, V] and the new state."""
        vectors, state = self.read(target, state)
        return F.linear(vectors, self.output_weight), state


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter under its name; one that is tied appears once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}
