"""`--processes N`: one command N times on this machine, with one end and one message.

torchrun does the same for many machines. When something goes wrong it adds a page of its own to
the message; and when it is asked to stop, it gives a run no more than half a minute to save.
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
from mtcli.signals import handling

Team = list[subprocess.Popen[bytes]]

_PAUSE = 0.05  # seconds between two looks at the processes
_GRACE = 10.0  # seconds in which the others have to end after one that was asked to stop
_REMINDERS, _REMINDER = 20, 0.5  # how often they are told to end, and the seconds between
_TURN, _LONGEST_WAIT = 2.0, 20.0  # seconds


def run_together(command: Sequence[str], size: int) -> int:
    """Run `command` in `size` processes that know of each other; the exit code of them all.

    Signals are passed on. When one of the processes fails, the others are ended.
    """
    team: Team = []
    received: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        received.append(number)
        for member in team:
            member.send_signal(number)

    with handling(pass_on), reserved_port() as port:
        try:
            for rank in range(size):
                team.append(_start(command, rank, size, port))
            code = _first_failure(team)
            if code > 128:  # asked to stop, and so were the others: they may have something to say
                _have_ended(team, _GRACE)
        finally:
            _end(team)
    if code >= 0:
        return code
    if received:
        return 128 + received[0]
    raise EngineError(
        f"one of the {size} processes was killed by {signal.Signals(-code).name}",
        hint="run the same command again (without --fresh) to go on; if memory is short, with "
        "fewer processes or a smaller data.batch_tokens",
    )


def wait_for_turn(n_turns: int = 0) -> None:
    """Let the processes before this one speak first: one that has spoken ends, and so do all.

    Thus a mistake that all of them find is told once. What may be nothing but the end of another
    process is to wait for some turns more.
    """
    if "WORLD_SIZE" in os.environ:
        rank = int(os.environ.get("RANK", "0"))
        time.sleep(min(_LONGEST_WAIT, _TURN * (rank + n_turns)))


def _start(command: Sequence[str], rank: int, size: int, port: int) -> subprocess.Popen[bytes]:
    """One of the processes, told about the others in the way of torchrun."""
    facts = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    # In a session of its own Ctrl-C comes to it once, from here, and not from the terminal, too.
    return subprocess.Popen(command, env={**os.environ, **facts}, start_new_session=True)


def _first_failure(team: Team) -> int:
    """Wait until one has failed, or all are done; the exit code."""
    while True:
        codes = [member.poll() for member in team]
        for code in codes:
            if code:
                return code
        if None not in codes:
            return 0
        time.sleep(_PAUSE)


def _have_ended(team: Team, seconds: float) -> bool:
    """Whether all end by themselves within some time."""
    until = time.monotonic() + seconds
    while any(member.poll() is None for member in team):
        if time.monotonic() > until:
            return False
        time.sleep(_PAUSE)
    return True


def _end(team: Team) -> None:
    """End all that still work, in the end by force."""
    for _ in range(_REMINDERS):
        for member in team:
            member.terminate()
        if _have_ended(team, _REMINDER):
            return
    for member in team:
        member.kill()
        member.wait()


@contextmanager
def reserved_port() -> Iterator[int]:
    """Run the block with a port that the system gives to no other program.

    On Linux, a bound socket that does not listen reserves the port, and rank 0 can still listen on
    it. Elsewhere rank 0 could not, so the port is free again and may be taken.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        if sys.platform != "linux":
            holder.close()
        yield port
