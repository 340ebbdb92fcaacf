"""Line input and output: read groups of lines from files, pipes or terminals, and write lines."""

import os
import signal
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, Queue
from types import TracebackType
from typing import IO

from mtcli.data.lines import line_content
from mtcli.errors import DataError
from mtcli.translation.pipeline import LINES_PER_GROUP

_CHUNK_BYTES = 1 << 16
_MAX_QUEUED_CHUNKS = 64
_GROUP_BYTES = 1 << 20  # limit for groups of long lines


@dataclass(frozen=True)
class Input:
    """A binary stream and its name in messages."""

    file: IO[bytes]
    name: str
    fill_batches: bool = False  # wait for full groups instead of translating lines as they arrive


def line_groups(source: Input) -> Iterator[list[bytes]]:
    """Yield groups of complete lines; an empty group means that no more lines are available yet.

    Only LF ends a line. Groups from a file are full. A group from a pipe or a terminal contains the
    lines that are available. With `fill_batches`, it is full too.
    """
    lines: list[bytes] = []
    unfinished: list[bytes] = []  # chunks of a line whose end has not been read
    is_first, n_bytes = True, 0
    file = source.file
    for chunk in _file_chunks(file) if _is_available(file) else _pipe_chunks(file):
        if not chunk and source.fill_batches:
            continue
        n_bytes += len(chunk)
        first, *others = chunk.split(b"\n")
        unfinished.append(first)
        if others:
            for line in (b"".join(unfinished), *others[:-1]):
                lines.append(line_content(line, is_first=is_first))
                is_first = False
            unfinished = [others[-1]]
        while len(lines) >= LINES_PER_GROUP or (lines and (n_bytes >= _GROUP_BYTES or not chunk)):
            yield lines[:LINES_PER_GROUP]
            lines, n_bytes = lines[LINES_PER_GROUP:], 0
        if not chunk:
            yield []
    if rest := b"".join(unfinished):
        lines.append(line_content(rest, is_first=is_first))
    if lines:
        yield lines


def _is_available(file: IO[bytes]) -> bool:
    """Return whether the entire content can be read without waiting."""
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError:  # an object in memory has no file descriptor
        return True


def _file_chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk


def _pipe_chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield chunks that a thread reads in advance; b"" if none is available yet."""
    queue: Queue[bytes | OSError] = Queue(_MAX_QUEUED_CHUNKS)

    def read() -> None:
        # Use os.read, because file.read holds a lock that prevents Python from exiting.
        try:
            while chunk := os.read(file.fileno(), _CHUNK_BYTES):
                queue.put(chunk)
            queue.put(b"")
        except OSError as error:
            queue.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            chunk = queue.get_nowait()
        except Empty:
            yield b""
            chunk = queue.get()
        if isinstance(chunk, OSError):
            raise chunk
        if not chunk:
            return
        yield chunk


class Output:
    """Standard output, or a file that never ends with a partial line."""

    def __init__(self, file: IO[bytes], name: str | None = None) -> None:
        self.file = file
        self.name = name  # None for standard output, which cannot be truncated

    def write(self, lines: Sequence[str]) -> None:
        """Write and flush `lines`; if writing to a file fails, remove the partial line."""
        data = "".join(f"{line}\n" for line in lines).encode()
        if self.name is None:
            self.file.write(data)
            self.file.flush()
            return
        n_written = 0
        try:
            with _block_sigint():
                while n_written < len(data):
                    n_written += os.write(self.file.fileno(), data[n_written:])
        except OSError as error:
            self._remove_partial_line(data[:n_written])
            raise DataError(
                f"cannot write {self.name}: {error.strerror}",
                hint="check that the disk has free space; lines already in the file are complete",
            ) from error

    def _remove_partial_line(self, written: bytes) -> None:
        n_partial = len(written) - (written.rfind(b"\n") + 1)
        size = os.fstat(self.file.fileno()).st_size
        with suppress(OSError):  # a device or a pipe cannot be truncated
            os.ftruncate(self.file.fileno(), size - n_partial)

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
def _block_sigint() -> Iterator[None]:
    """Run the block with SIGINT blocked, if the platform supports it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
