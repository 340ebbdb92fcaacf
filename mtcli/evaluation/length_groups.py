"""Scores by source length: groups of lines of similar length, and the scores of each group."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, pairwise

from mtcli.config.metrics import MetricOptions
from mtcli.evaluation.results import Evaluation
from mtcli.evaluation.scores import compute_scores, resolve_tokenizer
from mtcli.evaluation.sentences import short_names
from mtcli.reporting.charts import COLORS, Chart, Curve

_EDGES = (
    0,
    5,
    10,
    15,
    20,
    25,
    30,
    40,
    50,
    60,
    80,
    100,
    150,
    200,
    300,
    500,
)  # last length of a group
_MIN_LINES, _MIN_SHARE = 10, 0.01  # smaller groups are merged with the next one
_MIN_WORDS_PER_CHARACTER = 1 / 15  # below it, the script separates no words


@dataclass(frozen=True)
class LengthGroup:
    """Lines whose lengths are in a range."""

    label: str  # such as "11–20" or "41+"
    lines: tuple[int, ...]


@dataclass(frozen=True)
class LengthGroups:
    """All lines of a test set, grouped by length."""

    unit: str  # "words" or "characters"
    groups: tuple[LengthGroup, ...]


def group_by_length(texts: Sequence[str]) -> LengthGroups:
    """Group lines by length in words, or in characters if the script does not separate words.

    A group has at least 10 lines and 1% of all lines, unless there are fewer lines in total.
    """
    unit = _choose_unit(texts)
    scale = 1 if unit == "words" else 2
    edges = [edge * scale for edge in _EDGES]
    buckets: list[list[int]] = [[] for _ in range(len(edges) + 1)]
    for i, text in enumerate(texts):
        length = len(text.split()) if unit == "words" else len("".join(text.split()))
        buckets[bisect_left(edges, length)].append(i)
    # (length before the first, lines) of each merged group
    merged: list[tuple[int, list[int]]] = []
    least = max(_MIN_LINES, _MIN_SHARE * len(texts))
    lower_ends = [-1, *edges]
    for low, lines in zip(lower_ends, buckets, strict=True):
        if merged and len(merged[-1][1]) < least:
            merged[-1] = merged[-1][0], merged[-1][1] + lines
        elif lines:
            merged.append((low, lines))
    if len(merged) > 1 and len(merged[-1][1]) < least:
        _, rest = merged.pop()
        merged[-1] = merged[-1][0], merged[-1][1] + rest
    return LengthGroups(unit, tuple(_label_groups(merged)))


def _label_groups(merged: Sequence[tuple[int, list[int]]]) -> list[LengthGroup]:
    groups = [
        LengthGroup(f"{low + 1}–{high}" if low + 1 < high else f"{high}", tuple(sorted(lines)))
        for (low, lines), (high, _) in pairwise(merged)
    ]
    return [
        *groups,
        *(LengthGroup(f"{low + 1}+", tuple(sorted(lines))) for low, lines in merged[-1:]),
    ]


def _choose_unit(texts: Sequence[str]) -> str:
    n_words = sum(len(text.split()) for text in texts)
    n_characters = sum(len("".join(text.split())) for text in texts)
    return "characters" if n_words < n_characters * _MIN_WORDS_PER_CHARACTER else "words"


@dataclass(frozen=True)
class LengthScores:
    """Scores of each system in each group of lines of similar length."""

    metric: str  # with its parameters: "BLEU", "chrF2"
    side: str  # "source", or "reference" if the source is unknown
    groups: LengthGroups
    systems: tuple[str, ...]
    scores: tuple[tuple[float, ...], ...]  # one tuple per system, one score per group


def scores_by_length(evaluation: Evaluation, options: MetricOptions) -> LengthScores:
    """Return the scores in the first metric of the evaluation, by length of the source."""
    test_set = evaluation.test_set
    name, score = next(iter(evaluation.scores.items()))
    resolved, _ = resolve_tokenizer(options, test_set.languages.target)
    single = replace(resolved, metrics=(name,), resamples=0)
    groups = group_by_length(test_set.source or test_set.references[0])
    scores = [
        tuple(
            compute_scores(
                [system.hypotheses[i] for i in group.lines],
                [[reference[i] for i in group.lines] for reference in test_set.references],
                single,
            )[name].value
            for group in groups.groups
        )
        for system in evaluation.systems
    ]
    return LengthScores(
        metric=score.metric,
        side="source" if test_set.source else "reference",
        groups=groups,
        systems=tuple(system.name for system in evaluation.systems),
        scores=tuple(scores),
    )


def length_chart(scores: LengthScores) -> Chart:
    """Return a chart with a curve for each system."""
    names = short_names(scores.systems)
    return Chart(
        title=f"{scores.metric} by {scores.side} length",
        description=f"{scores.metric} of each system on lines of similar length. "
        "The table has all values.",
        curves=[
            Curve(name, [(float(i), value) for i, value in enumerate(values)], color, has_dots=True)
            for name, values, color in zip(names, scores.scores, cycle(COLORS), strict=False)
        ],
        digits=2,
        x_name=scores.groups.unit,
        categories=[group.label for group in scores.groups.groups],
    )


def describe_groups(scores: LengthScores) -> str:
    """Return the unit of the lengths and the number of lines in each group."""
    groups = scores.groups
    counts = ", ".join(f"{group.label}: {len(group.lines):,}" for group in groups.groups)
    return f"Length of the {scores.side} in {groups.unit}. Lines in each group: {counts}."
