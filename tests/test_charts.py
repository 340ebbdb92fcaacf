import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtcli.reporting.charts import Chart, Curve, chart_html, round_ticks, subsample, tick_labels
from mtcli.reporting.run_charts import smooth
from parsed_page import Page

DIGIT_WIDTH = 0.63 * 15  # width of a digit in a wide font at the page's largest font size


@given(
    st.floats(1e-7, 1e9, allow_nan=False),
    st.floats(1, 1e7, allow_nan=False),
    st.booleans(),
)
def test_axis_labels_are_not_clipped(value, last, starts_at_zero):
    curve = Curve("x", [(1, value / 3), (last, value)], "blue")
    text = chart_html(Chart("t", "d", [curve], digits=1, starts_at_zero=starts_at_zero), "c")
    width = float(Page(text).attributes_of("svg")[0]["viewbox"].split()[2])
    labels = re.findall(r'<text class="([xy])" x="([\d.]+)"[^>]*>([^<]+)<', text)
    assert {axis for axis, _, _ in labels} == {"x", "y"}
    for axis, x, label in labels:
        size = DIGIT_WIDTH * len(label)
        assert float(x) - (size if axis == "y" else size / 2) >= 0
        assert float(x) + (0 if axis == "y" else size / 2) <= width


@given(st.lists(st.tuples(st.integers(), st.integers()), max_size=80), st.integers(2, 50))
def test_subsampling_keeps_order_and_both_ends(points, limit):
    kept = subsample(points, limit)
    assert len(kept) == min(len(points), limit)
    rest = iter(points)
    assert all(point in rest for point in kept)
    assert kept[:1] + kept[-1:] == points[:1] + points[-1:]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_smoothed_values_stay_within_the_range(values):
    means = [mean for _, mean in smooth(list(enumerate(values)))]
    assert len(means) == len(values)
    assert min(means) >= min(values) - 1e-3
    assert max(means) <= max(values) + 1e-3
    assert means[0] == pytest.approx(values[0])


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9), st.integers(2, 8))
def test_ticks_are_few_and_evenly_spaced_and_enclose_the_range(low, width, count):
    ticks = round_ticks(low, low + width, count)
    slack = 1e-6 * max(1.0, abs(low), width)
    assert 2 <= len(ticks) <= count + 3
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + width - slack
    gaps = [b - a for a, b in zip(ticks, ticks[1:], strict=False)]
    assert max(gaps) == pytest.approx(min(gaps), rel=1e-3)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 8.5, ["0", "2.5", "5.0", "7.5", "10.0"]),
        (0, 0.02, ["0", "0.005", "0.010", "0.015", "0.020"]),
        (0, 9_000, ["0", "2.5k", "5.0k", "7.5k", "10.0k"]),
        (0, 7_500, ["0", "2,000", "4,000", "6,000", "8,000"]),
        (0, 95_000, ["0", "25k", "50k", "75k", "100k"]),
        (0, 2e-5, ["0", "5.0e-6", "1.0e-5", "1.5e-5", "2.0e-5"]),
    ],
)
def test_tick_labels_are_round_and_short(low, high, expected):
    assert tick_labels(round_ticks(low, high, 4)) == expected


def test_points_match_the_axes():
    curve = Curve("x", [(0, 0.0), (50, 5.0), (100, 10.0)], "blue")
    page = Page(chart_html(Chart("t", "d", [curve], digits=1), "c"))
    grid = [
        float(str(line["y1"])) for line in page.attributes_of("line") if line.get("class") == "grid"
    ]
    line = str(page.attributes_of("polyline")[0]["points"]).split()
    coordinates = [tuple(map(float, point.split(","))) for point in line]
    assert coordinates[0][1] == pytest.approx(max(grid), abs=0.1)
    assert coordinates[2][1] == pytest.approx(min(grid), abs=0.1)
    assert coordinates[1] == pytest.approx(
        ((coordinates[0][0] + coordinates[2][0]) / 2, (max(grid) + min(grid)) / 2), abs=0.1
    )
    assert chart_html(Chart("t", "d", [Curve("x", [], "blue")], digits=1), "c") == ""
