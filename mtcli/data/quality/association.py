"""Word associations in a parallel corpus, learned from the corpus itself.

Words that occur in the same pairs get similar vectors. The vectors come from a correspondence
analysis of the co-occurrence counts, that is, from a truncated singular value decomposition of the
standardized counts. A line and its translation then have similar sums of word vectors. Vectors
learned on one half of the corpus (a fold) are applied to the other half. Otherwise, a misaligned
passage would appear to be aligned according to vectors learned from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtcli.data.quality.tokens import Array, Hashes, Tokens

_BUCKET_BITS = 20
N_BUCKETS = 1 << _BUCKET_BITS
_SHIFT = np.uint64(64 - _BUCKET_BITS)
_MAX_WORDS = 2_000  # number of most frequent words per side that have a vector
_MIN_COUNT = 3
_MAX_LINE_TOKENS = 48  # tokens at the start of a line that are used to count co-occurrences
_WIDTH = 64  # dimensions of the vectors
_EXTRA_WIDTH = 10  # extra dimensions that make the randomized SVD more accurate
_SMOOTHING = 5.0  # pseudo-counts; without them, rare words dominate
_PAIRS_AT_ONCE = 4_000
_EPSILON = 1e-6

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


def buckets(hashes: Hashes) -> Array:
    """Return the bucket of each hash: its upper bits."""
    return (hashes >> _SHIFT).astype(np.int64)


@dataclass(frozen=True)
class Vocabulary:
    """Ids of the most frequent words on one side; 0 for all other words."""

    table: NDArray[np.int32]  # id of each hash bucket
    size: int

    @classmethod
    def of(cls, tokens: Tokens) -> "Vocabulary":
        """Return the vocabulary of tokenized lines."""
        counts = np.bincount(buckets(tokens.hashes), minlength=N_BUCKETS)
        frequent = np.flatnonzero(counts >= _MIN_COUNT)
        frequent = frequent[np.argsort(-counts[frequent], kind="stable")[:_MAX_WORDS]]
        table = np.zeros(N_BUCKETS, np.int32)
        table[frequent] = np.arange(1, len(frequent) + 1)
        return cls(table, len(frequent) + 1)

    def ids(self, tokens: Tokens) -> NDArray[np.int32]:
        """Return the id of each token."""
        return self.table[buckets(tokens.hashes)]


@dataclass(frozen=True)
class SideVectors:
    """Word vectors for one side."""

    vocabulary: Vocabulary
    vectors: Floats  # [V, D]; row 0, for unknown words, is zero

    def embed(self, tokens: Tokens) -> Floats:
        """Return the normalized sum of the word vectors of each line [lines, D]."""
        lines = np.zeros((len(tokens), self.vectors.shape[1]), np.float32)
        filled = np.flatnonzero(tokens.counts)  # reduceat cannot handle empty lines
        if len(filled):
            words = self.vectors[self.vocabulary.ids(tokens)]
            lines[filled] = np.add.reduceat(words, tokens.offsets[filled], axis=0)
        lines /= np.linalg.norm(lines, axis=1, keepdims=True) + np.float32(_EPSILON)
        return lines


@dataclass(frozen=True)
class WordVectors:
    """Word vectors for both sides. The dot product of two line vectors is their similarity."""

    source: SideVectors
    target: SideVectors


@dataclass(frozen=True)
class LinePairs:
    """Row numbers of source and target lines that are treated as pairs."""

    source: Array
    target: Array


class CooccurrenceCounter:
    """Counts the words that occur together in pairs of lines."""

    def __init__(self, source: Tokens, target: Tokens) -> None:
        self._tokens = source, target
        self.vocabularies = Vocabulary.of(source), Vocabulary.of(target)
        self._ids = [v.ids(t) for v, t in zip(self.vocabularies, self._tokens, strict=True)]

    def learn(self, passes: Sequence[LinePairs]) -> WordVectors:
        """Return vectors learned from the given pairs of lines."""
        n_source, n_target = (vocabulary.size for vocabulary in self.vocabularies)
        counts: Doubles = np.zeros(n_source * n_target)
        for pairs in passes:
            for start in range(0, len(pairs.source), _PAIRS_AT_ONCE):
                rows = slice(start, start + _PAIRS_AT_ONCE)
                keys = self._keys(pairs.source[rows], pairs.target[rows])
                counts += np.bincount(keys, minlength=len(counts))
        counts = counts.reshape(n_source, n_target)
        counts[0] = counts[:, 0] = 0  # unknown words have no associations
        vectors = _decompose(counts)
        sides = zip(self.vocabularies, vectors, strict=True)
        return WordVectors(*(SideVectors(*side) for side in sides))

    def _keys(self, sources: Array, targets: Array) -> Array:
        """Return one key for each combination of source and target word in each pair of lines."""
        starts, sizes = [], []
        for tokens, rows in zip(self._tokens, (sources, targets), strict=True):
            starts.append(tokens.offsets[rows])
            sizes.append(np.minimum(tokens.offsets[rows + 1] - starts[-1], _MAX_LINE_TOKENS))
        products = sizes[0] * sizes[1]
        pair = np.repeat(np.arange(len(sources)), products)
        index = np.arange(products.sum()) - np.repeat(np.cumsum(products) - products, products)
        i, j = np.divmod(index, sizes[1][pair])
        keys: Array = self._ids[0][starts[0][pair] + i].astype(np.int64)
        keys *= self.vocabularies[1].size
        keys += self._ids[1][starts[1][pair] + j]
        return keys


def _decompose(counts: Doubles) -> tuple[Floats, Floats]:
    """Return word vectors for both sides, from a randomized SVD of the standardized counts."""
    source, target = counts.sum(axis=1), counts.sum(axis=0)
    total = max(1.0, float(counts.sum()))
    scales = np.sqrt(source + _SMOOTHING), np.sqrt(target + _SMOOTHING)
    residuals = counts
    residuals -= np.outer(source, target / total)
    residuals /= scales[0][:, None]
    residuals /= scales[1]
    random = np.random.default_rng(0).standard_normal((len(target), _WIDTH + _EXTRA_WIDTH))
    basis = _orthonormal(residuals @ random)
    for _ in range(2):  # power iterations (Halko et al. 2011, algorithm 4.4)
        basis = _orthonormal(residuals @ _orthonormal(residuals.T @ basis))
    # Decompose only small matrices: for large ones, LAPACK uses threads, which are slow on a busy
    # machine.
    projected = basis.T @ residuals
    squares, left = np.linalg.eigh(projected @ projected.T)
    order = np.argsort(-squares)[:_WIDTH]
    values = np.sqrt(np.maximum(squares[order], _EPSILON))
    left = left[:, order]
    right = projected.T @ left / values
    roots = np.sqrt(values * total)
    return (
        ((basis @ left) * roots / scales[0][:, None]).astype(np.float32),
        (right * roots / scales[1][:, None]).astype(np.float32),
    )


def _orthonormal(columns: Doubles) -> Doubles:
    """Return an orthonormal basis for the column space of a tall matrix."""
    if not columns.shape[1]:  # no words occur together
        return columns
    squares, vectors = np.linalg.eigh(columns.T @ columns)
    is_used = squares > _EPSILON * max(float(squares[-1]), _EPSILON)
    basis: Doubles = columns @ (vectors[:, is_used] / np.sqrt(squares[is_used]))
    return basis
