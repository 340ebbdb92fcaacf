"""Interface of the corpus formats.

A corpus name is `[FORMAT:]PATH[#SELECTION]`. A format reads a corpus as rows. A row consists of a
source line and one or more target lines. Only test sets have more than one target line.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import ClassVar

from mtcli.data.compression import (
    STDIN,
    DamagedFileError,
    DecompressedReader,
    decompress,
    open_decompressed,
)
from mtcli.data.lines import check_is_text, decoded_lines, line_content
from mtcli.errors import DataError

Row = tuple[str, ...]  # source, target, additional references
Block = tuple[Sequence[str], Sequence[str]]  # sources, targets

_LINE_BREAK = re.compile(r"\r\n|\n|\r")
_ROW_SIZE = 150  # typical bytes per pair; used to combine progress in rows and in bytes


@dataclass(frozen=True)
class Languages:
    """Language codes of a corpus. Unknown codes are None."""

    source: str | None = None
    target: str | None = None


UNKNOWN_LANGUAGES = Languages()


class ReadProgress:
    """Progress in reading a file or dataset, counted in units of about `unit` bytes."""

    def __init__(self, total: int | None = None, *, unit: int = 1) -> None:
        self.total = total  # None if unknown
        self.done = 0
        self.unit = unit

    @classmethod
    def in_rows(cls, n_rows: int | None) -> "ReadProgress":
        """Return a `ReadProgress` that counts rows instead of bytes."""
        return cls(n_rows, unit=_ROW_SIZE)

    def add(self, amount: int) -> None:
        """Count bytes or rows that have been read."""
        self.done += amount


def completed_share(parts: Sequence[ReadProgress]) -> float | None:
    """Return the fraction of the data that has been read, or None if a total is unknown."""
    if not parts or any(part.total is None for part in parts):
        return None
    total = sum(part.unit * (part.total or 0) for part in parts)
    done = sum(part.unit * part.done for part in parts)
    return min(1.0, done / total) if total else None


@dataclass(frozen=True)
class Location:
    """Location of a corpus: a file, directory or dataset, and the selected part of it."""

    name: str  # path, "-" for standard input, or name on the Hub
    selection: tuple[str, ...] = ()  # columns, archive members or a split: the part after "#"
    languages: Languages = Languages()
    # Opens content that is not a separate file: stdin, pipes and archive members.
    opener: Callable[[], DecompressedReader] | None = field(default=None, compare=False)
    progress: ReadProgress = field(default_factory=ReadProgress, compare=False)

    def __str__(self) -> str:
        return "standard input" if self.name == STDIN else self.name

    @property
    def path(self) -> Path:
        """The name as a path."""
        return Path(self.name)

    @property
    def files(self) -> tuple[Path, ...]:
        """Tuple with the path of the file; empty for standard input, pipes and archive members."""
        return () if self.opener or self.name == STDIN else (self.path,)

    def open(self) -> DecompressedReader:
        """Open the file for reading; decompress it if necessary."""
        return self.opener() if self.opener else open_decompressed(self.name, self.progress.add)

    def head(self) -> bytes:
        """Return up to 1 MB from the start of the content; raise `DataError` if it is empty."""
        try:
            with self.open() as file:
                head = file.peek()
        except DamagedFileError as error:
            raise error.at("line 1") from error
        if not head:
            raise DataError(f"{self} is empty", hint="check how the file was created")
        return head

    def head_location(self) -> "Location":
        """Return a location with the same start; reading it does not consume a pipe."""
        if not self.opener:
            return self
        head = self.head()
        return replace(self, opener=lambda: decompress(BytesIO(head).read, [BytesIO()], str(self)))

    def lines(self) -> Iterator[str]:
        """Yield the lines of a UTF-8 file; only LF ends a line."""
        with self.open() as file:
            yield from decoded_lines(file, str(self))

    def describe(self, *facts: str) -> str:
        """Return a line that describes how mtcli reads this file."""
        with self.open() as file:
            compression = file.compression
        return f"{self}: {', '.join(fact for fact in (*facts, compression) if fact)}"


@dataclass(frozen=True)
class OpenedCorpus:
    """An open corpus. Iterate over `rows` or `blocks` to get its pairs."""

    rows: Iterator[Row]
    descriptions: tuple[str, ...]  # for each file, how mtcli reads it
    languages: Languages = Languages()
    files: tuple[Path, ...] = ()  # all files that `rows` reads
    version: str = ""  # content version of a corpus that is not in `files`; "" if unknown
    documents: tuple[str, ...] | None = None  # document id of each row of a WMT test set
    progress: tuple[ReadProgress, ...] = ()  # for each file or dataset; empty if unknown
    blocks: Iterator[Block] | None = None  # the same pairs, read faster; None if unsupported


class CorpusFormat(ABC):
    """A corpus format. `mtcli.data.formats.FORMATS` has one instance per format."""

    name: ClassVar[str]  # prefix in corpus names, such as "tmx"
    suffixes: ClassVar[tuple[str, ...]] = ()  # file suffixes, such as (".tmx",)
    reads_streams: ClassVar[bool] = True  # whether it also reads standard input and archive members
    reads_files: ClassVar[bool] = True  # whether the name is a path or a glob pattern

    def recognizes(self, location: Location, head: bytes) -> bool:
        """Return whether content that starts with `head` has this format."""
        del location, head
        return False

    @abstractmethod
    def open(self, location: Location) -> OpenedCorpus:
        """Return one file or dataset as an open corpus, if possible without reading all of it."""


def join_lines(text: str) -> str:
    """Return a segment with each line break replaced by a space."""
    return _LINE_BREAK.sub(" ", text) if "\n" in text or "\r" in text else text


def head_lines(head: bytes, location: Location) -> list[str]:
    """Return the lines at the start of a UTF-8 file; the last line may be incomplete."""
    check_is_text(head[:1000], str(location))
    text = line_content(head, is_first=True).decode(errors="replace")
    return [line.removesuffix("\r") for line in text.split("\n")]
