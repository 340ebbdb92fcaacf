"""Lines of text stored on disk, so that a corpus need not fit in memory."""

import os
import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryFile
from typing import overload

import numpy as np
from numpy.typing import NDArray

from mtcli.data.encoded_lines import EncodedLines
from mtcli.errors import DataError

# Maximum size of a block. A longer line is a block by itself.
_BLOCK_LINES, _BLOCK_CHARACTERS = 10_000, 1_000_000


class Lines(Sequence[str]):
    """Base class for sequences of lines that are read in blocks."""

    def encoded_blocks(self) -> Iterator[bytes]:
        """Yield the lines in UTF-8, each with a line feed, in blocks of limited size."""
        raise NotImplementedError

    def blocks(self) -> Iterator[list[str]]:
        """Yield the lines in order, in blocks of limited size."""
        for data in self.encoded_blocks():
            yield data.decode().split("\n")[:-1]

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> list[str]:
        """Return the lines with the given row numbers, in the given order."""
        raise NotImplementedError

    @property
    def longest(self) -> int:
        """Number of characters in the longest line. Subclasses may return an upper bound."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[str]:
        for block in self.blocks():
            yield from block

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        rows = range(len(self))[index]
        return self.take([rows])[0] if isinstance(rows, int) else self.take(rows)


class LineStore(Lines):
    """Lines in an unnamed temporary file, which the system deletes when the process ends.

    Choose a `directory` on a disk with enough space, because /tmp may be in memory.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._descriptor = _unnamed_file(directory)
        weakref.finalize(self, os.close, self._descriptor)
        self._n_lines = 0
        self.n_bytes = 0
        self._longest = 0
        self._starts: list[int] = []  # first row of each block
        self._offsets: list[int] = []  # first byte of each block

    @classmethod
    def of(cls, lines: Iterable[str]) -> "LineStore":
        """Return a store that contains `lines`."""
        store = cls()
        for block in in_blocks(lines):
            store.append(block)
        return store

    def append(self, block: Sequence[str]) -> None:
        """Add a block of lines, which must not contain line feeds."""
        encoded = EncodedLines.of(block)
        data = encoded.data
        self._offsets.append(self.n_bytes)
        try:
            while data:
                n_written = os.write(self._descriptor, data)
                self.n_bytes += n_written
                data = data[n_written:]
        except OSError as error:
            place = self._directory or "the directory for temporary files"
            raise DataError(
                f"cannot store the corpus in {place}: {error.strerror}",
                hint="free some disk space, or choose another disk with --out or --cache",
            ) from error
        self._starts.append(self._n_lines)
        self._n_lines += len(encoded)
        # A line does not have more characters than bytes, so most lines need not be decoded.
        longer = np.flatnonzero(encoded.sizes > self._longest).tolist()
        self._longest = max([self._longest, *(len(encoded[row]) for row in longer)])

    def __len__(self) -> int:
        return self._n_lines

    @property
    def longest(self) -> int:
        """Number of characters in the longest line."""
        return self._longest

    def encoded_blocks(self) -> Iterator[bytes]:
        """Yield the blocks as they were appended, in UTF-8."""
        for number in range(len(self._starts)):
            yield self._encoded_block(number)

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> list[str]:
        """Return the lines with the given row numbers, in the given order."""
        rows = np.asarray(rows, dtype=np.int64)
        found: dict[int, str] = {}
        number, block = -1, EncodedLines(b"")
        for row in np.unique(rows).tolist():
            if (new := bisect_right(self._starts, row) - 1) != number:
                number, block = new, EncodedLines(self._encoded_block(new))
            found[row] = block[row - self._starts[number]]
        return [found[row] for row in rows.tolist()]

    def _encoded_block(self, number: int) -> bytes:
        start, end = (*self._offsets, self.n_bytes)[number : number + 2]
        data = os.pread(self._descriptor, end - start, start)
        while len(data) < end - start:  # Linux limits a read to 2 GB
            data += os.pread(self._descriptor, end - start - len(data), start + len(data))
        return data


def _unnamed_file(directory: Path | None) -> int:
    """Return the descriptor of a new file without a name."""
    try:
        with TemporaryFile(dir=directory, buffering=0) as file:
            return os.dup(file.fileno())
    except OSError as error:
        raise DataError(
            f"cannot create a temporary file in {directory or 'the default directory'}: "
            f"{error.strerror}",
            hint="choose a writable directory with --out or --cache",
        ) from error


