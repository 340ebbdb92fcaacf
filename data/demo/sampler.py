"""Reproducible random choices."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Item = TypeVar("Item")


class RejectedError(Exception):
    """The choices so far do not lead to a valid sentence; the caller must try again."""


class Sampler:
    """Random choices that use only `Random.random`, which is stable across Python versions."""

    def __init__(self, seed: int) -> None:
        """Start a sequence of choices that depends only on the seed."""
        self._random = Random(seed)
        self._n_uses: dict[str, int] = {}
        self._new_uses: list[str] = []

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self._random.random() < probability

    def pick(self, items: Sequence[Item]) -> Item:
        """Return a random item; all items are equally likely."""
        if not items:
            raise RejectedError
        return items[int(self._random.random() * len(items))]

    def pick_weighted(self, weights: dict[str, float]) -> str:
        """Return a key with probability proportional to its weight."""
        remaining = self._random.random() * sum(weights.values())
        for name, weight in weights.items():
            remaining -= weight
            if remaining < 0:
                return name
        return name

    def pick_rare(self, items: Sequence[Item], kind: str) -> Item:
        """Return the less frequently used of two random items, so that no word becomes too rare."""
        first, second = self.pick(items), self.pick(items)
        names = [f"{kind} {getattr(item, 'lemma', item)}" for item in (first, second)]
        rarer = 0 if self._n_uses.get(names[0], 0) <= self._n_uses.get(names[1], 0) else 1
        self._new_uses.append(names[rarer])
        return (first, second)[rarer]

    def count_uses(self) -> None:
        """Count the words picked since the last sentence; their sentence is complete."""
        for name in self._new_uses:
            self._n_uses[name] = self._n_uses.get(name, 0) + 1
        self._new_uses = []

    def discard_uses(self) -> None:
        """Discard the words picked since the last sentence; their sentence was rejected."""
        self._new_uses = []
