"""How much of the input has been translated, for a progress bar."""

import os
import stat
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, NamedTuple

_ROUNDING = 1e-3  # lines; sums of fractions are not exact


class _Group(NamedTuple):
    """Lines that are translated together, and their size."""

    n_lines: int
    size: int


class Progress:
    """Counts of lines read and translated, and the translated share of the input.

    Sizes are in any unit: bytes of a file, or lines.
    """

    def __init__(self, total: int | None = None) -> None:
        self.total = total  # size of the whole input; None: unknown
        self.on_change: Callable[[], None] = lambda: None
        self._groups: deque[_Group] = deque()  # read, but not yet complete
        self._done = _Group(0, 0)
        self._n_in_group = 0.0  # lines of the first group

    def read(self, n_lines: int, size: int) -> None:
        """Count a group that has been read."""
        self._groups.append(_Group(n_lines, size))

    def advance(self, n_lines: float) -> None:
        """Count translated lines, in the order of the groups; a batch may complete a fraction."""
        self._n_in_group += n_lines
        while self._groups and self._n_in_group > self._groups[0].n_lines - _ROUNDING:
            group = self._groups.popleft()
            self._done = _Group(self._done.n_lines + group.n_lines, self._done.size + group.size)
            self._n_in_group -= group.n_lines
        self.on_change()

    @property
    def n_lines(self) -> int:
        """The number of translated lines."""
        return self._done.n_lines + round(self._n_in_group)

    @property
    def share(self) -> float | None:
        """The translated share of the input, from 0 to 1; None if its size is unknown."""
        if self.total is None:
            return None
        size = float(self._done.size)
        if self._groups:
            size += self._n_in_group / self._groups[0].n_lines * self._groups[0].size
        return min(1.0, max(0.0, size / self.total)) if self.total else 1.0


def total_size(files: Sequence[IO[bytes]]) -> int | None:
    """Return the number of bytes that are left in `files`; None if one of them is a stream."""
    total = 0
    for file in files:
        try:
            status = os.fstat(file.fileno())
        except OSError:  # an object in memory has no file descriptor
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        total += max(0, status.st_size - file.tell())
    return total
