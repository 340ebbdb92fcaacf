"""Alignment scores: is target line i + k the translation of source line i?

A score is the log-likelihood ratio of "translation" to "unrelated line". It combines the similarity
of the line vectors, the line lengths, and the rare words and numbers that occur in both lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtcli.data.quality.association import (
    CooccurrenceCounter,
    Doubles,
    Floats,
    LinePairs,
    Vocabulary,
    WordVectors,
)
from mtcli.data.quality.tokens import Array, Hashes, Tokens

MAX_OFFSET = 8  # lines by which a passage can be shifted
OFFSETS = range(-MAX_OFFSET, MAX_OFFSET + 1)
MIN_PAIRS = 200  # with fewer pairs, no model is learned

_LEARNING_OFFSETS = range(-2, 3)  # offsets in the first round, before any shift is known
_GROUP = 32  # lines that are assumed to have the same offset
_MIN_GAIN = 16.0  # minimum advantage over offset 0, in standard deviations summed over a group
_N_FEATURES = 3
_MAX_LENGTH_DIFFERENCE = 1.5  # of the logarithms of the lengths; larger values are clipped
_LENGTH_SMOOTHING = 5
_MAX_SHARED = 3
_RIDGE = 1e-3
_ROW_SHIFT, _HASH_SHIFT = np.uint64(40), np.uint64(24)


@dataclass(frozen=True)
class Passage:
    """Consecutive source lines, and target lines with up to `MAX_OFFSET` more on each side."""

    source: Tokens
    target: Tokens
    source_lengths: Array  # characters
    target_lengths: Array
    before: int  # target lines in the margin before the first source line

    def slice(self, start: int, end: int) -> "Passage":
        """Return the passage of the source lines from `start` to `end`."""
        first = max(0, self.before + start - MAX_OFFSET)
        last = min(len(self.target), self.before + end + MAX_OFFSET)
        return Passage(
            self.source.slice(start, end),
            self.target.slice(first, last),
            self.source_lengths[start:end],
            self.target_lengths[first:last],
            self.before + start - first,
        )

    def rows(self, offset: int) -> LinePairs:
        """Return the rows of all pairs at `offset` that are inside this passage."""
        sources = np.arange(len(self.source))
        targets = sources + self.before + offset
        exists = (targets >= 0) & (targets < len(self.target))
        return LinePairs(sources[exists], targets[exists])


@dataclass(frozen=True)
class AlignmentModel:
    """Scores pairs. Vectors learned on fold 1 score the rows in fold 0, and vice versa."""

    folds: tuple[WordVectors, WordVectors]
    length_shift: float  # median of log(source length / target length)
    weights: Doubles  # one weight per feature, then a constant

    def score(self, passage: Passage, fold: int) -> Floats:
        """Return the score of each source line with the target line at each offset."""
        features = _features(passage, self.folds[fold], self.length_shift)
        scores = features @ self.weights[:-1] + self.weights[-1]
        # Blank lines get a score of 0 because they provide no evidence.
        filled: Floats = np.nan_to_num(scores, nan=0.0).astype(np.float32)
        return filled


def learn_alignment(passages: Sequence[Passage]) -> AlignmentModel | None:
    """Return a model learned from passages, or None if they have too few lines.

    The passages must alternately belong to fold 0 and fold 1.
    """
    if sum(len(passage.source) for passage in passages) < MIN_PAIRS:
        return None
    learner = _Learner(passages)
    vectors = learner.learn([[offset] * len(learner.groups) for offset in _LEARNING_OFFSETS])
    vectors = learner.learn([learner.best_offsets(vectors)])
    return learner.model(vectors)


class _Learner:
    """Learns word vectors and feature weights from a list of passages."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = passages
        self._counter = CooccurrenceCounter(
            _join([passage.source for passage in passages]),
            _join([passage.target for passage in passages]),
        )
        self._starts = [
            np.cumsum([0, *(len(tokens) for tokens in side)])
            for side in ([p.source for p in passages], [p.target for p in passages])
        ]
        ratios = [_log_ratio(p, p.rows(0)) for p in passages]
        self._length_shift = float(np.median(np.concatenate(ratios)))
        self.groups = [  # passage number, start line, end line
            (number, start, min(start + _GROUP, len(passage.source)))
            for number, passage in enumerate(passages)
            for start in range(0, len(passage.source), _GROUP)
        ]

    def learn(self, offset_lists: Sequence[Sequence[int]]) -> tuple[WordVectors, WordVectors]:
        """Return the vectors for each fold. Each list of offsets has one offset per group."""
        folds = []
        for fold in (1, 0):  # the vectors for fold 0 are learned on fold 1
            groups = [index for index, group in enumerate(self.groups) if group[0] % 2 == fold]
            passes = [self._pairs(groups, offsets) for offsets in offset_lists]
            folds.append(self._counter.learn(passes))
        return folds[0], folds[1]

    def _pairs(self, groups: Sequence[int], offsets: Sequence[int]) -> LinePairs:
        sides: tuple[list[Array], list[Array]] = [], []
        for index in groups:
            number, start, end = self.groups[index]
            pairs = self._passages[number].rows(offsets[index])
            is_chosen = (pairs.source >= start) & (pairs.source < end)
            sides[0].append(pairs.source[is_chosen] + self._starts[0][number])
            sides[1].append(pairs.target[is_chosen] + self._starts[1][number])
        return LinePairs(*(np.concatenate(side) for side in sides))

    def best_offsets(self, vectors: tuple[WordVectors, WordVectors]) -> list[int]:
        """Return the best offset for each group; 0 unless another offset is clearly better."""
        features, unrelated = self._all_features(vectors)
        self._features, self._unrelated = features, unrelated
        scale = np.nanstd(unrelated, axis=0) + 1e-6
        means = np.nanmean(unrelated, axis=0)
        signs = np.array([1.0, -1.0, 1.0])
        totals = np.nan_to_num(((features - means) / scale) @ signs)  # [lines, offsets]
        starts = [self._starts[0][number] + start for number, start, _ in self.groups]
        sums = np.add.reduceat(totals, starts, axis=0)
        best = sums.argmax(axis=1)
        gains = sums[np.arange(len(sums)), best] - sums[:, MAX_OFFSET]
        best[gains < _MIN_GAIN] = MAX_OFFSET
        offsets: list[int] = (best - MAX_OFFSET).tolist()
        return offsets

    def model(self, vectors: tuple[WordVectors, WordVectors]) -> AlignmentModel:
        """Return a model whose weights are fitted to separate pairs from unrelated lines."""
        offsets = self.best_offsets(vectors)
        lines = [end - start for _, start, end in self.groups]
        columns = np.repeat(np.array(offsets) + MAX_OFFSET, lines)
        pairs = self._features[np.arange(len(columns)), columns]
        weights = _fit_logistic(_complete(pairs), _complete(self._unrelated))
        return AlignmentModel(vectors, self._length_shift, weights)

    def _all_features(self, vectors: tuple[WordVectors, WordVectors]) -> tuple[Floats, Floats]:
        """Return the features of the line pairs at each offset, and those of unrelated pairs."""
        features, unrelated = [], []
        for number, passage in enumerate(self._passages):
            words = vectors[number % 2]
            features.append(_features(passage, words, self._length_shift))
            unrelated.append(_unrelated_features(passage, words, self._length_shift))
        return np.concatenate(features), np.concatenate(unrelated)


