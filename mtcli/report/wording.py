"""Events and numbers in words, the same on every display."""

import re

from mtcli.report.events import Finished, Resumed, RolledBack, Stopped

# A tab and a line's end do no harm; the others could steer the terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def farewell(event: Stopped | Finished) -> str:
    """The last line a run shows."""
    if isinstance(event, Finished):
        return (
            f"finished after step {event.step} ({event.reason}); "
            f"dev BLEU {event.bleu:.2f} with the weights of {event.weights}"
        )
    if event.signal and not event.step:
        return "stopped during preparation; run the same command again"
    how = "stopped after" if event.signal else "time limit reached at"
    return f"{how} step {event.step}; run the same command again to resume"


def welcome(event: Resumed) -> str:
    """The first line that a run shows when it goes on."""
    return f"going on after step {event.step:,}"


def setback(event: RolledBack) -> str:
    """What happened and how it goes on, in a line."""
    return (
        f"step {event.step}: {event.reason}; going back to step {event.to_step} "
        f"with {event.factor:g} times the learning rate"
    )


def harmless(text: str) -> str:
    """Replace control characters, which a terminal would execute and HTML does not allow."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def clipped(text: str, limit: int = 200) -> str:
    """A sentence to show, unless it babbles as young models do."""
    return harmless(text if len(text) <= limit else f"{text[:limit]}…")


def duration(seconds: float) -> str:
    """A time as one would say it: `45 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{minutes // (24 * 60)} d {minutes // 60 % 24} h"


def size(n_bytes: int) -> str:
    """An amount of memory: `512 MB`, `3.4 GB`."""
    return f"{n_bytes / 1e6:,.0f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:,.1f} GB"
