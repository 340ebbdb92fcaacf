"""Tables: TSV without quoting, and CSV."""

import csv
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mtcli.counts import format_count
from mtcli.data.formats.base import (
    CorpusFormat,
    Location,
    OpenedCorpus,
    Row,
    head_lines,
    join_lines,
)
from mtcli.data.formats.fields import FieldChoice, check_two, named_pair, unclear_fields
from mtcli.data.formats.languages import choose_languages, is_language_code, languages_from_names
from mtcli.errors import DataError

_MAX_FIELD = 64 << 20  # characters; limits how far an unclosed quote is read
_N_EXAMINED = 20  # lines that must have the same number of tabs
_MAX_LISTED = 40  # characters per cell in messages

Cells = Iterator[tuple[int, list[str]]]  # first line number and cells of each record


@dataclass(frozen=True)
class _Columns:
    """The columns to read."""

    source: int
    target: int
    label: str
    has_header: bool = False
    n_exact: int | None = None  # columns that every row must have; None: more are allowed


class _TableFormat(CorpusFormat):
    """Base class for the table formats."""

    @abstractmethod
    def _records(self, lines: Iterable[str], location: Location, delimiter: str) -> Cells:
        """Yield the records of a table."""

    def _delimiter(self, first_line: str) -> str:
        del first_line
        return "\t"

    def open(self, location: Location) -> OpenedCorpus:
        """Open a table and choose its columns based on the first record."""
        lines = head_lines(location.head(), location)
        delimiter = self._delimiter(lines[0])
        _, cells = next(self._records(lines, location, delimiter), (1, []))
        columns = _choose_columns([cell.strip() for cell in cells], location)
        names = columns.label.split(" and ") if columns.has_header else []
        return OpenedCorpus(
            rows=_rows(self._records(location.lines(), location, delimiter), location, columns),
            descriptions=(location.describe(self.name.upper(), f"columns {columns.label}"),),
            languages=languages_from_names([*names, "", ""], location.languages),
            files=location.files,
        )


class TsvFormat(_TableFormat):
    """Tab-separated text without quoting: all characters except tab and LF are text."""

    name = "tsv"
    suffixes = (".tsv",)

    def recognizes(self, location: Location, head: bytes) -> bool:
        """Return whether each of the first lines has the same number of tabs, at least one."""
        del location
        lines = head.split(b"\n")[:_N_EXAMINED]
        complete = lines[:-1] if len(lines) > 1 else lines
        n_tabs = {line.count(b"\t") for line in complete}
        return len(n_tabs) == 1 and n_tabs != {0} and b"\0" not in head[:1000]

    def _records(self, lines: Iterable[str], location: Location, delimiter: str) -> Cells:
        del location
        for number, line in enumerate(lines, start=1):
            yield number, line.split(delimiter)


class CsvFormat(_TableFormat):
    """CSV with standard quoting; the delimiter is a comma, a semicolon or a tab."""

    name = "csv"
    suffixes = (".csv",)

    def _delimiter(self, first_line: str) -> str:
        """Return the delimiter that occurs most often outside quotes in the first line."""
        unquoted = "".join(first_line.split('"')[::2])
        return max(",;\t", key=unquoted.count)

    def _records(self, lines: Iterable[str], location: Location, delimiter: str) -> Cells:
        csv.field_size_limit(_MAX_FIELD)
        reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
        number = 1
        try:
            for cells in reader:
                if cells:  # blank lines are not records
                    yield number, cells
                number = reader.line_num + 1
        except csv.Error as error:
            raise DataError(
                f"{location}, line {number:,}: not valid CSV ({error})",
                hint="double the quotes inside quoted fields, or use tsv:, which has no quoting",
            ) from error


def _choose_columns(cells: Sequence[str], location: Location) -> _Columns:
    choice = _header_choice(cells, location)
    if location.selection and all(name.isdecimal() for name in location.selection):
        numbers = [int(name) for name in location.selection]
        if len(numbers) != 2 or not all(1 <= number <= len(cells) for number in numbers):
            problem = f"cannot select #{','.join(location.selection)}"
            raise _unclear(cells, location, problem)
        source, target = numbers
        return _Columns(source - 1, target - 1, f"{source} and {target}", choice is not None)
    if choice:
        source, target = cells.index(choice.source), cells.index(choice.target)
        return _Columns(source, target, str(choice), has_header=True)
    if len(cells) != 2:
        raise _unclear(cells, location, "cannot determine the columns")
    return _Columns(0, 1, "1 and 2", n_exact=2)


def _header_choice(cells: Sequence[str], location: Location) -> FieldChoice | None:
    """Return the columns chosen by name, or None if the first record is not a header."""
    if location.selection and not all(name.isdecimal() for name in location.selection):
        missing = [name for name in check_two(location) if name not in cells]
        if missing:
            raise _unclear(cells, location, f"no column {missing[0]} in the first line")
        return FieldChoice(*check_two(location))
    languages = location.languages
    if languages.source and languages.target:
        codes = [cell for cell in cells if is_language_code(cell)]
        if pair := choose_languages(codes, languages):
            return FieldChoice(*pair)
    elif len(cells) == 2 and all(map(is_language_code, cells)):
        pair = choose_languages(cells, languages)
        return FieldChoice(*pair) if pair else None
    return named_pair(cells)


def _unclear(cells: Sequence[str], location: Location, problem: str) -> DataError:
    if len(cells) < 2:
        return DataError(
            f"{location}, line 1: only one column, but a source and a target column are required",
            hint="check the delimiter, or pass two text files: SOURCE TARGET",
        )
    listed = [f"{i} ({cell[:_MAX_LISTED]})" for i, cell in enumerate(cells, start=1)]
    error = unclear_fields(listed, location, problem)
    error.hint = f"select source and target by number or name: {location.name}#1,2"
    return error


def _rows(records: Cells, location: Location, columns: _Columns) -> Iterator[Row]:
    source, target, n_exact = columns.source, columns.target, columns.n_exact
    n_needed = max(source, target) + 1
    if columns.has_header:
        next(records, None)
    for number, cells in records:
        if len(cells) < n_needed or (n_exact and len(cells) != n_exact):
            needed = f"exactly {n_exact}" if n_exact else f"at least {n_needed}"
            found = format_count(len(cells), "column")
            raise DataError(
                f"{location}, line {number:,}: {found}, but {needed} are required",
                hint=f"correct the line, or select columns: {location.name}#1,2",
            )
        yield join_lines(cells[source]), join_lines(cells[target])
