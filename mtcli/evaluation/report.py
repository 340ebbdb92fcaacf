"""HTML report of an evaluation, for `mtcli evaluate --report`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mtcli.config.metrics import MetricOptions
from mtcli.counts import format_count
from mtcli.evaluation.analysis.tables import analysis_tables, describe_training
from mtcli.evaluation.length_groups import describe_groups, length_chart, scores_by_length
from mtcli.evaluation.results import SIGNIFICANCE_LEVEL, Evaluation, Score, SystemResult
from mtcli.evaluation.sentences import (
    SENTENCE_METRIC,
    collect_findings,
    score_sentences,
    sentence_data,
    short_names,
)
from mtcli.evaluation.tables import P_VALUE_MEANING, describe_test
from mtcli.reporting.attention.page import VIEW_ASSETS
from mtcli.reporting.charts import chart_html
from mtcli.reporting.interval_charts import Interval, interval_chart_html
from mtcli.reporting.messages import format_size
from mtcli.reporting.pages import Table, Tile, json_for_script, render_page


@dataclass(frozen=True)
class ReportContent:
    """Optional parts of the report."""

    sentence_scores: Sequence[Sequence[float]] | None = None  # one list per system; None: compute
    maps: Mapping[int, Mapping[int, Any]] = field(default_factory=dict)  # by line, then by system
    map_rule: str = ""  # sentence that explains how the lines with maps were chosen
    title: str = "Evaluation report"
    runs: Table | None = None  # size, training cost and speed, if the systems are runs


def evaluation_page(
    evaluation: Evaluation,
    metrics: MetricOptions | None = None,
    content: ReportContent | None = None,
) -> str:
    """Return the report of an evaluation: scores, comparison, charts and a sentence browser.

    `metrics` must be the options that the evaluation was scored with.
    """
    content = content or ReportContent()
    scores = content.sentence_scores or score_sentences(evaluation)
    data = sentence_data(evaluation, scores, collect_findings(evaluation), content.maps)
    by_length = scores_by_length(evaluation, metrics or MetricOptions())
    return render_page(
        "evaluation.html.j2",
        {
            "title": content.title,
            "runs": content.runs,
            "subtitle": _subtitle(evaluation),
            "headline": _tiles(evaluation),
            "scores": _score_table(evaluation),
            "scores_note": _scores_note(evaluation),
            "system_charts": _system_charts(evaluation),
            "comparison": _comparison(evaluation),
            "length_charts": [chart_html(length_chart(by_length), "lengths")],
            "length_note": describe_groups(by_length),
            "analysis": _analysis_tables(evaluation),
            "analysis_notes": describe_training(evaluation.analysis) if evaluation.analysis else [],
            "sentences_note": _sentences_note(evaluation, content),
            "sentence_data": json_for_script(data),
            "decoding": None if evaluation.analysis else _decoding_table(evaluation.systems),
            "notices": evaluation.notices,
            "signatures": _signature_table(evaluation),
        },
        assets=["sentences.css", "charts.js", *VIEW_ASSETS, "sentences.js"],
    )


def _subtitle(evaluation: Evaluation) -> str:
    test_set = evaluation.test_set
    languages = test_set.languages
    n_references = len(test_set.references)
    facts = [
        test_set.name,
        f"{languages.source} to {languages.target}"
        if languages.source and languages.target
        else "",
        format_count(len(test_set), "line"),
        format_count(n_references, "reference"),
        f"{len(evaluation.systems)} systems" if len(evaluation.systems) > 1 else "",
    ]
    return ", ".join(filter(None, facts))


def _tiles(evaluation: Evaluation) -> list[Tile]:
    """Return tiles with the scores and the speed of a single system; none for several systems."""
    if len(evaluation.systems) > 1:
        return []
    system = evaluation.systems[0]
    tiles = [
        Tile(score.metric, f"{score.value:.2f}", _margin(score)) for score in system.scores.values()
    ]
    if system.decoding:
        speed = f"{system.decoding.lines_per_second:,.1f}"
        tiles.append(Tile("speed", speed, "lines per second"))
    return tiles


def _margin(score: Score) -> str:
    return f"± {score.margin:.2f}" if score.margin is not None else ""


def _score_table(evaluation: Evaluation) -> Table:
    metrics = [score.metric for score in evaluation.scores.values()]
    return Table(
        ["system", *metrics],
        [
            [
                system.name,
                *(
                    f"{score.value:.2f} {_margin(score)}".strip()
                    for score in system.scores.values()
                ),
            ]
            for system in evaluation.systems
        ],
        caption="Scores",
    )


def _scores_note(evaluation: Evaluation) -> str:
    has_interval = any(score.margin is not None for score in evaluation.scores.values())
    baseline = "The first system is the baseline. " if len(evaluation.systems) > 1 else ""
    interval = (
        "The number after ± is half the width of the 95% confidence interval (bootstrap)."
        if has_interval
        else ""
    )
    return baseline + interval


def _system_charts(evaluation: Evaluation) -> list[str]:
    """Return a chart of confidence intervals for each metric; none for a single system."""
    if len(evaluation.systems) < 2:
        return []
    names = short_names([system.name for system in evaluation.systems])
    charts: list[str] = []
    for metric, label in _metric_labels(evaluation).items():
        scores = [system.scores[metric] for system in evaluation.systems]
        intervals = [
            Interval(name, score.value, *_interval(score))
            for name, score in zip(names, scores, strict=True)
        ]
        charts.append(interval_chart_html(f"{label} by system", intervals, digits=2))
    return charts


def _interval(score: Score) -> tuple[float, float]:
    margin = score.margin or 0.0
    return score.value - margin, score.value + margin


def _metric_labels(evaluation: Evaluation) -> dict[str, str]:
    return {name: score.metric for name, score in evaluation.scores.items()}


@dataclass(frozen=True)
class ShownComparison:
    """Table of differences from the baseline, and sentences that explain it."""

    table: Table
    sentences: Sequence[str]


def _comparison(evaluation: Evaluation) -> ShownComparison | None:
    comparison, labels = evaluation.comparison, _metric_labels(evaluation)
    if comparison is None:
        return None
    rows = [
        [
            difference.system,
            labels[difference.metric],
            f"{difference.difference:+.2f}",
            f"{difference.p_value:.4f}",
            "yes" if difference.is_significant else "no",
        ]
        for difference in comparison.differences
    ]
    header = [
        "system",
        "metric",
        "difference",
        "p-value",
        f"significant (p < {SIGNIFICANCE_LEVEL})",
    ]
    return ShownComparison(
        Table(header, rows, caption="Comparison", n_text_columns=2),
        [f"Test: {describe_test(comparison)}.", f"{P_VALUE_MEANING}."],
    )


def _analysis_tables(evaluation: Evaluation) -> list[Table]:
    """Return the tables of the analysis; an empty list without an analysis."""
    if evaluation.analysis is None:
        return []
    return [
        Table(["", *table.rows[0][1:]], table.rows[1:], caption=table.title)
        for table in analysis_tables(evaluation)
    ]


def _sentences_note(evaluation: Evaluation, content: ReportContent) -> str:
    hint = "" if evaluation.analysis else "To filter sentences by problem, use --analysis."
    return " ".join(
        filter(None, [f"Sentences are scored with {SENTENCE_METRIC}.", content.map_rule, hint])
    )


def _decoding_table(systems: Sequence[SystemResult]) -> Table | None:
    rows = [
        [
            system.name,
            decoding.engine,
            str(decoding.beam_size),
            f"{decoding.seconds:,.1f}",
            f"{decoding.lines_per_second:,.1f}",
            format_size(decoding.model_bytes),
        ]
        for system in systems
        if (decoding := system.decoding)
    ]
    header = ["system", "engine", "beam size", "seconds", "lines per second", "weights"]
    return Table(header, rows, caption="Translation", n_text_columns=2) if rows else None


def _signature_table(evaluation: Evaluation) -> Table:
    rows = [[score.metric, score.signature] for score in evaluation.scores.values()]
    return Table(["metric", "signature"], rows, caption="Signatures", n_text_columns=2)
