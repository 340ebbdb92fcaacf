"""Pairs of a corpus, including blank lines, in temporary files that can be read repeatedly."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtcli.data.compression import open_decompressed
from mtcli.data.formats import open_corpus
from mtcli.data.formats.base import Languages, OpenedCorpus, Row
from mtcli.data.line_store import LineStore, aligned_blocks
from mtcli.data.lines import BYTE_ORDER_MARK, UnequalLinesError
from mtcli.errors import DataError

OnRead = Callable[[int], None]  # called with the number of pairs read so far

_LINE_FORMATS = (": two text files", ": TSV", ": JSON Lines")  # as they appear in file descriptions
_READ_SIZE = 1 << 20


@dataclass(frozen=True)
class FileMarks:
    """Byte order mark and CR LF line endings in a file; mtcli ignores both."""

    name: str
    has_byte_order_mark: bool
    n_crlf: int  # lines that end with CR LF


@dataclass(frozen=True)
class StoredPairs:
    """All pairs of a corpus, in blocks."""

    sources: LineStore
    targets: LineStore
    starts: tuple[int, ...]  # first row of each block

    def __len__(self) -> int:
        return len(self.sources)

    @classmethod
    def of(cls, rows: Iterable[Row], on_read: OnRead = lambda _: None) -> "StoredPairs":
        """Return a store that contains the source and target of each row."""
        sources, targets = LineStore(), LineStore()
        starts = []
        for block in aligned_blocks(rows):
            starts.append(len(sources))
            sources.append(block[0])
            targets.append(block[1])
            on_read(len(sources))
        return cls(sources, targets, tuple(starts))

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Start and end row of each block."""
        return list(zip(self.starts, (*self.starts[1:], len(self)), strict=True))

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield all pairs."""
        return zip(self.sources, self.targets, strict=True)

    def pair(self, row: int) -> tuple[str, str]:
        """Return the pair with the given row number."""
        return self.sources[row], self.targets[row]


@dataclass(frozen=True)
class CheckedCorpus:
    """A corpus that has been read for checking."""

    name: str
    pairs: StoredPairs
    languages: Languages
    files: tuple[Path, ...]
    marks: tuple[FileMarks, ...]
    n_lines: tuple[int, int] | None  # source and target lines; None if the numbers are equal
    rest: LineStore | None = None  # lines of the longer side after the last pair


def read_checked(
    names: Sequence[str], languages: Languages, on_read: OnRead = lambda _: None
) -> CheckedCorpus:
    """Read a corpus in any format, given as one name or two text files."""
    opened = open_corpus(names, languages)
    unequal: list[UnequalLinesError] = []
    pairs = StoredPairs.of(_until_unequal(opened.rows, unequal), on_read)
    name = " and ".join(names)
    if not len(pairs):
        raise DataError(f"{name} has no pairs", hint="check the corpus and its languages")
    return CheckedCorpus(
        name,
        pairs,
        opened.languages,
        opened.files,
        tuple(_find_marks(opened)),
        unequal[0].n_lines if unequal else None,
        unequal[0].rest if unequal else None,
    )


def _until_unequal(rows: Iterable[Row], errors: list[UnequalLinesError]) -> Iterator[Row]:
    """Yield rows. If one file ends before the other, append the error to `errors` and stop."""
    try:
        yield from rows
    except UnequalLinesError as error:
        errors.append(error)


def _find_marks(opened: OpenedCorpus) -> Iterator[FileMarks]:
    """Yield the marks of each file in a line-based format; skip files without marks."""
    if not any(kind in text for text in opened.descriptions for kind in _LINE_FORMATS):
        return
    for path in opened.files:
        marks = _scan(path)
        if marks.has_byte_order_mark or marks.n_crlf:
            yield marks


def _scan(path: Path) -> FileMarks:
    n_crlf = 0
    has_mark = False
    last = b""
    with open_decompressed(str(path)) as file:
        has_mark = file.peek()[:3] == BYTE_ORDER_MARK
        while chunk := file.read1(_READ_SIZE):
            n_crlf += chunk.count(b"\r\n") + (last == b"\r" and chunk[:1] == b"\n")
            last = chunk[-1:]
    return FileMarks(str(path), has_mark, n_crlf)
