"""Line and bar charts as HTML with inline SVG, readable without JavaScript.

This module computes the coordinates, and `templates/chart.html.j2` draws them. A chart with
categories also has a table of its values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from mtcli.reporting.pages import Table, render_fragment

if TYPE_CHECKING:
    from markupsafe import Markup

Point = tuple[float, float]  # x (such as the step), value
Item = TypeVar("Item")


MAX_POINTS = 500  # per curve: more than a screen can resolve
_WIDTH, _HEIGHT = 460, 250  # size of the SVG, in user units
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 30, 12, 30  # margins; long labels widen the left one
_CHARACTER_WIDTH = 9.5  # width of a digit in the largest font of the style sheet
_LABEL_GAP = 7  # between a label and the grid
_MAX_LABEL_CHARACTERS = 16  # longer category names are shortened
_BAR_SHARE = 0.8  # fraction of a category's width that its bars fill
COLORS = ("blue", "orange", "green", "purple", "teal", "pink")
_MAX_DOTS = 60  # per curve: more would hide the line
_UNITS = ((1e7, 1e6, "M"), (1e4, 1e3, "k"), (0.0, 1.0, ""))  # smallest value, scale, suffix
_TINY = 1e-30  # treated as zero


@dataclass(frozen=True)
class Curve:
    """One curve of a chart, or one series of bars."""

    label: str
    points: Sequence[Point]
    color: str  # one of COLORS
    is_faint: bool = False  # raw values behind a smoothed curve
    has_dots: bool = False  # mark each point with a dot, for curves with few points
    intervals: Sequence[tuple[float, float]] = ()  # lower and upper end at each point


@dataclass(frozen=True)
class Marker:
    """A vertical line at a step, with a tooltip."""

    step: float
    text: str


@dataclass(frozen=True)
class Chart:
    """Curves over the steps of a run or, with `categories`, over named positions 0, 1, 2, ..."""

    title: str
    description: str  # for screen readers
    curves: Sequence[Curve]
    digits: int  # decimal places of the values in the legend
    unit: str = ""
    starts_at_zero: bool = True  # the y axis starts at zero
    markers: Sequence[Marker] = ()
    x_name: str = "step"
    categories: Sequence[str] = ()
    kind: Literal["lines", "bars"] = "lines"  # bars require categories


@dataclass(frozen=True)
class Axis:
    """Linear mapping from values to SVG coordinates."""

    low: float
    high: float
    ticks: Sequence[float]
    start: float  # coordinate of `low`
    end: float  # coordinate of `high`

    def coordinate(self, value: float) -> float:
        """Return the coordinate of `value`."""
        fraction = (value - self.low) / (self.high - self.low)
        return self.start + fraction * (self.end - self.start)


def subsample(items: Sequence[Item], limit: int) -> list[Item]:
    """Return at most `limit` items, evenly spaced, including the first and the last."""
    if len(items) <= limit:
        return list(items)
    if limit < 2:
        return list(items[:limit])
    return [items[round(i * (len(items) - 1) / (limit - 1))] for i in range(limit)]


def round_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` evenly spaced round numbers that enclose `low` and `high`."""
    if high - low <= max(_TINY, 1e-9 * max(abs(low), abs(high))):  # a single value: widen the range
        room = abs(high) / 10 if abs(high) > _TINY else 1.0
        low, high = low - room, high + room
    rough = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(magnitude * m for m in (1, 2, 2.5, 5, 10, 20) if magnitude * m >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Return short labels for evenly spaced ticks, with the same unit and number of decimals."""
    step, largest = ticks[1] - ticks[0], max(abs(tick) for tick in ticks)
    if largest < 1e-2 and step < 1e-3:  # 2.5e-4 is shorter than 0.00025
        return [f"{tick:.1e}".replace("e-0", "e-") if tick else "0" for tick in ticks]
    unit, scale = next((unit, scale) for size, scale, unit in _UNITS if largest >= size)
    # The number of decimals in the step: 0.25 has two, 2.5 has one, 20 has none.
    digits = len(f"{step / scale:.6f}".rstrip("0").partition(".")[2])
    return [f"{tick / scale:,.{digits}f}{unit}" if tick else "0" for tick in ticks]


@dataclass(frozen=True)
class Label:
    """Text at a position in the SVG."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class LegendItem:
    """Name of a curve and its last value."""

    label: str
    value: str
    color: str


@dataclass(frozen=True)
class Bar:
    """A bar, with the text of its tooltip."""

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True)
class PlacedCurve:
    """A curve in SVG coordinates."""

    curve: Curve
    path: str
    dots: Sequence[Point]
    bars: Sequence[Bar]
    whiskers: Sequence[tuple[Point, Point]]  # lower and upper end of each interval


