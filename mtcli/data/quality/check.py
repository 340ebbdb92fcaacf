"""Check a corpus: read it, analyze it and describe the findings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mtcli.counts import format_count
from mtcli.data.formats.base import UNKNOWN_LANGUAGES, Languages
from mtcli.data.quality.analysis import Analysis, OnProgress, analyze
from mtcli.data.quality.findings import KINDS, CheckResult, Example, Finding
from mtcli.data.quality.overlap import OverlapIndex
from mtcli.data.quality.segments import Segment
from mtcli.data.quality.stored_pairs import CheckedCorpus, StoredPairs, read_checked

N_EXAMPLES = 5
_CONTEXT = 2  # lines to show before and after the start of a misaligned passage
_MAX_PASSAGES = 5  # maximum number of misaligned passages with examples


def _ignore(*_: object) -> None:
    """Ignore progress."""


@dataclass(frozen=True)
class Check:
    """A checked corpus, with the data that `fix_corpus` needs to write a cleaned copy."""

    corpus: CheckedCorpus
    overlap: OverlapIndex | None
    analysis: Analysis
    result: CheckResult


def check_corpus(
    names: Sequence[str],
    *,
    against: Sequence[Sequence[str]] = (),
    languages: Languages = UNKNOWN_LANGUAGES,
    on_progress: OnProgress = _ignore,
) -> Check:
    """Read and analyze a corpus, given as one name or two text files; return the results.

    `against` lists test sets whose pairs must not occur in the corpus.
    """
    corpus = read_checked(names, languages, lambda n: on_progress("reading", n, None))
    overlap = read_test_sets(against, corpus.languages)
    analysis = analyze(corpus.pairs, overlap, on_progress)
    return Check(corpus, overlap, analysis, describe(corpus, analysis))


def read_test_sets(against: Sequence[Sequence[str]], languages: Languages) -> OverlapIndex | None:
    """Return an index of all pairs in the test sets, or None if there are no test sets."""
    if not against:
        return None
    rows = [row for names in against for row in read_checked(names, languages).pairs.rows()]
    return OverlapIndex(rows)


def describe(corpus: CheckedCorpus, analysis: Analysis) -> CheckResult:
    """Return the statistics, findings and worst pairs of an analyzed corpus."""
    findings = [
        *_corpus_findings(corpus),
        *_misaligned(corpus.pairs, analysis.misaligned),
        *_row_findings(corpus.pairs, analysis),
    ]
    skipped = []
    if not analysis.segments:
        skipped.append("alignment: the corpus has too few pairs to learn word associations")
    return CheckResult(
        corpus=corpus.name,
        source_lang=corpus.languages.source,
        target_lang=corpus.languages.target,
        n_pairs=len(corpus.pairs),
        source=analysis.lengths[0],
        target=analysis.lengths[1],
        findings=tuple(sorted(findings, key=lambda finding: -finding.importance)),
        worst=tuple(
            Example.of(row, corpus.pairs.pair(row), f"score {score:.1f}")
            for row, score in analysis.worst
        ),
        skipped=tuple(skipped),
    )


def _corpus_findings(corpus: CheckedCorpus) -> Iterator[Finding]:
    """Yield findings about whole files."""
    if corpus.n_lines:
        source, target = corpus.n_lines
        detail = f"{format_count(source, 'source line')}, {format_count(target, 'target line')}"
        yield Finding("unequal", abs(source - target), details=(detail,))
    with_mark = [marks.name for marks in corpus.marks if marks.has_byte_order_mark]
    if with_mark:
        yield Finding("byte_order_mark", len(with_mark), details=tuple(with_mark))
    with_crlf = [
        f"{marks.name}: {format_count(marks.n_crlf, 'line')}"
        for marks in corpus.marks
        if marks.n_crlf
    ]
    if with_crlf:
        yield Finding("crlf", len(with_crlf), details=tuple(with_crlf))


def _misaligned(pairs: StoredPairs, segments: Sequence[Segment]) -> Iterator[Finding]:
    if not segments:
        return
    examples = []
    for segment in segments[:_MAX_PASSAGES]:
        first = max(0, segment.start - _CONTEXT)
        last = min(len(pairs), segment.start + _CONTEXT + 1)
        for row in range(first, last):
            detail = "first misaligned line" if row == segment.start else ""
            examples.append(Example.of(row, pairs.pair(row), detail))
    count = sum(segment.end - segment.start for segment in segments)
    details = tuple(_describe_segment(segment, len(pairs)) for segment in segments)
    yield Finding("misaligned", count, tuple(examples), details)


def _describe_segment(segment: Segment, n_pairs: int) -> str:
    """Return a line that describes a misaligned passage and locates its translations."""
    place = f"lines {segment.start + 1:,} to {segment.end:,}"
    if segment.end == n_pairs:
        place = f"from line {segment.start + 1:,} to the end"
    if segment.offset is None:
        return f"{place}: no translation near these lines"
    distance = format_count(abs(segment.offset), "line")
    direction = "later" if segment.offset > 0 else "earlier"
    missing = "source" if segment.offset > 0 else "target"
    return (
        f"{place}: the translations are {distance} {direction}; "
        f"{missing} text may be missing before line {segment.start + 1:,}"
    )


def _row_findings(pairs: StoredPairs, analysis: Analysis) -> Iterator[Finding]:
    """Yield findings about individual pairs."""
    for kind in KINDS:
        rows = analysis.rows.get(kind, ())
        if len(rows):
            chosen = [int(row) for row in rows[:N_EXAMPLES]]
            examples = tuple(Example.of(row, pairs.pair(row)) for row in chosen)
            yield Finding(kind, len(rows), examples)
