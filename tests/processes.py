"""Processes that tests start. Every read and every wait has a limit, and nothing stays behind."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from typing import Any

LIMIT = 150.0  # seconds; far more than any process needs, less than the timeout of a test


@contextmanager
def started(command: Sequence[object] | str, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run the block while `command` runs; a string is a shell command. Kill it in the end."""
    arguments = command if isinstance(command, str) else [str(part) for part in command]
    is_shell = isinstance(command, str)
    process = subprocess.Popen(arguments, shell=is_shell, start_new_session=True, **options)
    try:
        yield process
    finally:
        kill_all([process.pid, *descendants(process.pid)] if process.poll() is None else [])
        process.wait(LIMIT)
        for stream in (process.stdin, process.stdout, process.stderr):
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()


def run(command: Sequence[object] | str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `command` to its end, with `stdin` as its input, and return its text output."""
    stdin = options.pop("stdin", None)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with started(command, **pipes, text=True, **options) as process:
        stdout, stderr = process.communicate(stdin, timeout=LIMIT)
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def output_of(command: Sequence[object] | str, **options: Any) -> str:
    """Run `command`, which must succeed, and return what it prints."""
    result = run(command, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


class Output:
    """Output of a process, read from a pipe or a terminal with a limit."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.pending = b""

    def until(self, text: bytes) -> bytes:
        """Read to the end of the first `text`, and return everything that was read."""
        deadline = time.monotonic() + LIMIT
        while text not in self.pending:
            if not self._read_more(deadline):
                raise AssertionError(f"the output ended without {text!r}: {self.pending!r}")
        before, _, self.pending = self.pending.partition(text)
        return before + text

    def line_with(self, text: bytes) -> bytes:
        """Read to the end of the first line that contains `text`; return that line."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            line = self.until(b"\n")
            if text in line:
                return line
        raise AssertionError(f"no line with {text!r}")

    def rest(self) -> bytes:
        """Read to the end of the output."""
        deadline = time.monotonic() + LIMIT
        while self._read_more(deadline):
            pass
        return self.pending

    def _read_more(self, deadline: float) -> bool:
        seconds = max(0.0, deadline - time.monotonic())
        if not select.select([self.descriptor], [], [], seconds)[0]:
            raise AssertionError(f"nothing more came within the limit after {self.pending!r}")
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:  # Linux: the other end of a terminal was closed
            data = b""
        self.pending += data
        return bool(data)


def wait_until(is_true: Any) -> None:
    """Ask `is_true` again and again until it returns true."""
    deadline = time.monotonic() + LIMIT
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen within the limit"
        time.sleep(0.01)


def join(process: BaseProcess) -> None:
    """Wait for the end of a `multiprocessing` process; kill it after the limit."""
    process.join(LIMIT)
    if process.is_alive():
        process.kill()
        process.join(LIMIT)


def descendants(pid: int) -> list[int]:
    """Return the ids of the children of `pid`, of their children and so on."""
    found = children(pid)
    for child in found:
        found += children(child)
    return found


def children(pid: int) -> list[int]:
    """Return the ids of the children of `pid`."""
    command = ["pgrep", "-P", str(pid)]
    shown = subprocess.run(command, capture_output=True, timeout=LIMIT, check=False).stdout
    return [int(line) for line in shown.split()]


def kill_all(pids: Sequence[int]) -> None:
    """Kill the processes that still exist."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
