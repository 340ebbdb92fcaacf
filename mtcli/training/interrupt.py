"""Requests to stop a training: by a signal, or because its time is up."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from signal import SIGINT
from types import FrameType

from mtcli.errors import Interrupted, MtcliError
from mtcli.report import Notice
from mtcli.signals import handling

_UNSAVED = "stopped without saving; run the same command again to resume from the last checkpoint"


class StopRequest:
    """Whether training must stop, and how it answers a signal.

    Before and after the steps everything of value is on disk, so a signal ends the run at once.
    During the steps the first signal only sets `signal`: training saves and stops.
    """

    def __init__(self, minutes: float | None = None) -> None:
        self.signal: int | None = None
        self.step = 0  # the last one that is saved, for the final message
        self.is_unsaved = False  # steps were lost
        self._ends_at = time.monotonic() + minutes * 60 if minutes else math.inf
        self._is_in_steps = False

    def is_made(self) -> bool:
        """Return whether there was a signal, or the time is up."""
        return self.signal is not None or time.monotonic() >= self._ends_at

    @contextmanager
    def during_steps(self) -> Iterator[None]:
        """Run the block so that training can save after the first signal."""
        self.raise_pending()
        self._is_in_steps = True
        try:
            yield
        except BaseException:
            self.is_unsaved = True
            raise
        finally:
            self._is_in_steps = False

    def receive(self, number: int) -> None:
        """Record a signal; raise `Interrupted` unless training saves first."""
        is_second = self.signal is not None
        self.signal = number
        if not self._is_in_steps:
            raise Interrupted(number)
        if is_second:
            raise Interrupted(number, _UNSAVED)

    def raise_pending(self) -> None:
        """Raise `Interrupted` if a signal has not ended the run yet.

        It came after the last step, or in a destructor, where Python ignores what a handler raises.
        """
        if self.signal is not None:
            raise Interrupted(self.signal)


@contextmanager
def stop_on_signals(request: StopRequest, notify: Callable[[Notice], None]) -> Iterator[None]:
    """Run the block with signal handlers that make the request."""

    def handle(number: int, _: FrameType | None) -> None:
        request.receive(number)
        if number == SIGINT:  # Ctrl-C: the user is watching
            with suppress(RuntimeError):  # raised if the signal interrupts the printing of a line
                notify(Notice("stopping after this step; press Ctrl-C again to stop at once"))

    with handling(handle):
        try:
            yield
        except MtcliError:
            raise
        except Exception as error:
            # After a signal this is its consequence: another process has ended, or an extension
            # module that was being imported has replaced the exception of the handler.
            if request.signal is None:
                raise
            lost = f"{_UNSAVED}\n  ({error})" if request.is_unsaved else ""
            raise Interrupted(request.signal, lost) from error
