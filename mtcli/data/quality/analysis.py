"""Analysis of a corpus: the rows of each kind of finding, before `check` describes them."""

from collections.abc import Callable
from dataclasses import dataclass
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from mtcli.data.filters import Mask
from mtcli.data.quality.alignment import MAX_OFFSET, OFFSETS
from mtcli.data.quality.examination import BlockResult, Examiner, examine_blocks, learn
from mtcli.data.quality.findings import LENGTH_CLASSES, LengthStats
from mtcli.data.quality.overlap import OverlapIndex
from mtcli.data.quality.segments import Segment, find_segments
from mtcli.data.quality.stored_pairs import StoredPairs
from mtcli.data.quality.tokens import Array

OnProgress = Callable[[str, int, float | None], None]  # activity, pairs done, completed fraction

N_WORST = 20
BAD_SCORE = -6.0  # pairs with this log-likelihood ratio or less are probably not translations
# Kinds of findings that misalignment causes. They are not reported in misaligned passages.
_CONSEQUENCES = ("length_ratio", "numbers", "urls")
_MAX_LENGTH = 20_000  # characters; longer lines count as this long in the median


@dataclass(frozen=True)
class Analysis:
    """Rows by kind of finding, segments, length statistics and worst pairs of a corpus."""

    n_pairs: int
    rows: dict[str, Array]  # sorted rows of each kind
    segments: tuple[Segment, ...]  # one if the corpus is aligned; empty if it is too small
    lengths: tuple[LengthStats, LengthStats]
    worst: tuple[tuple[int, float], ...]  # rows and scores, worst first

    @property
    def misaligned(self) -> tuple[Segment, ...]:
        """The segments that are not aligned."""
        return tuple(segment for segment in self.segments if not segment.is_aligned)


def analyze(pairs: StoredPairs, overlap: OverlapIndex | None, on_progress: OnProgress) -> Analysis:
    """Return the analysis of all pairs in a corpus."""
    on_progress("learning word associations", 0, None)
    collector = _Collector(len(pairs))
    for block in examine_blocks(Examiner(pairs, learn(pairs), overlap)):
        collector.add(block)
        n_done = block.start + len(block.hashes[0])
        on_progress("checking", n_done, n_done / len(pairs))
    return collector.finish()


class _Collector:
    """Collects the results of all blocks. Alignment scores are kept in a temporary file."""

    def __init__(self, n_pairs: int) -> None:
        self._n_pairs = n_pairs
        self._rows: dict[str, list[Array]] = {}
        self._hashes = [np.zeros(n_pairs, np.uint64) for _ in range(2)]
        self._lengths = [_LengthCounter(), _LengthCounter()]
        self._scores: NDArray[np.float16] | None = None

    def add(self, block: BlockResult) -> None:
        """Add the results of a block."""
        rows = slice(block.start, block.start + len(block.hashes[0]))
        for kind, mask in block.found.items():
            self._rows.setdefault(kind, []).append(np.flatnonzero(mask) + block.start)
        for hashes, new in zip(self._hashes, block.hashes, strict=True):
            hashes[rows] = new
        for counter, lengths in zip(self._lengths, block.lengths, strict=True):
            counter.add(lengths)
        if block.scores is not None:
            if self._scores is None:
                self._scores = _new_scores(self._n_pairs)
            self._scores[rows] = block.scores

    def finish(self) -> Analysis:
        """Return the analysis."""
        rows = {kind: np.concatenate(parts) for kind, parts in self._rows.items()}
        has_text = np.ones(self._n_pairs, bool)
        has_text[rows["blank"]] = has_text[rows["one_sided"]] = False
        rows["duplicates"] = _repeated(self._hashes[0], has_text)
        rows["ambiguous"] = np.setdiff1d(_repeated(self._hashes[1], has_text), rows["duplicates"])
        segments = () if self._scores is None else tuple(find_segments(self._scores))
        is_aligned = np.ones(self._n_pairs, bool)
        for segment in segments:
            is_aligned[segment.start : segment.end] = segment.is_aligned
        for kind in _CONSEQUENCES:
            rows[kind] = rows[kind][is_aligned[rows[kind]]]
        return Analysis(
            self._n_pairs,
            rows,
            segments,
            (self._lengths[0].stats(), self._lengths[1].stats()),
            self._worst(has_text & is_aligned, rows["duplicates"]),
        )

    def _worst(self, is_judged: Mask, duplicates: Array) -> tuple[tuple[int, float], ...]:
        """Return the rows and scores of up to `N_WORST` bad pairs, worst first; skip duplicates."""
        if self._scores is None:
            return ()
        column = self._scores[:, MAX_OFFSET].astype(np.float32)
        column[~is_judged] = 0
        column[duplicates] = 0
        worst = np.argsort(column, kind="stable")[:N_WORST]
        return tuple((int(row), float(column[row])) for row in worst if column[row] <= BAD_SCORE)


def _new_scores(n_pairs: int) -> NDArray[np.float16]:
    """Return a new array [pairs, offsets] in an unnamed temporary file."""
    with TemporaryFile() as file:
        return np.memmap(file, np.float16, "w+", shape=(n_pairs, len(OFFSETS)))


def _repeated(hashes: NDArray[np.uint64], is_counted: Mask) -> Array:
    """Return the sorted rows whose hash occurs in an earlier row; skip rows not in `is_counted`."""
    rows = np.flatnonzero(is_counted)
    hashes = hashes[rows]
    order = np.argsort(hashes, kind="stable")
    is_same = hashes[order[1:]] == hashes[order[:-1]]
    return np.sort(rows[order[1:][is_same]])


class _LengthCounter:
    """Counts lines by length, ignoring blank lines."""

    def __init__(self) -> None:
        self._counts = np.zeros(_MAX_LENGTH + 1, np.int64)
        self._total = 0
        self._longest = 0

    def add(self, lengths: Array) -> None:
        """Add the line lengths of a block. Length 0 means a blank line."""
        self._counts += np.bincount(np.minimum(lengths, _MAX_LENGTH), minlength=_MAX_LENGTH + 1)
        self._total += int(lengths.sum())
        self._longest = max(self._longest, int(lengths.max(initial=0)))

    def stats(self) -> LengthStats:
        """Return the length statistics."""
        counts = self._counts.copy()
        counts[0] = 0
        sums = np.cumsum(counts)
        n_lines = int(sums[-1])
        limits = [0, *(int(sums[limit]) for limit in LENGTH_CLASSES), n_lines]
        return LengthStats(
            mean=self._total / max(1, n_lines),
            median=int(np.searchsorted(sums, (n_lines + 1) // 2)) if n_lines else 0,
            longest=self._longest,
            histogram=tuple(np.diff(limits).tolist()),
        )
