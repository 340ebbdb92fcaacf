"""Ctrl-C, SIGTERM and the clock ask for a stop; training answers at the end of its step."""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from mtcli.report import Notice


class StopRequest:
    """Whether training has been asked to stop, and by which signal."""

    def __init__(self, minutes: float | None = None) -> None:
        self.signal: int | None = None
        self._ends_at = time.monotonic() + minutes * 60 if minutes else math.inf

    def is_made(self) -> bool:
        """Whether there was a signal, or the time is up."""
        return self.signal is not None or time.monotonic() >= self._ends_at


@contextmanager
def stop_on_signals(
    minutes: float | None, notify: Callable[[Notice], None]
) -> Iterator[StopRequest]:
    """Within, the first signal makes the request, and Ctrl-C is answered; a second one interrupts.

    After `minutes`, if given, it is made as well.
    """
    request = StopRequest(minutes)

    def handle(number: int, frame: FrameType | None) -> None:
        if request.signal:
            signal.default_int_handler(number, frame)
        request.signal = number
        if number == signal.SIGINT:  # somebody is watching
            with suppress(RuntimeError):  # which is raised if it comes within another line
                notify(Notice("stopping after this step; again to end at once"))

    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handle) for number in signals]
    try:
        yield request
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
