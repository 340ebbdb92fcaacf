"""Data for the sentences in an evaluation report: texts, scores and findings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mtcli.evaluation.analysis.results import FINDINGS, Analysis
from mtcli.evaluation.results import Evaluation

SENTENCE_METRIC = "chrF"  # BLEU is not meaningful for single sentences


@dataclass(frozen=True)
class Finding:
    """A kind of problem, and the lines of each system that it affects."""

    label: str
    lines: Sequence[frozenset[int]]  # one set for each system


def collect_findings(evaluation: Evaluation) -> list[Finding]:
    """Return the findings that occur in at least one line."""
    analysis: Analysis | None = evaluation.analysis
    if analysis is None:
        return []
    found = [
        Finding(
            name,
            [
                frozenset(i for i, line in enumerate(system.sentences) if name in line.findings)
                for system in analysis.systems
            ],
        )
        for name in FINDINGS
    ]
    return [finding for finding in found if any(finding.lines)]


def sentence_scores(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """Return the chrF score of each sentence."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    return [
        float(metric.sentence_score(hypothesis, targets).score)
        for hypothesis, *targets in zip(hypotheses, *references, strict=True)
    ]


def score_sentences(evaluation: Evaluation) -> list[list[float]]:
    """Return a list of sentence chrF scores for each system."""
    references = evaluation.test_set.references
    return [sentence_scores(system.hypotheses, references) for system in evaluation.systems]


def sentence_data(
    evaluation: Evaluation,
    scores: Sequence[Sequence[float]],
    findings: Sequence[Finding],
    maps: Mapping[int, Mapping[int, Any]],
) -> dict[str, Any]:
    """Return the data for the sentence browser (`templates/sentences.js`).

    `scores` has one list per system. `maps` contains attention maps by line, then by system.
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
