"""Lines of text: a line ends at LF and nowhere else."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from mtcli.errors import DataError

WINDOW = 2048  # lines that are translated together: enough to sort by length, few enough to keep
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# Compressed files: how they start, their format, and the command that decompresses to stdout.
_COMPRESSED = (
    (b"\x1f\x8b", "gzip", "gzip -dc"),
    (b"BZh", "bzip2", "bzip2 -dc"),
    (b"\xfd7zXZ\x00", "xz", "xz -dc"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"),
    (b"PK\x03\x04", "zip", "unzip -p"),
)
_BZIP2_BLOCK = b"1AY&SY"  # at byte 4; a text can start with BZh, too
# Byte order marks; that of UTF-32 starts like that of UTF-16.
_MARKS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_SHORTEST_HEAD = 8  # bytes that tell an encoding without a mark


def line_content(raw: bytes, *, is_first: bool) -> bytes:
    """Return a line without LF, the CR before it, and a byte order mark."""
    raw = raw.removeprefix(_BYTE_ORDER_MARK) if is_first else raw
    return raw.removesuffix(b"\n").removesuffix(b"\r")


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file; a line ends at LF and nowhere else."""
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
            hint=f"look at it with `sed -n {number}p {path} | xxd`, or convert the file with iconv",
        ) from error
    except FileNotFoundError as error:
        raise DataError(f"no such file: {path}", hint="check the name and the folder") from error
    except IsADirectoryError as error:
        raise DataError(
            f"{path} is a directory", hint="name a text file with one sentence per line"
        ) from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def _check_is_text(path: Path, head: bytes) -> None:
    """Refuse a file that is compressed or not in UTF-8, by the start of its first line."""
    name, output = (shlex.quote(str(p)) for p in (path, _converted(path)))
    for magic, format_, command in _COMPRESSED:
        if head.startswith(magic) and (format_ != "bzip2" or head[4:].startswith(_BZIP2_BLOCK)):
            raise DataError(
                f"{path} is compressed with {format_}",
                hint=f"decompress it first: {command} {name} > {output}",
            )
    if encoding := _encoding(head):
        raise DataError(
            f"{path} is {encoding}, not UTF-8",
            hint=f"convert it: iconv -f {encoding} -t UTF-8 {name} > {output}",
        )


def _converted(path: Path) -> Path:
    """Return a file name for the converted file: train.en for train.en.gz."""
    is_named = path.suffix in (".gz", ".bz2", ".xz", ".zst", ".zip")
    return path.with_suffix("") if is_named else path.with_name(f"{path.name}.txt")


def _encoding(head: bytes) -> str | None:
    """Return the UTF-16 or UTF-32 encoding of a text that starts with `head`, if it is one."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    if len(head) < _SHORTEST_HEAD:
        return None
    shares = [head[i::4].count(0) / len(head[i::4]) for i in range(4)]
    match ["zero" if share > 0.7 else "text" if share < 0.1 else "mixed" for share in shares]:
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
    """The lines of files that belong together line by line."""
    files = [list(read_lines(path)) for path in paths]
    for path, lines in zip(paths, files, strict=True):
        if not lines:
            raise DataError(f"{path} is empty", hint="it needs one sentence per line")
        if len(lines) != len(files[0]):
            raise DataError(
                f"{paths[0]} has {len(files[0])} lines, but {path} has {len(lines)}",
                hint="the files must be aligned line by line; see where they part with `paste`",
            )
    return files
