"""Lock on a run directory, so that only one process at a time trains in it."""

import errno
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path

from mtcli.errors import CheckpointError
from mtcli.model_dir.layout import LOCK

# Retry, because `check_is_unlocked` in another process may hold the lock for a moment.
_N_TRIES, _SECONDS_BETWEEN = 10, 0.05
# Errors raised if the file system does not support locks (some network file systems do not) or the
# directory is read-only. In these cases, continue without a lock: reading does not need one, and
# writing fails later with a clearer message.
_NO_LOCK_ERRORS = {
    errno.ENOSYS,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.ENOLCK,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
}


class RunLock:
    """`flock` on a file in a run directory; the file contains the holder's PID and host.

    The operating system releases the lock when the process ends, even after SIGKILL, so a leftover
    file does not block the next run. On Windows, which has no `flock`, nothing is locked.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK
        self.is_held = False
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Lock the directory, creating it if necessary; raise `CheckpointError` if it is locked."""
        if self.is_held:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"cannot create {self.path.parent}: {error.strerror}",
                hint="choose another --out, in a directory that you can write to",
            ) from error
        self._descriptor = _open_locked(self.path, os.O_RDWR | os.O_CREAT)
        self.is_held = True
        if self._descriptor is not None:
            with suppress(OSError):  # the contents are only for the error message
                os.ftruncate(self._descriptor, 0)
                os.write(self._descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())

    def close(self) -> None:
        """Remove the lock file and release the lock."""
        self.is_held = False
        if self._descriptor is None:
            return
        # Remove the file while holding the lock. A process that has already opened the file
        # compares inodes and thus detects the removal.
        with suppress(OSError):
            if _is_open_file(self.path, self._descriptor):
                self.path.unlink()
        os.close(self._descriptor)
        self._descriptor = None


def check_is_unlocked(directory: Path) -> None:
    """Raise `CheckpointError` if another process is training in `directory`."""
    descriptor = _open_locked(directory / LOCK, os.O_RDWR)
    if descriptor is not None:
        os.close(descriptor)


def _open_locked(path: Path, flags: int) -> int | None:
    """Open and lock the file at `path`; return its descriptor, or None if locking is impossible.

    Raise `CheckpointError` if another process holds the lock.
    """
    try:
        import fcntl
    except ImportError:
        return None
    holder = b""
    for _ in range(_N_TRIES):
        descriptor = _open_regular(path, flags)
        if descriptor is None:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_open_file(path, descriptor):
                return descriptor
        except BlockingIOError:
            holder = os.pread(descriptor, 1000, 0)
            time.sleep(_SECONDS_BETWEEN)
        except OSError as error:
            os.close(descriptor)
            if error.errno in _NO_LOCK_ERRORS:
                return None
            raise
        os.close(descriptor)
    raise _locked_error(path, holder)


def _open_regular(path: Path, flags: int) -> int | None:
    """Open a regular file; return its descriptor, or None if it is missing or inaccessible."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or error.errno in _NO_LOCK_ERRORS:
            return None
        if error.errno in (errno.ELOOP, errno.EISDIR):
            raise _not_regular_error(path) from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise _not_regular_error(path)


def _is_open_file(path: Path, descriptor: int) -> bool:
    """Return whether `path` still refers to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _not_regular_error(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} is not a regular file", hint="remove it; mtcli did not create it"
    )


def _locked_error(path: Path, holder: bytes) -> CheckpointError:
    pid, _, host = holder.decode(errors="replace").strip().partition(" ")
    who = f" (PID {pid} on {host})" if pid.isdigit() and host.isprintable() else ""
    return CheckpointError(
        f"another process is training in {path.parent}{who}",
        hint="wait for it to end, or choose another --out",
    )
