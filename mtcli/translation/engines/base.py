"""Interface of the engines, which translate pieces into n-best lists and score translations."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from mtcli.config.search import SearchOptions


@dataclass(frozen=True)
class Source:
    """Source pieces. For a search, their number is at most `LoadedEngine.max_pieces`."""

    pieces: tuple[str, ...]
    prefix: tuple[str, ...] = ()  # forced start of the translation
    n_tags: int = 0  # number of tags at the start of `pieces`


@dataclass(frozen=True)
class ScoredPieces:
    """A translation of one source."""

    pieces: list[str]
    score: float
    is_truncated: bool = False  # reached the length limit before EOS
    attention: Sequence[Sequence[float]] | None = None  # [T][S]: from target to source pieces


NBest = list[list[ScoredPieces]]  # the n-best list of each source, best first
PiecePair = tuple[Source, Sequence[str]]  # a source, and the pieces of an existing translation
TokenScores = list[list[float]]  # for each pair, the log-probability of each piece and of EOS


class Engine(ABC):
    """Backend that runs a model.

    All sources in a batch must have the same length limit (see `SearchOptions.limit`).
    """

    name: ClassVar[str] = ""  # as in `config.search.ENGINES`
    n_bytes = 0  # size of the weights
    n_parallel = 1  # batches searched at the same time
    n_positions: int | None = None  # maximum source and target length; None: unlimited
    batch_tokens = 4_096  # default batch size in source positions, including padding

    @abstractmethod
    def search(self, sources: list[Source], options: SearchOptions, limit: int) -> NBest:
        """Return the n-best list of each source, with at most `limit` pieces per target."""

    def submit(
        self, sources: list[Source], options: SearchOptions, limit: int
    ) -> Callable[[], NBest]:
        """Start a search; return a function that waits for its result.

        By default, the search runs when the function is called.
        """
        return partial(self.search, sources, options, limit)

    @abstractmethod
    def score(self, pairs: list[PiecePair]) -> TokenScores:
        """Return the log-probabilities of the pieces and of EOS for each translation."""

    def submit_scoring(self, pairs: list[PiecePair]) -> Callable[[], TokenScores]:
        """Start scoring `pairs`; return a function that waits for the result.

        By default, the scoring runs when the function is called.
        """
        return partial(self.score, pairs)
