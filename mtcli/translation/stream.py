"""Streaming translation: read lines, translate them in groups, yield formatted lines.

`Progress` measures how much of the input has been translated. `LineCounts` counts the lines that
need a warning.
"""

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import IO, NamedTuple

from mtcli.config.search import SearchOptions
from mtcli.errors import DataError
from mtcli.translation.formats import Formats, Line
from mtcli.translation.line_translator import LineTranslator, Request, Translation
from mtcli.translation.stream_io import Input, line_groups

_ROUNDING = 1e-3  # tolerance, in lines, for rounding errors in sums of fractions


class _GroupSize(NamedTuple):
    """Number of lines and size of one or more groups."""

    n_lines: int
    size: int


class Progress:
    """Number of lines translated so far, and the translated fraction of the input.

    Sizes can be in any unit, such as bytes or lines.
    """

    def __init__(self, total: int | None = None) -> None:
        self.total = total  # size of the entire input; None: unknown
        self.on_change: Callable[[], None] = lambda: None
        self._groups: deque[_GroupSize] = deque()  # groups that are not yet complete
        self._done = _GroupSize(0, 0)
        self._n_in_group = 0.0  # translated lines in the first group

    def read(self, n_lines: int, size: int) -> None:
        """Register a group that has been read."""
        self._groups.append(_GroupSize(n_lines, size))

    def advance(self, n_lines: float) -> None:
        """Record `n_lines` more translated lines, which may be a fraction.

        The lines count toward the groups in the order in which the groups were read.
        """
        self._n_in_group += n_lines
        while self._groups and self._n_in_group > self._groups[0].n_lines - _ROUNDING:
            group = self._groups.popleft()
            self._done = _GroupSize(
                self._done.n_lines + group.n_lines, self._done.size + group.size
            )
            self._n_in_group -= group.n_lines
        self.on_change()

    @property
    def n_lines(self) -> int:
        """Number of translated lines."""
        return self._done.n_lines + round(self._n_in_group)

    @property
    def share(self) -> float | None:
        """Translated fraction of the input, from 0 to 1; None if the input size is unknown."""
        if self.total is None:
            return None
        size = float(self._done.size)
        if self._groups:
            size += self._n_in_group / self._groups[0].n_lines * self._groups[0].size
        return min(1.0, max(0.0, size / self.total)) if self.total else 1.0


def total_size(files: Sequence[IO[bytes]]) -> int | None:
    """Return the number of unread bytes in `files`; None if one of them is not a regular file."""
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


@dataclass(frozen=True)
class LineCounts:
    """Number of translated lines, and how many of them need a warning."""

    n_lines: int = 0
    n_invalid: int = 0  # not valid UTF-8; invalid bytes are replaced with U+FFFD
    n_split: int = 0  # longer than the lines in training, so translated in parts
    n_truncated: int = 0  # the best translation reached the length limit before EOS
    n_repetitive: int = 0  # the best translation repeats itself

    def __add__(self, other: "LineCounts") -> "LineCounts":
        return LineCounts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def notices(self) -> Iterator[str]:
        """Yield a message for each nonzero warning count."""
        of_all = f"of {self.n_lines} lines"
        if self.n_invalid:
            yield (
                f"{self.n_invalid} {of_all} were not valid UTF-8; invalid bytes were replaced with "
                "U+FFFD"
            )
        if self.n_split:
            yield (
                f"{self.n_split} {of_all} were longer than the lines the model was trained on and "
                "were translated in parts"
            )
        if self.n_truncated:
            yield (
                f"{self.n_truncated} {of_all} have a translation that was cut off at the maximum "
                "length; see --max-length"
            )
        if self.n_repetitive:
            yield (
                f"{self.n_repetitive} {of_all} have a translation that repeats itself; "
                "--no-repeat-ngram 4 may help"
            )


@dataclass(frozen=True)
class TranslatedGroup:
    """Output lines of a group, and their counts."""

    lines: list[str]
    counts: LineCounts


def translate_stream(
    translator: LineTranslator,
    inputs: Iterable[Input],
    options: SearchOptions,
    formats: Formats,
    progress: Progress | None = None,
) -> Iterator[TranslatedGroup]:
    """Translate all inputs; yield one output line for each input line, in groups.

    `progress` counts the translated lines. An error in the input is raised after all lines before
    it have been yielded.
    """
    progress = progress or Progress()
    pending: deque[list[Line]] = deque()
    errors: list[DataError] = []

    def requests() -> Iterator[list[Request]]:
        for lines in _parsed_groups(inputs, formats, errors, progress):
            if lines:
                pending.append(lines)
            yield [line.request for line in lines]

    for candidates in translator.translate_groups(requests(), options, progress.advance):
        lines = pending.popleft()
        formatted = [formats.format_line(*pair) for pair in zip(lines, candidates, strict=True)]
        yield TranslatedGroup(formatted, _count(lines, candidates))
    if errors:
        raise errors[0]


def _parsed_groups(
    inputs: Iterable[Input], formats: Formats, errors: list[DataError], progress: Progress
) -> Iterator[list[Line]]:
    """Yield the lines of all inputs up to the first error, which is added to `errors`.

    An empty group means that no more lines are available yet.
    """
    for source in inputs:
        number = 0
        for group in line_groups(source):
            lines: list[Line] = []
            try:
                for raw in group:
                    number += 1
                    lines.append(formats.parse_line(raw, f"{source.name}, line {number}"))
            except DataError as error:
                errors.append(error)
            if lines:
                progress.read(len(lines), sum(map(len, group)) + len(group))
            if lines or not group:
                yield lines
            if errors:
                return


def _count(lines: Sequence[Line], candidates: Sequence[Sequence[Translation]]) -> LineCounts:
    best = [translations[0] for translations in candidates]
    return LineCounts(
        n_lines=len(lines),
        n_invalid=sum(not line.is_valid for line in lines),
        n_split=sum(translation.n_parts > 1 for translation in best),
        n_truncated=sum(translation.is_truncated for translation in best),
        n_repetitive=sum(translation.is_repetitive for translation in best),
    )
