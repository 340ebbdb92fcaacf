"""Requests to stop training, made by a signal or a time limit."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from signal import SIGINT
from types import FrameType

from mtcli.errors import Interrupted, MtcliError
from mtcli.reporting.events import Notice
from mtcli.signals import handle_signals

_UNSAVED = "stopped without saving; run the same command again to resume from the last checkpoint"


class StopRequest:
    """A request to stop training, set by a signal or by a time limit.

    Before and after the training steps, a signal ends the run immediately, because there is nothing
    to save. During the steps, the first signal only sets `signal`, and training saves and stops.
    """

    def __init__(self, minutes: float | None = None) -> None:
        self.signal: int | None = None
        self.step = 0  # last saved step, for the final message
        self.is_unsaved = False  # whether steps were lost
        self._ends_at = time.monotonic() + minutes * 60 if minutes else math.inf
        self._is_in_steps = False

    def is_set(self) -> bool:
        """Return whether a signal has arrived or the time limit is reached."""
        return self.signal is not None or time.monotonic() >= self._ends_at

    @contextmanager
    def during_steps(self) -> Iterator[None]:
        """Run the block; during it, the first signal only requests a stop."""
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
        """Record a signal; raise `Interrupted` unless training should save first."""
        is_second = self.signal is not None
        self.signal = number
        if not self._is_in_steps:
            raise Interrupted(number)
        if is_second:
            raise Interrupted(number, _UNSAVED)

    def raise_pending(self) -> None:
        """Raise `Interrupted` if a signal has arrived but has not ended the run.

        This happens if a signal arrives after the last step, or in a destructor, where Python
        ignores exceptions.
        """
        if self.signal is not None:
            raise Interrupted(self.signal)


@contextmanager
def stop_on_signals(request: StopRequest, notify: Callable[[Notice], None]) -> Iterator[None]:
    """Run the block with signal handlers that set `request`."""

    def handle(number: int, _: FrameType | None) -> None:
        request.receive(number)
        if number == SIGINT:  # the user has pressed Ctrl-C
            with suppress(RuntimeError):  # raised if the signal interrupted a print
                notify(Notice("stopping after this step; press Ctrl-C again to stop immediately"))

    with handle_signals(handle):
        try:
            yield
        except MtcliError:
            raise
        except Exception as error:
            # After a signal, treat any error as a result of the signal: another process may have
            # ended, or an import of an extension module may have replaced the handler's exception.
            if request.signal is None:
                raise
            message = f"{_UNSAVED}\n  ({error})" if request.is_unsaved else ""
            raise Interrupted(request.signal, message) from error
