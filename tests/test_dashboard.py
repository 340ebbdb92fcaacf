import io
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from event_samples import (
    HISTORY,
    ROLLED_BACK,
    VALIDATED,
    make_step,
    make_validation,
    shown_text,
)
from mtcli.reporting.dashboard import Dashboard, Throughput, sparkline
from mtcli.reporting.events import Resumed


def draw(dashboard: Dashboard, width: int) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    console.print(dashboard)
    return shown_text(console).splitlines()


@pytest.mark.parametrize("width", [40, 80, 160])
def test_the_dashboard_fits_the_width_and_keeps_its_height(width):
    dashboard = Dashboard()
    assert draw(dashboard, width) == []
    for number in range(1, 1001):
        dashboard.add_step(make_step(number, steps=100_000, loss=9 / number))
        if number % 100 == 0:
            dashboard.add_validation(make_validation(number, number / 30, is_best=True))
        if number in (1, 500, 1000):
            lines = draw(dashboard, width)
            assert len(lines) == 4
            assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("width", [1, 5, 10, 17, 18, 25])
def test_the_dashboard_fits_a_very_narrow_terminal(width):
    dashboard = Dashboard()
    dashboard.add_step(make_step(12_000, steps=120_000))
    dashboard.add_validation(make_validation(12_000, 10.0, is_best=True))
    lines = draw(dashboard, width)
    assert len(lines) == 4
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("width", range(30, 121))
def test_every_frame_has_the_same_height_and_no_line_wraps(width):
    dashboard = Dashboard()
    frames = []
    for number in range(1, 11):
        dashboard.add_step(make_step(12_000 * number, steps=120_000, seconds=9.0, loss=90 / number))
        frames.append(draw(dashboard, width))
        dashboard.activity = "evaluating the mean of steps 10,000, 20,000 and 30,000"
        frames.append(draw(dashboard, width))
        dashboard.add_validation(make_validation(12_000 * number, 10.0 * number, is_best=True))
    dashboard.activity = "exporting to CTranslate2"
    frames.append(draw(dashboard, width))
    dashboard.stop()
    frames.append(draw(dashboard, width))
    for lines in frames:
        assert len(lines) == 4
        assert max(map(cell_len, lines)) <= width
    losses, scores = frames[-1][1], frames[-1][3]
    assert len(re.findall("[▁-█]", losses)) >= 8
    assert len(re.findall("[▁-█]", scores)) >= 8
    assert "100.00" in scores


def test_the_dashboard_shows_the_activity_until_the_next_step_or_the_end():
    dashboard = Dashboard()
    dashboard.add_step(make_step(50, seconds=1.0))
    dashboard.activity = "validating"
    assert "validating" in draw(dashboard, 80)[0]
    assert "left" not in draw(dashboard, 80)[0]
    dashboard.add_step(make_step(51, seconds=1.0))
    assert "validating" not in draw(dashboard, 80)[0]
    assert "about 49 s left" in draw(dashboard, 80)[0]
    dashboard.activity = "exporting"
    dashboard.stop()
    assert "left" not in draw(dashboard, 80)[0]
    assert "exporting" not in draw(dashboard, 80)[0]


@pytest.mark.parametrize("width", [80, 160])
def test_the_dashboard_shows_all_facts_without_truncation(width):
    dashboard = Dashboard()
    for number in range(12_001, 12_101):
        dashboard.add_step(make_step(number, steps=100_000, seconds=0.4, loss=4.0))
    dashboard.add_validation(make_validation(12_050, 34.12, is_best=True))
    dashboard.add_validation(make_validation(12_100, 33.5, is_best=False))
    shown = " ".join(draw(dashboard, width))
    assert "…" not in shown
    for expected in (
        "step 12,100/100,000",
        "about 9 h 46 min left",
        "4.000",
        "1.500",
        "33.50",
        "best 34.12 at step 12,050",
        "lr 0.0125",
        "50 tokens/s",
        "padding 20%",
        "memory 3.4 GB",
    ):
        assert expected in shown


def test_an_ascii_terminal_gets_only_ascii():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    dashboard = Dashboard()
    dashboard.add_step(make_step(1))
    dashboard.add_validation(VALIDATED)
    Console(file=file, force_terminal=True, width=80).print(dashboard)
    file.seek(0)
    assert "best" in file.read()


