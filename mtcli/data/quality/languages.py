"""Lines in a wrong language, found with character statistics of the corpus itself.

A line is in a wrong language if its letter trigrams fit the other side of the corpus much better
than its own side, or if they fit a group of lines that differs from both sides as much as one
language from another: it has its own trigrams, and its words hardly occur outside the group.
Statistics of one half of the corpus (a fold) are applied to the other half.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtcli.data.quality.association import N_BUCKETS, Doubles, Floats, buckets
from mtcli.data.quality.tokens import Array, TextBlock, Tokens, mix

_BITS = 16  # of a trigram hash
_N_TRIGRAMS = 1 << _BITS
_FACTORS = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)))
_PRIOR_TRIGRAMS = 2_000.0  # weight of the statistics of the whole corpus in each model
_MIN_TRIGRAMS = 15  # of a line; shorter lines are not judged
_MIN_GROUP_LINES = 10  # of a third language, in the sample
_MAX_GROUP_SHARE = 0.2  # a third language is a minority
_N_ROUNDS = 5
_CANDIDATE_SHARE = 0.02  # lines with the worst fit, to start with
_MIN_RATIO = 0.3  # nats per trigram by which a third language must fit better
_MIN_SIDE_RATIO = 0.5  # the same for the language of the other side
_MAX_KNOWN_SHARE = 0.8  # of known words in a foreign line, relative to the average line
_MAX_GROUP_KNOWN_SHARE = 0.6  # the same for the mean of a group
_MIN_NEW_WORDS = 40  # different words of a third language
# The number of different words in natural text of n words is at least this times the square root
# of n (Heaps' law); sentences made from a template have fewer.
_HEAPS_FACTOR, _TEMPLATE_FACTOR = 3.0, 4.0
_MIN_KNOWN_COUNT = 2  # occurrences of a known word

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Trigrams:
    """Hashed letter trigrams of a list of lines."""

    hashes: Array
    rows: Array  # line number of each trigram
    counts: Array  # number of trigrams in each line

    @classmethod
    def of(cls, text: TextBlock) -> "Trigrams":
        """Return the trigrams of the letters of lines; other characters count as spaces."""
        is_letter = text.is_letter
        is_kept = is_letter.copy()
        is_kept[1:] |= is_letter[:-1]  # one space after each word
        is_kept[text.line_ends] = True
        letters = np.where(is_letter, text.codes, ord(" "))[is_kept].astype(np.uint64)
        is_end = np.zeros(len(text.codes), bool)
        is_end[text.line_ends] = True
        is_end = is_end[is_kept]
        sums = letters * _FACTORS[0]
        sums[1:] += letters[:-1] * _FACTORS[1]
        sums[2:] += letters[:-2] * _FACTORS[2]
        # The line end before the first letter is its space; a trigram reaches no further back.
        is_inside = ~is_end
        is_inside[1:] &= ~is_end[:-1]
        is_inside[0] = False
        hashes = (mix(sums) >> np.uint64(64 - _BITS)).astype(np.int64)[is_inside]
        rows = (np.cumsum(is_end) - is_end)[is_inside].astype(np.int64)
        return cls(hashes, rows, np.bincount(rows, minlength=len(text)))

    def __len__(self) -> int:
        return len(self.counts)

    def totals(self, table: Floats) -> Doubles:
        """Return the sum of table entries of each line."""
        weights = table[self.hashes].astype(np.float64)
        return np.bincount(self.rows, weights, len(self)).astype(np.float64, copy=False)

    def histogram(self, lines: Mask) -> Doubles:
        """Return the number of occurrences of each trigram in the given lines."""
        return np.bincount(self.hashes[lines[self.rows]], minlength=_N_TRIGRAMS).astype(np.float64)


@dataclass(frozen=True)
class FoldTables:
    """Log-probability ratios of trigrams, for lines of one fold on one side of the corpus."""

    other_side: Floats  # log P(other side) - log P(this side)
    group: Floats | None  # log P(third language) - log P(this side); None if there is none


@dataclass(frozen=True)
class SideLanguage:
    """Language of one side of a corpus."""

    folds: tuple[FoldTables, FoldTables]
    known: "KnownWords"

    def find_wrong(self, trigrams: Trigrams, tokens: Tokens, folds: Array) -> Mask:
        """Return whether each line is in a wrong language."""
        n_trigrams = np.maximum(trigrams.counts, 1)
        is_wrong = np.zeros(len(trigrams), bool)
        for fold, tables in enumerate(self.folds):
            is_other = trigrams.totals(tables.other_side) > _MIN_SIDE_RATIO * n_trigrams
            if tables.group is not None:
                is_other |= trigrams.totals(tables.group) > _MIN_RATIO * n_trigrams
            is_wrong |= (folds == fold) & is_other
        is_wrong &= self.known.shares(tokens) <= _MAX_KNOWN_SHARE
        return is_wrong & (trigrams.counts >= _MIN_TRIGRAMS)


@dataclass(frozen=True)
class KnownWords:
    """Words of the lines that are in the language of their side."""

    is_known: Mask  # by hash bucket
    average_share: float  # of the words of a line

    @classmethod
    def of(cls, tokens: Tokens, lines: Mask) -> "KnownWords":
        """Return the words of the given lines."""
        is_used = tokens.is_word & lines[tokens.rows]
        counts = np.bincount(buckets(tokens.hashes[is_used]), minlength=N_BUCKETS)
        is_known = counts >= _MIN_KNOWN_COUNT
        shares = _word_shares(tokens, is_known)[lines]
        return cls(is_known, float(shares.mean()) if len(shares) else 0.0)

    def shares(self, tokens: Tokens) -> Doubles:
        """Return the share of known words in each line, relative to the average line."""
        return _word_shares(tokens, self.is_known) / max(self.average_share, 1e-6)


def _word_shares(tokens: Tokens, is_known: Mask) -> Doubles:
    """Return the share of known words in each line."""
    rows = tokens.rows[tokens.is_word]
    is_found = is_known[buckets(tokens.hashes[tokens.is_word])]
    n_words = np.bincount(rows, minlength=len(tokens))
    return np.bincount(rows, weights=is_found, minlength=len(tokens)) / np.maximum(n_words, 1)


@dataclass(frozen=True)
class SideSample:
    """Sample of the lines of one side. Repeated lines count once."""

    trigrams: Trigrams
    tokens: Tokens
    folds: Array
    is_first: Mask  # False for lines that occurred before


def learn_languages(source: SideSample, target: SideSample) -> tuple[SideLanguage, SideLanguage]:
    """Return the languages of both sides."""
    counts = [side.trigrams.histogram(side.is_first) for side in (source, target)]
    prior = (counts[0] + counts[1] + 0.5) / (counts[0].sum() + counts[1].sum() + 0.5 * _N_TRIGRAMS)
    return (
        _SideLearner(source, prior, _log_probabilities(counts[1], prior)).language(),
        _SideLearner(target, prior, _log_probabilities(counts[0], prior)).language(),
    )


def _log_probabilities(counts: Doubles, prior: Doubles) -> Floats:
    """Return the log-probability of each trigram, with a Dirichlet prior."""
    smoothed = (counts + _PRIOR_TRIGRAMS * prior) / (counts.sum() + _PRIOR_TRIGRAMS)
    logarithms: Floats = np.log(smoothed).astype(np.float32)
    return logarithms


class _SideLearner:
    """Learning of a third language on one side of a corpus."""

    def __init__(self, side: SideSample, prior: Doubles, other_side: Floats) -> None:
        self.side = side
        self._prior = prior
        self._other_side = other_side
        self._n_trigrams = np.maximum(side.trigrams.counts, 1)
        self._is_long = side.is_first & (side.trigrams.counts >= _MIN_TRIGRAMS)

    def language(self) -> SideLanguage:
        """Return the language of this side."""
        nothing = np.zeros(len(self.side.trigrams), bool)
        # Lines in the language of the other side cannot be in a third language.
        self._is_long = self._is_long & (
            self._other_ratios(self._tables(nothing)) <= _MIN_SIDE_RATIO
        )
        group = self._find_group()
        folds = self._tables(group)
        is_own = self.side.is_first & ~group & (self._other_ratios(folds) <= 0)
        return SideLanguage(folds, KnownWords.of(self.side.tokens, is_own))

    def _tables(self, group: Mask) -> tuple[FoldTables, FoldTables]:
        """Return the tables of both folds, given the lines in a third language."""
        folds = []
        for fold in (0, 1):
            own = self._learn(self.side.is_first & ~group, fold)
            third = self._learn(group, fold) - own if group.any() else None
            folds.append(FoldTables(self._other_side - own, third))
        return folds[0], folds[1]

    def _other_ratios(self, folds: tuple[FoldTables, FoldTables]) -> Doubles:
        """Return how much better each line fits the other side, in nats per trigram."""
        first, second = (self.side.trigrams.totals(tables.other_side) for tables in folds)
        ratios: Doubles = np.where(self.side.folds == 0, first, second) / self._n_trigrams
        return ratios

    def _learn(self, lines: Mask, fold: int) -> Floats:
        """Return log-probabilities for `fold`, learned from the given lines of the other fold."""
        counts = self.side.trigrams.histogram(lines & (self.side.folds != fold))
        return _log_probabilities(counts, self._prior)

    def _find_group(self) -> Mask:
        """Return the lines in a third language; start with those that fit worst.

        Learn and assign in turn. Lines on the same topic can also form a group; if so, continue
        with those of its lines that have many unknown words.
        """
        nothing = np.zeros(len(self.side.trigrams), bool)
        n_lines = int(self._is_long.sum())
        if n_lines < _MIN_GROUP_LINES / _MAX_GROUP_SHARE:
            return nothing
        fits = self._ratios(self.side.is_first, nothing)
        group = self._is_long & (fits <= np.quantile(fits[self._is_long], _CANDIDATE_SHARE))
        for _ in range(_N_ROUNDS):
            group = self._similar(group)
        group &= self._known_shares(group) <= _MAX_GROUP_KNOWN_SHARE
        group = self._without_templates(group)
        for _ in range(_N_ROUNDS):
            group = self._similar(group)
        shares = self._known_shares(group)
        group &= shares <= _MAX_KNOWN_SHARE
        is_minority = _MIN_GROUP_LINES <= group.sum() <= _MAX_GROUP_SHARE * n_lines
        is_foreign = is_minority and shares[group].mean() <= _MAX_GROUP_KNOWN_SHARE
        if not is_foreign:
            return nothing
        words, _ = self._new_words(group)
        n_natural = max(_MIN_NEW_WORDS, _HEAPS_FACTOR * math.sqrt(len(words)))
        return group if len(np.unique(words)) >= n_natural else nothing

    def _new_words(self, group: Mask) -> tuple[Array, Array]:
        """Return the words of a group that do not occur outside of it, and their rows."""
        tokens = self.side.tokens
        is_inside = tokens.is_word & group[tokens.rows]
        words, rows = buckets(tokens.hashes[is_inside]), tokens.rows[is_inside]
        is_new = ~KnownWords.of(tokens, self.side.is_first & ~group).is_known[words]
        return words[is_new], rows[is_new]

    def _without_templates(self, group: Mask) -> Mask:
        """Return the group without sentences made from a template, such as "It costs 5 euros".

        The lines that have a certain word in common have many different other words, unless they
        are made from a template.
        """
        words, rows = self._new_words(group)
        distinct, counts = np.unique(words, return_counts=True)
        group = group.copy()
        for word in distinct[counts >= _MIN_GROUP_LINES].tolist():
            is_same = words == word
            lines = np.unique(rows[is_same])
            others = words[np.isin(rows, lines) & ~is_same]
            if len(np.unique(others)) < _TEMPLATE_FACTOR * math.sqrt(len(others)):
                group[lines] = False
        return group

    def _similar(self, group: Mask) -> Mask:
        """Return the lines that resemble those of a group more than the rest of the side."""
        ratios = self._ratios(group, self.side.is_first & ~group)
        return self._is_long & (ratios > _MIN_RATIO)

    def _known_shares(self, group: Mask) -> Doubles:
        """Return the share of words of each line that occur outside the group."""
        return KnownWords.of(self.side.tokens, self.side.is_first & ~group).shares(self.side.tokens)

    def _ratios(self, lines: Mask, others: Mask) -> Doubles:
        """Return the mean difference of the log-probabilities learned from two sets of lines."""
        ratios = np.zeros(len(lines))
        for fold in (0, 1):
            table = self._learn(lines, fold)
            if others.any():
                table = table - self._learn(others, fold)
            is_scored = self.side.folds == fold
            ratios[is_scored] = self.side.trigrams.totals(table)[is_scored]
        return ratios / self._n_trigrams
