"""Comparison of runs: quality by source length, parameters, training cost and speed."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mtcli.evaluation.length_groups import LengthScores, scores_by_length
from mtcli.evaluation.request import EvaluationRequest, Listener, run_evaluation
from mtcli.evaluation.results import Evaluation, SystemResult
from mtcli.evaluation.sentences import short_names
from mtcli.evaluation.tables import align_rows, describe_test
from mtcli.model_dir.directory import load_saved_config, weights_info
from mtcli.model_dir.layout import LOG
from mtcli.reporting.log import drop_undone_entries, finite_number, read_events, select_entries
from mtcli.reporting.messages import format_duration
from mtcli.reporting.pages import Table

_UNKNOWN = "-"


@dataclass(frozen=True)
class TrainingCost:
    """Cost of a training run, estimated from its log, which contains every tenth step."""

    steps: int
    tokens: float  # source and target tokens, without padding
    seconds: float  # training steps only, without validations


@dataclass(frozen=True)
class ComparedRun:
    """A run with its size and training cost."""

    name: str
    architecture: str
    n_parameters: int
    training: TrainingCost | None  # None: there is no log, or it has no steps


@dataclass(frozen=True)
class RunComparison:
    """Comparison of runs on the same test set; the first run is the baseline."""

    runs: tuple[ComparedRun, ...]
    evaluation: Evaluation
    by_length: LengthScores

    def to_json(self) -> str:
        """Return the runs, their scores and their scores by length as a JSON object."""
        values = {
            **self.evaluation.to_dict(),
            "runs": [asdict(run) for run in self.runs],
            "by_length": asdict(self.by_length),
        }
        return json.dumps(values, ensure_ascii=False, indent=1)

    def __str__(self) -> str:
        runs, lengths = runs_table(self), lengths_table(self)
        parts = [
            *align_rows([runs.header, *runs.rows]),
            "",
            lengths.caption,
            *align_rows([lengths.header, *lengths.rows]),
        ]
        if self.evaluation.comparison:
            parts += ["", describe_test(self.evaluation.comparison), *_differences(self.evaluation)]
        return "\n".join(parts)


def compare_runs(request: EvaluationRequest, listener: Listener | None = None) -> RunComparison:
    """Translate the test set with all models in `request` and compare quality, cost and speed."""
    # Read all models before the translation, which is slow, to report errors early.
    runs = tuple(_describe_run(model) for model in request.models)
    evaluation = run_evaluation(request, listener or Listener())
    return RunComparison(runs, evaluation, scores_by_length(evaluation, request.metrics))


def read_training_cost(directory: Path) -> TrainingCost | None:
    """Return the cost of a run from its log; None if the log has no steps."""
    entries = drop_undone_entries(read_events(directory / LOG))
    logged = select_entries(entries, "step")
    done = [*logged, *select_entries(entries, "validation"), *select_entries(entries, "finished")]
    n_steps = max((finite_number(entry, "step") or 0 for entry in done), default=0)
    tokens = _mean([finite_number(entry, "n_tokens") for entry in logged])
    seconds = _mean([finite_number(entry, "seconds") for entry in logged])
    if tokens is None or seconds is None:
        return None
    return TrainingCost(int(n_steps), tokens * n_steps, seconds * n_steps)


def runs_table(comparison: RunComparison) -> Table:
    """Return a table with one row per run: size, cost, scores and speed."""
    metrics = [score.metric for score in comparison.evaluation.scores.values()]
    header = [
        *("run", "architecture", "parameters", "steps", "tokens", "training time"),
        *(*metrics, "lines/s", "engine"),
    ]
    names = short_names([run.name for run in comparison.runs])
    rows = [
        [name, *_run_cells(run), *_score_cells(system)]
        for name, run, system in zip(
            names, comparison.runs, comparison.evaluation.systems, strict=True
        )
    ]
    return Table(header, rows, caption="Runs", n_text_columns=2)


def lengths_table(comparison: RunComparison) -> Table:
    """Return a table with one row per group of source lengths and the scores of all runs."""
    scores = comparison.by_length
    rows = [
        [same[0].label, f"{same[0].n_lines:,}", *(f"{g.scores[scores.metric]:.2f}" for g in same)]
        for same in zip(*scores.groups, strict=True)
    ]
    caption = f"{scores.label} by {scores.side} length in words"
    return Table(["words", "lines", *short_names(scores.systems)], rows, caption)


def _describe_run(model: Path) -> ComparedRun:
    config = load_saved_config(model)
    return ComparedRun(
        str(model),
        config.model.summary(),
        weights_info(model).n_parameters,
        read_training_cost(model),
    )


def _run_cells(run: ComparedRun) -> list[str]:
    cost = run.training
    costs = (
        [f"{cost.steps:,}", f"{cost.tokens / 1e6:,.2f} M", format_duration(cost.seconds)]
        if cost
        else [_UNKNOWN] * 3
    )
    return [run.architecture, f"{run.n_parameters:,}", *costs]


def _score_cells(system: SystemResult) -> list[str]:
    scores = [
        f"{score.value:.2f}" + (f" ± {score.margin:.2f}" if score.margin is not None else "")
        for score in system.scores.values()
    ]
    decoding: Any = system.decoding
    return [*scores, f"{decoding.lines_per_second:,.1f}", decoding.engine]


def _differences(evaluation: Evaluation) -> list[str]:
    """Return one line per run, except the baseline, with the differences in its scores."""
    found = evaluation.comparison.differences if evaluation.comparison else ()
    return [
        f"{system.name}: "
        + ", ".join(
            f"{evaluation.scores[d.metric].metric} {d.difference:+.2f} (p = {d.p_value:.4f})"
            for d in found
            if d.system == system.name
        )
        for system in evaluation.systems[1:]
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
