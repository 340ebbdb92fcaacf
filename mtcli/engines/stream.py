"""The line contract: n lines in, n lines out, in order, whatever they contain."""

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import IO

from mtcli.config import SearchConfig
from mtcli.data import line_content
from mtcli.engines.base import Translator

_READ = 1 << 18  # bytes at a time: enough lines to sort by length, and memory stays small


@dataclass(frozen=True)
class Tally:
    """What happened to the lines that went through."""

    n_lines: int = 0
    n_invalid: int = 0  # were not UTF-8; U+FFFD stands for the bytes that made no sense
    n_split: int = 0  # were longer than the model was trained for, and translated in parts
    n_cut: int = 0  # have a translation that reached search.max_length before its end

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def notices(self) -> Iterator[str]:
        """What the user should know of it."""
        if self.n_invalid:
            yield f"{self.n_invalid} of {self.n_lines} lines were not valid UTF-8"
        if self.n_split:
            yield (
                f"{self.n_split} of {self.n_lines} lines were longer than what the model was "
                "trained on, and were translated in parts"
            )
        if self.n_cut:
            yield (
                f"{self.n_cut} of {self.n_lines} translations were cut off at the longest length "
                "that the model's search.max_length allows"
            )


@dataclass(frozen=True)
class TranslatedLines:
    """The translations of a group of lines, one each, and what was unusual about them."""

    texts: list[str]
    tally: Tally


def translate_lines(
    translator: Translator, groups: Iterable[list[bytes]], options: SearchConfig
) -> Iterator[TranslatedLines]:
    """The best translation of every line, group by group."""
    for group in groups:
        lines = [line.decode(errors="replace") for line in group]
        best = [candidates[0] for candidates in translator.translate(lines, options)]
        tally = Tally(
            n_lines=len(group),
            n_invalid=sum(not _is_utf8(line) for line in group),
            n_split=sum(translation.n_parts > 1 for translation in best),
            n_cut=sum(translation.is_cut for translation in best),
        )
        yield TranslatedLines([translation.text for translation in best], tally)


def lines_as_they_come(file: IO[bytes]) -> Iterator[list[bytes]]:
    """Groups of whole lines: one from a person who types, thousands from a file.

    A line ends at LF and nowhere else.
    """
    # read1 waits for the first bytes only and then takes what is there.
    read = getattr(file, "read1", file.read)
    is_first = True
    begun: list[bytes] = []  # the parts of a line whose end has not come yet
    while chunk := read(_READ):
        first, *others = chunk.split(b"\n")
        begun.append(first)
        if others:
            lines = [b"".join(begun), *others[:-1]]
            yield [line_content(lines[0], is_first=is_first)] + [
                line_content(line, is_first=False) for line in lines[1:]
            ]
            is_first, begun = False, [others[-1]]
    if rest := b"".join(begun):
        yield [line_content(rest, is_first=is_first)]


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
