"""Line charts as HTML with inline SVG, readable without JavaScript."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar

Point = tuple[float, float]  # step, value
Item = TypeVar("Item")


MAX_POINTS = 500  # per curve: more than a screen can resolve
_WIDTH, _HEIGHT = 460, 250  # size of the SVG, in user units
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 30, 12, 30  # margins; long labels widen the left one
_DIGIT_WIDTH = 9.5  # width of a label's digit in the largest font of the style sheet
_LABEL_GAP = 7  # between a label and the grid
_MAX_DOTS = 60  # per curve: more would hide the line
_UNITS = ((1e7, 1e6, "M"), (1e4, 1e3, "k"), (0.0, 1.0, ""))  # smallest value, scale, suffix
_TINY = 1e-30  # treated as zero


@dataclass(frozen=True)
class Curve:
    """One curve of a chart."""

    label: str
    points: Sequence[Point]
    color: str  # a class of the style sheet: blue, orange, green, purple
    is_faint: bool = False  # raw values behind a smoothed curve
    has_dots: bool = False  # few measurements, not one per step


@dataclass(frozen=True)
class Marker:
    """A vertical line at a step, with a tooltip."""

    step: float
    text: str


@dataclass(frozen=True)
class Chart:
    """Curves over the steps of a run."""

    title: str
    description: str  # for screen readers
    curves: Sequence[Curve]
    digits: int  # decimal places of the values in the legend
    unit: str = ""
    starts_at_zero: bool = True  # the y axis starts at zero
    markers: Sequence[Marker] = ()


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
    """Return about `count` round, evenly spaced numbers that enclose the range."""
    if high - low <= max(_TINY, 1e-9 * max(abs(low), abs(high))):  # a single value: widen the range
        room = abs(high) / 10 if abs(high) > _TINY else 1.0
        low, high = low - room, high + room
    rough = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(magnitude * m for m in (1, 2, 2.5, 5, 10, 20) if magnitude * m >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Format evenly spaced ticks compactly, all with the same unit and number of decimals."""
    step, largest = ticks[1] - ticks[0], max(abs(tick) for tick in ticks)
    if largest < 1e-2 and step < 1e-3:  # 2.5e-4: shorter than 0.00025
        return [f"{tick:.1e}".replace("e-0", "e-") if tick else "0" for tick in ticks]
    unit, scale = next((unit, scale) for size, scale, unit in _UNITS if largest >= size)
    # The number of decimals in the step: 0.25 has two, 2.5 has one, 20 has none.
    digits = len(f"{step / scale:.6f}".rstrip("0").partition(".")[2])
    return [f"{tick / scale:,.{digits}f}{unit}" if tick else "0" for tick in ticks]


def chart_html(chart: Chart, name: str) -> str:
    """Return a figure with title, legend and SVG; an empty string if no curve has points.

    `name` must be unique within the page. The legend shows the latest values; the script on the
    page replaces them with the values at the pointer.
    """
    curves = [curve for curve in chart.curves if curve.points]
    if not curves:
        return ""
    x_axis, y_axis = _axes(chart, curves)
    data = f'data-low="{y_axis.low:.10g}" data-high="{y_axis.high:.10g}"'
    data += f' data-steps="{x_axis.high:.10g}" data-digits="{chart.digits}"'
    data += f' data-unit="{escape(chart.unit)}"'
    return f"""<figure class="chart" {data}>
<figcaption><h3>{escape(chart.title)}</h3>{_legend(chart, curves)}</figcaption>
<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="{name}-title {name}-about">
<title id="{name}-title">{escape(chart.title)}</title>
<desc id="{name}-about">{escape(chart.description)}</desc>
{_grid(x_axis, y_axis)}
{_markers(chart.markers, x_axis)}
{"".join(_curve(curve, x_axis, y_axis) for curve in curves)}
<line class="pointer" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" x1="-9" x2="-9"/>
</svg></figure>
"""


def _axes(chart: Chart, curves: Sequence[Curve]) -> tuple[Axis, Axis]:
    steps = [step for curve in curves for step, _ in curve.points]
    values = [value for curve in curves for _, value in curve.points]
    lowest, highest = min(values), max(values)
    if chart.starts_at_zero:
        lowest, highest = min(0.0, lowest), highest or 1.0
    y_ticks = round_ticks(lowest, highest, count=4)
    last = max(1.0, *steps, *(marker.step for marker in chart.markers))
    x_ticks = [tick for tick in round_ticks(0, last) if tick <= last and tick.is_integer()]
    longest = max(map(len, tick_labels(y_ticks)))
    return (
        Axis(0, last, x_ticks, max(_LEFT, longest * _DIGIT_WIDTH + _LABEL_GAP), _WIDTH - _RIGHT),
        Axis(y_ticks[0], y_ticks[-1], y_ticks, _HEIGHT - _BOTTOM, _TOP),
    )


def _legend(chart: Chart, curves: Sequence[Curve]) -> str:
    items = [
        f'<span class="key {curve.color}">{escape(curve.label)} '
        f"<b>{curve.points[-1][1]:,.{chart.digits}f}{escape(chart.unit)}</b></span>"
        for curve in curves
        if not curve.is_faint
    ]
    last = max(curve.points[-1][0] for curve in curves)
    return f'<p class="legend">{" ".join(items)} <span class="at">step {last:,.0f}</span></p>'


def _grid(x_axis: Axis, y_axis: Axis) -> str:
    parts = []
    for tick, label in zip(y_axis.ticks, tick_labels(y_axis.ticks), strict=True):
        y = y_axis.coordinate(tick)
        parts.append(f'<line class="grid" x1="{x_axis.start:g}" x2="{x_axis.end:g}" y1="{y:.1f}"')
        parts.append(f' y2="{y:.1f}"/><text class="y" x="{x_axis.start - _LABEL_GAP:g}"')
        parts.append(f' y="{y + 4:.1f}">')
        parts.append(f"{label}</text>")
    for tick, label in zip(x_axis.ticks, tick_labels(x_axis.ticks), strict=True):
        parts.append(f'<text class="x" x="{x_axis.coordinate(tick):.1f}" y="{_HEIGHT - 10}">')
        parts.append(f"{label}</text>")
    return "".join(parts)


def _markers(markers: Sequence[Marker], x_axis: Axis) -> str:
    placed = [(f"{x_axis.coordinate(marker.step):.1f}", marker.text) for marker in markers]
    return "".join(
        f'<line class="marker" x1="{x}" x2="{x}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}">'
        f"<title>{escape(text)}</title></line>"
        for x, text in placed
    )


def _curve(curve: Curve, x_axis: Axis, y_axis: Axis) -> str:
    shown = subsample(curve.points, MAX_POINTS)
    points = [(x_axis.coordinate(step), y_axis.coordinate(value)) for step, value in shown]
    path = " ".join(f"{x:.1f},{y:.2f}" for x, y in points)
    kind = "curve faint" if curve.is_faint else "curve"
    line = f'<polyline class="{kind} {curve.color}" points="{path}"/>'
    if len(points) > 1 and (not curve.has_dots or len(points) > _MAX_DOTS):
        return line
    dots = (f'<circle class="{curve.color}" cx="{x:.1f}" cy="{y:.2f}" r="3"/>' for x, y in points)
    return line + "".join(dots)
