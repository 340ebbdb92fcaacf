"""A curve in one line of text."""

import math
from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """`values` as bars between their lowest and their highest, at most `width` of them.

    Of more values than bars each bar shows the last of its share, so the newest is always seen.
    What is not a number is left out; values that are all the same have bars of half the height.
    """
    finite = [value for value in values if math.isfinite(value)]
    n_bars = min(len(finite), max(0, width))
    shown = [finite[(i + 1) * len(finite) // n_bars - 1] for i in range(n_bars)]
    if not shown:
        return ""
    low, span = min(shown), max(shown) - min(shown)
    if not 0 < span < math.inf:
        return _BARS[len(_BARS) // 2 - 1] * n_bars
    return "".join(_bar((value - low) / span) for value in shown)


def _bar(share: float) -> str:
    return _BARS[min(int(share * len(_BARS)), len(_BARS) - 1)]
