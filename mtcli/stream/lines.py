"""Reading lines as they come: one from a person who types, thousands from a file."""

import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty, Queue
from typing import IO

from mtcli.lines import WINDOW, line_content

_READ = 1 << 16  # bytes at a time
_AHEAD = 64  # reads that may wait for their turn
_WINDOW_BYTES = 1 << 20  # long lines are not collected for long


@dataclass(frozen=True)
class Input:
    """A stream of bytes and what people call it."""

    file: IO[bytes]
    name: str
    is_patient: bool = False  # wait until a group is full, whoever may be waiting for an answer


def windows(source: Input) -> Iterator[list[bytes]]:
    """Groups of whole lines; an empty one says that for now there are no more.

    A line ends at LF and nowhere else. What a file holds is there at once, so its groups are full;
    of what arrives through a pipe or from a keyboard a group has as much as there is.
    """
    lines: list[bytes] = []
    begun: list[bytes] = []  # the parts of a line whose end has not come yet
    is_first, n_bytes = True, 0
    file = source.file
    for chunk in _at_hand(file) if _is_at_hand(file) else _arriving(file):
        if not chunk and source.is_patient:
            continue
        n_bytes += len(chunk)
        first, *others = chunk.split(b"\n")
        begun.append(first)
        if others:
            for line in (b"".join(begun), *others[:-1]):
                lines.append(line_content(line, is_first=is_first))
                is_first = False
            begun = [others[-1]]
        while len(lines) >= WINDOW or (lines and (n_bytes >= _WINDOW_BYTES or not chunk)):
            yield lines[:WINDOW]
            lines, n_bytes = lines[WINDOW:], 0
        if not chunk:
            yield []
    if rest := b"".join(begun):
        lines.append(line_content(rest, is_first=is_first))
    if lines:
        yield lines


def _is_at_hand(file: IO[bytes]) -> bool:
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError:  # something in memory has no file descriptor
        return True


def _at_hand(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_READ):
        yield chunk


def _arriving(file: IO[bytes]) -> Iterator[bytes]:
    """What comes through a pipe, read ahead by a thread; b"" when there is nothing for now."""
    queue: Queue[bytes | OSError] = Queue(_AHEAD)

    def read() -> None:
        # Not through `file`: a lock of Python's that it holds would be in the way at exit.
        try:
            while chunk := os.read(file.fileno(), _READ):
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
