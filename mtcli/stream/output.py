"""Writing lines: whole ones, even when the disk is full."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import IO

from mtcli.errors import DataError


class Output:
    """A file, or standard output, that gets whole lines only."""

    def __init__(self, file: IO[bytes], name: str | None = None) -> None:
        self.file = file
        self.name = name  # of a file that may be cut back; None for standard output

    def write(self, lines: Sequence[str]) -> None:
        """Write `lines` and see to it that they arrive."""
        data = "".join(f"{line}\n" for line in lines).encode()
        if self.name is None:
            self.file.write(data)
            self.file.flush()
            return
        n_written = 0
        try:
            with _uninterrupted():
                while n_written < len(data):
                    n_written += os.write(self.file.fileno(), data[n_written:])
        except OSError as error:
            self._remove_half_line(data[:n_written])
            raise DataError(
                f"cannot write {self.name}: {error.strerror}",
                hint="the lines before are complete",
            ) from error

    def _remove_half_line(self, written: bytes) -> None:
        n_half = len(written) - (written.rfind(b"\n") + 1)
        size = os.fstat(self.file.fileno()).st_size
        with suppress(OSError):  # a device or a pipe cannot be cut back
            os.ftruncate(self.file.fileno(), size - n_half)

    def __enter__(self) -> "Output":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.name is not None:
            self.file.close()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Within, Ctrl-C waits, where the system can make it wait."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
