"""Noticing a translation that has lost its way and says the same over and over."""

from collections.abc import Sequence

_LONGEST_LOOP = 8  # pieces that are said again and again
_LEAST_TIMES = 4
_LEAST_LENGTH = 12  # pieces; "no no no no" is a sentence, too
_LEAST_AGAIN = 9  # pieces that any such repetition has said before: three pieces, four times


def is_runaway(source: Sequence[str], target: Sequence[str]) -> bool:
    """Whether `target` repeats itself in a way that `source` does not."""
    return _repeats(target) and not _repeats(source)


def _repeats(pieces: Sequence[str]) -> bool:
    if len(pieces) - len(set(pieces)) < _LEAST_AGAIN:
        return False
    for period in range(1, _LONGEST_LOOP + 1):
        needed = max(_LEAST_TIMES * period, _LEAST_LENGTH) - period
        run = 0
        for before, piece in zip(pieces, pieces[period:], strict=False):
            run = run + 1 if piece == before else 0
            if run >= needed:
                return True
    return False