def _join(parts: Sequence[Tokens]) -> Tokens:
    """Return the tokens of all parts as one object."""
    ends = np.cumsum([0, *(len(part.hashes) for part in parts)])
    offsets = [part.offsets[1:] + start for part, start in zip(parts, ends[:-1], strict=True)]
    return Tokens(
        np.concatenate([part.hashes for part in parts]),
        np.concatenate([[0], *offsets]),
        np.concatenate([part.is_word for part in parts]),
    )


def _complete(features: Floats) -> Floats:
    """Return the rows of `features` that have no missing values."""
    return features[~np.isnan(features).any(axis=1)]


def _features(passage: Passage, words: WordVectors, length_shift: float) -> Floats:
    """Return the features of each line and offset; NaN where a line is missing or blank."""
    compare = _Comparison(passage, words, length_shift)
    features = np.full((len(passage.source), len(OFFSETS), _N_FEATURES), np.nan, np.float32)
    for column, offset in enumerate(OFFSETS):
        pairs = passage.rows(offset)
        features[pairs.source, column] = compare.features(pairs)
    return features


def _unrelated_features(passage: Passage, words: WordVectors, length_shift: float) -> Floats:
    """Return the features of each source line paired with a target line half a passage away."""
    n_lines = len(passage.source)
    sources = np.arange(n_lines)
    targets = passage.before + (sources + n_lines // 2) % n_lines
    exists = targets < len(passage.target)
    pairs = LinePairs(sources[exists], targets[exists])
    return _Comparison(passage, words, length_shift).features(pairs)


class _Comparison:
    """Comparison of the source and target lines of a passage."""

    def __init__(self, passage: Passage, words: WordVectors, length_shift: float) -> None:
        self._passage = passage
        self._length_shift = length_shift
        self._source = words.source.embed(passage.source)
        self._target = words.target.embed(passage.target)
        self._source_keys = _rare_keys(passage.source, words.source.vocabulary)
        self._target_keys = np.unique(_rare_keys(passage.target, words.target.vocabulary))

    def features(self, pairs: LinePairs) -> Floats:
        """Return the features of each pair [pairs, 3]; NaN if a line of the pair is blank."""
        similarity = np.einsum("ij,ij->i", self._source[pairs.source], self._target[pairs.target])
        ratios = np.abs(_log_ratio(self._passage, pairs) - self._length_shift)
        lengths = np.minimum(ratios, _MAX_LENGTH_DIFFERENCE)
        features = np.stack([similarity, lengths, self._n_shared(pairs)], axis=1)
        is_blank = (self._passage.source.counts[pairs.source] == 0) | (
            self._passage.target.counts[pairs.target] == 0
        )
        features[is_blank] = np.nan
        return features.astype(np.float32)

    def _n_shared(self, pairs: LinePairs) -> Doubles:
        """Return how many rare words occur in both lines of each pair, at most `_MAX_SHARED`."""
        if not len(self._target_keys) or not len(pairs.source):
            return np.zeros(len(pairs.source))
        target_of = np.full(len(self._passage.source), -1)
        target_of[pairs.source] = pairs.target
        rows = (self._source_keys >> _ROW_SHIFT).astype(np.int64)
        targets = target_of[rows]
        hashes = self._source_keys & ((np.uint64(1) << _ROW_SHIFT) - np.uint64(1))
        keys = (targets.astype(np.uint64) << _ROW_SHIFT) | hashes
        places = np.minimum(np.searchsorted(self._target_keys, keys), len(self._target_keys) - 1)
        is_shared = (self._target_keys[places] == keys) & (targets >= 0)
        counts = np.bincount(rows[is_shared], minlength=len(self._passage.source))
        return np.minimum(counts[pairs.source], _MAX_SHARED).astype(np.float64)


def _rare_keys(tokens: Tokens, vocabulary: Vocabulary) -> Hashes:
    """Return, for each word without a vector, a key that combines its row and its hash."""
    is_rare = tokens.is_word & (vocabulary.ids(tokens) == 0)
    rows = tokens.rows[is_rare].astype(np.uint64)
    keys: Hashes = (rows << _ROW_SHIFT) | (tokens.hashes[is_rare] >> _HASH_SHIFT)
    return keys


def _log_ratio(passage: Passage, pairs: LinePairs) -> Doubles:
    """Return the logarithm of the length ratio of each pair."""
    source = passage.source_lengths[pairs.source] + _LENGTH_SMOOTHING
    target = passage.target_lengths[pairs.target] + _LENGTH_SMOOTHING
    ratios: Doubles = np.log(source / target)
    return ratios


def _fit_logistic(positive: Floats, negative: Floats) -> Doubles:
    """Return the weights and the constant of a logistic regression (Newton's method)."""
    features = np.concatenate([positive, negative]).astype(np.float64)
    labels = np.repeat([1.0, 0.0], [len(positive), len(negative)])
    mean, scale = features.mean(axis=0), features.std(axis=0) + 1e-6
    inputs = np.column_stack([(features - mean) / scale, np.ones(len(features))])
    weights = np.zeros(inputs.shape[1])
    for _ in range(10):
        probabilities = 1 / (1 + np.exp(-np.clip(inputs @ weights, -30, 30)))
        gradient = inputs.T @ (labels - probabilities) - _RIDGE * len(labels) * weights
        curvature = (inputs * (probabilities * (1 - probabilities))[:, None]).T @ inputs
        curvature += _RIDGE * len(labels) * np.eye(len(weights))
        weights = weights + np.linalg.solve(curvature, gradient)
    weights[-1] -= (weights[:-1] * mean / scale).sum()
    weights[:-1] /= scale
    return weights
