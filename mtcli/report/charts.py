"""Curves as SVG: no script is needed to read them, and text stays text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from mtcli.report.curves import Point, thinned

MAX_POINTS = 500  # of a curve: more cannot be told apart on a screen
_WIDTH, _HEIGHT = 460, 250  # of the drawing, in its own units
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 30, 12, 30  # margins; the left one may be wider
_CHARACTER = 9.5  # width of a digit of a label, in the largest font that the style sheet sets
_LABEL_GAP = 7  # between a label and the grid
_MAX_DOTS = 60  # of a curve: more would hide it
_UNITS = ((1e7, 1e6, "M"), (1e4, 1e3, "k"), (0.0, 1.0, ""))  # from which size on, scale, sign
_TINY = 1e-30  # as good as zero


@dataclass(frozen=True)
class Curve:
    """One line of a chart."""

    label: str
    points: Sequence[Point]
    color: str  # a class of the style sheet: train, dev, bleu, chrf
    is_faint: bool = False  # the raw numbers behind a smoothed curve
    has_dots: bool = False  # measured now and then rather than at every step


@dataclass(frozen=True)
class Mark:
    """A step at which something happened."""

    step: float
    text: str


@dataclass(frozen=True)
class Chart:
    """Curves over the steps of a run."""

    title: str
    description: str  # for those who cannot see it
    curves: Sequence[Curve]
    digits: int  # after the point, of the values in the legend
    unit: str = ""
    from_zero: bool = True  # the values' axis begins at zero
    marks: Sequence[Mark] = ()


@dataclass(frozen=True)
class Axis:
    """Numbers laid out between two places of the drawing."""

    low: float
    high: float
    ticks: Sequence[float]
    start: float  # where `low` stands
    end: float  # where `high` stands

    def place(self, value: float) -> float:
        """Where `value` stands."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def round_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers, evenly spaced, that enclose the range."""
    if high - low <= max(_TINY, 1e-9 * max(abs(low), abs(high))):  # one value: give it some room
        room = abs(high) / 10 if abs(high) > _TINY else 1.0
        low, high = low - room, high + room
    rough = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(magnitude * m for m in (1, 2, 2.5, 5, 10, 20) if magnitude * m >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Evenly spaced ticks in few characters, all with the same digits and unit."""
    step, largest = ticks[1] - ticks[0], max(abs(tick) for tick in ticks)
    if largest < 1e-2 and step < 1e-3:  # 2.5e-4: shorter than 0.00025
        return [f"{tick:.1e}".replace("e-0", "e-") if tick else "0" for tick in ticks]
    unit, scale = next((unit, scale) for size, scale, unit in _UNITS if largest >= size)
    # The digits that tell the step itself: 0.25 has two, 2.5 has one, 20 has none.
    digits = len(f"{step / scale:.6f}".rstrip("0").partition(".")[2])
    return [f"{tick / scale:,.{digits}f}{unit}" if tick else "0" for tick in ticks]


def chart_html(chart: Chart, name: str) -> str:
    """A figure with title, legend and drawing; empty text if there is nothing to draw.

    `name` is unique within the page. The legend tells the latest values; the page's script
    changes them to those under the pointer.
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
{_marks(chart.marks, x_axis)}
{"".join(_curve(curve, x_axis, y_axis) for curve in curves)}
<line class="pointer" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" x1="-9" x2="-9"/>
</svg></figure>
"""


def _axes(chart: Chart, curves: Sequence[Curve]) -> tuple[Axis, Axis]:
    steps = [step for curve in curves for step, _ in curve.points]
    values = [value for curve in curves for _, value in curve.points]
    lowest, highest = min(values), max(values)
    if chart.from_zero:
        lowest, highest = min(0.0, lowest), highest or 1.0
    y_ticks = round_ticks(lowest, highest, count=4)
    last = max(1.0, *steps, *(mark.step for mark in chart.marks))
    x_ticks = [tick for tick in round_ticks(0, last) if tick <= last and tick.is_integer()]
    longest = max(map(len, tick_labels(y_ticks)))
    return (
        Axis(0, last, x_ticks, max(_LEFT, longest * _CHARACTER + _LABEL_GAP), _WIDTH - _RIGHT),
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
        y = y_axis.place(tick)
        parts.append(f'<line class="grid" x1="{x_axis.start:g}" x2="{x_axis.end:g}" y1="{y:.1f}"')
        parts.append(f' y2="{y:.1f}"/><text class="y" x="{x_axis.start - _LABEL_GAP:g}"')
        parts.append(f' y="{y + 4:.1f}">')
        parts.append(f"{label}</text>")
    for tick, label in zip(x_axis.ticks, tick_labels(x_axis.ticks), strict=True):
        parts.append(f'<text class="x" x="{x_axis.place(tick):.1f}" y="{_HEIGHT - 10}">')
        parts.append(f"{label}</text>")
    return "".join(parts)


def _marks(marks: Sequence[Mark], x_axis: Axis) -> str:
    return "".join(
        f'<line class="mark" x1="{x_axis.place(mark.step):.1f}" x2="{x_axis.place(mark.step):.1f}"'
        f' y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"><title>{escape(mark.text)}</title></line>'
        for mark in marks
    )


def _curve(curve: Curve, x_axis: Axis, y_axis: Axis) -> str:
    shown = thinned(curve.points, MAX_POINTS)
    places = [(x_axis.place(step), y_axis.place(value)) for step, value in shown]
    path = " ".join(f"{x:.1f},{y:.2f}" for x, y in places)
    kind = "curve faint" if curve.is_faint else "curve"
    line = f'<polyline class="{kind} {curve.color}" points="{path}"/>'
    if len(places) > 1 and (not curve.has_dots or len(places) > _MAX_DOTS):
        return line
    dots = (f'<circle class="{curve.color}" cx="{x:.1f}" cy="{y:.2f}" r="3"/>' for x, y in places)
    return line + "".join(dots)
