"""Scores by source length, and the chart that shows them."""

from dataclasses import dataclass, replace
from itertools import cycle

from mtcli.config.metrics import MetricOptions
from mtcli.evaluation.analysis.groups import SentenceStatistics
from mtcli.evaluation.analysis.results import GroupScore
from mtcli.evaluation.results import Evaluation
from mtcli.evaluation.scores import build_metrics, extract_statistics, resolve_tokenizer
from mtcli.evaluation.sentences import short_names
from mtcli.reporting.charts import COLORS, Chart, Curve

_MIN_LINES = 10  # scores of smaller groups are not meaningful


@dataclass(frozen=True)
class LengthScores:
    """Scores of each system for each group of lines of similar length."""

    metric: str  # key of `GroupScore.scores`, such as "bleu"
    label: str  # name of the metric with its parameters: "BLEU", "chrF2"
    side: str  # "source", or "reference" if the source is unknown
    systems: tuple[str, ...]
    groups: tuple[tuple[GroupScore, ...], ...]  # one tuple per system; all have the same groups


def scores_by_length(evaluation: Evaluation, options: MetricOptions) -> LengthScores:
    """Return the scores by source length for the first metric of the evaluation."""
    test_set = evaluation.test_set
    name, score = next(iter(evaluation.scores.items()))
    resolved, _ = resolve_tokenizer(options, test_set.languages.target)
    metrics = build_metrics(replace(resolved, metrics=(name,)))
    outputs = [system.hypotheses for system in evaluation.systems]
    statistics = extract_statistics(metrics, outputs, test_set.references)
    lines = test_set.source or test_set.references[0]
    return LengthScores(
        metric=name,
        label=score.metric,
        side="source" if test_set.source else "reference",
        systems=tuple(system.name for system in evaluation.systems),
        groups=tuple(
            SentenceStatistics(metrics, rows).group_by_length(lines) for rows in statistics
        ),
    )


def length_chart(scores: LengthScores) -> Chart:
    """Return a chart with one curve per system; omit groups with few lines."""
    curves = []
    for name, groups, color in zip(
        short_names(scores.systems), scores.groups, cycle(COLORS), strict=False
    ):
        values = [(float(i), group) for i, group in enumerate(groups)]
        points = [(x, group.scores[scores.metric]) for x, group in values if _is_large(group)]
        curves.append(Curve(name, points, color, has_dots=True))
    return Chart(
        title=f"{scores.label} by {scores.side} length",
        description=f"{scores.label} of each system on lines of similar length. "
        "The table has all values.",
        curves=curves,
        digits=2,
        x_name="words",
        categories=[group.label for group in scores.groups[0]],
    )


def describe_groups(scores: LengthScores) -> str:
    """Return a note that explains the chart and lists the number of lines in each group."""
    groups = scores.groups[0]
    counts = ", ".join(f"{group.label}: {group.n_lines:,}" for group in groups)
    is_partial = not all(map(_is_large, groups))
    omitted = f" The chart omits groups with fewer than {_MIN_LINES} lines." if is_partial else ""
    return f"Length of the {scores.side} in words. Lines in each group: {counts}.{omitted}"


def _is_large(group: GroupScore) -> bool:
    return group.n_lines >= _MIN_LINES