def chart_html(chart: Chart, name: str) -> "Markup | str":
    """Return a figure with title, legend and SVG; an empty string if no curve has points.

    `name` must be unique within the page. The legend shows the latest values until `charts.js`
    replaces them with the values at the pointer.
    """
    curves = [curve for curve in chart.curves if curve.points]
    if not curves:
        return ""
    x_axis, y_axis = _axes(chart, curves)
    return render_fragment(
        "chart.html.j2",
        {
            "chart": chart,
            "name": name,
            "width": _WIDTH,
            "height": _HEIGHT,
            "top": _TOP,
            "bottom": _HEIGHT - _BOTTOM,
            "x_axis": x_axis,
            "y_axis": y_axis,
            "legend": _legend(chart, curves),
            "position": _position(chart, max(curve.points[-1][0] for curve in curves)),
            "x_labels": _x_labels(chart, x_axis),
            "y_labels": _y_labels(x_axis, y_axis),
            "markers": [(x_axis.coordinate(m.step), m.text) for m in chart.markers],
            "curves": [_place(chart, curves, i, x_axis, y_axis) for i in range(len(curves))],
            "values": _value_table(chart, curves) if chart.categories else None,
        },
    )


def text_width(text: str) -> float:
    """Return a generous estimate of the width of a label; wide characters count twice."""
    return _CHARACTER_WIDTH * sum(1 + (ord(character) > 0x2E7F) for character in text)


def _axes(chart: Chart, curves: Sequence[Curve]) -> tuple[Axis, Axis]:
    values = [value for curve in curves for _, value in curve.points]
    values += [end for curve in curves for interval in curve.intervals for end in interval]
    lowest, highest = min(values), max(values)
    if chart.starts_at_zero:
        lowest, highest = min(0.0, lowest), highest or 1.0
    y_ticks = round_ticks(lowest, highest, count=4)
    left = max(_LEFT, max(map(text_width, tick_labels(y_ticks))) + _LABEL_GAP)
    return (
        _category_axis(chart, left) if chart.categories else _step_axis(chart, curves, left),
        Axis(y_ticks[0], y_ticks[-1], y_ticks, _HEIGHT - _BOTTOM, _TOP),
    )


def _step_axis(chart: Chart, curves: Sequence[Curve], left: float) -> Axis:
    steps = [step for curve in curves for step, _ in curve.points]
    last = max(1.0, *steps, *(marker.step for marker in chart.markers))
    ticks = [tick for tick in round_ticks(0, last) if tick <= last and tick.is_integer()]
    right = max(_RIGHT, *(text_width(label) / 2 for label in tick_labels(ticks)))
    return Axis(0, last, ticks, left, _WIDTH - right)


def _category_axis(chart: Chart, left: float) -> Axis:
    """Return an axis with a band for each category, and ticks only where their labels fit."""
    n = len(chart.categories)
    widest = max(text_width(_shorten(category)) for category in chart.categories)
    start, end = max(left, widest / 2), _WIDTH - max(_RIGHT, widest / 2)
    every = math.ceil((widest + _LABEL_GAP) * n / (end - start))
    return Axis(-0.5, n - 0.5, [float(i) for i in range(0, n, every)], start, end)


