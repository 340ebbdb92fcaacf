"""Atomic writes, and the check that nothing in a model directory leads out of it."""

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mtcli.errors import CheckpointError

_PARTIAL = ".partial"
_SAFETENSORS_PARTIAL = re.compile(r"\.tmp\w{6}")  # safetensors 0.8 first writes to such a file
_SUBDIRECTORIES = ("checkpoints", "ctranslate2", "tensorboard", "cache")  # of a model directory


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write to; on exit its content is on disk under `path`.

    The name is random and the file is new, so that nothing that is already in the directory, such
    as a symbolic link, decides where the content goes.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)  # O_CREAT | O_EXCL: fails for links, too
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # some libraries write private files; a model is for sharing
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)  # the new name itself must survive a power cut, too
    except BaseException as error:
        with suppress(OSError):  # a file that cannot be written may not be removable, either
            temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise CheckpointError(
            f"cannot write {path}: {error.strerror or error}",
            hint=f"check that {path.parent} is a writable directory and the disk is not full",
        ) from error


def write_file(path: Path, content: bytes | str) -> None:
    """Replace the content of `path` at once and for good."""
    # A file name may hold bytes that are not text; telling it must not fail.
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def remove_partial(directory: Path) -> None:
    """Remove files that were being written when a process was killed."""
    with suppress(OSError):
        for path in list(directory.iterdir()):
            if is_partial(path):
                with suppress(OSError):
                    path.unlink()


def is_partial(path: Path) -> bool:
    """Return whether `path` was being written when a process was killed."""
    is_ours = path.name.startswith(".") and path.name.endswith(_PARTIAL)
    return is_ours or _SAFETENSORS_PARTIAL.fullmatch(path.name) is not None


def check_contained(directory: Path) -> None:
    """Raise `CheckpointError` if an entry of a model directory leads out of it.

    A symbolic link must point to a regular file in the directory. FIFOs, devices and sockets are
    refused without opening them, because that could block. `directory` itself may be a link.
    """
    root = directory.resolve()
    for path in _entries(directory):
        problem = _problem(path, root)
        if problem:
            raise CheckpointError(
                f"{path} {problem}",
                hint="replace it with a copy of the file or directory, or remove it",
            )


def _entries(directory: Path) -> Iterator[Path]:
    """Yield all entries of a model directory and of the subdirectories that mtcli uses."""
    for path in _children(directory):
        yield path
        if path.name in _SUBDIRECTORIES:  # `path` was checked: it is no link
            yield from _children(path)


def _children(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []  # callers report a missing directory
    except OSError as error:
        raise CheckpointError(f"cannot read {directory}: {error.strerror}") from error


def _problem(path: Path, root: Path) -> str:
    """Return the reason to refuse an entry, or an empty string."""
    try:
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode):
            is_usual = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
            return "" if is_usual else "is neither a file nor a directory"
        target = path.resolve()
        if not target.is_relative_to(root):
            return "is a symbolic link that leads out of the model directory"
        if target.exists() and not target.is_file():
            return "is a symbolic link to something that is not a file"
    except FileNotFoundError:
        return ""  # removed since it was listed
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        return f"cannot be examined: {error}"
    return ""


def _flush(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open directories
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
