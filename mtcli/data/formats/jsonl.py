"""JSON Lines: one object per line."""

import json
from collections.abc import Iterator
from typing import Any

from mtcli.data.formats.base import (
    CorpusFormat,
    Location,
    OpenedCorpus,
    Row,
    head_lines,
    join_lines,
)
from mtcli.data.formats.fields import NESTED, FieldChoice, choose_fields
from mtcli.data.formats.languages import languages_from_names
from mtcli.errors import DataError


class JsonlFormat(CorpusFormat):
    """JSON Lines. Source and target are fields of each object or of its field `translation`."""

    name = "jsonl"
    suffixes = (".jsonl", ".ndjson", ".json")

    def recognizes(self, location: Location, head: bytes) -> bool:
        """Return whether the first line is a JSON object."""
        del location
        try:
            return isinstance(json.loads(head.strip().split(b"\n")[0]), dict)
        except (ValueError, RecursionError):
            return False

    def open(self, location: Location) -> OpenedCorpus:
        """Open the file and choose the fields based on the first object."""
        lines = head_lines(location.head(), location)
        numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
        number, line = next(numbered, (1, ""))
        record = _parse(line, location, number)
        nested = record.get(NESTED)
        choice = choose_fields(
            list(record), location, list(nested) if isinstance(nested, dict) else (), kind="field"
        )
        return OpenedCorpus(
            rows=_rows(location, choice),
            descriptions=(location.describe("JSON Lines", f"fields {choice}"),),
            languages=languages_from_names((choice.source, choice.target), location.languages),
            files=location.files,
        )


def _rows(location: Location, choice: FieldChoice) -> Iterator[Row]:
    for number, line in enumerate(location.lines(), start=1):
        if not line.strip():
            continue
        record = _parse(line, location, number)
        if choice.is_nested:
            record = record.get(NESTED)
        source, target = (
            _text(record, name, location, number) for name in (choice.source, choice.target)
        )
        if "\\u" in line:
            _check_unicode(source + target, location, number)
        yield source, target


def _parse(line: str, location: Location, number: int) -> Any:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        if number == 1 and line.lstrip()[:1] in ("[", "{"):
            raise _not_lines(location) from error
        raise DataError(
            f"{location}, line {number:,}: not valid JSON ({error})",
            hint="write one JSON object per line",
        ) from error
    if isinstance(record, dict):
        return record
    if number == 1 and isinstance(record, list):
        raise _not_lines(location)
    raise DataError(
        f"{location}, line {number:,}: not a JSON object", hint="write one JSON object per line"
    )


def _not_lines(location: Location) -> DataError:
    return DataError(
        f"{location}, line 1: expected one JSON object per line",
        hint=f"convert an array: jq -c '.[]' {location.name} > {location.path.stem}-lines.jsonl",
    )


def _text(record: Any, name: str, location: Location, number: int) -> str:
    if not isinstance(record, dict) or name not in record:
        problem = f"no field {name}"
    elif isinstance(value := record[name], str):
        return join_lines(value)
    else:
        problem = f"the field {name} is {json.dumps(value)[:40]}, not text"
    raise DataError(
        f"{location}, line {number:,}: {problem}",
        hint=f"correct the line, or select other fields: {location.name}#SOURCE,TARGET",
    )


def _check_unicode(text: str, location: Location, number: int) -> None:
    """Raise `DataError` for an unpaired surrogate, which JSON can express but UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{location}, line {number:,}: not valid Unicode ({error.reason})",
            hint="remove the incomplete \\u escape",
        ) from error
