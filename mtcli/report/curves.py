"""From the events of a log to the curves of its report."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

LoggedEvent = Mapping[str, Any]
Point = tuple[float, float]  # step, value
Item = TypeVar("Item")

_WINDOWS = 100  # a smoothed value looks to both sides over one in so many of all points
_SHORTEST_REACH = 4


def number(event: LoggedEvent, key: str) -> float | None:
    """A finite number of an event; None if it has none, as in logs of earlier versions."""
    value = event.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def named(events: Sequence[LoggedEvent], name: str) -> list[LoggedEvent]:
    """The events of one kind: notice, step, validation, rollback or finished."""
    return [event for event in events if event.get("event") == name]


def surviving(events: Sequence[LoggedEvent]) -> list[LoggedEvent]:
    """The events without the steps and validations that a rollback has undone."""
    kept: list[LoggedEvent] = []
    for event in events:
        to_step = number(event, "to_step")
        if event.get("event") == "rollback" and to_step is not None:
            kept = [past for past in kept if not _is_undone(past, to_step)]
        kept.append(event)
    return kept


def _is_undone(event: LoggedEvent, to_step: float) -> bool:
    step = number(event, "step")
    is_work = event.get("event") in ("step", "validation")
    return is_work and step is not None and step > to_step


def points(
    events: Sequence[LoggedEvent], value: Callable[[LoggedEvent], float | None]
) -> list[Point]:
    """What `value` finds in the events, by step; events in which it finds nothing are left out."""
    pairs = ((number(event, "step"), value(event)) for event in events)
    return sorted((step, found) for step, found in pairs if step is not None and found is not None)


def ratio(event: LoggedEvent, upper: str, lower: str) -> float | None:
    """The quotient of two numbers of an event, if it has one."""
    dividend, divisor = number(event, upper), number(event, lower)
    return dividend / divisor if dividend is not None and divisor else None


def smoothed(raw: Sequence[Point]) -> list[Point]:
    """Means over a window around each point; at the start it is short, so that a fall stays one."""
    reach = max(_SHORTEST_REACH, len(raw) // _WINDOWS)
    sums = list(accumulate((value for _, value in raw), initial=0.0))
    found: list[Point] = []
    for i, (step, _) in enumerate(raw):
        first, end = max(0, i - reach), min(len(raw), i + min(i, reach) + 1)
        found.append((step, (sums[end] - sums[first]) / (end - first)))
    return found


def thinned(raw: Sequence[Item], limit: int) -> list[Item]:
    """At most `limit` of the items, evenly, the first and the last among them."""
    if len(raw) <= limit:
        return list(raw)
    if limit < 2:
        return list(raw[:limit])
    return [raw[round(i * (len(raw) - 1) / (limit - 1))] for i in range(limit)]
