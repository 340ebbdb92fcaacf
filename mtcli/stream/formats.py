"""What a line holds on its way in, and what on its way out: text, tsv or jsonl."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mtcli.errors import DataError
from mtcli.translation import Request, Translation

_NOTHING = Translation("", 0.0)
_WARNINGS = "warnings"


@dataclass(frozen=True)
class Line:
    """A line that was read: what is to be translated, and what goes with it."""

    request: Request
    is_valid: bool = True  # was UTF-8; else U+FFFD stands for the bytes that made no sense
    fields: dict[str, Any] | None = None  # of jsonl
    columns: Sequence[str] = ()  # of tsv, those that are passed on


@dataclass(frozen=True)
class Formats:
    """How lines are read and written."""

    input: str = "text"
    output: str = "text"
    field: str = "text"  # of jsonl: what is to be translated
    has_prefix: bool = False  # the second column, or the field `prefix`
    is_strict: bool = False  # what is not UTF-8 is an error
    with_scores: bool = False
    with_alignment: bool = False
    n_best: int = 1

    def read(self, raw: bytes, place: str) -> Line:
        """The line that `raw` is; `place` says where, if it is wrong."""
        text, is_valid = self._decoded(raw, place)
        if self.input == "jsonl":
            return self._read_json(text, is_valid, place)
        if self.input == "tsv":
            source, *others = text.split("\t")
            prefix = others.pop(0) if self.has_prefix and others else ""
            return Line(Request(source, prefix), is_valid, columns=others)
        return Line(Request(text), is_valid)

    def written(self, line: Line, candidates: Sequence[Translation]) -> str:
        """The one line that tells what `line` has become."""
        if self.output == "text":
            return candidates[0].text
        if self.output == "tsv":
            # As many columns in every row, so that those passed on stay in their place.
            missing = [_NOTHING] * (self.n_best - len(candidates))
            cells = [cell for each in (*candidates, *missing) for cell in self._cells(each)]
            return "\t".join([*cells, *line.columns])
        if line.fields is None and self.input == "jsonl":
            return ""  # a blank line stays blank
        given = {"text": line.request.text} if line.fields is None else line.fields
        # Warnings of an earlier translation are not about this one.
        passed_on = {name: value for name, value in given.items() if name != _WARNINGS}
        return _json({**passed_on, **self._told(line, candidates)})

    def _decoded(self, raw: bytes, place: str) -> tuple[str, bool]:
        try:
            return raw.decode(), True
        except UnicodeDecodeError as error:
            if self.is_strict:
                raise DataError(
                    f"{place}: not valid UTF-8 ({error.reason}, byte {error.start + 1})",
                    hint="convert it with iconv, or leave out --strict to have it replaced",
                ) from error
            return raw.decode(errors="replace"), False

    def _read_json(self, text: str, is_valid: bool, place: str) -> Line:
        if not text.strip():
            return Line(Request(""), is_valid)
        try:
            fields = json.loads(text, parse_float=_finite, parse_constant=_finite)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{place}: not JSON ({error})", hint="each line is to be one JSON object"
            ) from error
        if not isinstance(fields, dict) or self.field not in fields:
            raise DataError(
                f"{place}: no object with the field {self.field!r}",
                hint="--field names the field to translate",
            )
        prefix = fields.get("prefix") if self.has_prefix else ""
        source = fields[self.field]
        for name, value in ((self.field, source), ("prefix", prefix or "")):
            if not isinstance(value, str):
                raise DataError(f"{place}: {name!r} is not a string", hint="it has to be text")
        return Line(Request(source, prefix or ""), is_valid, fields)

    def _cells(self, candidate: Translation) -> Iterator[str]:
        yield candidate.text.replace("\t", " ")
        if self.with_scores:
            yield f"{candidate.score:.4f}"
        if self.with_alignment:
            yield _links(candidate)

    def _told(self, line: Line, candidates: Sequence[Translation]) -> dict[str, Any]:
        told = self._facts(candidates[0])
        if self.n_best > 1:
            told["candidates"] = [self._facts(candidate) for candidate in candidates]
        if warnings := list(_warnings(line, candidates[0])):
            told[_WARNINGS] = warnings
        return told

    def _facts(self, candidate: Translation) -> dict[str, Any]:
        facts: dict[str, Any] = {"translation": candidate.text}
        if self.with_scores:
            facts["score"] = round(candidate.score, 4)
        if self.with_alignment:
            looks = candidate.alignment is not None  # else nobody has watched: null
            facts["alignment"] = _links(candidate) if looks else None
        return facts


def _finite(number: str) -> float:
    """JSON has no infinity; what would become one cannot be passed on."""
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is not a number that JSON knows")
    return value


def _warnings(line: Line, best: Translation) -> Iterator[str]:
    if not line.is_valid:
        yield "invalid-utf8"
    if best.n_parts > 1:
        yield "split"
    if best.is_cut:
        yield "truncated"
    if best.is_runaway:
        yield "repetition"


def _links(candidate: Translation) -> str:
    return " ".join(f"{i}-{j}" for i, j in candidate.alignment or ())


def _json(value: dict[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair came in as \\udXXX and goes out so
        return json.dumps(value)
    return text
