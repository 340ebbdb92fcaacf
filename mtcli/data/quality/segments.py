"""Misaligned passages: the most likely sequence of line offsets, found with dynamic programming."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtcli.data.quality.alignment import MAX_OFFSET, OFFSETS
from mtcli.data.quality.association import Doubles

Scores = NDArray[np.float16] | NDArray[np.float32]  # [lines, offsets]

_LINES_PER_STEP = 5
_STEPS_AT_ONCE = 20_000
_MAX_LINE_SCORE = 4.0  # limits the influence of a single line
_SWITCH_COST = 12.0
_MIN_SHIFT_EVIDENCE, _MIN_SHIFT_LINES = 40.0, 8
_MIN_UNRELATED_EVIDENCE, _MIN_UNRELATED_LINES = 100.0, 30
_REFINED_LINES = 30  # lines to examine before and after a boundary
_UNRELATED = len(OFFSETS)  # the state in which no offset fits


@dataclass(frozen=True)
class Segment:
    """Source lines from `start` to `end` whose translations are `offset` lines further down.

    `offset` is None if the translations are not found at any offset.
    """

    start: int
    end: int
    offset: int | None

    @property
    def is_aligned(self) -> bool:
        """Whether each line has the same line number as its translation."""
        return self.offset == 0


def find_segments(scores: Scores) -> list[Segment]:
    """Return the segments of a corpus, given the scores of all lines and offsets [lines, offsets].

    A corpus that is aligned throughout has one segment, with offset 0.
    """
    segments = list(_refined(_viterbi(_summed(scores)), scores))
    return _merged(
        [_accepted(segment, scores) for segment in segments if segment.end > segment.start]
    )


def _summed(scores: Scores) -> Doubles:
    """Return the scores summed over blocks of lines, with a column for unrelated lines."""
    n_lines = _STEPS_AT_ONCE * _LINES_PER_STEP
    sums = []
    for start in range(0, len(scores), n_lines):
        part = scores[start : start + n_lines]
        clipped = np.clip(part, -_MAX_LINE_SCORE, _MAX_LINE_SCORE)
        starts = np.arange(0, len(part), _LINES_PER_STEP)
        sums.append(np.add.reduceat(clipped, starts, axis=0, dtype=np.float64))
    summed = np.concatenate(sums)
    return np.column_stack([summed, np.zeros(len(summed))])


def _viterbi(sums: Doubles) -> list[Segment]:
    """Return the segments of the best state sequence; each change of state has a cost."""
    n_states = sums.shape[1]
    states = np.arange(n_states)
    total = np.full(n_states, -_SWITCH_COST)
    total[MAX_OFFSET] = 0.0
    previous = np.empty((len(sums), n_states), np.int8)
    for step, row in enumerate(sums):
        best = total.argmax()
        switched = total[best] - _SWITCH_COST
        stays = total >= switched
        previous[step] = np.where(stays, states, best)
        total = np.where(stays, total, switched) + row
    path = np.empty(len(sums), np.int64)
    state = int(total.argmax())
    for step in range(len(sums) - 1, -1, -1):
        path[step] = state
        state = int(previous[step, state])
    return _runs(path)


def _runs(path: NDArray[np.int64]) -> list[Segment]:
    changes = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    return [
        Segment(start * _LINES_PER_STEP, end * _LINES_PER_STEP, _offset(int(path[start])))
        for start, end in zip(changes[:-1], changes[1:], strict=True)
    ]


def _offset(state: int) -> int | None:
    return None if state == _UNRELATED else OFFSETS[state]


def _line_scores(scores: Scores, start: int, end: int, offset: int | None) -> Doubles:
    """Return the clipped scores of lines at `offset`, or zeros if `offset` is None."""
    if offset is None:
        return np.zeros(end - start)
    column = scores[start:end, offset + MAX_OFFSET].astype(np.float64)
    return np.clip(column, -_MAX_LINE_SCORE, _MAX_LINE_SCORE)


def _refined(segments: list[Segment], scores: Scores) -> Iterator[Segment]:
    """Yield the segments with boundaries at the best line instead of the best step."""
    start = 0
    for this, following in zip(segments[:-1], segments[1:], strict=True):
        low = max(start, this.end - _REFINED_LINES)
        high = min(following.end, len(scores), this.end + _REFINED_LINES)
        gains = _line_scores(scores, low, high, this.offset)
        gains = gains - _line_scores(scores, low, high, following.offset)
        end = low + int(np.concatenate([[0.0], np.cumsum(gains)]).argmax())
        yield Segment(start, end, this.offset)
        start = end
    yield Segment(start, len(scores), segments[-1].offset)


def _accepted(segment: Segment, scores: Scores) -> Segment:
    """Return the segment, with offset 0 if there is little evidence for a different offset."""
    if segment.is_aligned:
        return segment
    fits = _line_scores(scores, segment.start, segment.end, segment.offset)
    aligned = _line_scores(scores, segment.start, segment.end, 0)
    evidence, n_lines = float((fits - aligned).sum()), segment.end - segment.start
    if segment.offset is None:
        is_clear = evidence >= _MIN_UNRELATED_EVIDENCE and n_lines >= _MIN_UNRELATED_LINES
    else:
        is_clear = evidence >= _MIN_SHIFT_EVIDENCE and n_lines >= _MIN_SHIFT_LINES
    return segment if is_clear else Segment(segment.start, segment.end, 0)


def _merged(segments: list[Segment]) -> list[Segment]:
    """Return `segments`, with consecutive segments of the same offset merged."""
    merged: list[Segment] = []
    for segment in segments:
        if merged and merged[-1].offset == segment.offset:
            segment = Segment(merged.pop().start, segment.end, segment.offset)
        merged.append(segment)
    return merged
