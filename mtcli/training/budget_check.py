"""Comparison of the first steps of a run with its time budget."""

from mtcli.config.sections import TrainConfig
from mtcli.counts import format_count

_SHARE = 0.1  # of the steps; their mean duration is compared with the budget
_MIN_STEPS = 20
# Limits for the expected time of all steps, as a share of the budget. The budget also includes
# preparation, validations and export.
_MIN_SHARE, _MAX_SHARE = 0.6, 1.25


class BudgetCheck:
    """Checks whether the steps of a run fit its time budget.

    The number of steps is fixed when a run starts, so that a resumed run gives the same result. If
    other programs were running at that time, the number may be far too small.
    """

    def __init__(self, options: TrainConfig) -> None:
        self._minutes = options.minutes
        self._steps = options.steps
        self._n_timed = max(_MIN_STEPS, round(_SHARE * options.steps))
        self._seconds: list[float] = []

    def add(self, seconds: float) -> str | None:
        """Add the duration of a step; return a notice if the run is far too fast or too slow."""
        if self._minutes is None or len(self._seconds) >= self._n_timed:
            return None
        self._seconds.append(seconds)
        if len(self._seconds) < self._n_timed:
            return None
        expected = sum(self._seconds) / self._n_timed * self._steps / 60
        if _MIN_SHARE <= expected / self._minutes <= _MAX_SHARE:
            return None
        budget = format_count(self._minutes, "minute")
        if expected > self._minutes:
            return (
                f"training is slower than measured at the start: all steps will take about "
                f"{expected:.1f} instead of {budget}; --stop-after limits the time"
            )
        return (
            f"training is faster than measured at the start: all steps will take about "
            f"{expected:.1f} instead of {budget}; to use all of the time, start over with --fresh"
        )
