"""Line reading from UTF-8 files. Only LF ends a line."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from mtcli.errors import DataError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# Compressed files: magic bytes, format, and the command that decompresses to stdout.
_COMPRESSED = (
    (b"\x1f\x8b", "gzip", "gzip -dc"),
    (b"BZh", "bzip2", "bzip2 -dc"),
    (b"\xfd7zXZ\x00", "xz", "xz -dc"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"),
    (b"PK\x03\x04", "zip", "unzip -p"),
)
_BZIP2_BLOCK = b"1AY&SY"  # at byte 4; text can also start with BZh
# Byte order marks. UTF-32 comes first, because its mark starts with that of UTF-16.
_BYTE_ORDER_MARKS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_MIN_HEAD_LENGTH = 8  # bytes needed to detect an encoding without a byte order mark


def line_content(raw: bytes, *, is_first: bool) -> bytes:
    """Return a line without its line ending; remove a byte order mark from the first line."""
    raw = raw.removeprefix(_BYTE_ORDER_MARK) if is_first else raw
    return raw.removesuffix(b"\n").removesuffix(b"\r")


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file. Only LF ends a line."""
    number = 0
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if number == 1:
                    _check_is_text(path, raw[:1000])
                yield line_content(raw, is_first=number == 1).decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: not valid UTF-8 ({error.reason}, byte {error.start + 1})",
            hint=f"inspect it with `sed -n {number}p {path} | xxd`, or convert the file with iconv",
        ) from error
    except FileNotFoundError as error:
        raise DataError(f"no such file: {path}", hint="check the name and the directory") from error
    except IsADirectoryError as error:
        raise DataError(
            f"{path} is a directory", hint="name a text file with one sentence per line"
        ) from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def _check_is_text(path: Path, head: bytes) -> None:
    """Raise `DataError` if `head`, the start of the file, is compressed or not UTF-8."""
    name, output = (shlex.quote(str(p)) for p in (path, _converted_path(path)))
    for magic, format_, command in _COMPRESSED:
        if head.startswith(magic) and (format_ != "bzip2" or head[4:].startswith(_BZIP2_BLOCK)):
            raise DataError(
                f"{path} is compressed with {format_}",
                hint=f"decompress it first: {command} {name} > {output}",
            )
    if encoding := _detect_encoding(head):
        raise DataError(
            f"{path} is {encoding}, not UTF-8",
            hint=f"convert it: iconv -f {encoding} -t UTF-8 {name} > {output}",
        )


def _converted_path(path: Path) -> Path:
    """Return a name for the converted file: train.en for train.en.gz."""
    has_suffix = path.suffix in (".gz", ".bz2", ".xz", ".zst", ".zip")
    return path.with_suffix("") if has_suffix else path.with_name(f"{path.name}.txt")


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
    """Read files that must have the same number of lines."""
    files = [list(read_lines(path)) for path in paths]
    for path, lines in zip(paths, files, strict=True):
        if not lines:
            raise DataError(f"{path} is empty", hint="write one sentence per line")
        if len(lines) != len(files[0]):
            raise DataError(
                f"{paths[0]} has {len(files[0]):,} lines, but {path} has {len(lines):,}",
                hint="line N of one file must be the translation of line N of the other; "
                "find the first difference with `paste`",
            )
    return files
