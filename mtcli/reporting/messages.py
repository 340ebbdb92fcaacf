"""Text for events and numbers, shared by all displays."""

import re

from mtcli.counts import format_count
from mtcli.reporting.events import Finished, Preparing, Resumed, RolledBack, Scores, Stopped

# Tab and newline are harmless; a terminal would interpret other control characters.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

_EXAMPLE_LENGTH = 60  # maximum number of characters per sentence in an example pair

_METRIC_LABELS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "chrf++": "chrF++",
    "ter": "TER",
    "loss": "dev loss",
}


def summary_line(event: Stopped | Finished) -> str:
    """Return the line that is printed when a run stops or finishes."""
    if isinstance(event, Finished):
        sets = "; ".join(f"{name} {bleu:.2f}" for name, bleu in event.sets.items())
        return (
            f"finished at step {event.step} ({event.reason}): "
            f"dev BLEU {event.bleu:.2f}{f' ({sets})' if sets else ''}, weights: {event.weights}"
        )
    if event.signal and not event.step:
        return "stopped during preparation; run the same command again"
    cause = "stopped after" if event.signal else "time limit reached at"
    return f"{cause} step {event.step}; run the same command again to resume"


def resume_line(event: Resumed) -> str:
    """Return the line that is printed when a run resumes."""
    return f"resuming from step {event.step:,}"


def rollback_line(event: RolledBack) -> str:
    """Return one line with the cause of a rollback, its target step and learning-rate factor."""
    return (
        f"step {event.step}: {event.reason}; rolling back to step {event.to_step} "
        f"with learning-rate factor {event.factor:g}"
    )


def preparation_line(event: Preparing) -> str:
    """Return one line about the progress of the preparation, with the time left if known."""
    pairs = f": {format_count(event.n_pairs, 'pair')}" if event.n_pairs else ""
    done = f"{event.activity}{pairs}"
    if not event.share:
        return done
    left = event.seconds * (1 - event.share) / event.share
    return f"{done}, {event.share:.0%}, about {format_duration(left)} left"


def metric_label(name: str) -> str:
    """Return the usual spelling of a metric's name."""
    return _METRIC_LABELS.get(name, name)


def scores_text(loss: float, scores: Scores) -> str:
    """Return the loss and the scores of a validation: `loss 1.234, BLEU 30.10, chrF 50.20`."""
    values = [f"{metric_label(name)} {score.value:.2f}" for name, score in scores.items()]
    return ", ".join([f"loss {loss:.3f}", *values])


def strip_control(text: str) -> str:
    """Replace control characters with U+FFFD: terminals interpret them, and HTML forbids them."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def clip_text(text: str, limit: int = 200) -> str:
    """Truncate `text` to `limit` characters and an ellipsis; replace control characters.

    Early checkpoints may output very long translations.
    """
    return strip_control(text if len(text) <= limit else f"{text[:limit]}…")


def example_text(pair: tuple[str, str] | None) -> str:
    """Return an example pair as text to append to a message; empty if `pair` is None."""
    if pair is None:
        return ""
    source, target = (clip_text(line, _EXAMPLE_LENGTH) for line in pair)
    return f', for example "{source}" / "{target}"'


def format_duration(seconds: float) -> str:
    """Format a time span: `45 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{minutes // (24 * 60)} d {minutes // 60 % 24} h"


def format_size(n_bytes: int) -> str:
    """Format an amount of memory: `512 MB`, `3.4 GB`."""
    return f"{n_bytes / 1e6:,.0f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:,.1f} GB"
