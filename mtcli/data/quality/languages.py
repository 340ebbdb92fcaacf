"""Lines in the wrong language, found with character statistics from the corpus itself.

A line counts as being in the wrong language in two cases: its letter trigrams fit the other side of
the corpus much better than its own side, or they fit a group of lines in a third language. Such a
group has distinctive trigrams, and its words rarely occur outside the group. Statistics from one
half of the corpus (a fold) are applied to the other half.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtcli.data.quality.association import N_BUCKETS, Doubles, Floats, buckets
from mtcli.data.quality.tokens import Array, TextBlock, Tokens, mix

_BITS = 16  # bits in a trigram hash
_N_TRIGRAMS = 1 << _BITS
_FACTORS = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)))
_PRIOR_TRIGRAMS = 2_000.0  # weight of whole-corpus statistics in each model
_MIN_TRIGRAMS = 15  # lines with fewer trigrams are not judged
_MIN_GROUP_LINES = 10  # minimum number of sampled lines in a third language
_MAX_GROUP_SHARE = 0.2  # maximum share of lines in a third language
_N_ROUNDS = 5
_CANDIDATE_SHARE = 0.02  # share of lines in the initial group: those with the worst fit
_MIN_RATIO = 0.3  # nats per trigram by which a third language must fit better than this side
_MIN_SIDE_RATIO = 0.5  # the same for the language of the other side
_MAX_KNOWN_SHARE = 0.8  # share of known words in a foreign line, relative to the average
_MAX_GROUP_KNOWN_SHARE = 0.6  # the same for the mean of a group
_MIN_NEW_WORDS = 40  # minimum number of distinct words in a third language
# A natural text of n words has at least factor * sqrt(n) distinct words (Heaps' law). Sentences
# generated from a template have fewer. The first factor is for a group of lines, the second for
# the lines of a group that share a word.
_HEAPS_FACTOR, _TEMPLATE_FACTOR = 3.0, 4.0
_MIN_KNOWN_COUNT = 2  # minimum number of occurrences of a known word

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Trigrams:
    """Hashed letter trigrams of a list of lines."""

    hashes: Array
    rows: Array  # line number of each trigram
    counts: Array  # number of trigrams in each line

    @classmethod
    def of(cls, text: TextBlock) -> "Trigrams":
        """Return the letter trigrams of each line; all other characters count as spaces."""
        is_letter = text.is_letter
        is_kept = is_letter.copy()
        is_kept[1:] |= is_letter[:-1]  # keep one space after each word
        is_kept[text.line_ends] = True
        letters = np.where(is_letter, text.codes, ord(" "))[is_kept].astype(np.uint64)
        is_end = np.zeros(len(text.codes), bool)
        is_end[text.line_ends] = True
        is_end = is_end[is_kept]
        sums = letters * _FACTORS[0]
        sums[1:] += letters[:-1] * _FACTORS[1]
        sums[2:] += letters[:-2] * _FACTORS[2]
        # The preceding line end serves as the space before the first letter. A trigram must not
        # reach further back.
        is_inside = ~is_end
        is_inside[1:] &= ~is_end[:-1]
        is_inside[0] = False
        hashes = (mix(sums) >> np.uint64(64 - _BITS)).astype(np.int64)[is_inside]
        rows = (np.cumsum(is_end) - is_end)[is_inside].astype(np.int64)
        return cls(hashes, rows, np.bincount(rows, minlength=len(text)))

    def __len__(self) -> int:
        return len(self.counts)

    def totals(self, table: Floats) -> Doubles:
        """Return, for each line, the sum of the table entries of its trigrams."""
        weights = table[self.hashes].astype(np.float64)
        return np.bincount(self.rows, weights, len(self)).astype(np.float64, copy=False)

    def histogram(self, lines: Mask) -> Doubles:
        """Return the number of occurrences of each trigram in the given lines."""
        return np.bincount(self.hashes[lines[self.rows]], minlength=_N_TRIGRAMS).astype(np.float64)


@dataclass(frozen=True)
class FoldTables:
    """Log-probability ratios of trigrams, for lines of one fold on one side of the corpus."""

    other_side: Floats  # log P(other side) - log P(this side)
    group: Floats | None  # log P(third language) - log P(this side); None if no third language


@dataclass(frozen=True)
class SideLanguage:
    """Model of the language on one side of a corpus."""

    folds: tuple[FoldTables, FoldTables]
    known: "KnownWords"

    def find_wrong(self, trigrams: Trigrams, tokens: Tokens, folds: Array) -> Mask:
        """Return a mask of the lines in the wrong language."""
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
    """Words of one side of the corpus, taken from lines in the language of that side."""

    is_known: Mask  # by hash bucket
    average_share: float  # mean share of known words in these lines

    @classmethod
    def of(cls, tokens: Tokens, lines: Mask) -> "KnownWords":
        """Return the words that occur at least twice in the given lines."""
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
    """Sample of lines from one side. Repeated lines count once."""

    trigrams: Trigrams
    tokens: Tokens
    folds: Array
    is_first: Mask  # False for repeated lines and for lines outside the sampled chunks


def learn_languages(source: SideSample, target: SideSample) -> tuple[SideLanguage, SideLanguage]:
    """Return a language model for each side."""
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
    """Learns the language of one side, and detects lines in a third language."""

    def __init__(self, side: SideSample, prior: Doubles, other_side: Floats) -> None:
        self.side = side
        self._prior = prior
        self._other_side = other_side
        self._n_trigrams = np.maximum(side.trigrams.counts, 1)
        self._is_long = side.is_first & (side.trigrams.counts >= _MIN_TRIGRAMS)

    def language(self) -> SideLanguage:
        """Return the language model of this side."""
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
        """Return how much better each line fits the other side than its own (nats per trigram)."""
        first, second = (self.side.trigrams.totals(tables.other_side) for tables in folds)
        ratios: Doubles = np.where(self.side.folds == 0, first, second) / self._n_trigrams
        return ratios

    def _learn(self, lines: Mask, fold: int) -> Floats:
        """Return log-probabilities for `fold`, learned from the given lines of the other fold."""
        counts = self.side.trigrams.histogram(lines & (self.side.folds != fold))
        return _log_probabilities(counts, self._prior)

    def _find_group(self) -> Mask:
        """Return a mask of the lines in a third language, all False if none is found.

        The search starts with the lines that fit this side worst. It alternates between learning
        the trigrams of the group and assigning lines to the group. Lines on one topic can also form
        a group, so the search then keeps only lines with many unknown words and alternates again.
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
        """Return the words in a group that are unknown outside the group, and their rows."""
        tokens = self.side.tokens
        is_inside = tokens.is_word & group[tokens.rows]
        words, rows = buckets(tokens.hashes[is_inside]), tokens.rows[is_inside]
        is_new = ~KnownWords.of(tokens, self.side.is_first & ~group).is_known[words]
        return words[is_new], rows[is_new]

    def _without_templates(self, group: Mask) -> Mask:
        """Return the group without sentences generated from a template ("It costs 5 euros").

        In natural text, the lines that share a word have many distinct other words. Lines from a
        template do not.
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
        """Return the lines that resemble the group more than the rest of the side."""
        ratios = self._ratios(group, self.side.is_first & ~group)
        return self._is_long & (ratios > _MIN_RATIO)

    def _known_shares(self, group: Mask) -> Doubles:
        """Return the share of words known outside the group, relative to the average line."""
        return KnownWords.of(self.side.tokens, self.side.is_first & ~group).shares(self.side.tokens)

    def _ratios(self, lines: Mask, others: Mask) -> Doubles:
        """Return, for each line, the mean log-probability ratio of its trigrams.

        The ratio compares probabilities learned from `lines` with those learned from `others`. If
        `others` is empty, return the mean log-probability learned from `lines`.
        """
        ratios = np.zeros(len(lines))
        for fold in (0, 1):
            table = self._learn(lines, fold)
            if others.any():
                table = table - self._learn(others, fold)
            is_scored = self.side.folds == fold
            ratios[is_scored] = self.side.trigrams.totals(table)[is_scored]
        return ratios / self._n_trigrams