def test_a_rollback_removes_the_undone_steps_from_the_dashboard():
    dashboard = Dashboard()
    for number in range(1, 121):
        dashboard.add_step(make_step(number, steps=500, loss=5.0 if number <= 100 else 99.0))
    dashboard.add_validation(make_validation(100, 20.0, is_best=True))
    dashboard.add_validation(make_validation(110, 21.0, is_best=True))
    dashboard.roll_back(ROLLED_BACK)
    dashboard.add_step(make_step(101, steps=500, loss=5.0))
    shown = " ".join(draw(dashboard, 80))
    assert "5.000" in shown
    assert "best 20.00 at step 100" in shown
    assert "21.00" not in shown


def test_a_restored_dashboard_nearly_equals_an_uninterrupted_one():
    """Only every tenth step is logged, but the curves have the same steps and similar losses."""
    steps = [make_step(number, steps=500, loss=9 - number / 100) for number in range(1, 201)]
    uninterrupted, restored = Dashboard(), Dashboard()
    for event in steps:
        uninterrupted.add_step(event)
    logged = tuple(event for event in steps if event.step % 10 == 0)
    restored.restore_history(Resumed(200, logged))
    assert [number for number, _ in restored.losses] == [
        number for number, _ in uninterrupted.losses
    ]
    for (_, loss), (_, expected) in zip(restored.losses, uninterrupted.losses, strict=True):
        assert loss == pytest.approx(expected, abs=0.1)
    for dashboard in (uninterrupted, restored):
        dashboard.add_step(make_step(201, steps=500, loss=99.0))  # a single step has a small weight
    assert restored.throughput.loss == pytest.approx(uninterrupted.throughput.loss, abs=0.1)


def test_a_restored_dashboard_omits_steps_that_a_rollback_undid():
    dashboard = Dashboard()
    undone = (
        make_step(110, steps=500, loss=99.0),
        make_validation(120, 30.0, is_best=True),
        ROLLED_BACK,
    )
    dashboard.restore_history(Resumed(100, (*HISTORY, *undone)))
    dashboard.add_step(make_step(101, steps=500, loss=9.0))
    shown = " ".join(draw(dashboard, 80))
    assert "best 20.00 at step 50" in shown
    assert max(number for number, _ in dashboard.losses) == 101
    assert max(loss for _, loss in dashboard.losses) <= 90


def test_throughput_averages_only_the_recorded_steps():
    throughput = Throughput()
    throughput.add_step(make_step(901, seconds=60.0, steps=1000))  # includes compilation
    for number in range(902, 951):
        throughput.add_step(make_step(number, seconds=0.5, steps=1000))
    assert throughput.seconds_left(make_step(950, steps=1000)) == pytest.approx(25.0)
    assert throughput.tokens_per_second == pytest.approx(40.0)
    assert throughput.padding == pytest.approx(0.2)


def test_the_average_loss_moves_smoothly_to_a_new_level():
    throughput = Throughput()
    for number in range(1, 101):
        throughput.add_step(make_step(number, loss=4.0))
    throughput.add_step(make_step(101, loss=2.0))
    assert 3.5 < throughput.loss < 4.0
    throughput.add_step(make_step(102, loss=math.nan))
    assert 3.5 < throughput.loss < 4.0
    for number in range(103, 303):
        throughput.add_step(make_step(number, loss=2.0))
    assert throughput.loss == pytest.approx(2.0, abs=0.01)


numbers = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=60)


@given(numbers, st.integers(-1, 30))
def test_a_sparkline_has_one_bar_per_number_up_to_its_width(values, width):
    finite = [value for value in values if math.isfinite(value)]
    assert len(sparkline(values, width)) == min(len(finite), max(0, width))


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60), st.integers(1, 30))
def test_a_sparkline_rises_with_its_numbers(values, width):
    bars = sparkline(sorted(values), width)
    assert list(bars) == sorted(bars)
    falling = sparkline(sorted(values, reverse=True), width)
    assert list(falling) == sorted(falling, reverse=True)


@given(st.floats(-1e9, 1e9), st.integers(1, 60))
def test_equal_numbers_give_a_level_sparkline(value, count):
    assert len(set(sparkline([value] * count, 20))) == 1


def test_a_sparkline_uses_all_heights_and_ends_with_the_newest_number():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0.0] * 99 + [1.0], 10) == "▁▁▁▁▁▁▁▁▁█"
    assert sparkline([], 10) == ""
    assert sparkline([-1e308, 0.0, 1e308], 10) == "▄▄▄"  # the range overflows
