"""TMX: translation memories."""

from collections.abc import Iterator
from dataclasses import dataclass, field
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
from mtcli.data.formats.languages import choose_languages, match_language
from mtcli.data.formats.xml import (
    child,
    inline_text,
    language_of,
    line_of,
    local_name,
    read_elements,
    root_name,
)
from mtcli.errors import DataError

_N_EXAMINED = 1000  # at least one of the first 1000 units must have both languages
_ANY_LANGUAGE = "*all*"  # `srclang` in a translation memory without a source language


class TmxFormat(CorpusFormat):
    """TMX 1.4. A language code without a region also matches its regional variants."""

    name = "tmx"
    suffixes = (".tmx",)

    def recognizes(self, location: Location, head: bytes) -> bool:
        """Return whether the root element is `tmx`."""
        del location
        return root_name(head) == "tmx"

    def open(self, location: Location) -> OpenedCorpus:
        """Open the file and find its languages in the header and the first unit."""
        start = _read_start(location.head_location())
        languages = _choose(start, location)
        label = f"{start.variant(languages.source)} to {start.variant(languages.target)}"
        return OpenedCorpus(
            rows=_rows(location, languages),
            descriptions=(location.describe("TMX", label),),
            languages=languages,
            files=location.files,
        )


@dataclass
class _Start:
    """Languages found at the start of a file."""

    srclang: str = ""
    codes: list[str] = field(default_factory=list)  # languages of the first unit

    def variant(self, code: str | None) -> str:
        """Return the code in the first unit that matches `code`, or `code` if none does."""
        return match_language(code or "", self.codes) or code or ""


def _read_start(location: Location) -> _Start:
    start = _Start()
    for element in islice(read_elements(location, starts={"header"}, ends={"tu"}), 2):
        if local_name(element) == "header":
            srclang = element.get("srclang", "")
            start.srclang = "" if srclang.lower() == _ANY_LANGUAGE else srclang
        else:
            start.codes = list(_variants(element))
            break
    return start


def _choose(start: _Start, location: Location) -> Languages:
    """Return the languages to read, with unknown ones taken from the header and the first unit."""
    languages = location.languages
    if languages.source and languages.target:
        return languages
    known = languages
    if known == Languages():
        known = Languages(start.srclang or None)
    pair = choose_languages(start.codes, known)
    if pair and known != Languages():
        return Languages(languages.source or pair[0], languages.target or pair[1])
    raise DataError(
        f"{location}: cannot determine the languages; the first unit has "
        f"{', '.join(start.codes) or 'no languages'}",
        hint="set --source-lang and --target-lang, for example en and de",
    )


def _variants(unit: Element) -> dict[str, Element]:
    """Return the first variant of a unit in each language, by language code."""
    variants: dict[str, Element] = {}
    for item in unit:
        if local_name(item) == "tuv":
            variants.setdefault(language_of(item), item)
    return variants


def _rows(location: Location, languages: Languages) -> Iterator[Row]:
    assert languages.source
    assert languages.target
    has_complete = False
    found: dict[str, None] = {}
    number = line = 0
    units = read_elements(location, starts=(), ends={"tu"})
    for number, unit in enumerate(units, start=1):
        line = line_of(unit)
        variants = _variants(unit)
        codes = list(variants)
        sides = [match_language(code, codes) for code in (languages.source, languages.target)]
        if not has_complete:
            has_complete = None not in sides
            found.update(dict.fromkeys(codes))
            if not has_complete and number >= _N_EXAMINED:
                raise _incomplete(location, languages, list(found), line)
        source, target = (
            join_lines(inline_text(child(variants[code], "seg"))) if code is not None else ""
            for code in sides
        )
        yield source, target
    if not has_complete:
        raise _incomplete(location, languages, list(found), line)


def _incomplete(location: Location, languages: Languages, found: list[str], line: int) -> DataError:
    return DataError(
        f"{location}, line {line:,}: no unit so far has both {languages.source} and "
        f"{languages.target}; found: {', '.join(found) or 'no languages'}",
        hint="set --source-lang and --target-lang to two of the languages found",
    )
