"""Tables that show the analyses of all systems side by side, and their plain-text form."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mtcli.counts import format_count
from mtcli.evaluation.analysis.groups import FREQUENCY_LABELS
from mtcli.evaluation.analysis.results import (
    FINDINGS,
    Analysis,
    GroupScore,
    LargestDifferences,
    SystemAnalysis,
    TrainingInfo,
)
from mtcli.evaluation.results import Decoding, Evaluation
from mtcli.reporting.messages import format_size

_MAX_DOCUMENTS = 20  # documents with the lowest scores
_MAX_SHOWN_DIFFERENCES = 5
_METRICS = (("bleu", "BLEU"), ("chrf", "chrF"))
_NO_VALUE = "-"

Row = Sequence[str]


@dataclass(frozen=True)
class AnalysisTable:
    """A table of strings."""

    title: str
    rows: Sequence[Row]  # the first row is the header


def format_analysis(evaluation: Evaluation) -> str:
    """Return the analysis of an evaluation as text."""
    analysis: Analysis = evaluation.analysis
    sections = [
        *map(_format_table, analysis_tables(evaluation)),
        *(_differences(evaluation, differences) for differences in analysis.differences),
        describe_training(analysis),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def analysis_tables(evaluation: Evaluation) -> list[AnalysisTable]:
    """Return the tables for the analysis of an evaluation, without empty ones."""
    analysis: Analysis = evaluation.analysis
    header = _header("", analysis)
    tables = [
        AnalysisTable("Length and n-gram precision", [header, *_precisions(analysis)]),
        AnalysisTable("Lines with problems", [header, *_findings(analysis)]),
        AnalysisTable(
            "Lost items (in source and reference, but not in the output) and invented items (only "
            "in the output)",
            [header, *_items(analysis)],
        ),
        _group_table("Source length in words", analysis, lambda system: system.by_length),
        _group_table(
            "Training frequency of the rarest reference word",
            analysis,
            lambda system: system.by_frequency,
        ),
        AnalysisTable("Words by training frequency: recall and precision", _recall(analysis)),
        _group_table("Occurrence of the source in the training corpus", analysis, _by_training),
        AnalysisTable("Exact matches with the training corpus", _matches(analysis)),
        _group_table(_document_title(analysis), analysis, lambda system: system.by_document),
        AnalysisTable("Speed, memory and size", _decoding(evaluation)),
    ]
    return [table for table in tables if len(table.rows) > 1]


def describe_training(analysis: Analysis) -> list[str]:
    """Return lines: the origin of the word frequencies, if known, then the notices."""
    return [*_training_lines(analysis.training), *analysis.notices]


def _header(title: str, analysis: Analysis) -> list[str]:
    return [title, *(system.name for system in analysis.systems)]


def _precisions(analysis: Analysis) -> Iterator[Row]:
    systems = analysis.systems
    yield ["length ratio", *(f"{system.length_ratio:.3f}" for system in systems)]
    yield ["brevity penalty", *(f"{system.brevity_penalty:.3f}" for system in systems)]
    for n in range(len(systems[0].precisions)):
        yield [f"{n + 1}-grams", *(f"{system.precisions[n]:.1f}%" for system in systems)]


def _findings(analysis: Analysis) -> Iterator[Row]:
    counts = [{found.finding: found for found in system.findings} for system in analysis.systems]
    for finding, description in FINDINGS.items():
        if any(finding in by_name for by_name in counts):
            cells = [
                f"{by_name[finding].n_lines:,} ({by_name[finding].share:.1%})"
                if finding in by_name
                else "0"
                for by_name in counts
            ]
            yield [f"{finding}: {description}", *cells]
    if not any(counts):
        yield ["none", *("0" for _ in counts)]


def _items(analysis: Analysis) -> Iterator[Row]:
    for found in zip(*(system.items for system in analysis.systems), strict=True):
        if not any(count.n_expected or count.n_output for count in found):
            continue
        kind = found[0].kind
        yield [f"{kind} lost", *(f"{c.n_lost:,} of {c.n_expected:,}" for c in found)]
        yield [f"{kind} invented", *(f"{c.n_invented:,} of {c.n_output:,}" for c in found)]


def _by_training(system: SystemAnalysis) -> Sequence[GroupScore]:
    return system.by_training


def _group_table(
    title: str, analysis: Analysis, select: Callable[[SystemAnalysis], Sequence[GroupScore]]
) -> AnalysisTable:
    groups = [select(system) for system in analysis.systems]
    header = ["", "lines"]
    for system in analysis.systems:
        header += [f"{system.name} {_METRICS[0][1]}", _METRICS[1][1]]
    rows = [
        [same[0].label, f"{same[0].n_lines:,}"]
        + [f"{group.scores[name]:.1f}" for group in same for name, _ in _METRICS]
        for same in zip(*groups, strict=True)
    ]
    if select(analysis.systems[0]) is analysis.systems[0].by_document:
        rows = sorted(rows, key=lambda row: float(row[3]))[:_MAX_DOCUMENTS]
    return AnalysisTable(title, [header, *rows])


def _document_title(analysis: Analysis) -> str:
    n_documents = len(analysis.systems[0].by_document)
    part = f"lowest {_MAX_DOCUMENTS} of " if n_documents > _MAX_DOCUMENTS else ""
    return f"Documents by chrF: {part}{n_documents:,}"


def _recall(analysis: Analysis) -> list[Row]:
    by_label = [{group.label: group for group in s.word_recall} for s in analysis.systems]
    labels = [name for name in FREQUENCY_LABELS if any(name in found for found in by_label)]
    if not labels:
        return []
    header = ["", "words"]
    for system in analysis.systems:
        header += [f"{system.name} recall", "precision"]
    rows = []
    for label in labels:
        n_words = max(found[label].n_reference for found in by_label if label in found)
        row = [label, f"{n_words:,}"]
        for found in by_label:
            group = found.get(label)
            row += [f"{group.recall:.1%}", f"{group.precision:.1%}"] if group else [_NO_VALUE] * 2
        rows.append(row)
    return [header, *rows]


def _matches(analysis: Analysis) -> list[Row]:
    found = [system.matches for system in analysis.systems]
    matches = [each for each in found if each is not None]
    if not matches:
        return []
    return [
        _header("", analysis),
        ["sources", *(f"{each.n_sources:,}" for each in matches)],
        ["references", *(f"{each.n_references:,}" for each in matches)],
        ["outputs", *(f"{each.n_outputs:,}" for each in matches)],
    ]


def _decoding(evaluation: Evaluation) -> list[Row]:
    decodings = [system.decoding for system in evaluation.systems]
    if not any(decodings):
        return []

    def cells(text: Callable[[Decoding], str]) -> list[str]:
        return [text(decoding) if decoding else _NO_VALUE for decoding in decodings]

    return [
        ["", *(system.name for system in evaluation.systems)],
        ["lines per second", *cells(lambda d: f"{d.lines_per_second:,.1f}")],
        ["CPU seconds", *cells(lambda d: f"{d.cpu_seconds:.1f}")],
        ["peak memory", *cells(lambda d: format_size(d.memory_bytes))],
        ["size of the weights", *cells(lambda d: format_size(d.model_bytes))],
    ]


def _differences(evaluation: Evaluation, differences: LargestDifferences) -> list[str]:
    systems = {system.name: system for system in evaluation.systems}
    scores = {system.name: system.sentences for system in evaluation.analysis.systems}
    names = differences.baseline, differences.system
    labels = ["source", "reference", *names]
    width = max(map(len, labels))
    lines: list[str] = []
    for kind, rows in (("better", differences.better), ("worse", differences.worse)):
        if not rows:
            continue
        lines += ["", f"Lines in which {differences.system} is {kind} than {differences.baseline}"]
        for row in rows[:_MAX_SHOWN_DIFFERENCES]:
            before, after = (scores[name][row].scores["chrf"] for name in names)
            lines.append(f"line {row + 1}: chrF {before:.1f}, {after:.1f}")
            test_set = evaluation.test_set
            texts = [
                *([test_set.source[row]] if test_set.source else []),
                test_set.references[0][row],
                *(systems[name].hypotheses[row] for name in names),
            ]
            shown = labels if test_set.source else labels[1:]
            lines += [
                f"  {label:<{width}}  {text}" for label, text in zip(shown, texts, strict=True)
            ]
    return lines[1:]


def _training_lines(training: TrainingInfo | None) -> Iterator[str]:
    if training is None:
        return
    if training.n_pairs is None:
        counted = f"the first {format_count(training.n_counted, 'pair')}"
    elif training.n_counted < training.n_pairs:
        counted = f"a sample of {training.n_counted:,} of {format_count(training.n_pairs, 'pair')}"
    else:
        counted = format_count(training.n_pairs, "pair")
    yield f"training frequencies: {training.origin}, {counted}"


def _format_table(table: AnalysisTable) -> list[str]:
    """Return the title and the rows as lines; all columns but the first are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*table.rows, strict=True)]
    lines = [table.title]
    for first, *others in table.rows:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines
