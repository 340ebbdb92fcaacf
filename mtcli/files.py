"""Atomic writes, and removal of partial files that a killed process left behind."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mtcli.errors import CheckpointError

_PARTIAL = ".partial"
_SAFETENSORS_PARTIAL = re.compile(r"\.tmp\w{6}")  # temporary files of safetensors 0.8


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Run the block with a temporary file that atomically replaces `path` if the block succeeds.

    The temporary file is new and has a random name, so that an existing symbolic link in the
    directory cannot redirect the write.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)  # O_CREAT | O_EXCL: also fails for symbolic links
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # undo the owner-only mode that some libraries set
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)  # so that the rename survives a power failure
    except BaseException as error:
        with suppress(OSError):  # removing the file may fail, too
            temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise CheckpointError(
            f"cannot write {path}: {error.strerror or error}",
            hint=f"check that {path.parent} is a writable directory and that the disk is not full",
        ) from error


def write_file(path: Path, content: bytes | str) -> None:
    """Write `content` to `path` atomically."""
    # Text may contain file names with bytes that are not valid UTF-8.
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def remove_partial(directory: Path) -> None:
    """Remove the partial files in `directory` that a killed process left behind."""
    with suppress(OSError):
        for path in list(directory.iterdir()):
            if is_partial(path):
                with suppress(OSError):
                    path.unlink()


def is_partial(path: Path) -> bool:
    """Return whether `path` is the temporary file of an unfinished write."""
    is_ours = path.name.startswith(".") and path.name.endswith(_PARTIAL)
    return is_ours or _SAFETENSORS_PARTIAL.fullmatch(path.name) is not None


def _flush(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open directories
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
