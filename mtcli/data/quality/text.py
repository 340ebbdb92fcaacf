"""Format the result of a check as text for the terminal."""

from collections.abc import Iterator

from mtcli.counts import format_count
from mtcli.data.quality.findings import (
    CheckResult,
    Example,
    Finding,
    FixResult,
    LengthStats,
    length_class_labels,
)

_BAR_WIDTH = 24
_BLOCKS = " ▏▎▍▌▋▊▉█"


def format_result(result: CheckResult) -> str:
    """Return the result as text."""
    return "\n".join(_lines(result))


def _lines(result: CheckResult) -> Iterator[str]:
    languages = f" ({result.source_lang or '?'} to {result.target_lang or '?'})"
    has_languages = result.source_lang or result.target_lang
    pairs = format_count(result.n_pairs, "pair")
    yield f"{result.corpus}: {pairs}{languages if has_languages else ''}"
    for name, stats in (("source", result.source), ("target", result.target)):
        yield (
            f"{name} lines: mean {stats.mean:.1f} characters, median {stats.median:,}, "
            f"longest {stats.longest:,}"
        )
    yield ""
    yield from _histogram(result.source, result.target)
    for finding in result.findings:
        yield ""
        yield from _finding(finding)
    if result.worst:
        yield ""
        yield f"worst pairs: {len(result.worst)} with very low alignment scores"
        yield "  Review them: they are probably not translations. --fix keeps them."
        for example in result.worst:
            yield from _example(example)
    for text in result.skipped:
        yield ""
        yield f"not checked: {text}"
    yield ""
    yield summary(result)


def format_fix(result: FixResult) -> str:
    """Return one line that describes a cleaned corpus."""
    return (
        f"{result.source} and {result.target}: {format_count(result.n_kept, 'pair')}; "
        f"{result.removed} lists {result.n_removed:,} removed lines or pairs and "
        f"{format_count(result.n_changed, 'changed pair')}"
    )


def summary(result: CheckResult) -> str:
    """Return one line with the number of problems and notes."""
    n_problems = len(result.problems)
    n_notes = len(result.findings) - n_problems
    problems = f"{n_problems} kinds of problems" if n_problems != 1 else "1 kind of problem"
    notes = f", {format_count(n_notes, 'note')}" if n_notes else ""
    return f"{problems if n_problems else 'no problems'} found{notes}"


def _histogram(source: LengthStats, target: LengthStats) -> Iterator[str]:
    """Yield one line per length class; skip empty classes at both ends."""
    rows = list(zip(length_class_labels(), source.histogram, target.histogram, strict=True))
    used = [i for i, (_, first, second) in enumerate(rows) if first or second]
    if not used:
        return
    rows = rows[used[0] : used[-1] + 1]
    most = max(max(first, second) for _, first, second in rows)
    width = len(f"{most:,}")
    yield f"{'characters':>10}  {'source lines':<{width + _BAR_WIDTH + 2}}  target lines"
    for label, first, second in rows:
        cells = (f"{n:>{width},} {_bar(n / most):<{_BAR_WIDTH + 1}}" for n in (first, second))
        yield f"{label:>10}  {'  '.join(cells)}".rstrip()


def _bar(share: float) -> str:
    eighths = round(share * _BAR_WIDTH * 8)
    return _BLOCKS[8] * (eighths // 8) + _BLOCKS[eighths % 8].strip()


def _finding(finding: Finding) -> Iterator[str]:
    level = "problem" if finding.is_problem else "note"
    yield f"{level}: {finding.title} [{finding.kind}]"
    yield f"  {finding.advice}"
    for detail in finding.details:
        yield f"  {detail}"
    for example in finding.examples:
        yield from _example(example)


def _example(example: Example) -> Iterator[str]:
    detail = f"  ({example.detail})" if example.detail else ""
    yield f"  line {example.line:,}{detail}"
    yield f"    {example.source}"
    yield f"    {example.target}"
