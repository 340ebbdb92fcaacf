"""Split lines into hashed words with array operations."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

_STEM = 6  # characters at the start of a word that are hashed: most inflected forms share them
_TABLE_SIZE = 0x30000  # code points in the table of kinds; higher code points use the last entry
OTHER, WORD, MARK, UNSPACED = range(4)  # kinds of characters; MARK is punctuation or a symbol
MAX_CHARACTERS = 2_000  # only this many characters of a line are used
# Scripts without spaces between words: first and last code point.
_UNSPACED_RANGES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3400, 0x9FFF),  # Han
    (0x20000, 0x2FFFF),  # Han, rare
)
_CODE_FACTOR, _POSITION_FACTOR, _MIX_FACTOR = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xC2B2AE3D27D4EB4F),
    np.uint64(0xFF51AFD7ED558CCD),
)
_HALF = np.uint64(32)

Array = NDArray[np.int64]
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Tokens:
    """Hashed words and punctuation marks of a list of lines."""

    hashes: Hashes  # all tokens of all lines, in order
    offsets: Array  # tokens of line i: hashes[offsets[i] : offsets[i + 1]]
    is_word: NDArray[np.bool_]  # False for punctuation marks

    @property
    def counts(self) -> Array:
        """Number of tokens in each line."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> Array:
        """Line number of each token."""
        return np.repeat(np.arange(len(self)), self.counts)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def slice(self, start: int, end: int) -> "Tokens":
        """Return the tokens of the lines from `start` to `end`."""
        first, last = self.offsets[start], self.offsets[end]
        offsets = self.offsets[start : end + 1] - first
        return Tokens(self.hashes[first:last], offsets, self.is_word[first:last])


def mix(values: Hashes) -> Hashes:
    """Return well-distributed hashes of integers (the first half of MurmurHash3's finalizer)."""
    values = values ^ (values >> _HALF)
    values = values * _MIX_FACTOR
    mixed: Hashes = values ^ (values >> _HALF)
    return mixed


@dataclass(frozen=True)
class TextBlock:
    """Lines as arrays of characters, in lower case and truncated to `MAX_CHARACTERS`."""

    codes: NDArray[np.uint32]  # code points; each line is followed by LF
    kinds: NDArray[np.uint8]  # OTHER, WORD, MARK or UNSPACED
    line_ends: Array  # positions of the LF characters

    @classmethod
    def of(cls, lines: Sequence[str]) -> "TextBlock":
        """Return the characters of `lines`, which must not contain LF."""
        text = "\n".join([line[:MAX_CHARACTERS] for line in lines]).lower() + "\n"
        codes = np.frombuffer(text.encode("utf-32-le", errors="replace"), np.uint32)
        kinds = _kinds()[np.minimum(codes, _TABLE_SIZE - 1)]
        return cls(codes, kinds, np.flatnonzero(codes == ord("\n")))

    def __len__(self) -> int:
        return len(self.line_ends)

    @property
    def is_letter(self) -> NDArray[np.bool_]:
        """Whether each character is part of a word and not an ASCII digit."""
        is_digit = (self.codes >= ord("0")) & (self.codes <= ord("9"))
        is_letter: NDArray[np.bool_] = (self.kinds == WORD) | (self.kinds == UNSPACED)
        return is_letter & ~is_digit

    def rows(self, positions: Array) -> Array:
        """Return the line numbers of the characters at `positions`."""
        return np.searchsorted(self.line_ends, positions)


@cache
def _kinds() -> NDArray[np.uint8]:
    """Return the kind of each code point: OTHER, WORD, MARK or UNSPACED."""
    kinds = np.full(_TABLE_SIZE, OTHER, np.uint8)
    for code in range(_TABLE_SIZE):
        category = unicodedata.category(chr(code))[0]
        if category in "LMN":
            kinds[code] = WORD
        elif category in "PS":
            kinds[code] = MARK
    for first, last in _UNSPACED_RANGES:
        span = kinds[first : last + 1]
        span[span == WORD] = UNSPACED
    return kinds


def tokenize(text: TextBlock) -> Tokens:
    """Return the tokens of all lines.

    A token is the start of a word, a punctuation mark or, in scripts without spaces, two
    consecutive characters. Case is ignored.
    """
    is_word = text.kinds == WORD
    is_start = is_word.copy()
    is_start[1:] &= ~is_word[:-1]
    is_start |= text.kinds >= MARK
    starts = np.flatnonzero(is_start)
    offsets = np.concatenate([[0], np.searchsorted(starts, text.line_ends)])
    hashes = _hash(text, is_start, starts) if len(starts) else np.zeros(0, np.uint64)
    return Tokens(hashes, offsets, text.kinds[starts] != MARK)


def _hash(text: TextBlock, is_start: NDArray[np.bool_], starts: Array) -> Hashes:
    """Return the hash of each token: the sum of the hashes of its characters and positions."""
    codes, kinds = text.codes, text.kinds
    positions = np.arange(len(codes)) - starts[np.maximum(np.cumsum(is_start) - 1, 0)]
    has_pair = np.zeros(
        len(codes), bool
    )  # the token includes the next character (only without spaces)
    has_pair[:-1] = (kinds[:-1] == UNSPACED) & (kinds[1:] == UNSPACED)
    wide = codes.astype(np.uint64)
    keys = wide * _CODE_FACTOR + positions.astype(np.uint64) * _POSITION_FACTOR
    values = mix(keys)
    values[(kinds == OTHER) | (positions >= _STEM)] = 0
    pairs = np.flatnonzero(has_pair)
    values[pairs] += mix(wide[pairs + 1] * _CODE_FACTOR + _POSITION_FACTOR)
    return np.add.reduceat(values, starts)
