"""Events for the progress of data preparation."""

import time
from collections.abc import Callable

from mtcli.reporting.events import Preparing

_MIN_SECONDS = 0.2  # between two events


class PreparationProgress:
    """Callable that sends progress events to `listener` at a limited rate."""

    def __init__(self, listener: Callable[[Preparing], None]) -> None:
        self._listener = listener
        self._activity = ""
        self._started_at = self._last = 0.0

    def __call__(self, activity: str, n_pairs: int, share: float | None) -> None:
        """Report the pairs that `activity` has processed, and the completed fraction."""
        now = time.monotonic()
        if activity != self._activity:
            self._activity, self._started_at, self._last = activity, now, now
        elif now - self._last < _MIN_SECONDS:
            return
        self._last = now
        self._listener(Preparing(activity, n_pairs, share, now - self._started_at))
