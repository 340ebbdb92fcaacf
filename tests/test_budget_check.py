"""Notice about runs that are much faster or slower than their time budget."""

import pytest

from mtcli.config.sections import TrainConfig
from mtcli.training.budget_check import BudgetCheck


def notices(seconds: float, **settings) -> list[str | None]:
    """Return the notice after each of 400 steps of the same duration."""
    check = BudgetCheck(TrainConfig(**{"minutes": 10, "steps": 1_000, **settings}))
    return [check.add(seconds) for _ in range(400)]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.06 * 10, None),
        (0.06 * 8, None),
        (0.06 * 12, None),
        (0.06 * 5, "faster than measured at the start: all steps will take about 5.0 instead"),
        (0.06 * 20, "slower than measured at the start: all steps will take about 20.0 instead"),
    ],
)
def test_one_notice_compares_the_first_tenth_of_the_steps_with_the_budget(seconds, text):
    found = notices(seconds)
    assert found[:99] == [None] * 99
    assert found[100:] == [None] * 300
    assert (found[99] is None) if text is None else (text in found[99])


def test_a_run_without_a_time_budget_has_no_notice():
    assert set(notices(100.0, minutes=None)) == {None}
