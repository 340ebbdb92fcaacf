"""Handle the signals SIGINT (Ctrl-C), SIGTERM and SIGHUP (terminal closed)."""

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
_THREAD_NAME = "mtcli-work"


@contextmanager
def handle_signals(handler: Handler) -> Iterator[None]:
    """Run the block with `handler` as the handler of SIGINT, SIGTERM and SIGHUP.

    Signals that are ignored stay ignored: SIGHUP under nohup, SIGINT in background jobs of scripts.
    Python runs signal handlers only in the main thread. In other threads, the block runs without
    `handler`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    numbers = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    previous = [signal.signal(number, handler) for number in numbers]
    try:
        yield
    finally:
        for number, old_handler in zip(numbers, previous, strict=True):
            signal.signal(number, old_handler)


@contextmanager
def raise_on_signals(message: str) -> Iterator[None]:
    """Run the block so that a signal raises `Interrupted` with `message`.

    Use this only for blocks that do not need to save or clean up anything. A signal during an
    import ends the process immediately, because extension modules replace exceptions that are
    raised while they load.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if is_importing(frame):
            if os.environ.get("RANK", "0") == "0":
                with suppress(OSError):  # the terminal was closed
                    os.write(2, f"{message}\n".encode())
            os._exit(128 + number)
        raise Interrupted(number, message)

    with handle_signals(handle):
        yield


def is_importing(frame: FrameType | None) -> bool:
    """Return whether `frame` is part of an import."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def run_interruptibly(function: Callable[[], T]) -> T:
    """Return the result of `function`; signal handlers can raise exceptions while it runs.

    Python runs signal handlers in the main thread, but not during a call into C++. Therefore,
    `function` runs in a separate thread. This thread keeps running if a handler raises an
    exception: see `has_background_thread`.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name=_THREAD_NAME, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_JOIN_SECONDS)
    if errors:
        raise errors[0]
    return results[0]


def has_background_thread() -> bool:
    """Return whether a thread started by `run_interruptibly` is still running.

    If so, the caller must end the process with `os._exit`: Python crashes if the thread returns
    during a normal exit.
    """
    return any(thread.name == _THREAD_NAME for thread in threading.enumerate())
