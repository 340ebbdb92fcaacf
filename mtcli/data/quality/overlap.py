"""Overlap between a corpus and test sets: lines that are identical or differ in a few words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from mtcli.data.filters import Mask, PairBlock
from mtcli.data.near_copies import NearCopyIndex
from mtcli.data.quality.tokens import Array, Hashes, TextBlock, Tokens, mix, tokenize

MIN_SIMILARITY = 0.8  # twice the number of matching words, divided by the words in both lines
_MIN_WORDS = 5  # lines with fewer words are compared only by their letters
_MIN_CHARACTERS = 20  # if a line of at least this length matches, its pair is an exact match
_MAX_LINES = 20  # word pairs in more test lines than this are not indexed
_MIN_SHARE = 0.4  # share of a test line's indexed word pairs that a similar line must contain
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Overlap:
    """Masks of the pairs in a block that match a test set exactly or nearly."""

    exact: Mask
    near: Mask  # excludes exact matches


class OverlapIndex:
    """Index of the pairs in test sets."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        pairs = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
        self._pairs = {(source.strip(), target.strip()) for source, target in pairs}
        self._long = tuple(
            {line for line in map(str.strip, side) if len(line) >= _MIN_CHARACTERS}
            for side in zip(*pairs, strict=True)
        ) or (set(), set())
        self._letters = NearCopyIndex(pairs)
        self._sides = [_SimilarLines([pair[side] for pair in pairs]) for side in (0, 1)]

    def find(self, block: PairBlock, source: Tokens, target: Tokens) -> Overlap:
        """Return the overlap of a block with the test sets."""
        exact = np.fromiter(map(self._is_exact, block.sources, block.targets), bool, len(block))
        near = self._letters.find(block)
        near |= self._sides[0].find(block.sources, source)
        near |= self._sides[1].find(block.targets, target)
        return Overlap(exact, near & ~exact)

    def _is_exact(self, source: str, target: str) -> bool:
        source, target = source.strip(), target.strip()
        is_known = source in self._long[0] or target in self._long[1]
        return is_known or (source, target) in self._pairs


class _SimilarLines:
    """Index of lines by their rare word pairs. A word pair is two consecutive words."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        keys, rows = (
            _word_pairs(tokenize(TextBlock.of(lines)))
            if lines
            else (np.zeros(0, np.uint64), _NO_ROWS)
        )
        order = np.lexsort((rows, keys))
        keys, rows = keys[order], rows[order]
        is_new = np.ones(len(keys), bool)
        is_new[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])
        keys, rows = keys[is_new], rows[is_new]
        distinct, starts, counts = np.unique(keys, return_index=True, return_counts=True)
        is_rare = counts <= _MAX_LINES
        self._keys, self._starts, self._counts = distinct[is_rare], starts[is_rare], counts[is_rare]
        self._rows = rows
        self._n_rare = np.bincount(rows[np.repeat(is_rare, counts)], minlength=max(1, len(lines)))

    def find(self, lines: Sequence[str], tokens: Tokens) -> Mask:
        """Return a mask of the lines that are similar to an indexed line."""
        found = np.zeros(len(lines), bool)
        if not len(self._keys):
            return found
        keys, rows = _word_pairs(tokens)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        is_hit = self._keys[places] == keys
        places, rows = places[is_hit], rows[is_hit]
        for row, other in self._candidates(places, rows, np.maximum(tokens.counts - 1, 1)):
            if not found[row]:
                found[row] = _are_similar(lines[row], self._lines[other])
        return found

    def _candidates(self, places: Array, rows: Array, n_pairs: Array) -> Iterable[tuple[int, int]]:
        """Return (row, indexed row) for each two lines that share many rare word pairs."""
        counts = self._counts[places]
        first = np.repeat(self._starts[places] - (np.cumsum(counts) - counts), counts)
        others = self._rows[first + np.arange(counts.sum())]
        combined = np.repeat(rows, counts) * len(self._lines) + others
        distinct, n_common = np.unique(combined, return_counts=True)
        lines, others = np.divmod(distinct, len(self._lines))
        is_close = (n_common >= 2) & (n_common >= _MIN_SHARE * self._n_rare[others])
        is_close &= n_common >= _MIN_SHARE / 2 * n_pairs[lines]
        return zip(lines[is_close].tolist(), others[is_close].tolist(), strict=True)


_NO_ROWS = np.zeros(0, np.int64)


def _word_pairs(tokens: Tokens) -> tuple[Hashes, NDArray[np.int64]]:
    """Return a hash of each word pair, and the row of its line."""
    hashes, rows = tokens.hashes[tokens.is_word], tokens.rows[tokens.is_word]
    is_same_line = rows[1:] == rows[:-1]
    return mix(hashes[:-1] * _FACTOR + hashes[1:])[is_same_line], rows[1:][is_same_line]


def _are_similar(line: str, other: str) -> bool:
    words, others = line.lower().split(), other.lower().split()
    if min(len(words), len(others)) < _MIN_WORDS:
        return False
    matcher = SequenceMatcher(None, words, others, autojunk=False)
    return matcher.quick_ratio() >= MIN_SIMILARITY and matcher.ratio() >= MIN_SIMILARITY