def _shorten(category: str) -> str:
    """Return the axis label of a category, truncated if long; the table shows the full name."""
    is_short = len(category) <= _MAX_LABEL_CHARACTERS
    return category if is_short else f"{category[: _MAX_LABEL_CHARACTERS - 1]}…"


def _position(chart: Chart, x: float) -> str:
    """Return the name of a position on the x axis, such as "step 1,200"."""
    if chart.categories:
        return f"{chart.x_name} {chart.categories[round(x)]}"
    return f"{chart.x_name} {x:,.0f}"


def _format(chart: Chart, value: float) -> str:
    return f"{value:,.{chart.digits}f}{chart.unit}"


def _legend(chart: Chart, curves: Sequence[Curve]) -> list[LegendItem]:
    return [
        LegendItem(curve.label, _format(chart, curve.points[-1][1]), curve.color)
        for curve in curves
        if not curve.is_faint
    ]


def _x_labels(chart: Chart, axis: Axis) -> list[Label]:
    if chart.categories:
        labels = [_shorten(chart.categories[int(tick)]) for tick in axis.ticks]
    else:
        labels = tick_labels(axis.ticks)
    return [
        Label(axis.coordinate(tick), _HEIGHT - 10, label)
        for tick, label in zip(axis.ticks, labels, strict=True)
    ]


def _y_labels(x_axis: Axis, y_axis: Axis) -> list[Label]:
    labels = zip(y_axis.ticks, tick_labels(y_axis.ticks), strict=True)
    x = x_axis.start - _LABEL_GAP
    return [Label(x, y_axis.coordinate(tick) + 4, label) for tick, label in labels]


def _place(
    chart: Chart, curves: Sequence[Curve], index: int, x_axis: Axis, y_axis: Axis
) -> PlacedCurve:
    curve = curves[index]
    shown = subsample(curve.points, MAX_POINTS)
    shift, width = 0.0, 0.0
    if chart.kind == "bars":
        width = (x_axis.coordinate(1) - x_axis.coordinate(0)) * _BAR_SHARE / len(curves)
        shift = (index - (len(curves) - 1) / 2) * width
    points = [(x_axis.coordinate(x) + shift, y_axis.coordinate(y)) for x, y in shown]
    has_dots = len(points) == 1 or (curve.has_dots and len(points) <= _MAX_DOTS)
    return PlacedCurve(
        curve,
        path="" if width else " ".join(f"{x:.1f},{y:.2f}" for x, y in points),
        dots=points if has_dots and not width else [],
        bars=_bars(chart, curve, points, y_axis, width) if width else [],
        whiskers=[
            ((x, y_axis.coordinate(low)), (x, y_axis.coordinate(high)))
            for (x, _), (low, high) in zip(points, curve.intervals, strict=False)
        ],
    )


def _bars(
    chart: Chart, curve: Curve, points: Sequence[Point], y_axis: Axis, width: float
) -> list[Bar]:
    zero = y_axis.coordinate(max(y_axis.low, min(0.0, y_axis.high)))
    return [
        Bar(
            x - width / 2,
            min(y, zero),
            width,
            abs(zero - y),
            f"{curve.label}, {_position(chart, position)}: {_format(chart, value)}",
        )
        for (x, y), (position, value) in zip(points, curve.points, strict=True)
    ]


def _value_table(chart: Chart, curves: Sequence[Curve]) -> Table:
    values = [{round(x): value for x, value in curve.points} for curve in curves]
    rows = [
        [category, *(_format(chart, v[i]) if i in v else "" for v in values)]
        for i, category in enumerate(chart.categories)
    ]
    return Table([chart.x_name, *(curve.label for curve in curves)], rows, chart.title)
