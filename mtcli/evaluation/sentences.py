"""Sentences of an evaluation report: scores, findings, and the choice of those with a map."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mtcli.evaluation.results import Evaluation

SENTENCE_METRIC = "chrF"  # BLEU is not meaningful for single sentences
MAX_MAPS = 200
_MAX_MAP_CHARACTERS = 300  # of a sentence that is chosen automatically: a map must fit on a screen


@dataclass(frozen=True)
class Finding:
    """A kind of problem, and the lines of each system that have it."""

    label: str
    lines: Sequence[frozenset[int]]  # one set for each system


def sentence_scores(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """Return the chrF of each sentence."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    return [
        float(metric.sentence_score(hypothesis, targets).score)
        for hypothesis, *targets in zip(hypotheses, *references, strict=True)
    ]


def choose_map_lines(
    evaluation: Evaluation, scores: Sequence[Sequence[float]], n: int
) -> list[int]:
    """Return `n` lines for attention maps, in their order in the test set.

    The lines with the lowest score of the first system, those with the largest difference between
    two systems, and the longest lines take turns. Very long lines are not chosen.
    """
    source = evaluation.test_set.source
    if source is None:
        return []
    short = [
        i for i, text in enumerate(source) if text.strip() and len(text) <= _MAX_MAP_CHARACTERS
    ]
    columns = list(zip(*scores, strict=True))
    rankings = [
        sorted(short, key=lambda i: scores[0][i]),
        sorted(short, key=lambda i: -len(source[i])),
    ]
    if len(scores) > 1:
        rankings.insert(1, sorted(short, key=lambda i: min(columns[i]) - max(columns[i])))
    in_turn = (line for lines in zip(*rankings, strict=True) for line in lines)
    return sorted([*dict.fromkeys(in_turn)][:n])


def sentence_data(
    evaluation: Evaluation,
    scores: Sequence[Sequence[float]],
    findings: Sequence[Finding],
    maps: Mapping[int, Mapping[int, Any]],
) -> dict[str, Any]:
    """Return the data of the sentence browser (`templates/sentences.js`).

    `scores` has one list per system. `maps` are attention maps by line, then by system.
    """
    test_set, systems = evaluation.test_set, evaluation.systems
    lines = [
        [
            test_set.source[i] if test_set.source else None,
            [reference[i] for reference in test_set.references],
            [system.hypotheses[i] for system in systems],
            [round(system_scores[i], 2) for system_scores in scores],
            [
                [number for number, finding in enumerate(findings) if i in finding.lines[system]]
                for system in range(len(systems))
            ],
        ]
        for i in range(len(test_set))
    ]
    return {
        "systems": short_names([system.name for system in systems]),
        "metric": SENTENCE_METRIC,
        "findings": [finding.label for finding in findings],
        "lines": lines,
        "maps": {line: dict(by_system) for line, by_system in maps.items()},
        "sourceLanguage": test_set.languages.source,
        "targetLanguage": test_set.languages.target,
    }


def short_names(names: Sequence[str]) -> list[str]:
    """Return names without the leading directories that all of them share."""
    parts = [name.rstrip("/").split("/") for name in names]
    shortest = min(map(len, parts), default=1)
    n_shared = 0
    while n_shared < shortest - 1 and len({tuple(part[: n_shared + 1]) for part in parts}) == 1:
        n_shared += 1
    return ["/".join(part[n_shared:]) or name for part, name in zip(parts, names, strict=True)]
