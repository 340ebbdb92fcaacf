"""A lock on a run directory: only one training writes to it."""

import errno
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path

from mtcli.errors import CheckpointError

LOCK = ".lock"

_TRIES, _PAUSE = 10, 0.05  # another process may hold the lock for an instant, to look at it
# The file system has no locks (some network file systems), or the directory is read-only: then a
# run that only reads needs none, and one that writes fails with a better message.
_WITHOUT_LOCKS = {
    errno.ENOSYS,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.ENOLCK,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
}


class RunLock:
    """A `flock` on a file in a run directory; the file names the process that holds it.

    The system releases the lock when the process ends, in whatever way: a file that is left behind
    does not block the next run. Without `flock` (Windows) there is no lock.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK
        self.is_held = False
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Lock the directory, which is created if needed; refuse one that is locked."""
        if self.is_held:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"cannot make {self.path.parent}: {error.strerror}",
                hint="choose another --out, inside a directory that you may write to",
            ) from error
        self._descriptor = _locked(self.path, os.O_RDWR | os.O_CREAT)
        self.is_held = True
        if self._descriptor is not None:
            with suppress(OSError):  # a full disk; the name is only for the message
                os.ftruncate(self._descriptor, 0)
                os.write(self._descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())

    def close(self) -> None:
        """Unlock the directory and remove the file."""
        self.is_held = False
        if self._descriptor is None:
            return
        # Remove the file while it is locked: another process that has it open checks its inode.
        with suppress(OSError):
            if _is_at(self.path, self._descriptor):
                self.path.unlink()
        os.close(self._descriptor)
        self._descriptor = None


def check_is_unlocked(directory: Path) -> None:
    """Refuse a directory in which another process is training."""
    descriptor = _locked(directory / LOCK, os.O_RDWR)
    if descriptor is not None:
        os.close(descriptor)


def _locked(path: Path, flags: int) -> int | None:
    """Return a descriptor of the locked file at `path`; None if it cannot be locked."""
    try:
        import fcntl
    except ImportError:
        return None
    holder = b""
    for _ in range(_TRIES):
        descriptor = _opened(path, flags)
        if descriptor is None:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, descriptor):
                return descriptor
        except BlockingIOError:
            holder = os.pread(descriptor, 1000, 0)
            time.sleep(_PAUSE)
        except OSError as error:
            os.close(descriptor)
            if error.errno in _WITHOUT_LOCKS:
                return None
            raise
        os.close(descriptor)
    raise _is_locked(path, holder)


def _opened(path: Path, flags: int) -> int | None:
    """Open a regular file; return None if it does not exist or may not be opened."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or error.errno in _WITHOUT_LOCKS:
            return None
        if error.errno in (errno.ELOOP, errno.EISDIR):
            raise _is_foreign(path) from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise _is_foreign(path)


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _is_foreign(path: Path) -> CheckpointError:
    return CheckpointError(f"{path} is not a regular file", hint="mtcli did not make it; remove it")


def _is_locked(path: Path, holder: bytes) -> CheckpointError:
    pid, _, host = holder.decode(errors="replace").strip().partition(" ")
    who = f" (PID {pid} on {host})" if pid.isdigit() and host.isprintable() else ""
    return CheckpointError(
        f"another process is training in {path.parent}{who}",
        hint="wait for it to end, or choose another --out",
    )