class SelectedLines(Lines):
    """All lines in `lines` except those in `excluded`, a sorted array of row numbers."""

    def __init__(self, lines: Lines, excluded: NDArray[np.int64]) -> None:
        self._lines = lines
        self._excluded = excluded

    def __len__(self) -> int:
        return len(self._lines) - len(self._excluded)

    @property
    def longest(self) -> int:
        """Number of characters in the longest line, even if this line is excluded."""
        return self._lines.longest

    def encoded_blocks(self) -> Iterator[bytes]:
        """Yield the blocks without the excluded lines, in UTF-8."""
        start = 0
        for data in self._lines.encoded_blocks():
            block = EncodedLines(data)
            end = start + len(block)
            first, last = np.searchsorted(self._excluded, (start, end)).tolist()
            if selected := block.exclude(self._excluded[first:last] - start):
                yield selected
            start = end

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> list[str]:
        """Return the lines with the given row numbers, in the given order."""
        rows = np.asarray(rows, dtype=np.int64)
        # An excluded row e that follows i excluded rows also follows e - i selected rows.
        shifts = self._excluded - np.arange(len(self._excluded))
        return self._lines.take(rows + np.searchsorted(shifts, rows, side="right"))


def blocks_of(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield `lines` in order, in blocks of limited size."""
    return lines.blocks() if isinstance(lines, Lines) else in_blocks(lines)


def encoded_blocks_of(lines: Sequence[str]) -> Iterator[bytes]:
    """Yield `lines` in UTF-8, each ending with LF, in blocks of limited size."""
    if isinstance(lines, Lines):
        return lines.encoded_blocks()
    return (("\n".join(block) + "\n").encode() for block in in_blocks(lines))


def take_lines(lines: Sequence[str], rows: Sequence[int] | NDArray[np.int64]) -> list[str]:
    """Return the lines with the given row numbers, in the given order."""
    return lines.take(rows) if isinstance(lines, Lines) else [lines[row] for row in rows]


def exclude_lines(lines: Sequence[str], excluded: NDArray[np.int64]) -> Sequence[str]:
    """Return `lines` except those in `excluded`, a sorted array of row numbers."""
    if isinstance(lines, Lines):
        return SelectedLines(lines, excluded)
    rows = set(excluded.tolist())
    return [line for row, line in enumerate(lines) if row not in rows]


def longest_line(lines: Sequence[str]) -> int:
    """Return the length of the longest line in characters, or an upper bound."""
    return lines.longest if isinstance(lines, Lines) else max(map(len, lines), default=0)


def in_blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield `lines` in blocks of limited size; an overlong line is a block by itself."""
    for block, _ in aligned_blocks(zip(lines, repeat(""))):
        yield block


def aligned_blocks(rows: Iterable[tuple[str, ...]]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the sources and the targets of `rows` in blocks of limited size."""
    sources: list[str] = []
    targets: list[str] = []
    n_characters = 0
    for row in rows:
        source, target = row[0], row[1]
        length = len(source) + len(target)
        if sources and (len(sources) == _BLOCK_LINES or n_characters + length > _BLOCK_CHARACTERS):
            yield sources, targets
            sources, targets, n_characters = [], [], 0
        sources.append(source)
        targets.append(target)
        n_characters += length
    if sources:
        yield sources, targets


def paired_blocks(
    sources: Iterator[EncodedLines], targets: Iterator[EncodedLines]
) -> Iterator[tuple[EncodedLines, EncodedLines]]:
    """Yield blocks with the same number of lines on both sides.

    Raise `ValueError` if one side has more lines than the other, or if there are no lines.
    """
    empty = EncodedLines(b"")
    source, target = next(sources, empty), next(targets, empty)
    while n_lines := min(len(source), len(target), _BLOCK_LINES):
        (first, source), (second, target) = source.split(n_lines), target.split(n_lines)
        yield first, second
        source = source if len(source) else next(sources, empty)
        target = target if len(target) else next(targets, empty)
        if not len(source) and not len(target):
            return
    raise ValueError("different numbers of lines, or no lines")
