"""Writing files so that at every instant either the old or the new one is there, whole."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mtcli.errors import CheckpointError

_PARTIAL = ".partial"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name to write to; on leaving, its content is on disk under `path`."""
    temporary = path.with_name(f".{path.name}{_PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # some libraries write private files; a model is for sharing
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)  # the new name itself must survive a power cut, too
    except OSError as error:
        with suppress(OSError):  # what could not be written may not be removable, either
            temporary.unlink(missing_ok=True)
        raise CheckpointError(
            f"cannot write {path}: {error.strerror or error}",
            hint=f"see that {path.parent} is a directory you may write to, and the disk not full",
        ) from error


def write_file(path: Path, content: bytes | str) -> None:
    """Replace the content of `path` at once and for good."""
    # A file name may hold bytes that are not text; telling it must not fail.
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def remove_partial(directory: Path) -> None:
    """Remove what kills have left of files that were being written."""
    for path in directory.glob(f".*{_PARTIAL}"):
        with suppress(OSError):
            path.unlink()


def is_partial(path: Path) -> bool:
    """Whether `path` is what a kill has left of a file that was being written."""
    return path.name.startswith(".") and path.name.endswith(_PARTIAL)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
