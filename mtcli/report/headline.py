"""The top of a report: how the run stands."""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from mtcli.report.curves import LoggedEvent, Point, named, number, smoothed
from mtcli.report.figures import losses, paddings, speeds
from mtcli.report.wording import duration


def headline_html(events: Sequence[LoggedEvent]) -> str:
    """State, progress and the most important numbers."""
    state = "finished" if named(events, "finished") else "training"
    worked = [*named(events, "step"), *named(events, "validation"), *named(events, "finished")]
    step = max((number(event, "step") or 0 for event in worked), default=0)
    steps = max((number(event, "steps") or 0 for event in worked), default=0)
    share = min(1.0, step / steps) if steps else 0.0
    progress = f"step {step:,.0f}{f' of {steps:,.0f}' if steps else ''}" if step else "no step yet"
    return f"""<header>
<h1>Training report <span class="state {state}">{state}</span></h1>
<div class="bar {state}" aria-hidden="true"><span style="width: {share:.1%}"></span></div>
<p>{progress}{_ending(events)}</p>
<p class="quiet">{_times(events)}</p>
<dl class="tiles">{_dev_tiles(events)}{_step_tiles(named(events, "step"))}</dl>
</header>
"""


def best_validation(events: Sequence[LoggedEvent]) -> LoggedEvent | None:
    """The validation whose model is the best so far, by whatever the run compares them."""
    validations = named(events, "validation")
    marked = [event for event in validations if event.get("is_best")]
    if marked:
        return marked[-1]
    return max(validations, key=lambda event: number(event, "bleu") or 0.0, default=None)


def _ending(events: Sequence[LoggedEvent]) -> str:
    """What the run says of its end, if that has come."""
    last = (named(events, "finished") or [{}])[-1]
    reason, weights = last.get("reason"), last.get("weights")
    how = f" ({escape(str(reason))})" if reason else ""
    whose = f"; the weights are those of {escape(str(weights))}" if weights else ""
    return f"{how}{whose}"


def _times(events: Sequence[LoggedEvent]) -> str:
    times = [time for event in events if (time := number(event, "time")) is not None]
    if not times:
        return "The log is empty."
    began, ended = (datetime.fromtimestamp(time, tz=UTC) for time in (min(times), max(times)))
    until = f"{ended:%H:%M}" if began.date() == ended.date() else f"{ended:%Y-%m-%d %H:%M}"
    passed = duration(max(times) - min(times))
    return f"{began:%Y-%m-%d %H:%M} to {until} UTC: {passed}, pauses included"


def _dev_tiles(events: Sequence[LoggedEvent]) -> str:
    """Show the scores of the delivered weights, or those of the best validation so far."""
    best = best_validation(events)
    if best is None:
        return ""
    step = f"step {number(best, 'step') or 0:,.0f}"
    bleu, whose = number(best, "bleu"), f"best, {step}"
    finished = (named(events, "finished") or [{}])[-1]
    if number(finished, "bleu") is not None:
        bleu, whose = number(finished, "bleu"), str(finished.get("weights") or step)
    return "".join(
        [
            _tile("dev BLEU", bleu, ".2f", whose),
            _tile("dev chrF", number(best, "chrf"), ".2f", step),
            _tile("dev loss", number(best, "loss"), ".3f", step),
        ]
    )


def _step_tiles(steps: Sequence[LoggedEvent]) -> str:
    return "".join(
        [
            _tile("training loss", _latest(losses(steps)), ".3f", "nats per word"),
            _tile("throughput", _latest(speeds(steps)), ",.0f", "tokens per second"),
            _tile("padding", _latest(paddings(steps)), ".1f", "% of all positions"),
        ]
    )


def _latest(raw: Sequence[Point]) -> float | None:
    return smoothed(raw)[-1][1] if raw else None


def _tile(name: str, value: float | None, form: str, note: str) -> str:
    """Return a number with its name and a note; nothing if there is no number."""
    if value is None:
        return ""
    return f"<div><dt>{name}</dt><dd>{value:{form}}<small>{escape(note)}</small></dd></div>"
