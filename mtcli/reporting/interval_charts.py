"""HTML charts of values with confidence intervals, with one row per value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtcli.reporting.charts import COLORS, round_ticks, tick_labels
from mtcli.reporting.pages import render_fragment

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its confidence interval."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class PlacedInterval:
    """An interval with its positions on the axis in percent."""

    name: str
    text: str
    at: str
    start: str
    end: str
    color: str


def interval_chart_html(title: str, intervals: Sequence[Interval], digits: int) -> "Markup":
    """Return a figure with one row per interval; long names are not shortened."""
    ticks = round_ticks(min(i.low for i in intervals), max(i.high for i in intervals), count=3)
    labels = tick_labels(ticks)

    def percent(value: float) -> str:
        return f"{100 * (value - ticks[0]) / (ticks[-1] - ticks[0]):.2f}%"

    rows = [
        PlacedInterval(
            interval.name,
            f"{interval.value:.{digits}f}",
            percent(interval.value),
            percent(interval.low),
            percent(interval.high),
            COLORS[number % len(COLORS)],
        )
        for number, interval in enumerate(intervals)
    ]
    axis = [(percent(tick), label) for tick, label in zip(ticks, labels, strict=True)]
    return render_fragment("intervals.html.j2", {"title": title, "rows": rows, "axis": axis})
