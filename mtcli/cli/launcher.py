"""Launcher for `--processes N`: N processes with one exit code and one error message.

torchrun also supports several machines. However, it prints a long report after each error message,
and it gives the processes only 30 seconds to save after a signal.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from mtcli.errors import EngineError
from mtcli.signals import handle_signals

Processes = list[subprocess.Popen[bytes]]

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 10.0  # time for the other processes to exit after one was stopped by a signal
_SECONDS_PER_RANK, _MAX_DELAY_SECONDS = 2.0, 20.0


def launch_processes(command: Sequence[str], size: int) -> int:
    """Run `command` in a group of `size` processes and return the exit code of the group.

    The launcher forwards signals to all processes. If one process fails, it kills the rest.
    """
    processes: Processes = []
    received: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        received.append(number)
        for process in processes:
            process.send_signal(number)

    with handle_signals(forward), reserve_port() as port:
        try:
            for rank in range(size):
                processes.append(_start(command, rank, size, port))
            code = _wait_for_failure(processes)
            if code > 128:  # stopped by a signal: the others may still be printing or saving
                _wait_for_all(processes, _GRACE_SECONDS)
        finally:
            _kill(processes)
    if code >= 0:
        return code
    if received:
        return 128 + received[0]
    raise EngineError(
        f"one of the {size} processes was killed by {signal.Signals(-code).name}",
        hint="run the same command again (without --fresh) to resume; if the machine ran out of "
        "memory, use fewer processes or a smaller data.batch_tokens",
    )


def delay_by_rank(n_extra: int = 0) -> None:
    """Sleep longer in higher ranks, so that an error common to all processes is printed once.

    The launcher kills the other processes after the first one has printed its error and
    exited. `n_extra` is added to the rank. It delays errors that may only be a consequence of the
    exit of another process.
    """
    if "WORLD_SIZE" in os.environ:
        rank = int(os.environ.get("RANK", "0"))
        time.sleep(min(_MAX_DELAY_SECONDS, _SECONDS_PER_RANK * (rank + n_extra)))


def _start(command: Sequence[str], rank: int, size: int, port: int) -> subprocess.Popen[bytes]:
    """Start the process for one rank, with the environment variables that torchrun sets."""
    variables = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # Otherwise torch prints a warning if rank 0 exits while other ranks wait for it.
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
    }
    # In a separate session, the process receives Ctrl-C once, from `forward`. Otherwise, the
    # terminal would send it a second time.
    return subprocess.Popen(command, env={**os.environ, **variables}, start_new_session=True)


def _wait_for_failure(processes: Processes) -> int:
    """Wait until a process fails and return its exit code; return 0 if all succeed."""
    while True:
        codes = [process.poll() for process in processes]
        for code in codes:
            if code:
                return code
        if None not in codes:
            return 0
        time.sleep(_POLL_SECONDS)


def _wait_for_all(processes: Processes, seconds: float) -> None:
    """Wait up to `seconds` for all processes to exit."""
    deadline = time.monotonic() + seconds
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _kill(processes: Processes) -> None:
    """Kill the processes that are still running.

    SIGKILL is safe, because a run can be resumed after it. After SIGTERM, each process would print
    a message.
    """
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


@contextmanager
def reserve_port() -> Iterator[int]:
    """Run the block with a free port on which rank 0 can listen.

    On Linux, a bound socket that does not listen reserves the port, and rank 0 can still listen on
    it. On other systems, rank 0 could not listen on a reserved port. The port is therefore
    released, and another program might take it.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        if sys.platform != "linux":
            holder.close()
        yield port
