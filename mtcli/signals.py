"""Signals that end a command: SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal is gone)."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

from mtcli.errors import Interrupted

T = TypeVar("T")
Handler = Callable[[int, FrameType | None], None]

_JOIN_SECONDS = 0.1
_THREAD = "mtcli-work"


@contextmanager
def handling(handler: Handler) -> Iterator[None]:
    """Run the block with `handler` for the signals that end a command.

    A signal that is ignored stays so: SIGHUP under nohup, SIGINT in a background job of a script.
    Only the main thread can handle signals: in another one the block runs without.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    numbers = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = [signal.signal(number, handler) for number in numbers]
    try:
        yield
    finally:
        for number, old in zip(numbers, before, strict=True):
            signal.signal(number, old)


@contextmanager
def raising(message: str) -> Iterator[None]:
    """Run the block so that a signal raises `Interrupted` with `message`.

    The block must have nothing to save or to clean up: a signal during an import ends the process
    at once, because extension modules turn an exception there into another one.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if is_importing(frame):
            if os.environ.get("RANK", "0") == "0":
                with suppress(OSError):  # the terminal is gone
                    os.write(2, f"{message}\n".encode())
            os._exit(128 + number)
        raise Interrupted(number, message)

    with handling(handle):
        yield


def is_importing(frame: FrameType | None) -> bool:
    """Return whether `frame` runs as part of an import."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def run_interruptibly(function: Callable[[], T]) -> T:
    """Return the result of `function` while signal handlers can raise in this thread.

    Python runs signal handlers in the main thread, and not before a call into C++ returns. So
    `function` runs in another thread, which keeps running after an exception in a handler: see
    `is_working`.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name=_THREAD, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_JOIN_SECONDS)
    if errors:
        raise errors[0]
    return results[0]


def is_working() -> bool:
    """Return whether a thread of `run_interruptibly` is still running.

    Then end the process with `os._exit`: Python crashes if such a thread returns while it exits.
    """
    return any(thread.name == _THREAD for thread in threading.enumerate())
