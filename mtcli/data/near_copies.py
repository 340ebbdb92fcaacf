"""Near-copies of dev or test pairs: pairs with the same letters."""

import string
from collections.abc import Iterable

import numpy as np

from mtcli.data.characters import letters_of
from mtcli.data.filters import Mask, PairBlock
from mtcli.data.line_store import EncodedLines

MIN_BYTES = 20  # of the letters of a line in UTF-8; both sides of a pair must match if it has less

_LETTERS = string.ascii_letters.encode()
_NO_LETTERS = bytes(byte for byte in range(256) if byte not in _LETTERS + b"\n")
_LOWER = bytes.maketrans(string.ascii_uppercase.encode(), string.ascii_lowercase.encode())


class NearCopyIndex:
    """Index of pairs, which finds near-copies of them in either direction.

    A pair is a near-copy if a side has the same letters as a side of an indexed pair, ignoring
    case and all other characters. If the letters of a side have fewer than `MIN_BYTES` bytes, the
    other side must match as well: short lines such as "Yes." occur in many pairs. Sides without
    letters are compared as they are.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        pairs = list(pairs)
        keys = [(_key(source), _key(target)) for source, target in pairs]
        self._pairs = {*keys, *((target, source) for source, target in keys)}
        self._long = {key for pair in keys for key in pair if _is_long(key)}
        # Letters of other scripts are ignored first: a cheap test that excludes almost all lines.
        block = PairBlock(*zip(*pairs, strict=True)) if pairs else PairBlock((), ())
        self._ascii = {key for lines in block.encoded for key in _ascii_letters(lines.data)}

    def candidates(self, block: PairBlock) -> list[int]:
        """Return the rows of a block that may be near-copies; all others are not."""
        source, target = map(self._may_match, block.encoded)
        rows: list[int] = np.flatnonzero(source | target).tolist()
        return rows

    def find(self, block: PairBlock) -> Mask:
        """Find the near-copies in a block."""
        mask = np.zeros(len(block), np.bool_)
        for row in self.candidates(block):
            mask[row] = self.has_copy_of(block.sources[row], block.targets[row])
        return mask

    def has_copy_of(self, source: str, target: str) -> bool:
        """Return whether a pair is a near-copy of an indexed pair."""
        pair = _key(source), _key(target)
        return pair in self._pairs or any(key in self._long for key in pair)

    def _may_match(self, lines: EncodedLines) -> Mask:
        is_known = map(self._ascii.__contains__, _ascii_letters(lines.data))
        return np.fromiter(is_known, np.bool_, len(lines))


def _key(line: str) -> str:
    return letters_of(line) or line.strip()


def _is_long(key: str) -> bool:
    return len(key.encode(errors="surrogatepass")) >= MIN_BYTES


def _ascii_letters(data: bytes) -> list[bytes]:
    """Return the ASCII letters of each line in lower case."""
    return data.translate(_LOWER, _NO_LETTERS).split(b"\n")[:-1]
