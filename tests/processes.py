"""Start processes in tests. Every wait has a timeout, and no process outlives a test."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from typing import Any

TIMEOUT = 150.0  # seconds: more than any process needs, less than the timeout of a test


@contextmanager
def started(command: Sequence[object] | str, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run the `with` block while `command` runs, then kill it; a string is a shell command."""
    arguments = command if isinstance(command, str) else [str(part) for part in command]
    is_shell = isinstance(command, str)
    process = subprocess.Popen(arguments, shell=is_shell, start_new_session=True, **options)
    try:
        yield process
    finally:
        kill_all([process.pid, *descendants(process.pid)] if process.poll() is None else [])
        process.wait(TIMEOUT)
        for stream in (process.stdin, process.stdout, process.stderr):
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()


def run(command: Sequence[object] | str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `command` with the text `stdin` as its input; return its exit code and output."""
    stdin = options.pop("stdin", None)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with started(command, **pipes, text=True, **options) as process:
        stdout, stderr = process.communicate(stdin, timeout=TIMEOUT)
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def output_of(command: Sequence[object] | str, **options: Any) -> str:
    """Run `command`, which must succeed; return its stdout."""
    result = run(command, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


class Output:
    """Output of a process, read from a pipe or a terminal with a timeout."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.pending = b""

    def until(self, text: bytes) -> bytes:
        """Read up to and including the first `text`; return everything that was read."""
        deadline = time.monotonic() + TIMEOUT
        while text not in self.pending:
            if not self._read_more(deadline):
                raise AssertionError(f"the output ended without {text!r}: {self.pending!r}")
        before, _, self.pending = self.pending.partition(text)
        return before + text

    def line_with(self, text: bytes) -> bytes:
        """Read up to the first line that contains `text`; return that line."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            line = self.until(b"\n")
            if text in line:
                return line
        raise AssertionError(f"no line with {text!r}")

    def rest(self) -> bytes:
        """Read to the end of the output."""
        deadline = time.monotonic() + TIMEOUT
        while self._read_more(deadline):
            pass
        return self.pending

    def _read_more(self, deadline: float) -> bool:
        seconds = max(0.0, deadline - time.monotonic())
        if not select.select([self.descriptor], [], [], seconds)[0]:
            raise AssertionError(f"no output within the timeout after {self.pending!r}")
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:  # Linux: the other end of a terminal was closed
            data = b""
        self.pending += data
        return bool(data)


def wait_until(is_true: Any) -> None:
    """Call `is_true` repeatedly until it returns true."""
    deadline = time.monotonic() + TIMEOUT
    while not is_true():
        assert time.monotonic() < deadline, "the condition did not become true within the timeout"
        time.sleep(0.01)


def join(process: BaseProcess) -> None:
    """Wait for a `multiprocessing` process; kill it after the timeout."""
    process.join(TIMEOUT)
    if process.is_alive():
        process.kill()
        process.join(TIMEOUT)


def descendants(pid: int) -> list[int]:
    """Return the process IDs of all descendants of `pid`."""
    found = children(pid)
    for child in found:
        found += children(child)
    return found


def children(pid: int) -> list[int]:
    """Return the process IDs of the children of `pid`."""
    command = ["pgrep", "-P", str(pid)]
    output = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False).stdout
    return [int(line) for line in output.split()]


def kill_all(pids: Sequence[int]) -> None:
    """Kill the processes in `pids` that still exist."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
