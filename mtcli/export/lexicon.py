"""Which target pieces a source piece may become: IBM Model 1 (Brown et al. 1993) over pieces."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtcli.data import EncodedCorpus

_CHUNK = 12_000_000  # links that are looked at together: some 300 MB
_MAX_CHUNKS = 12  # of a larger corpus, sentences are taken evenly
_ROUNDS = 4  # of expectation maximisation
_LEAST_COUNT = 0.05  # what is expected less often is forgotten

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Lexicon:
    """The probability of each target piece, given a source piece; sorted, the likeliest first."""

    sources: Ints
    targets: Ints
    probabilities: Floats

    def without(self, targets: Ints) -> "Lexicon":
        """What is left when these targets are known anyway."""
        kept = ~np.isin(self.targets, targets)
        return Lexicon(self.sources[kept], self.targets[kept], self.probabilities[kept])


def learn_lexicon(corpus: EncodedCorpus, target_size: int) -> Lexicon:
    """The lexicon of a corpus whose target vocabulary has so many pieces."""
    parts = [_expected_counts(corpus, rows, target_size) for rows in _chunks(corpus)]
    keys, places = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    counts = np.bincount(places, weights=np.concatenate([part[1] for part in parts]))
    sources, targets = keys // target_size, keys % target_size
    probabilities = counts / np.bincount(sources, weights=counts)[sources]
    order = np.lexsort((-probabilities, sources))
    return Lexicon(sources[order], targets[order], probabilities[order])


def _chunks(corpus: EncodedCorpus) -> Iterator[Ints]:
    """The numbers of all pairs, or of enough of them, in groups of bounded size."""
    links = corpus.source.lengths() * corpus.target.lengths()
    stride = max(1, -(-int(links.sum()) // (_CHUNK * _MAX_CHUNKS)))
    rows = np.arange(0, len(corpus), stride)
    chunk_of_row = np.cumsum(links[rows]) // _CHUNK
    yield from np.split(rows, np.flatnonzero(np.diff(chunk_of_row)) + 1)


def _expected_counts(corpus: EncodedCorpus, rows: Ints, target_size: int) -> tuple[Ints, Floats]:
    """How often each source piece becomes each target piece, as far as these pairs tell."""
    keys, sizes = _links(corpus, rows, target_size)
    keys, places = np.unique(keys, return_inverse=True)
    sources = keys // target_size
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])  # of the links of each target word
    counts = probabilities = np.ones(len(keys))
    for _ in range(_ROUNDS):
        weights = probabilities[places]
        weights /= np.repeat(np.add.reduceat(weights, starts), sizes)
        counts = np.bincount(places, weights=weights).astype(np.float64)
        probabilities = counts / np.bincount(sources, weights=counts)[sources]
    is_likely = counts >= _LEAST_COUNT
    return keys[is_likely], counts[is_likely]


def _links(corpus: EncodedCorpus, rows: Ints, target_size: int) -> tuple[Ints, Ints]:
    """Every source piece beside every target piece of its pair, as source * V + target.

    The links of a target piece stand together; the second array says how many each has. The end
    symbol of the source is what comes of nothing in particular.
    """
    keys, sizes = [], []
    for row in rows:
        source, target = corpus.source[row].astype(np.int64), corpus.target[row]
        keys.append((source * target_size + target[:, None]).ravel())
        sizes.append(np.full(len(target), len(source)))
    return np.concatenate(keys), np.concatenate(sizes)
