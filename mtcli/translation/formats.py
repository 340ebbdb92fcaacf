"""Line formats for input and output: text, tsv and jsonl."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mtcli.config.tags import ModelTags
from mtcli.errors import DataError, EngineError
from mtcli.translation.line_translator import Request, Translation

_EMPTY = Translation("", 0.0)
_WARNINGS = "warnings"


@dataclass(frozen=True)
class Line:
    """A parsed input line: the request, and the fields or columns to pass through."""

    request: Request
    is_valid: bool = True  # False: not valid UTF-8; invalid bytes are replaced with U+FFFD
    fields: dict[str, Any] | None = None  # jsonl: the complete object
    columns: Sequence[str] = ()  # tsv: the columns to pass through


@dataclass(frozen=True)
class Formats:
    """Input and output formats, with options for parsing and formatting lines."""

    input: str = "text"
    output: str = "text"
    field: str = "text"  # jsonl: the field to translate
    has_prefix: bool = False  # the prefix is the second column, or the field `prefix`
    is_strict: bool = False  # raise `DataError` for invalid UTF-8
    with_scores: bool = False
    with_alignment: bool = False
    n_best: int = 1
    tags: ModelTags = ModelTags()  # target languages for the field `to` (jsonl)
    to: str | None = None  # target language of objects without the field `to`

    def parse_line(self, raw: bytes, place: str) -> Line:
        """Parse one input line; errors start with `place`, such as "input.txt, line 7"."""
        text, is_valid = self._decode(raw, place)
        if self.input == "jsonl":
            return self._parse_json(text, is_valid, place)
        if self.input == "tsv":
            source, *columns = text.split("\t")
            prefix = columns.pop(0) if self.has_prefix and columns else ""
            return Line(Request(source, prefix), is_valid, columns=columns)
        return Line(Request(text), is_valid)

    def format_line(self, line: Line, candidates: Sequence[Translation]) -> str:
        """Return the output line for `line` and its n-best list, without a trailing newline."""
        if self.output == "text":
            return candidates[0].text
        if self.output == "tsv":
            # Pad to n_best so that passed-through columns keep their positions.
            missing = [_EMPTY] * (self.n_best - len(candidates))
            cells = [cell for each in (*candidates, *missing) for cell in self._cells(each)]
            return "\t".join([*cells, *line.columns])
        if line.fields is None and self.input == "jsonl":
            return ""  # a blank line stays blank
        fields = {"text": line.request.text} if line.fields is None else line.fields
        # Drop warnings in the input, which come from an earlier translation.
        passed_through = {name: value for name, value in fields.items() if name != _WARNINGS}
        return _to_json({**passed_through, **self._output_fields(line, candidates)})

    def _decode(self, raw: bytes, place: str) -> tuple[str, bool]:
        """Return the text, and whether it was valid UTF-8."""
        try:
            return raw.decode(), True
        except UnicodeDecodeError as error:
            if self.is_strict:
                raise DataError(
                    f"{place}: not valid UTF-8 ({error.reason}, byte {error.start + 1})",
                    hint="convert the input with iconv, or omit --strict to replace invalid bytes",
                ) from error
            return raw.decode(errors="replace"), False

    def _parse_json(self, text: str, is_valid: bool, place: str) -> Line:
        if not text.strip():
            return Line(Request(""), is_valid)
        try:
            fields = json.loads(text, parse_float=_parse_finite, parse_constant=_parse_finite)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{place}: invalid JSON ({error})", hint="write one JSON object per line"
            ) from error
        if not isinstance(fields, dict) or self.field not in fields:
            raise DataError(
                f"{place}: expected a JSON object with the field {self.field!r}",
                hint="specify the field to translate with --field",
            )
        prefix = fields.get("prefix") if self.has_prefix else ""
        source = fields[self.field]
        for name, value in ((self.field, source), ("prefix", prefix or "")):
            if not isinstance(value, str):
                raise DataError(
                    f"{place}: the field {name!r} is not a string",
                    hint="put the value in double quotes",
                )
        return Line(Request(source, prefix or "", to=self._target(fields, place)), is_valid, fields)

    def _target(self, fields: dict[str, Any], place: str) -> str | None:
        """Return the target language of a JSON object; None if the model has only one."""
        if not self.tags.languages:
            return None  # the field `to` is passed through like any other field
        to = fields.get("to", self.to)
        try:
            self.tags.symbols(to)
        except EngineError as error:
            raise DataError(f"{place}: {error.args[0]}", hint=error.hint) from error
        return None if to is None else str(to)

    def _cells(self, candidate: Translation) -> Iterator[str]:
        """Yield the tsv cells of one candidate."""
        yield candidate.text.replace("\t", " ")
        if self.with_scores:
            yield f"{candidate.score:.4f}"
        if self.with_alignment:
            yield format_alignment(candidate)

    def _output_fields(self, line: Line, candidates: Sequence[Translation]) -> dict[str, Any]:
        """Return the jsonl fields of an n-best list."""
        each = [
            translation_to_dict(
                candidate, with_score=self.with_scores, with_alignment=self.with_alignment
            )
            for candidate in candidates
        ]
        fields = {**each[0]}
        if self.n_best > 1:
            fields["candidates"] = each
        if warnings := list(_warnings(line, candidates[0])):
            fields[_WARNINGS] = warnings
        return fields


def translation_to_dict(
    translation: Translation, *, with_score: bool = True, with_alignment: bool = False
) -> dict[str, Any]:
    """Return the jsonl fields of one translation, ready for `json.dumps`.

    The alignment is null if the model has no attention.
    """
    fields: dict[str, Any] = {"translation": translation.text}
    if with_score:
        fields["score"] = round(translation.score, 4)
    if with_alignment:
        has_alignment = translation.alignment is not None
        fields["alignment"] = format_alignment(translation) if has_alignment else None
    return fields


def format_alignment(translation: Translation) -> str:
    """Return the word alignment in Pharaoh format, such as "0-0 1-2" (source-target)."""
    return " ".join(f"{i}-{j}" for i, j in translation.alignment or ())


def _warnings(line: Line, best: Translation) -> Iterator[str]:
    if not line.is_valid:
        yield "invalid-utf8"
    if best.n_parts > 1:
        yield "split"
    if best.is_truncated:
        yield "truncated"
    if best.is_repetitive:
        yield "repetition"


def _parse_finite(number: str) -> float:
    """Parse a number; raise `ValueError` for infinity and NaN, which JSON cannot represent."""
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is not a finite number")
    return value


def _to_json(value: dict[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # an unpaired surrogate from the input: write it as \udXXX again
        return json.dumps(value)
    return text
