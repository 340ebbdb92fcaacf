"""Input and output files of the commands that read and write lines."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING

from mtcli.errors import DataError

if TYPE_CHECKING:
    from mtcli.translation.stream_io import Output


def open_output(path: Path | None, inputs: Iterable[IO[bytes] | Path]) -> "Output":
    """Open `path` (None: standard output) for writing; raise `DataError` if it is also an input."""
    from mtcli.translation.stream_io import Output

    if path is None:
        if sys.stdout is None:
            raise DataError("standard output is closed", hint="write to a file with --output")
        return Output(sys.stdout.buffer)
    if any(_is_same(path, file) for file in inputs):
        raise DataError(f"{path} is also an input file", hint="choose another file for --output")
    return Output(open_file(path, "wb"), str(path))


def _is_same(path: Path, file: IO[bytes] | Path) -> bool:
    try:
        other = file.stat() if isinstance(file, Path) else os.fstat(file.fileno())
        return os.path.samestat(path.stat(), other)
    except OSError:  # the path does not exist, or the file is in memory
        return False


def open_file(path: Path, mode: str) -> IO[bytes]:
    """Open a file in binary mode; raise `DataError` if that fails."""
    try:
        return path.open(mode)
    except OSError as error:
        advice = "; to translate a sentence, pipe it to standard input" if mode == "rb" else ""
        raise DataError(
            f"cannot open {path}: {error.strerror}", hint=f"check the file name{advice}"
        ) from error
