"""From input to output: lines are read, translated and written at the same time."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass

from mtcli.errors import DataError
from mtcli.options import SearchOptions
from mtcli.stream.formats import Formats, Line
from mtcli.stream.lines import Input, windows
from mtcli.stream.progress import Progress
from mtcli.translation import LineTranslator, Request, Translation


@dataclass(frozen=True)
class Tally:
    """What happened to the lines that went through."""

    n_lines: int = 0
    n_invalid: int = 0  # were not UTF-8; U+FFFD stands for the bytes that made no sense
    n_split: int = 0  # were longer than the model was trained for, and translated in parts
    n_cut: int = 0  # have a translation that reached its longest length before its end
    n_runaway: int = 0  # have a translation that says the same again and again

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def notices(self) -> Iterator[str]:
        """What the user should know of it."""
        of_all = f"of {self.n_lines} lines"
        if self.n_invalid:
            yield f"{self.n_invalid} {of_all} were not valid UTF-8; U+FFFD replaces what was wrong"
        if self.n_split:
            yield (
                f"{self.n_split} {of_all} were longer than what the model was trained on, and "
                "were translated in parts"
            )
        if self.n_cut:
            yield (
                f"{self.n_cut} {of_all} have a translation that was cut off at the longest length "
                "allowed; see --max-length"
            )
        if self.n_runaway:
            yield (
                f"{self.n_runaway} {of_all} have a translation that repeats itself; "
                "--no-repeat-ngram 4 may help"
            )


@dataclass(frozen=True)
class Written:
    """Lines to write, and what was unusual about them."""

    lines: list[str]
    tally: Tally


def translate_stream(
    translator: LineTranslator,
    inputs: Iterable[Input],
    options: SearchOptions,
    formats: Formats,
    progress: Progress | None = None,
) -> Iterator[Written]:
    """Yield one line for each input line, group by group; count them in `progress`.

    A mistake in the input is raised after the lines before it have been yielded.
    """
    progress = progress or Progress()
    waiting: deque[list[Line]] = deque()
    mistakes: list[DataError] = []

    def requests() -> Iterator[list[Request]]:
        for lines in _lines(inputs, formats, mistakes, progress):
            if lines:
                waiting.append(lines)
            yield [line.request for line in lines]

    for found in translator.flow(requests(), options, progress.advance):
        lines = waiting.popleft()
        written = [formats.written(*pair) for pair in zip(lines, found, strict=True)]
        yield Written(written, _tally(lines, found))
    if mistakes:
        raise mistakes[0]


def _lines(
    inputs: Iterable[Input], formats: Formats, mistakes: list[DataError], progress: Progress
) -> Iterator[list[Line]]:
    """Yield the lines of all inputs up to the first mistake, which is added to `mistakes`."""
    for source in inputs:
        number = 0
        for window in windows(source):
            lines: list[Line] = []
            try:
                for raw in window:
                    number += 1
                    lines.append(formats.read(raw, f"{source.name}, line {number}"))
            except DataError as mistake:
                mistakes.append(mistake)
            if lines:
                progress.read(len(lines), sum(map(len, window)) + len(window))
            if lines or not window:
                yield lines
            if mistakes:
                return


def _tally(lines: Sequence[Line], found: Sequence[Sequence[Translation]]) -> Tally:
    best = [candidates[0] for candidates in found]
    return Tally(
        n_lines=len(lines),
        n_invalid=sum(not line.is_valid for line in lines),
        n_split=sum(translation.n_parts > 1 for translation in best),
        n_cut=sum(translation.is_cut for translation in best),
        n_runaway=sum(translation.is_runaway for translation in best),
    )
