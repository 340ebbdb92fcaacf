"""XLIFF 1.2 and 2.0: an exchange format for translation tools."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from xml.etree.ElementTree import Element

from mtcli.data.formats.base import (
    CorpusFormat,
    Languages,
    Location,
    OpenedCorpus,
    Row,
    join_lines,
)
from mtcli.data.formats.languages import match_language
from mtcli.data.formats.xml import (
    child,
    inline_text,
    line_of,
    local_name,
    read_elements,
    root_name,
)
from mtcli.errors import DataError


class XliffFormat(CorpusFormat):
    """An XLIFF file. Reads `trans-unit` elements (version 1.2) and `segment` elements (2.0)."""

    name = "xliff"
    suffixes = (".xlf", ".xliff", ".sdlxliff", ".mxliff")

    def recognizes(self, location: Location, head: bytes) -> bool:
        """Return whether the root element is `xliff`."""
        del location
        return root_name(head) == "xliff"

    def open(self, location: Location) -> OpenedCorpus:
        """Open the file and check its languages."""
        start = _read_start(location.head_location())
        _check_languages(start, location)
        return OpenedCorpus(
            rows=_rows(location),
            descriptions=(
                location.describe(
                    f"XLIFF {start.version}", f"{start.source or '?'} to {start.target or '?'}"
                ),
            ),
            languages=Languages(
                location.languages.source or start.source or None,
                location.languages.target or start.target or None,
            ),
            files=location.files,
        )


@dataclass(frozen=True)
class _Start:
    """Version and languages of a file, and the line that specifies the languages."""

    version: str = ""
    source: str = ""
    target: str = ""
    line: int = 1


def _read_start(location: Location) -> _Start:
    start = _Start()
    for element in islice(read_elements(location, starts={"xliff", "file"}, ends=()), 2):
        if local_name(element) == "xliff":
            start = _Start(element.get("version", ""))
        start = _languages(element, start)
    return start


def _languages(element: Element, before: _Start) -> _Start:
    """Return `before`, updated with the languages that `element` specifies."""
    source = element.get("source-language") or element.get("srcLang")
    target = element.get("target-language") or element.get("trgLang")
    if not (source or target):
        return before
    return _Start(
        before.version, source or before.source, target or before.target, line_of(element)
    )


def _check_languages(start: _Start, location: Location) -> None:
    languages = location.languages
    for wanted, found in ((languages.source, start.source), (languages.target, start.target)):
        if wanted and found and not match_language(wanted, [found]):
            raise DataError(
                f"{location}, line {start.line:,}: the file translates {start.source} to "
                f"{start.target or '?'}, not {languages.source or '?'} to "
                f"{languages.target or '?'}",
                hint="set --source-lang and --target-lang to its languages, or omit the file",
            )


def _rows(location: Location) -> Iterator[Row]:
    start = _Start()
    n_units = 0
    for element in read_elements(
        location, starts={"xliff", "file"}, ends={"trans-unit", "segment"}
    ):
        if local_name(element) in ("xliff", "file"):
            start = _languages(element, start)
            _check_languages(start, location)  # each `file` element can specify different languages
            continue
        n_units += 1
        yield (
            join_lines(inline_text(child(element, "source"))),
            join_lines(inline_text(child(element, "target"))),
        )
    if not n_units:
        raise DataError(f"{location} has no translation units", hint="export the file again")
