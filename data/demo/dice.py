"""Reproducible choices."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Item = TypeVar("Item")


class RejectedError(Exception):
    """The choices made so far cannot be completed to a sentence; start again."""


class Dice:
    """Chooses with `Random.random` only, whose results no Python version changes."""

    def __init__(self, seed: int) -> None:
        """Start a sequence of choices that depends on the seed alone."""
        self._random = Random(seed)
        self._n_uses: dict[str, int] = {}
        self._new_uses: list[str] = []

    def chance(self, probability: float) -> bool:
        """Return True with a probability."""
        return self._random.random() < probability

    def pick(self, items: Sequence[Item]) -> Item:
        """Return one of the items, each as likely as the others."""
        if not items:
            raise RejectedError
        return items[int(self._random.random() * len(items))]

    def pick_weighted(self, weights: dict[str, float]) -> str:
        """Return one of the keys, as likely as its weight says."""
        rest = self._random.random() * sum(weights.values())
        for name, weight in weights.items():
            rest -= weight
            if rest < 0:
                return name
        return name

    def pick_rare(self, items: Sequence[Item], kind: str) -> Item:
        """Return the less used of two items, so that no word becomes too rare."""
        first, second = self.pick(items), self.pick(items)
        names = [f"{kind} {getattr(item, 'lemma', item)}" for item in (first, second)]
        rarer = 0 if self._n_uses.get(names[0], 0) <= self._n_uses.get(names[1], 0) else 1
        self._new_uses.append(names[rarer])
        return (first, second)[rarer]

    def count_uses(self) -> None:
        """Count the words picked since the last count: they have become a sentence."""
        for name in self._new_uses:
            self._n_uses[name] = self._n_uses.get(name, 0) + 1
        self._new_uses = []

    def forget_uses(self) -> None:
        """Forget the words picked since the last count: they have become nothing."""
        self._new_uses = []
