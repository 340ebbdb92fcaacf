"""Write a cleaned copy of a corpus, and a list of the removed and changed lines."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mtcli.data.formats.base import Languages
from mtcli.data.formats.languages import is_language_code
from mtcli.data.quality.analysis import Analysis, OnProgress, analyze
from mtcli.data.quality.check import Check
from mtcli.data.quality.findings import KINDS, FixResult
from mtcli.data.quality.pair_rules import CONTROL
from mtcli.data.quality.segments import Segment
from mtcli.data.quality.stored_pairs import CheckedCorpus, StoredPairs
from mtcli.data.quality.tokens import Array
from mtcli.errors import DataError, UsageError
from mtcli.files import atomic_write
from mtcli.reporting.messages import strip_control

_ROWS_AT_ONCE = 10_000
_MARGIN = 2  # lines to remove before and after a boundary, whose position is not exact
_CHANGED = "control"  # the only kind of finding for which lines are changed, not removed


@dataclass(frozen=True)
class _Selection:
    """Rows of the original corpus that form the pairs of the cleaned corpus."""

    sources: Array
    targets: Array


@dataclass(frozen=True)
class Removal:
    """Rows of a removed or changed pair, or of a removed line, and the reason."""

    source: int | None
    target: int | None
    reason: str

    @property
    def row(self) -> int:
        """Row by which the list is sorted."""
        row = self.target if self.source is None else self.source
        assert row is not None
        return row


def output_files(out: Path, languages: Languages) -> tuple[Path, Path, Path]:
    """Return the paths of the source, the target and the list of removed lines.

    Raise an error if `out` is not a file name, or if one of the files exists.
    """
    if out.name in ("", ".."):
        raise UsageError(f"--fix {out} is not a file name", hint="use a name such as cleaned")
    if out.is_dir():
        raise DataError(f"{out} is a directory", hint=f"use a name such as {out / 'cleaned'}")
    source, target = languages.source or "", languages.target or ""
    if not (is_language_code(source) and is_language_code(target)) or source == target:
        source, target = "source", "target"
    files = [out.with_name(f"{out.name}.{end}") for end in (source, target, "removed.tsv")]
    for path in files:
        if path.exists():
            raise DataError(f"{path} already exists", hint="choose another name for --fix")
    return files[0], files[1], files[2]


def fix_corpus(check: Check, out: Path, on_progress: OnProgress) -> FixResult:
    """Write a copy of a checked corpus without the problems that were found.

    Removing pairs changes the statistics of the corpus, so the check is repeated until it finds
    nothing more to remove.
    """
    files = output_files(out, check.corpus.languages)
    original, analysis = check.corpus.pairs, check.analysis
    rows = np.arange(len(original))
    selection = _Selection(rows, rows)
    changed = analysis.rows[_CHANGED]
    removals: list[Removal] = []
    while True:
        smaller, removed = _remove(selection, analysis)
        if not removed and not len(analysis.rows[_CHANGED]):
            break
        selection = smaller
        removals += removed
        if not len(selection.sources):
            raise DataError(
                f"no pairs of {check.corpus.name} are left after cleaning",
                hint="check the corpus and its languages",
            )
        pairs = StoredPairs.of(_cleaned(original, selection))
        analysis = analyze(pairs, check.overlap, on_progress)
    _write(original, selection, files)
    rest = check.corpus.rest
    with atomic_write(files[2]) as path, path.open("w", encoding="utf-8") as file:
        file.write("source_line\ttarget_line\treason\tsource\ttarget\n")
        file.writelines(_table(original, removals, changed))
        file.writelines(_rest_rows(check.corpus))
    n_removed = len(removals) + (len(rest) if rest else 0)
    return FixResult(*files, len(selection.sources), n_removed, len(changed))


def _remove(selection: _Selection, analysis: Analysis) -> tuple[_Selection, list[Removal]]:
    """Return the remaining selection and the removals. If lines are misaligned, only realign."""
    if analysis.misaligned:
        return _realigned(selection, analysis.segments)
    is_kept = np.ones(len(selection.sources), bool)
    removals = []
    for kind in KINDS.values():
        if kind.is_problem and kind.name != _CHANGED and kind.name in analysis.rows:
            rows = analysis.rows[kind.name]
            for i in rows[is_kept[rows]].tolist():
                source, target = int(selection.sources[i]), int(selection.targets[i])
                removals.append(Removal(source, target, kind.name))
            is_kept[rows] = False
    kept = np.flatnonzero(is_kept)
    return _Selection(selection.sources[kept], selection.targets[kept]), removals


def _realigned(
    selection: _Selection, segments: Iterable[Segment]
) -> tuple[_Selection, list[Removal]]:
    """Return the realigned pairs and the removed lines. A line occurs in at most one pair."""
    n_pairs = len(selection.sources)
    sources, targets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    next_target = 0
    for segment in segments:
        if segment.offset is None:
            continue
        start = segment.start + _MARGIN if segment.start else 0
        rows = np.arange(start, segment.end - (_MARGIN if segment.end < n_pairs else 0))
        others = rows + segment.offset
        is_kept = (others >= next_target) & (others < n_pairs)
        if is_kept.any():
            sources.append(rows[is_kept])
            targets.append(others[is_kept])
            next_target = int(others[is_kept][-1]) + 1
    kept = np.concatenate(sources), np.concatenate(targets)
    unused = [np.setdiff1d(np.arange(n_pairs), rows).tolist() for rows in kept]
    removals = [
        *(Removal(int(selection.sources[row]), None, "misaligned") for row in unused[0]),
        *(Removal(None, int(selection.targets[row]), "misaligned") for row in unused[1]),
    ]
    return _Selection(selection.sources[kept[0]], selection.targets[kept[1]]), removals


def _cleaned(pairs: StoredPairs, selection: _Selection) -> Iterator[tuple[str, str]]:
    """Yield the selected pairs without control characters."""
    for start in range(0, len(selection.sources), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        sources = pairs.sources.take(selection.sources[rows])
        targets = pairs.targets.take(selection.targets[rows])
        for source, target in zip(sources, targets, strict=True):
            yield CONTROL.sub("", source), CONTROL.sub("", target)


def _write(pairs: StoredPairs, selection: _Selection, files: tuple[Path, ...]) -> None:
    with (
        atomic_write(files[0]) as source_path,
        atomic_write(files[1]) as target_path,
        source_path.open("w", encoding="utf-8", newline="\n") as sources,
        target_path.open("w", encoding="utf-8", newline="\n") as targets,
    ):
        for source, target in _cleaned(pairs, selection):
            sources.write(f"{source}\n")
            targets.write(f"{target}\n")


def _table(pairs: StoredPairs, removals: Iterable[Removal], changed: Array) -> Iterator[str]:
    """Yield table rows with removed and changed lines, and their line numbers in the original."""
    entries = list(removals)
    removed = {entry.source for entry in entries}
    changes = (Removal(row, row, "characters removed") for row in changed.tolist())
    entries += [change for change in changes if change.source not in removed]
    entries.sort(key=lambda entry: entry.row)
    for start in range(0, len(entries), _ROWS_AT_ONCE):
        yield from _table_rows(pairs, entries[start : start + _ROWS_AT_ONCE])


def _rest_rows(corpus: CheckedCorpus) -> Iterator[str]:
    """Yield table rows with the lines of the longer side after the end of the shorter one."""
    if corpus.rest is None or corpus.n_lines is None:
        return
    is_source = corpus.n_lines[0] > corpus.n_lines[1]
    for number, line in enumerate(corpus.rest, start=len(corpus.pairs) + 1):
        cells = (
            (str(number), "", "unequal", line, "")
            if is_source
            else ("", str(number), "unequal", "", line)
        )
        yield _format_row(cells)


def _table_rows(pairs: StoredPairs, entries: Sequence[Removal]) -> Iterator[str]:
    sides = []
    for lines, rows in (
        (pairs.sources, [entry.source for entry in entries]),
        (pairs.targets, [entry.target for entry in entries]),
    ):
        known = [row for row in rows if row is not None]
        sides.append(dict(zip(known, lines.take(known), strict=True)))
    for entry in entries:
        cells = (
            "" if entry.source is None else str(entry.source + 1),
            "" if entry.target is None else str(entry.target + 1),
            entry.reason,
            "" if entry.source is None else sides[0][entry.source],
            "" if entry.target is None else sides[1][entry.target],
        )
        yield _format_row(cells)


def _format_row(cells: Iterable[str]) -> str:
    return "\t".join(strip_control(cell).replace("\t", " ") for cell in cells) + "\n"
