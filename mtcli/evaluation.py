"""Scores that others can reproduce: every number carries the signature it was computed under."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from mtcli.errors import DataError

_RESAMPLES = 1000  # of the bootstrap; sacreBLEU's own default


class _FloatScores:
    """Plain floats: sacreBLEU 2.6 cannot average a bootstrap that mixes numpy's with 0.0."""

    def _compute_score_from_stats(self, stats: list[Any]) -> Any:
        score = super()._compute_score_from_stats(stats)  # type: ignore[misc]
        score.score = float(score.score)
        return score


class _Bleu(_FloatScores, BLEU):
    pass


class _Chrf(_FloatScores, CHRF):
    pass


@dataclass(frozen=True)
class Score:
    """One number, where it comes from, and how far chance could move it."""

    metric: str
    value: float
    signature: str
    margin: float | None = None  # half of the 95 % confidence interval

    def __str__(self) -> str:
        margin = f" ± {self.margin:.2f}" if self.margin is not None else ""
        return f"{self.metric} {self.value:.2f}{margin}  [{self.signature}]"


def evaluate(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[Score]:
    """BLEU and chrF of the translations against one or more references, with their margins."""
    for lines in references:
        _check_lengths(hypotheses, lines)
    n = _RESAMPLES if len(hypotheses) > 1 else 1
    return [_score(metric, hypotheses, references, n) for metric in (_Bleu(), _Chrf())]


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU alone and without margin: what validation needs, at once."""
    _check_lengths(hypotheses, references)
    return _score(_Bleu(), hypotheses, [references], n_bootstrap=1)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """chrF alone and without margin."""
    _check_lengths(hypotheses, references)
    return _score(_Chrf(), hypotheses, [references], n_bootstrap=1)


def _score(
    metric: BLEU | CHRF,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    n_bootstrap: int,
) -> Score:
    result = metric.corpus_score(hypotheses, references, n_bootstrap=n_bootstrap)
    # sacreBLEU offers the interval only inside printed text, and text is not for parsing.
    margin = float(result._ci) if n_bootstrap > 1 else None
    return Score(result.name, float(result.score), str(metric.get_signature()), margin)


def _check_lengths(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise DataError(
            f"{len(hypotheses)} translations cannot be scored against {len(references)} references",
            hint="both files must have one sentence per line, in the same order",
        )
    if not hypotheses:
        raise DataError("there is nothing to score: the files are empty")
