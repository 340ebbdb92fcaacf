"""Evaluation of models and of existing translations."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from mtcli.config.search import SearchOptions
from mtcli.evaluation.scores import N_RESAMPLES, check_lengths, compute_scores
from mtcli.reporting.events import Scores
from mtcli.translation.line_translator import OnProgress
from mtcli.translation.translator import Translator


@dataclass(frozen=True)
class Evaluation:
    """Scores of translations by metric name, with 95% confidence intervals."""

    scores: Scores
    hypotheses: tuple[str, ...]

    @property
    def signatures(self) -> dict[str, str]:
        """The signature of each metric."""
        return {name: score.signature for name, score in self.scores.items()}

    def to_json(self) -> str:
        """Return the scores as a JSON list."""
        scores = [asdict(score) for score in self.scores.values()]
        return json.dumps(scores, ensure_ascii=False, indent=1)

    def __str__(self) -> str:
        return "\n".join(map(str, self.scores.values()))


def evaluate_model(
    model: str | Path | Translator,
    source: Iterable[str],
    references: Sequence[Iterable[str]],
    *,
    options: SearchOptions | None = None,
    on_progress: OnProgress | None = None,
    to: str | None = None,
) -> Evaluation:
    """Translate `source` and score the result against one or more references.

    `model` is a model directory, or a `Translator` if other engine options are needed. `source` and
    each of `references` are lists of lines or open files. `options` replaces the model's search
    options. `on_progress` is called with the number of lines that each batch completes.
    `to` is the target language of a model that has several.
    """
    lines, targets = _read(source), [_read(reference) for reference in references]
    check_lengths(lines, targets)  # before the slow part
    translator = Translator(model) if isinstance(model, str | Path) else model
    search = replace(options or translator.options, n_best=1, with_scores=False)
    hypotheses = [best[0].text for best in translator.stream(lines, search, on_progress, to=to)]
    return evaluate_translations(hypotheses, targets)


def evaluate_translations(
    hypotheses: Iterable[str], references: Sequence[Iterable[str]]
) -> Evaluation:
    """Score existing translations against one or more references."""
    lines, targets = _read(hypotheses), [_read(reference) for reference in references]
    return Evaluation(compute_scores(lines, targets, n_resamples=N_RESAMPLES), tuple(lines))


def _read(lines: Iterable[str]) -> list[str]:
    """Return the lines of a list or an open file without their line ends."""
    if isinstance(lines, str):
        raise TypeError("expected a list of lines or an open file, not one string")
    return [line.removesuffix("\n").removesuffix("\r") for line in lines]
