"""Charts of a training run, built from the entries of its log."""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, cycle

from mtcli.reporting.charts import Chart, Curve, Marker, Point
from mtcli.reporting.log import LogEntry, finite_number, logged_scores, select_entries
from mtcli.reporting.messages import metric_label

_SMOOTHING_FRACTION = 100  # the smoothing window extends to each side by 1/100 of all points
_MIN_WINDOW = 4
_SCORE_COLORS = ("green", "purple", "orange", "blue")


def main_charts(entries: Sequence[LogEntry]) -> list[Chart]:
    """Return the charts for loss and translation quality."""
    steps, validations = select_entries(entries, "step"), select_entries(entries, "validation")
    markers = rollback_markers(entries)
    return [_loss_chart(steps, validations, markers), _score_chart(validations, markers)]


def side_charts(entries: Sequence[LogEntry], optimizer: str = "") -> list[Chart]:
    """Return the charts for learning rate, throughput and padding."""
    steps, markers = select_entries(entries, "step"), rollback_markers(entries)
    return [
        _learning_rate_chart(steps, markers, optimizer),
        _throughput_chart(steps, markers),
        _padding_chart(steps, markers),
    ]


def metric_names(validations: Sequence[LogEntry]) -> list[str]:
    """Return the names of all metrics in the log, in order of appearance."""
    return list(dict.fromkeys(name for entry in validations for name in logged_scores(entry)))


def loss_points(steps: Sequence[LogEntry]) -> list[Point]:
    """Return the training loss by step."""
    return _field_points(steps, "loss")


def throughput_points(steps: Sequence[LogEntry]) -> list[Point]:
    """Return the tokens per second, without padding, by step."""
    return _collect_points(steps, lambda entry: _divide(entry, "n_tokens", "seconds"))


def padding_points(steps: Sequence[LogEntry]) -> list[Point]:
    """Return the percentage of padded positions by step."""
    filled = _collect_points(steps, lambda entry: _divide(entry, "n_tokens", "n_positions"))
    return [(step, 100 * (1 - share)) for step, share in filled]


def smooth(points: Sequence[Point]) -> list[Point]:
    """Return the moving average, with a short window at the start to show the first descent."""
    reach = max(_MIN_WINDOW, len(points) // _SMOOTHING_FRACTION)
    sums = list(accumulate((value for _, value in points), initial=0.0))
    means: list[Point] = []
    for i, (step, _) in enumerate(points):
        first, end = max(0, i - reach), min(len(points), i + min(i, reach) + 1)
        means.append((step, (sums[end] - sums[first]) / (end - first)))
    return means


def rollback_markers(entries: Sequence[LogEntry]) -> list[Marker]:
    """Return a marker for each rollback."""
    rollbacks = [
        (finite_number(entry, "step"), entry) for entry in select_entries(entries, "rollback")
    ]
    return [Marker(step, rollback_text(entry)) for step, entry in rollbacks if step is not None]


def rollback_text(entry: LogEntry) -> str:
    """Return one line with the cause of a rollback, its target step and learning-rate factor."""
    return (
        f"step {finite_number(entry, 'step') or 0:,.0f}: "
        f"{entry.get('reason', 'training diverged')}; "
        f"rolled back to step {finite_number(entry, 'to_step') or 0:,.0f} "
        f"with learning-rate factor {finite_number(entry, 'factor') or 1:g}"
    )


def _field_points(entries: Sequence[LogEntry], key: str) -> list[Point]:
    """Return the (step, value) points of one log field."""
    return _collect_points(entries, lambda entry: finite_number(entry, key))


def _collect_points(
    entries: Sequence[LogEntry], value: Callable[[LogEntry], float | None]
) -> list[Point]:
    """Return `value` by step; skip entries that lack a step or a value."""
    pairs = ((finite_number(entry, "step"), value(entry)) for entry in entries)
    return sorted((step, y) for step, y in pairs if step is not None and y is not None)


def _divide(entry: LogEntry, numerator: str, denominator: str) -> float | None:
    """Return the quotient of two fields; None if a field is missing or the denominator is 0."""
    dividend, divisor = finite_number(entry, numerator), finite_number(entry, denominator)
    return dividend / divisor if dividend is not None and divisor else None


def _loss_chart(
    steps: Sequence[LogEntry], validations: Sequence[LogEntry], markers: Sequence[Marker]
) -> Chart:
    dev = _field_points(validations, "loss")
    return Chart(
        title="Loss",
        description="Loss in nats per target token by step. The training loss includes label "
        "smoothing, and its curve is a moving average. The dev loss excludes label smoothing. "
        f"{_describe_range(dev, 'Dev loss', 3)}",
        curves=[
            *_smoothed_curves("training", loss_points(steps), "blue"),
            Curve("dev", dev, "orange", has_dots=True),
        ],
        digits=3,
        starts_at_zero=False,
        markers=markers,
    )


def _score_chart(validations: Sequence[LogEntry], markers: Sequence[Marker]) -> Chart:
    curves = [
        Curve(metric_label(name), _field_points(validations, name), color, has_dots=True)
        for name, color in zip(metric_names(validations), cycle(_SCORE_COLORS), strict=False)
    ]
    ranges = [_describe_range(curve.points, curve.label, 2) for curve in curves]
    return Chart(
        title="Translation quality on the dev set",
        description=" ".join(["Scores of the dev translations by step.", *ranges]),
        curves=curves,
        digits=2,
        markers=markers,
    )


def _learning_rate_chart(
    steps: Sequence[LogEntry], markers: Sequence[Marker], optimizer: str
) -> Chart:
    rates = _field_points(steps, "learning_rate")
    highest = max((rate for _, rate in rates), default=0.0)
    # With Muon, the log has only Muon's rate, which applies to the weight matrices of the layers.
    scope = " of Muon (layer matrices)" if optimizer == "muon" else ""
    return Chart(
        title="Learning rate",
        description=f"Learning rate{scope} by step; maximum: {highest:.3g}.",
        curves=[Curve("rate", rates, "blue")],
        digits=_digits_for(highest),
        markers=markers,
    )


def _throughput_chart(steps: Sequence[LogEntry], markers: Sequence[Marker]) -> Chart:
    points = throughput_points(steps)
    return Chart(
        title="Throughput",
        description="Tokens per second by step, without padding. "
        f"{_describe_range(points, 'Throughput', 0)}",
        curves=_smoothed_curves("tokens/s", points, "green"),
        digits=0,
        markers=markers,
    )


def _padding_chart(steps: Sequence[LogEntry], markers: Sequence[Marker]) -> Chart:
    points = padding_points(steps)
    return Chart(
        title="Padding",
        description=f"Padding by step, in percent. {_describe_range(points, 'Padding', 1)}",
        curves=_smoothed_curves("of all positions", points, "purple"),
        digits=1,
        unit="%",
        markers=markers,
    )


def _smoothed_curves(label: str, points: Sequence[Point], color: str) -> list[Curve]:
    """Return a faint curve of the raw values, and the smoothed curve that is drawn over it."""
    return [Curve(label, points, color, is_faint=True), Curve(label, smooth(points), color)]


def _describe_range(points: Sequence[Point], name: str, digits: int) -> str:
    """Return the first and the last value as text, for screen readers."""
    if not points:
        return ""
    first, last = (f"{value:,.{digits}f}" for _, value in (points[0], points[-1]))
    return f"{name}: {first} at the start, {last} at the end."


def _digits_for(highest: float) -> int:
    """Return the number of decimals needed to show three significant digits of `highest`."""
    return min(9, max(0, 2 - math.floor(math.log10(highest)))) if highest > 0 else 0
