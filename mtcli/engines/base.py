"""What every engine offers: pieces in, pieces out. Engines differ in how they search."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from mtcli.options import SearchOptions


@dataclass(frozen=True)
class Source:
    """What is to be translated: at most as many pieces as the model was trained for."""

    pieces: tuple[str, ...]
    prefix: tuple[str, ...] = ()  # how its translation is to begin


@dataclass(frozen=True)
class Scored:
    """What a search has found for one source."""

    pieces: list[str]
    score: float
    is_cut: bool = False  # reached the longest length allowed before it came to an end
    attention: Sequence[Sequence[float]] | None = None  # [T][S]: from target to source pieces


Found = list[list[Scored]]  # for each source its n_best targets, best first


class Engine(ABC):
    """Executes a model. Sources that share a batch also share `SearchOptions.limit`."""

    n_parallel = 1  # batches that it works on at the same time
    n_positions: int | None = None  # the longest source or target it can represent, if limited
    batch_tokens = 4_096  # source positions of a batch that suit it, padding included

    @abstractmethod
    def search(self, sources: list[Source], options: SearchOptions, limit: int) -> Found:
        """For each source its n_best targets of at most `limit` pieces, best first."""

    def submit(
        self, sources: list[Source], options: SearchOptions, limit: int
    ) -> Callable[[], Found]:
        """Ask for a search; calling what is returned waits for its result."""
        return partial(self.search, sources, options, limit)
