"""Analysis of all systems in an evaluation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mtcli.config.metrics import MetricOptions
from mtcli.evaluation.analysis.findings import Line, LineFindings, find_problems
from mtcli.evaluation.analysis.groups import SentenceStatistics, word_recall
from mtcli.evaluation.analysis.items import KINDS, ItemChange
from mtcli.evaluation.analysis.results import (
    FINDINGS,
    Analysis,
    FindingCount,
    ItemCount,
    LargestDifferences,
    Sentence,
    SystemAnalysis,
    TrainingMatches,
)
from mtcli.evaluation.analysis.training_text import TrainingText
from mtcli.evaluation.results import SystemResult, TestSet
from mtcli.evaluation.scores import build_metrics, extract_statistics, resolve_tokenizer

_METRICS = ("bleu", "chrf")
_N_DIFFERENCES = 10  # maximum number of better lines, and of worse lines
_NO_COUNTS = (
    "no word frequencies: no model has saved word counts; to count words, specify the training "
    "corpus with --train-corpus"
)


def analyze(
    test_set: TestSet,
    systems: Sequence[SystemResult],
    training: TrainingText | None = None,
    options: MetricOptions | None = None,
) -> Analysis:
    """Return an analysis of the translations of each system.

    With `training`, the analysis includes results by word frequency. If `training` comes from a
    corpus, the analysis also includes exact matches with the corpus. `options` sets the parameters
    of the metrics, but groups and sentences are always scored with BLEU and chrF.
    """
    options, _ = resolve_tokenizer(
        replace(options or MetricOptions(), metrics=_METRICS), test_set.languages.target
    )
    metrics = build_metrics(options)
    statistics = extract_statistics(
        metrics, [system.hypotheses for system in systems], test_set.references
    )
    analyses = tuple(
        _analyze_system(test_set, system, SentenceStatistics(metrics, rows), training)
        for system, rows in zip(systems, statistics, strict=True)
    )
    return Analysis(
        analyses,
        tuple(_largest_differences(analyses[0], other) for other in analyses[1:]),
        training.info if training else None,
        notices=() if training else (_NO_COUNTS,),
    )


def _analyze_system(
    test_set: TestSet,
    system: SystemResult,
    statistics: SentenceStatistics,
    training: TrainingText | None,
) -> SystemAnalysis:
    references, outputs = test_set.references, system.hypotheses
    lines = [
        Line(test_set.source[i] if test_set.source else None, targets, output)
        for i, (output, *targets) in enumerate(zip(outputs, *references, strict=True))
    ]
    problems = [find_problems(line) for line in lines]
    names = [
        (*problem.names, *_training_findings(line, training))
        for line, problem in zip(lines, problems, strict=True)
    ]
    bleu = statistics.metrics["bleu"]._aggregate_and_compute(statistics.rows["bleu"])
    counts = training.counts if training else None
    sources = training.sources if training else None
    return SystemAnalysis(
        name=system.name,
        length_ratio=bleu.sys_len / bleu.ref_len if bleu.ref_len else 0.0,
        brevity_penalty=float(bleu.bp),
        precisions=tuple(map(float, bleu.precisions)),
        findings=_count_findings(names),
        items=_count_items(problems),
        by_length=statistics.group_by_length(test_set.source or references[0]),
        by_frequency=() if counts is None else statistics.group_by_frequency(references[0], counts),
        by_document=statistics.group_by_document(test_set.documents) if test_set.documents else (),
        by_training=()
        if sources is None or test_set.source is None
        else statistics.group(
            [line in sources for line in test_set.source],
            lambda is_known: "in training" if is_known else "not in training",
        ),
        word_recall=() if counts is None else word_recall(references[0], outputs, counts),
        matches=_count_matches(test_set, system, training),
        sentences=_sentences(names, statistics),
    )


def _training_findings(line: Line, training: TrainingText | None) -> list[str]:
    findings = []
    if training and training.sources is not None and line.source in training.sources:
        findings.append("source-in-training")
    if training and training.targets is not None and line.output in training.targets:
        findings.append("output-in-training")
    return findings


def _count_findings(names: Sequence[Sequence[str]]) -> tuple[FindingCount, ...]:
    """Return the number of lines with each finding; omit findings that do not occur."""
    counts = {finding: sum(finding in line for line in names) for finding in FINDINGS}
    return tuple(
        FindingCount(finding, n_lines, n_lines / len(names))
        for finding, n_lines in counts.items()
        if n_lines
    )


def _count_items(problems: Sequence[LineFindings]) -> tuple[ItemCount, ...]:
    totals = []
    for kind in KINDS:
        changes = [problem.items.get(kind, ItemChange()) for problem in problems]
        total = ItemCount(
            kind,
            sum(change.n_expected for change in changes),
            sum(change.n_lost for change in changes),
            sum(change.n_output for change in changes),
            sum(change.n_invented for change in changes),
        )
        totals.append(total)
    return tuple(totals)


def _count_matches(
    test_set: TestSet, system: SystemResult, training: TrainingText | None
) -> TrainingMatches | None:
    if training is None or training.sources is None or training.targets is None:
        return None
    return TrainingMatches(
        sum(line in training.sources for line in test_set.source or ()),
        sum(line in training.targets for line in test_set.references[0]),
        sum(line in training.targets for line in system.hypotheses),
    )


def _sentences(
    names: Sequence[tuple[str, ...]], statistics: SentenceStatistics
) -> tuple[Sentence, ...]:
    bleu, chrf = statistics.metrics["bleu"], statistics.metrics["chrf"]
    return tuple(
        Sentence(
            findings,
            {
                "bleu": _sentence_bleu(bleu, statistics.rows["bleu"][i]),
                "chrf": float(chrf._compute_score_from_stats(statistics.rows["chrf"][i]).score),
            },
        )
        for i, findings in enumerate(names)
    )


def _sentence_bleu(metric: Any, row: Sequence[float]) -> float:
    """Return the BLEU of one sentence, with effective order as in sacreBLEU's sentence_bleu."""
    order = metric.max_ngram_order
    score = metric.compute_bleu(
        correct=list(row[2 : 2 + order]),
        total=list(row[2 + order :]),
        sys_len=int(row[0]),
        ref_len=int(row[1]),
        smooth_method=metric.smooth_method,
        smooth_value=metric.smooth_value,
        effective_order=True,
        max_ngram_order=order,
    )
    return float(score.score)


def _largest_differences(baseline: SystemAnalysis, system: SystemAnalysis) -> LargestDifferences:
    """Return the lines with the largest differences in sentence chrF between two systems."""
    differences = [
        theirs.scores["chrf"] - ours.scores["chrf"]
        for ours, theirs in zip(baseline.sentences, system.sentences, strict=True)
    ]
    order = sorted(range(len(differences)), key=lambda i: (-differences[i], i))
    better = [i for i in order[:_N_DIFFERENCES] if differences[i] > 0]
    worse = [i for i in reversed(order[-_N_DIFFERENCES:]) if differences[i] < 0]
    return LargestDifferences(system.name, baseline.name, tuple(better), tuple(worse))
