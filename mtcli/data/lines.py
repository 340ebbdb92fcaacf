"""Read lines from UTF-8 files. Only LF ends a line."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from mtcli.counts import format_count
from mtcli.data.compression import (
    STDIN,
    ZIP_MAGIC,
    DamagedFileError,
    DecompressedReader,
    open_decompressed,
)
from mtcli.errors import DataError

if TYPE_CHECKING:
    from mtcli.data.line_store import LineStore

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Byte order marks. UTF-32 comes first: its little-endian mark starts with the UTF-16 mark.
_BYTE_ORDER_MARKS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_MIN_HEAD_LENGTH = 8  # bytes needed to detect an encoding without a byte order mark
HEAD = 1000  # bytes examined to detect an encoding
_BLOCK = 1 << 20  # bytes to read and decode at a time
_MAX_LINE = 256 << 20  # bytes; longer lines are not sentences and could exhaust the memory


class UnequalLinesError(DataError):
    """Line-aligned files have different numbers of lines."""

    def __init__(self, message: str, *, hint: str, n_lines: tuple[int, int]) -> None:
        super().__init__(message, hint=hint)
        self.n_lines = n_lines
        self.rest: LineStore | None = None  # lines after the end of the shorter file


def line_content(raw: bytes, *, is_first: bool) -> bytes:
    """Return a line without its line ending; remove a byte order mark from the first line."""
    raw = raw.removeprefix(BYTE_ORDER_MARK) if is_first else raw
    return raw.removesuffix(b"\n").removesuffix(b"\r")


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, or of standard input for "-". Only LF ends a line.

    Compressed files are decompressed.
    """
    label = "standard input" if str(path) == STDIN else str(path)
    with open_decompressed(str(path)) as file:
        yield from decoded_lines(file, label)


def decoded_lines(file: DecompressedReader, label: str) -> Iterator[str]:
    """Yield the lines of an open UTF-8 file; `label` is its name in messages."""
    n_lines = 0
    try:
        check_is_text(file.peek()[:HEAD], label)
        for block in line_blocks(file, _BLOCK):
            content = block if n_lines else block.removeprefix(BYTE_ORDER_MARK)
            if is_overlong(content):
                raise _overlong(label, n_lines + 1)
            try:
                text = content.decode()
            except UnicodeDecodeError:
                for line in _lines_before_error(content, label, n_lines, file):
                    n_lines += 1
                    yield line
                raise
            lines = text.removesuffix("\n").split("\n")
            if "\r" in text:
                lines = [line.removesuffix("\r") for line in lines]
            yield from lines
            n_lines += len(lines)
    except DamagedFileError as error:
        raise error.at(f"line {n_lines + 1:,}") from error


def _read_to_end(file: DecompressedReader) -> None:
    """Read the rest of a file; raise `DamagedFileError` if it is damaged."""
    while file.read1(_BLOCK):
        pass


def line_blocks(file: DecompressedReader, size: int) -> Iterator[bytes]:
    """Yield blocks of complete lines. If a line is too long, end with the start of that line.

    The file is read in chunks of `size` bytes.
    """
    unfinished: list[bytes] = []
    n_unfinished = 0
    while chunk := file.read1(size):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join((*unfinished, chunk[:end]))
            unfinished, n_unfinished, chunk = [], 0, chunk[end:]
        unfinished.append(chunk)
        n_unfinished += len(chunk)
        if n_unfinished > _MAX_LINE:
            break
    if n_unfinished:
        yield b"".join(unfinished)


def is_overlong(content: bytes) -> bool:
    """Return whether `content` is the start of a line that is too long."""
    return len(content) > _MAX_LINE and b"\n" not in content


def _overlong(label: str, number: int) -> DataError:
    return DataError(
        f"{label}, line {number:,}: longer than {_MAX_LINE >> 20} MB",
        hint="write one sentence per line; only LF ends a line",
    )


