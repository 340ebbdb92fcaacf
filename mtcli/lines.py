"""Lines of text: a line ends at LF and nowhere else."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from mtcli.errors import DataError

WINDOW = 2048  # lines that are translated together: enough to sort by length, few enough to keep
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def line_content(raw: bytes, *, is_first: bool) -> bytes:
    """A line without what belongs to its file: LF, the CR before it, a byte order mark."""
    raw = raw.removeprefix(_BYTE_ORDER_MARK) if is_first else raw
    return raw.removesuffix(b"\n").removesuffix(b"\r")


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file; a line ends at LF and nowhere else."""
    number = 0
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
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
