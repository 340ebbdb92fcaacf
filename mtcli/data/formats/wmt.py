"""WMT test sets: XML files, and pairs of SGML files."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree.ElementTree import Element

from mtcli.counts import format_count
from mtcli.data.compression import strip_compression_suffix
from mtcli.data.formats.base import (
    CorpusFormat,
    Languages,
    Location,
    OpenedCorpus,
    ReadProgress,
    Row,
    join_lines,
)
from mtcli.data.formats.languages import is_language_code, match_language
from mtcli.data.formats.xml import line_of, local_name, read_elements, root_name
from mtcli.errors import DataError

SGML_SUFFIXES = (".sgm", ".sgml")
_SGML_ROOTS = ("srcset", "refset", "tstset", "doc", "mteval")
_TAG = re.compile(r"<(srcset|refset|doc|seg)\b([^>]*)>", re.IGNORECASE)
_SEG_END = re.compile(r"</seg\s*>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"(\w+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
_ENTITY = re.compile(r"&(?:(amp|lt|gt|quot|apos)|#(\d{1,7})|#[xX]([0-9A-Fa-f]{1,6}));")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_SOURCE_NAME = re.compile(r"(.*)src\.([^.]+)\.sgml?", re.IGNORECASE | re.DOTALL)

_Segments = dict[tuple[str, str], str]  # texts by document id and segment id


@dataclass(frozen=True)
class WmtTestSet:
    """A WMT test set: source lines, references by name, and the document id of each line."""

    source: list[str]
    references: dict[str, list[str]]
    documents: list[str]
    languages: Languages = Languages()
    files: tuple[Path, ...] = ()


class WmtFormat(CorpusFormat):
    """A WMT test set: one XML file, or two SGML files (source and reference).

    The selection lists translators in an XML file, or names the reference file of an SGML source.
    """

    name = "wmt"
    suffixes = SGML_SUFFIXES

    def recognizes(self, location: Location, head: bytes) -> bool:
        """Return whether the root element belongs to a WMT test set."""
        del location
        root = root_name(head)
        return root in _SGML_ROOTS or (root == "dataset" and b"<src" in head and b"<seg" in head)

    def open(self, location: Location) -> OpenedCorpus:
        """Read the test set."""
        return _opened(read_test_set(location), str(location))


def open_sgml_files(names: Sequence[str], languages: Languages) -> OpenedCorpus:
    """Open SGML files: the source, then one or more references."""
    source, *targets = (Location(name, languages=languages) for name in names)
    label = f"{', '.join(names[:-1])} and {names[-1]}"
    return _opened(_read_sgml_files(source, targets), label)


def _opened(test_set: WmtTestSet, label: str) -> OpenedCorpus:
    kind = "WMT SGML" if len(test_set.files) > 1 else "WMT XML"
    n_documents = len(set(test_set.documents))
    progress = ReadProgress.in_rows(len(test_set.source))
    return OpenedCorpus(
        rows=_rows(test_set, progress),
        descriptions=(
            f"{label}: {kind}, {format_count(len(test_set.source), 'segment')}, "
            f"{format_count(n_documents, 'document')}, "
            f"references: {', '.join(test_set.references)}",
        ),
        languages=test_set.languages,
        files=test_set.files,
        documents=tuple(test_set.documents),
        progress=(progress,),
    )


def _rows(test_set: WmtTestSet, progress: ReadProgress) -> Iterator[Row]:
    for row in zip(test_set.source, *test_set.references.values(), strict=True):
        progress.add(1)
        yield row


def read_test_set(location: Location) -> WmtTestSet:
    """Read a WMT test set in XML or SGML."""
    if root_name(location.head()) in _SGML_ROOTS:
        return _read_sgml_files(location, [_find_reference(location)])
    return _read_xml(location)


def _read_xml(location: Location) -> WmtTestSet:
    languages = location.languages
    documents: list[str] = []
    source: list[str] = []
    references: dict[str, list[str]] = {}
    for number, doc in enumerate(read_elements(location, starts=(), ends={"doc"})):
        segments = _side(doc, "src", languages.source, location)
        by_name = {
            _translator(item): _segments(item)
            for item in _language_children(doc, "ref", languages.target)
            if not location.selection or _translator(item) in location.selection
        }
        languages = _complete(languages, doc)
        if number and set(by_name) != set(references) or not by_name:
            raise _wrong_references(location, doc, list(by_name), list(references))
        for name, lines in by_name.items():
            if list(lines) != list(segments):
                raise _unmatched(f"{location}, line {line_of(doc):,}", doc.get("id", ""), name)
            references.setdefault(name, []).extend(lines.values())
        source.extend(segments.values())
        documents.extend([doc.get("id", "")] * len(segments))
    if not source:
        raise DataError(f"{location} has no segments", hint="use a WMT test set in XML")
    order = location.selection or tuple(references)
    references = {name: references[name] for name in order}
    return WmtTestSet(source, references, documents, languages, location.files)


def _translator(reference: Element) -> str:
    return reference.get("translator") or "ref"


def _complete(languages: Languages, doc: Element) -> Languages:
    """Return `languages`, with unknown codes filled in from a document."""
    codes = {local_name(item): item.get("lang") for item in reversed(doc)}
    return Languages(languages.source or codes.get("src"), languages.target or codes.get("ref"))


def _language_children(doc: Element, name: str, language: str | None) -> list[Element]:
    return [
        item
        for item in doc
        if local_name(item) == name
        and (
            not language or not item.get("lang") or match_language(language, [item.get("lang", "")])
        )
    ]


def _side(doc: Element, name: str, language: str | None, location: Location) -> dict[str, str]:
    found = _language_children(doc, name, language)
    if not found:
        codes = [f"{local_name(item)} {item.get('lang')}" for item in doc]
        raise DataError(
            f"{location}, line {line_of(doc):,}: the document {doc.get('id', '')} has no {name} in "
            f"{language or 'any language'}; it has {', '.join(codes) or 'no texts'}",
            hint="set --source-lang and --target-lang to languages in the test set",
        )
    return _segments(found[0])


def _segments(side: Element) -> dict[str, str]:
    return {
        seg.get("id", str(number)): join_lines("".join(seg.itertext()).strip())
        for number, seg in enumerate(item for item in side.iter() if local_name(item) == "seg")
    }


def _wrong_references(
    location: Location, doc: Element, names: Sequence[str], before: Sequence[str]
) -> DataError:
    expected = ", ".join(before or location.selection) or "at least one"
    common = [name for name in names if name in before] or list(names) or ["A"]
    return DataError(
        f"{location}, line {line_of(doc):,}: the document {doc.get('id', '')} has references: "
        f"{', '.join(names) or 'none'}; required: {expected}",
        hint=f"select references that all documents have: wmt:{location.name}#{common[0]}",
    )


def _unmatched(where: str, document: str, name: str) -> DataError:
    return DataError(
        f"{where}: in the document {document}, the source and {name} have different segments",
        hint="use the source and the reference from the same test set",
    )


def _find_reference(location: Location) -> Location:
    """Return the reference of an SGML source: the selected file, or one in the same directory."""
    directory = location.path.parent
    if location.selection:
        name = location.selection[0]
        path = Path(name) if Path(name).is_file() else directory / name
        return replace(location, name=str(path), selection=())
    match = _SOURCE_NAME.fullmatch(strip_compression_suffix(location.path.name))
    found = []
    if match and not location.opener:
        pattern = re.compile(rf"{re.escape(match[1])}ref\.([^.]+)\.sgml?(\..*)?", re.IGNORECASE)
        for path in sorted(directory.iterdir()):
            file = pattern.fullmatch(path.name)
            target = location.languages.target
            if file and file[1] != match[2] and (not target or match_language(target, [file[1]])):
                found.append(path)
    if len(found) != 1:
        listed = f" ({', '.join(path.name for path in found)})" if found else ""
        raise DataError(
            f"{location}: found {len(found)} reference files in its directory{listed}, expected 1",
            hint=f"specify the reference: wmt:{location.name}#REFERENCE.sgm",
        )
    return replace(location, name=str(found[0]))


def _read_sgml_files(source: Location, targets: Sequence[Location]) -> WmtTestSet:
    segments, source_language = _read_sgml(source)
    references: dict[str, list[str]] = {}
    languages = source.languages
    for target in targets:
        target_segments, target_language = _read_sgml(target)
        _check_same_segments((source, segments), (target, target_segments))
        name = "ref" if len(targets) == 1 else target.name
        references[name] = [target_segments[key] for key in segments]
        languages = Languages(
            languages.source or source_language, languages.target or target_language
        )
    return WmtTestSet(
        list(segments.values()),
        references,
        [document for document, _ in segments],
        languages,
        tuple(file for location in (source, *targets) for file in location.files),
    )


def _check_same_segments(
    source: tuple[Location, _Segments], target: tuple[Location, _Segments]
) -> None:
    """Raise `DataError` if a segment in one file is missing from the other."""
    for (_, expected), (where, found) in ((source, target), (target, source)):
        missing = next((key for key in expected if key not in found), None)
        if missing:
            raise DataError(
                f"{where}: no segment {missing[1]} of the document {missing[0]}",
                hint="use the source and the reference from the same test set",
            )


def _read_sgml(location: Location) -> tuple[_Segments, str | None]:
    """Return the segments and the language of an SGML file."""
    text = "\n".join(location.lines())
    segments: _Segments = {}
    document, language = "", _name_language(location)
    position = 0
    while tag := _TAG.search(text, position):
        position = tag.end()
        attributes = _attributes(tag[2])
        match tag[1].lower():
            case "srcset" | "refset":
                stated = attributes.get("srclang" if tag[1].lower() == "srcset" else "trglang", "")
                language = stated if is_language_code(stated) and stated != "any" else language
            case "doc":
                document = attributes.get("docid", "")
            case _:
                end = _SEG_END.search(text, position)
                key = document, attributes.get("id", str(len(segments)))
                if not end or key in segments:
                    number = text.count("\n", 0, position) + 1
                    problem = "occurs twice" if end else "has no end tag"
                    raise DataError(
                        f"{location}, line {number:,}: the segment {key[1]} of the document "
                        f"{document} {problem}",
                        hint="download the test set again",
                    )
                segments[key] = join_lines(_unescape(text[position : end.start()]).strip())
                position = end.end()  # a tag inside a segment is text
    if not segments:
        raise DataError(f"{location} has no segments", hint="use a WMT test set in SGML")
    return segments, language


def _name_language(location: Location) -> str | None:
    parts = strip_compression_suffix(location.path.name).split(".")
    return parts[-2] if len(parts) > 2 and is_language_code(parts[-2]) else None


def _attributes(text: str) -> dict[str, str]:
    return {m[1].lower(): m[2] or m[3] or m[4] or "" for m in _ATTRIBUTE.finditer(text)}


def _unescape(text: str) -> str:
    """Replace character references; leave a bare & unchanged."""

    def character(match: re.Match[str]) -> str:
        if match[1]:
            return _ENTITIES[match[1]]
        code = int(match[2]) if match[2] else int(match[3], 16)
        is_valid = code < 0x110000 and not 0xD800 <= code < 0xE000
        return chr(code) if is_valid else match[0]

    return _ENTITY.sub(character, text)
