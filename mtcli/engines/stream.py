"""The line contract: n lines in, n lines out, in order, whatever they contain."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from mtcli.config import SearchConfig
from mtcli.engines.base import Translator

_READ = 1 << 18  # bytes at a time: enough lines to sort by length, and memory stays small


@dataclass
class Tally:
    """What happened to the lines that went through."""

    n_lines: int = 0
    n_invalid: int = 0  # were not UTF-8; U+FFFD stands for the bytes that made no sense
    n_split: int = 0  # were longer than the model was trained for, and translated in parts

    def notices(self) -> Iterator[str]:
        """What the user should know of it."""
        if self.n_invalid:
            yield f"{self.n_invalid} of {self.n_lines} lines were not valid UTF-8"
        if self.n_split:
            yield (
                f"{self.n_split} of {self.n_lines} lines were longer than what the model was "
                "trained on, and were translated in parts"
            )


def translate_lines(
    translator: Translator, groups: Iterable[list[bytes]], options: SearchConfig, tally: Tally
) -> Iterator[list[str]]:
    """The best translation of every line, group by group; `tally` counts what was unusual."""
    for group in groups:
        lines = [line.decode(errors="replace") for line in group]
        best = [candidates[0] for candidates in translator.translate(lines, options)]
        tally.n_lines += len(group)
        tally.n_invalid += sum(not _is_utf8(line) for line in group)
        tally.n_split += sum(translation.n_parts > 1 for translation in best)
        yield [translation.text for translation in best]


def lines_as_they_come(file: IO[bytes]) -> Iterator[list[bytes]]:
    """Groups of whole lines: one from a person who types, thousands from a file.

    A line ends at LF and nowhere else; the CR of a CR LF is dropped.
    """
    # read1 waits for the first bytes only and then takes what is there.
    read = getattr(file, "read1", file.read)
    rest = b""
    while chunk := read(_READ):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
