"""Lines of text in UTF-8, in one block of bytes."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from mtcli.tokenizer import replace_surrogates

# First two bytes of all non-ASCII spaces in UTF-8.
_WIDE_SPACES = np.array([0xC285, 0xC2A0, 0xE19A, 0xE280, 0xE281, 0xE380], np.uint16)


class EncodedLines(Sequence[str]):
    """Lines of a block in UTF-8, each with a line feed. Lines are decoded only when needed."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    def of(cls, lines: Sequence[str]) -> "EncodedLines":
        """Encode `lines`, which must not contain line feeds; replace unpaired surrogates."""
        if isinstance(lines, EncodedLines):
            return lines
        try:
            return cls(("\n".join(lines) + "\n").encode())
        except UnicodeEncodeError:
            return cls(("\n".join(map(replace_surrogates, lines)) + "\n").encode())

    @property
    def encoded(self) -> list[bytes]:
        """The lines in UTF-8, without line feeds."""
        return self.data.split(b"\n")[:-1]

    @cached_property
    def _bytes(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.data, np.uint8)

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Position of the line feed of each line."""
        return np.flatnonzero(self._bytes == ord("\n"))

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """Position of the first byte of each line, then the end of the block."""
        return np.append(0, self.ends + 1)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of bytes in each line."""
        return self.ends - self._starts[:-1]

    @cached_property
    def _end_list(self) -> list[int]:
        ends: list[int] = self.ends.tolist()
        return ends

    @cached_property
    def _decoded(self) -> list[str]:
        return self.data.decode(errors="surrogatepass").split("\n")[:-1]

    def __len__(self) -> int:
        return len(self.ends)

    def exclude(self, rows: NDArray[np.int64]) -> bytes:
        """Return all lines except those in `rows`, a sorted array, in UTF-8."""
        starts = np.append(0, self._starts[rows + 1]).tolist()
        ends = np.append(self._starts[rows], len(self.data)).tolist()
        return b"".join([self.data[start:end] for start, end in zip(starts, ends, strict=True)])

    def split(self, n_lines: int) -> tuple["EncodedLines", "EncodedLines"]:
        """Return the first `n_lines` lines, and the other lines."""
        place = int(self._starts[n_lines])
        first, rest = EncodedLines(self.data[:place]), EncodedLines(self.data[place:])
        first.ends, rest.ends = self.ends[:n_lines], self.ends[n_lines:] - place
        return first, rest

    @cached_property
    def _first_bytes(self) -> NDArray[np.uint8]:
        """First byte of each line; for an empty line, its line feed."""
        return self._bytes[self._starts[:-1]]

    def blank_rows(self) -> list[int]:
        """Return the rows of lines that are empty or contain only spaces."""
        first, second = self._first_bytes, self._bytes.take(self._starts[:-1] + 1, mode="clip")
        starts_wide = np.isin(first.astype(np.uint16) << 8 | second, _WIDE_SPACES)
        rows = np.flatnonzero((first <= ord(" ")) | starts_wide).tolist()
        return [row for row in rows if not self[row].strip()]

    def n_same(self, other: "EncodedLines") -> int:
        """Return the number of rows whose line is the same in `other`."""
        may_be_same = (self.sizes == other.sizes) & (self._first_bytes == other._first_bytes)
        rows = np.flatnonzero(may_be_same).tolist()
        return sum(self[row] == other[row] for row in rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return self._decoded[index]
        ends = self._end_list
        row = range(len(ends))[index]
        start = ends[row - 1] + 1 if row else 0
        return self.data[start : ends[row]].decode(errors="surrogatepass")
