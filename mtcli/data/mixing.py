"""Mix several corpora: choose the pairs from each corpus that an epoch contains.

The weight of a corpus is the number of times that an epoch contains each of its pairs. An epoch
takes the next `weight * size` pairs from an endless sequence of permutations of the corpus, so all
pairs of a corpus are used equally often. The permutations depend only on the seed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mtcli.counts import format_count
from mtcli.data.encoding import EncodedCorpus

Rows = NDArray[np.int64]  # indices of pairs

_MIXING_SEED = 3  # separates these permutations from other uses of the same seed


@dataclass(frozen=True)
class Mixture:
    """Selects the pairs that each epoch takes from each corpus."""

    starts: tuple[int, ...]  # [corpora + 1]: first row of each corpus, then the number of rows
    counts: tuple[int, ...]  # pairs from each corpus per epoch
    seed: int

    def rows(self, epoch: int) -> Rows:
        """Return the rows of an epoch, corpus by corpus."""
        parts = [
            rows
            for corpus, count in enumerate(self.counts)
            for rows in self._range(corpus, epoch * count, (epoch + 1) * count)
        ]
        return np.concatenate(parts)

    def rows_before(self, epoch: int, corpus: int) -> tuple[int, Rows]:
        """Return how much of a corpus the epochs before `epoch` have used.

        The result is the number of complete permutations and the rows taken from the next one.
        """
        size = self.starts[corpus + 1] - self.starts[corpus]
        n_complete, n_rest = divmod(epoch * self.counts[corpus], max(1, size))
        return n_complete, self._permutation(corpus, n_complete)[:n_rest]

    def _range(self, corpus: int, start: int, end: int) -> Iterator[Rows]:
        """Yield the rows at positions `start` to `end` of the endless sequence, in arrays."""
        size = self.starts[corpus + 1] - self.starts[corpus]
        while start < end:
            number, offset = divmod(start, size)
            rows = self._permutation(corpus, number)[offset : offset + end - start]
            yield rows
            start += len(rows)

    def _permutation(self, corpus: int, number: int) -> Rows:
        first, end = self.starts[corpus : corpus + 2]
        random = np.random.default_rng([self.seed, _MIXING_SEED, corpus, number])
        return first + random.permutation(end - first)


def mix(
    sizes: Sequence[int], weights: Sequence[float], temperature: float | None
) -> tuple[int, ...]:
    """Return the number of pairs that an epoch takes from each corpus.

    With a temperature T, the share of a corpus is proportional to weight * size ** (1 / T), and the
    largest corpus keeps its weight. Every corpus that is not empty contributes at least one pair.
    """
    largest = max(sizes)
    exponent = 1 - 1 / (temperature or 1)
    return tuple(
        max(1, round(weight * size * (largest / size) ** exponent)) if size else 0
        for size, weight in zip(sizes, weights, strict=True)
    )


@dataclass(frozen=True)
class Share:
    """Amount of data from one corpus, and its share of all data."""

    n_pairs: int
    n_tokens: int
    pairs: float  # from 0 to 1
    tokens: float

    def __str__(self) -> str:
        pairs, tokens = format_count(self.n_pairs, "pair"), format_count(self.n_tokens, "token")
        return f"{pairs} ({self.pairs:.1%}), {tokens} ({self.tokens:.1%})"


def to_shares(pairs: Sequence[int], tokens: Sequence[int]) -> list[Share]:
    """Return the share of each corpus, given its number of pairs and tokens."""
    n_pairs, n_tokens = max(1, sum(pairs)), max(1, sum(tokens))
    return [Share(p, t, p / n_pairs, t / n_tokens) for p, t in zip(pairs, tokens, strict=True)]


@dataclass(frozen=True)
class CorpusParts:
    """Boundaries of the original corpora in an encoded corpus."""

    encoded: EncodedCorpus
    n_corpora: int

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """First row of each corpus, then the number of rows."""
        if self.encoded.origins is None:
            return 0, len(self.encoded)
        return tuple(np.searchsorted(self.encoded.origins, np.arange(self.n_corpora + 1)).tolist())

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of pairs in each corpus."""
        return tuple(np.diff(self.starts).tolist())

    @property
    def n_tokens(self) -> tuple[int, ...]:
        """Number of source and target tokens in each corpus, including EOS and tags."""
        starts = np.array(self.starts)
        sides = (self.encoded.source, self.encoded.target)
        return tuple(sum(np.diff(side.offsets[starts]) for side in sides).tolist())

    def count(self, rows: Rows) -> tuple[Rows, Rows]:
        """Return, for each corpus, the number of its pairs and of its tokens in `rows`."""
        corpora = np.searchsorted(self.starts[1:], rows, side="right")
        sides = (self.encoded.source, self.encoded.target)
        lengths = sum(side.offsets[rows + 1] - side.offsets[rows] for side in sides)
        n_corpora = len(self.starts) - 1
        tokens = np.bincount(corpora, lengths, n_corpora).astype(np.int64)
        return np.bincount(corpora, minlength=n_corpora), tokens
