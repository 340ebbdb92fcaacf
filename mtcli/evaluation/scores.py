"""Metrics. Each score has a signature that makes it reproducible.

`METRICS` is the only list of metrics: validation, `mtcli evaluate`, displays, logs and
reports show all of its entries.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from mtcli.errors import DataError
from mtcli.reporting.events import Score

# Hypotheses, one or more references, number of bootstrap resamples (0: no confidence interval).
Metric = Callable[[Sequence[str], Sequence[Sequence[str]], int], Score]

N_RESAMPLES = 1000  # default of sacreBLEU


class _FloatScores:
    """Mixin that makes each score a Python float.

    sacreBLEU 2.6 cannot average bootstrap scores that mix numpy floats and 0.0.
    """

    def _compute_score_from_stats(self, stats: list[Any]) -> Any:
        score = super()._compute_score_from_stats(stats)  # type: ignore[misc]
        score.score = float(score.score)
        return score


class _Bleu(_FloatScores, BLEU):
    pass


class _Chrf(_FloatScores, CHRF):
    pass


def bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], n_resamples: int = 0
) -> Score:
    """Return the corpus BLEU against one or more references."""
    return _corpus_score(_Bleu(), hypotheses, references, n_resamples)


def chrf(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], n_resamples: int = 0
) -> Score:
    """Return the corpus chrF against one or more references."""
    return _corpus_score(_Chrf(), hypotheses, references, n_resamples)


METRICS: dict[str, Metric] = {"bleu": bleu, "chrf": chrf}


def compute_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, n_resamples: int = 0
) -> dict[str, Score]:
    """Return the score of each metric by name; `n_resamples` > 0 adds confidence intervals."""
    check_lengths(hypotheses, references)
    return {name: metric(hypotheses, references, n_resamples) for name, metric in METRICS.items()}


def check_lengths(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise `DataError` if `hypotheses` is empty or a reference has a different length."""
    for lines in references:
        if len(lines) != len(hypotheses):
            raise DataError(
                f"{len(hypotheses):,} translations, but {len(lines):,} references",
                hint="line N of each reference must be the translation of line N of the source",
            )
    if not hypotheses:
        raise DataError("nothing to score: the input is empty")


def _corpus_score(
    metric: BLEU | CHRF,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    n_resamples: int,
) -> Score:
    check_lengths(hypotheses, references)
    n_bootstrap = n_resamples if n_resamples and len(hypotheses) > 1 else 1
    result = metric.corpus_score(hypotheses, references, n_bootstrap=n_bootstrap)
    # sacreBLEU exposes the interval only in a private field and in formatted text.
    margin = float(result._ci) if n_bootstrap > 1 else None
    return Score(result.name, float(result.score), str(metric.get_signature()), margin)
