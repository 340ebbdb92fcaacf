"""Ctrl-C and SIGTERM ask for a stop; training answers at the end of its step."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """The signal by which somebody has asked training to stop, if any."""

    signal: int | None = None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Within, the first signal makes the request; a second one interrupts at once."""
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request.signal:
            signal.default_int_handler(number, frame)
        request.signal = number

    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handle) for number in signals]
    try:
        yield request
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
