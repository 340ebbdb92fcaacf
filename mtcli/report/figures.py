"""The charts of a run: loss, scores, learning rate, speed, padding."""

import math
from collections.abc import Sequence

from mtcli.report.charts import Chart, Curve, Mark
from mtcli.report.curves import LoggedEvent, Point, named, number, points, ratio, smoothed


def main_charts(events: Sequence[LoggedEvent]) -> list[Chart]:
    """What the model learns."""
    steps, validations = named(events, "step"), named(events, "validation")
    marks = rollback_marks(events)
    return [_loss_chart(steps, validations, marks), _score_chart(validations, marks)]


def side_charts(events: Sequence[LoggedEvent], optimizer: str = "") -> list[Chart]:
    """Return the charts of learning rate, throughput and padding."""
    steps, marks = named(events, "step"), rollback_marks(events)
    return [
        _rate_chart(steps, marks, optimizer),
        _speed_chart(steps, marks),
        _padding_chart(steps, marks),
    ]


def losses(steps: Sequence[LoggedEvent]) -> list[Point]:
    """Training loss by step."""
    return points(steps, lambda event: number(event, "loss"))


def speeds(steps: Sequence[LoggedEvent]) -> list[Point]:
    """Tokens per second by step, padding not counted."""
    return points(steps, lambda event: ratio(event, "n_tokens", "seconds"))


def paddings(steps: Sequence[LoggedEvent]) -> list[Point]:
    """Share of the positions that are padding, in percent, by step."""
    filled = points(steps, lambda event: ratio(event, "n_tokens", "n_positions"))
    return [(step, 100 * (1 - share)) for step, share in filled]


def rollback_marks(events: Sequence[LoggedEvent]) -> list[Mark]:
    """Where training went back to an earlier state, and why."""
    rollbacks = [(number(event, "step"), event) for event in named(events, "rollback")]
    return [Mark(step, rollback_text(event)) for step, event in rollbacks if step is not None]


def rollback_text(event: LoggedEvent) -> str:
    """What happened and how it went on."""
    return (
        f"step {number(event, 'step') or 0:,.0f}: {event.get('reason', 'training had diverged')}; "
        f"back to step {number(event, 'to_step') or 0:,.0f} "
        f"with {number(event, 'factor') or 1:g} times the learning rate"
    )


def _loss_chart(
    steps: Sequence[LoggedEvent], validations: Sequence[LoggedEvent], marks: Sequence[Mark]
) -> Chart:
    dev = points(validations, lambda event: number(event, "loss"))
    return Chart(
        title="Loss",
        description="Nats per word by step. Training: smoothed over the latest steps, label "
        f"smoothing included. Dev: without label smoothing. {_range(dev, 'Dev loss', 3)}",
        curves=[
            *_with_raw("training", losses(steps), "train"),
            Curve("dev", dev, "dev", has_dots=True),
        ],
        digits=3,
        from_zero=False,
        marks=marks,
    )


def _score_chart(validations: Sequence[LoggedEvent], marks: Sequence[Mark]) -> Chart:
    bleu = points(validations, lambda event: number(event, "bleu"))
    chrf = points(validations, lambda event: number(event, "chrf"))
    return Chart(
        title="Translation quality on dev",
        description=f"Scores of the dev translations by step. {_range(bleu, 'BLEU', 2)}",
        curves=[
            Curve("BLEU", bleu, "bleu", has_dots=True),
            Curve("chrF", chrf, "chrf", has_dots=True),
        ],
        digits=2,
        marks=marks,
    )


def _rate_chart(steps: Sequence[LoggedEvent], marks: Sequence[Mark], optimizer: str) -> Chart:
    rates = points(steps, lambda event: number(event, "learning_rate"))
    highest = max((rate for _, rate in rates), default=0.0)
    # The log has the rate of the first optimizer only: with Muon that of the layers' matrices.
    whose = " of the layers' matrices" if optimizer == "muon" else ""
    return Chart(
        title="Learning rate",
        description=f"Learning rate{whose} by step; at most {highest:.3g}.",
        curves=[Curve("rate", rates, "train")],
        digits=_digits(highest),
        marks=marks,
    )


def _speed_chart(steps: Sequence[LoggedEvent], marks: Sequence[Mark]) -> Chart:
    raw = speeds(steps)
    return Chart(
        title="Throughput",
        description=f"Tokens per second, without padding. {_range(raw, 'Throughput', 0)}",
        curves=_with_raw("tokens/s", raw, "bleu"),
        digits=0,
        marks=marks,
    )


def _padding_chart(steps: Sequence[LoggedEvent], marks: Sequence[Mark]) -> Chart:
    raw = paddings(steps)
    return Chart(
        title="Padding",
        description=f"Share of the positions that hold nothing. {_range(raw, 'Percent', 1)}",
        curves=_with_raw("of all positions", raw, "chrf"),
        digits=1,
        unit=" %",
        marks=marks,
    )


def _with_raw(label: str, raw: Sequence[Point], color: str) -> list[Curve]:
    """A smoothed curve in front of the numbers it was made of."""
    return [Curve(label, raw, color, is_faint=True), Curve(label, smoothed(raw), color)]


def _range(values: Sequence[Point], name: str, digits: int) -> str:
    """First and last value in words, for those who cannot see the curve."""
    if not values:
        return ""
    return f"{name}: {values[0][1]:,.{digits}f} at first, {values[-1][1]:,.{digits}f} at last."


def _digits(highest: float) -> int:
    """Digits after the point that tell three of `highest`'s own."""
    return min(9, max(0, 2 - math.floor(math.log10(highest)))) if highest > 0 else 0
