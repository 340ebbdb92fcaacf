"""Find near-copies of dev or test pairs.

At least one side of a near-copy differs only in case, spaces, digits or punctuation.
"""

from collections.abc import Iterable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mtcli.data.characters import letters_of
from mtcli.data.encoded_lines import EncodedLines
from mtcli.data.filters import Mask, PairBlock

MIN_BYTES = 20  # bytes of letters in UTF-8; if a side has fewer, both sides must match

_TABLE_SIZE = 1 << 20
_IGNORED = {*"åßωȿɀ", *map(chr, range(0x250, 0x2B0))}  # uppercase forms may have three bytes
_UNCASED = (0x4E00, 0xA000), (0xAC00, 0xD780)  # Chinese characters and Hangul: all are letters


class NearCopyIndex:
    """Index that finds near-copies of its pairs, in either direction.

    A pair is a near-copy if one of its sides has the same letters as a side of an indexed pair.
    Case and all other characters are ignored. Short lines such as "Yes." occur in many pairs, so if
    the letters of a side have fewer than `MIN_BYTES` bytes, the other side must match as well.
    Sides without letters are compared as they are.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        pairs = list(pairs)
        keys = [(_key(source), _key(target)) for source, target in pairs]
        self._pairs = {*keys, *((target, source) for source, target in keys)}
        self._long = {key for pair in keys for key in pair if _is_long(key)}
        # A sum over the letters of each line rules out almost all lines quickly.
        self._has_sum = np.zeros(_TABLE_SIZE, np.bool_)
        for lines in PairBlock(*zip(*pairs, strict=True)).encoded if pairs else ():
            self._has_sum[letter_sums(lines) & (_TABLE_SIZE - 1)] = True

    def candidates(self, block: PairBlock) -> list[int]:
        """Return the rows of a block that may be near-copies; no other row is a near-copy."""
        source, target = map(self._may_match, block.encoded)
        rows: list[int] = np.flatnonzero(source | target).tolist()
        return rows

    def find(self, block: PairBlock) -> Mask:
        """Return a mask of the near-copies in a block."""
        mask = np.zeros(len(block), np.bool_)
        for row in self.candidates(block):
            mask[row] = self.has_copy_of(block.sources[row], block.targets[row])
        return mask

    def has_copy_of(self, source: str, target: str) -> bool:
        """Return whether a pair is a near-copy of an indexed pair."""
        if (one := _key(source)) in self._long or (other := _key(target)) in self._long:
            return True
        return (one, other) in self._pairs

    def _may_match(self, lines: EncodedLines) -> Mask:
        mask: Mask = self._has_sum[letter_sums(lines) & (_TABLE_SIZE - 1)]
        return mask


def _key(line: str) -> str:
    return letters_of(line) or line.strip()


def _is_long(key: str) -> bool:
    return len(key.encode(errors="surrogatepass")) >= MIN_BYTES


def letter_sums(lines: EncodedLines) -> NDArray[np.uint32]:
    """Return, for each line, a sum that depends on its letters, but not on their case or order.

    Two kinds of letters are left out: those in `_IGNORED`, and most letters with three bytes in
    UTF-8.
    """
    if not len(lines):
        return np.zeros(0, np.uint32)
    data = np.frombuffer(lines.data, np.uint8)
    one_byte, two_bytes = _weights()
    weights = one_byte.take(data, mode="wrap")
    starts = np.flatnonzero(data >= 0xC2)  # first bytes of multibyte characters
    weights[starts] = two_bytes[data[starts].astype(np.uint16) << 8 | data[starts + 1]]
    sums: NDArray[np.uint32] = np.add.reduceat(weights, np.append(0, lines.ends[:-1] + 1))
    return sums


@cache
def _weights() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return two tables of letter weights: by single byte, and by the first two bytes."""
    random = np.random.default_rng(1).integers(2**32, size=2**16, dtype=np.uint32)
    tables = np.zeros(2**8, np.uint32), np.zeros(2**16, np.uint32)
    for code in range(0x800):  # characters with one or two bytes
        letter = letters_of(chr(code))
        if letter and letter not in _IGNORED and ord(letter) < 0x800:
            data = chr(code).encode()
            tables[len(data) - 1][int.from_bytes(data)] = random[ord(letter)]
    for first, end in _UNCASED:
        for code in range(first, end, 64):  # 64 characters share their first two bytes
            tables[1][int.from_bytes(chr(code).encode()[:2])] = random[code]
    return tables
