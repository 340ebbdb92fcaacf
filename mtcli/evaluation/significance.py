"""Confidence intervals and paired significance tests, as sacreBLEU computes them.

sacreBLEU draws all random numbers at once and copies the statistics of all resamples, which takes
gigabytes of memory for large test sets. These functions draw the same random numbers in chunks and
use each chunk for all systems and metrics. Scores and p-values equal those of sacreBLEU.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = Sequence[Sequence[float]]  # statistics of one system for one metric: one row per sentence
# numpy draws booleans from blocks of 32 bits and discards unused bits at the end of each call.
# Chunks yield the same booleans as a single call only if their size is a multiple of 32.
_SHUFFLES_PER_CHUNK = 32


@dataclass(frozen=True)
class Interval:
    """95% confidence interval."""

    mean: float
    margin: float  # half the width


class StatisticsTable:
    """Sentence statistics of one or more systems for one or more metrics."""

    def __init__(self, metrics: Mapping[str, Any], systems: Sequence[Mapping[str, Rows]]) -> None:
        self.metrics = metrics
        self.n_systems = len(systems)
        self.n_rows = len(next(iter(systems[0].values())))
        self._blocks: dict[tuple[int, str], NDArray[Any]] = {
            (i, name): np.array(system[name])
            for i, system in enumerate(systems)
            for name in metrics
        }

    def bootstrap(self, n_resamples: int, seed: int) -> list[dict[str, NDArray[Any]]]:
        """Return the scores of each system on bootstrap samples of the sentences, by metric."""
        # sacreBLEU sums in float32, which rounds large counts. Do the same to get equal scores.
        table = np.concatenate(list(self._blocks.values()), axis=1).astype("float32")
        columns = self._columns()
        scores: dict[tuple[int, str], list[Any]] = {key: [] for key in self._blocks}
        random = np.random.default_rng(seed)
        for _ in range(n_resamples):
            rows = random.choice(self.n_rows, size=self.n_rows, replace=True)
            sums = table[rows].sum(0)
            for (i, name), selected in columns.items():
                metric = self.metrics[name]
                score = metric._compute_score_from_stats(sums[selected]).score
                scores[i, name].append(score)
        return [
            {name: np.array(scores[i, name]) for name in self.metrics}
            for i in range(self.n_systems)
        ]

    def _columns(self) -> dict[tuple[int, str], slice]:
        """Return the columns of each system and metric in the concatenated table."""
        columns, start = {}, 0
        for key, block in self._blocks.items():
            columns[key] = slice(start, start + block.shape[1])
            start += block.shape[1]
        return columns

    def randomize(self, n_shuffles: int, seed: int) -> list[dict[str, NDArray[Any]]]:
        """Return absolute score differences after randomly swapping sentences with the baseline.

        The result has one entry per system except the first, which is the baseline.
        """
        differences: list[dict[str, list[float]]] = [
            {name: [] for name in self.metrics} for _ in range(self.n_systems - 1)
        ]
        for is_kept in _draw_masks(n_shuffles, self.n_rows, seed):
            for name, metric in self.metrics.items():
                baseline = self._blocks[0, name]
                for i, found in enumerate(differences, start=1):
                    system = self._blocks[i, name]
                    ours = _shuffled_scores(metric, is_kept, baseline, system)
                    theirs = _shuffled_scores(metric, ~is_kept, baseline, system)
                    found[name] += [abs(a - b) for a, b in zip(ours, theirs, strict=True)]
        return [{name: np.array(found[name]) for name in found} for found in differences]


def _draw_masks(n_shuffles: int, n_rows: int, seed: int) -> Iterator[NDArray[np.bool_]]:
    """Yield chunks of random booleans [shuffles, rows]."""
    random = np.random.default_rng(seed)
    for start in range(0, n_shuffles, _SHUFFLES_PER_CHUNK):
        n_chunk = min(_SHUFFLES_PER_CHUNK, n_shuffles - start)
        yield random.integers(2, size=(n_chunk, n_rows), dtype=bool)


def _shuffled_scores(
    metric: Any, is_first: NDArray[np.bool_], first: NDArray[Any], second: NDArray[Any]
) -> list[float]:
    """Return the score of each shuffle, which mixes the sentences of two systems.

    `is_first` [shuffles, rows] is True for sentences of the first system.
    """
    # float64 represents integer counts exactly, and its matrix product is faster than for integers.
    weights = is_first.astype(np.float64)
    sums = weights @ first.astype(np.float64) + (1 - weights) @ second.astype(np.float64)
    rows = sums.astype(np.result_type(first, second))
    return [metric._compute_score_from_stats(list(row)).score for row in rows]


def confidence_interval(scores: NDArray[Any]) -> Interval:
    """Return the interval that contains 95% of the resampled scores, as sacreBLEU defines it."""
    ordered = np.sort(scores)
    n_outside = len(ordered) // 40
    low, high = ordered[n_outside], ordered[len(ordered) - n_outside - 1]
    mean = scores.dtype.type(statistics.fmean(map(float, scores)))
    return Interval(float(mean), float(0.5 * (high - low)))


def bootstrap_p_value(baseline: NDArray[Any], system: NDArray[Any], difference: float) -> float:
    """Return the p-value of the paired bootstrap test (Koehn 2004, as in Moses and sacreBLEU).

    `difference` is the difference between the actual scores. The p-value is (c + 1) / (n + 1) for n
    resamples. c of them have an absolute score difference that exceeds the mean over all resamples
    by more than the actual absolute difference.
    """
    from sacrebleu.significance import _compute_p_value

    differences = np.abs(system - baseline)
    return float(_compute_p_value(differences - differences.mean(), abs(difference)))


def randomization_p_value(differences: NDArray[Any], difference: float) -> float:
    """Return the p-value of approximate randomization (Riezler and Maxwell 2005).

    `differences` are the absolute score differences of n shuffles, and `difference` is the actual
    one. The p-value is (c + 1) / (n + 1), where c is the number of shuffles with a larger absolute
    difference.
    """
    from sacrebleu.significance import _compute_p_value

    return float(_compute_p_value(differences, abs(difference)))
