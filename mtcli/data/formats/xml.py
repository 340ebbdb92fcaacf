"""Read XML safely and incrementally for the TMX, XLIFF and WMT formats."""

import re
from collections.abc import Collection, Iterator
from typing import Any
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from mtcli.data.compression import DamagedFileError
from mtcli.data.formats.base import Location
from mtcli.errors import DataError

_LINE = " line"  # attribute for the line of an element; the space avoids a clash with XML names
_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_PROLOG = re.compile(r"\s*(<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^\[>]*(\[.*?\]\s*)?>)", re.DOTALL)
_ROOT = re.compile(r"\s*<([A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)")
# Inline elements in TMX and XLIFF that contain markup from the original document.
_MARKUP = frozenset({"bpt", "ept", "ph", "it", "ut"})


def root_name(head: bytes) -> str:
    """Return the lower-case name of the root element, or "" if `head` is not XML or SGML."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = head[: len(head) // 2 * 2].decode("utf-16", errors="replace")
    else:
        text = head.decode("utf-8-sig", errors="replace")
    while prolog := _PROLOG.match(text):
        text = text[prolog.end() :]
    root = _ROOT.match(text)
    return root[2].lower() if root else ""


def local_name(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def line_of(element: Element) -> int:
    """Return the line on which an element starts."""
    return int(element.get(_LINE, "0"))


def language_of(element: Element) -> str:
    """Return the language of an element: `xml:lang` or `lang`."""
    return element.get(_LANG) or element.get("lang") or ""


def child(element: Element, name: str) -> Element | None:
    """Return the first child called `name`, in any namespace, or None."""
    return next((item for item in element if local_name(item) == name), None)


def inline_text(element: Element | None) -> str:
    """Return the text of a segment without the content of markup elements."""
    parts: list[str] = []
    remaining: list[Element | str] = [] if element is None else [element]
    while remaining:  # avoid recursion, because elements can be nested deeply
        item = remaining.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        parts.append(item.text or "")
        for inner in reversed(item):
            remaining.append(inner.tail or "")
            if local_name(inner) not in _MARKUP:
                remaining.append(inner)
    return "".join(parts)


def read_elements(
    location: Location, *, starts: Collection[str], ends: Collection[str]
) -> Iterator[Element]:
    """Yield the elements whose names are in `starts` or `ends`.

    An element in `starts` is yielded at its start tag, with attributes only. An element in `ends`
    is yielded when it is complete. Elements that are no longer needed are removed, so memory use
    does not grow with the file.
    """
    events = _events(location)
    open_elements: list[Element] = []
    n_open_ends = 0
    for event, element in events:
        name = local_name(element)
        if event == "start":
            open_elements.append(element)
            n_open_ends += name in ends
            if name in starts:
                yield element
            continue
        open_elements.pop()
        if name in ends:
            n_open_ends -= 1
            yield element
        if not n_open_ends and open_elements:
            del open_elements[-1][:]


def _events(location: Location) -> Iterator[tuple[str, Element]]:
    """Yield the start and end events of the parser; raise its errors as `DataError`."""
    from defusedxml.common import EntitiesForbidden, ExternalReferenceForbidden
    from defusedxml.ElementTree import DefusedXMLParser, iterparse

    builder = _LineTreeBuilder()
    parser = DefusedXMLParser(
        target=builder, forbid_dtd=False, forbid_entities=True, forbid_external=True
    )
    builder.parser = parser.parser
    with location.open() as file:
        try:
            yield from iterparse(file, events=("start", "end"), parser=parser)
        except ParseError as error:
            number = error.position[0]
            reason = str(error).partition(":")[0]
            raise DataError(
                f"{location}, line {number:,}: not valid XML ({reason})",
                hint="correct the file, or export it again",
            ) from error
        except (EntitiesForbidden, ExternalReferenceForbidden) as error:
            raise DataError(
                f"{location}, line {builder.line:,}: the file declares or refers to XML entities",
                hint="replace the entities with their text; entities can exhaust the memory or "
                "read other files",
            ) from error
        except (LookupError, ValueError) as error:  # raised by expat
            raise DataError(
                f"{location}, line {builder.line:,}: not valid XML ({error})",
                hint="convert the file to UTF-8",
            ) from error
        except DamagedFileError as error:
            raise error.at(f"line {builder.line:,}") from error


class _LineTreeBuilder(TreeBuilder):
    """Tree builder that stores the line of each element."""

    parser: Any = None

    @property
    def line(self) -> int:
        """Number of the line that the parser has reached."""
        return int(self.parser.CurrentLineNumber)

    def start(self, tag: str, attrs: dict[Any, Any], /) -> Element:
        """Create an element and store its line."""
        element = super().start(tag, attrs)
        element.set(_LINE, str(self.line))
        return element