def _lines_before_error(
    content: bytes, label: str, n_lines: int, file: DecompressedReader
) -> Iterator[str]:
    """Yield the lines before the first line that is not UTF-8, then raise `DataError`."""
    for number, raw in enumerate(content.split(b"\n"), start=n_lines + 1):
        try:
            yield line_content(raw, is_first=False).decode()
        except UnicodeDecodeError as error:
            if file.compression:
                _read_to_end(file)  # if the data is damaged, report that instead
            name = shlex.quote(label)
            raise DataError(
                f"{label}, line {number}: not valid UTF-8 ({error.reason}, byte {error.start + 1})",
                hint=f"inspect the line with `sed -n {number}p {name} | xxd`, "
                "or convert the file with iconv",
            ) from error


def check_is_text(head: bytes, label: str) -> None:
    """Raise `DataError` if a file that starts with `head` is a zip archive, UTF-16 or UTF-32."""
    name = shlex.quote(label)
    if head.startswith(ZIP_MAGIC):
        raise DataError(
            f"{label} is a zip archive",
            hint=f"pass the archive as a single corpus: zip:{label}",
        )
    if encoding := _detect_encoding(head):
        output = shlex.quote(f"{label}.txt")
        raise DataError(
            f"{label} is {encoding}, not UTF-8",
            hint=f"convert it: iconv -f {encoding} -t UTF-8 {name} > {output}",
        )


def _detect_encoding(head: bytes) -> str | None:
    """Return the encoding if `head` is UTF-16 or UTF-32, else None."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding
    if len(head) < _MIN_HEAD_LENGTH:
        return None
    zero_rates = [head[i::4].count(0) / len(head[i::4]) for i in range(4)]
    match ["zero" if rate > 0.7 else "text" if rate < 0.1 else "mixed" for rate in zero_rates]:
        case ["text", "zero", "text", "zero"]:
            return "UTF-16LE"
        case ["zero", "text", "zero", "text"]:
            return "UTF-16BE"
        case ["text", _, "zero", "zero"]:
            return "UTF-32LE"
        case ["zero", "zero", _, "text"]:
            return "UTF-32BE"
    return None


def read_aligned(paths: Sequence[Path]) -> list[list[str]]:
    """Return the lines of each file. All files must have the same number of lines."""
    files = [list(read_lines(path)) for path in paths]
    for path, lines in zip(paths, files, strict=True):
        if not lines:
            raise empty_file(path)
        if len(lines) != len(files[0]):
            raise unequal_lengths(paths[0], len(files[0]), path, len(lines))
    return files


def paired_lines(
    source: tuple[object, Iterable[str]], target: tuple[object, Iterable[str]]
) -> Iterator[tuple[str, str]]:
    """Yield pairs of lines; each argument is a tuple of a name for messages and the lines.

    Raise `DataError` if a side has no lines, and `UnequalLinesError` if one side has more lines.
    """
    (source_name, source_lines), (target_name, target_lines) = source, target
    sides = iter(source_lines), iter(target_lines)
    n_pairs = 0
    for pair in zip_longest(*sides):
        if None in pair:
            rest = _rest(pair, sides)
            n_source, n_target = (n_pairs + (len(rest) if line is not None else 0) for line in pair)
            if not n_source or not n_target:
                raise empty_file(target_name if n_source else source_name)
            error = unequal_lengths(source_name, n_source, target_name, n_target)
            error.rest = rest
            raise error
        n_pairs += 1
        yield pair
    if not n_pairs:
        raise empty_file(source_name)


def _rest(
    pair: tuple[str | None, str | None], sides: tuple[Iterator[str], Iterator[str]]
) -> "LineStore":
    """Return the remaining lines of the longer file; `pair` contains the first of them."""
    from mtcli.data.line_store import LineStore

    lines = (line for line in chain(pair, *sides) if line is not None)
    return LineStore.of(lines)


def empty_file(name: object) -> DataError:
    """Return the error for a file without lines."""
    return DataError(f"{name} is empty", hint="write one sentence per line")


def unequal_lengths(
    first: object, n_first: int, second: object, n_second: int
) -> UnequalLinesError:
    """Return the error for line-aligned files with different numbers of lines."""
    return UnequalLinesError(
        f"{first} has {format_count(n_first, 'line')}, but {second} has {n_second:,}",
        hint="line N of one file must correspond to line N of the other; "
        "use `mtcli check` or `paste` to find the first misaligned line",
        n_lines=(n_first, n_second),
    )
