"""HTML pages: single files without external resources, rendered from `templates/`.

The template of a page extends `base.html.j2` and fills its blocks `title` and `content`.
`render_page` takes the variables of the template and the names of additional files in
`templates/`: `.css` files extend the style sheet, and `.js` files become scripts at the end of the
page.

    page = render_page("check.html.j2", {"tiles": tiles, "lengths": lengths}, ["charts.js"])
    write_page(path, page)

`check_page_path(path)` raises the errors that `write_page` would raise for an existing file. Call
it before slow work.

A fragment is a part of a page: `render_fragment("map.html.j2", values)` returns safe HTML that
other templates insert with `{{ fragment }}`. Charts are fragments (see `charts.py`). A page with
charts needs the asset `charts.js`:

    chart = Chart("Lengths", "...", [Curve("source", points, "blue")], digits=0)
    fragment = chart_html(chart, "lengths")

`macros.html.j2` defines the common elements. Import them with
`{% from "macros.html.j2" import tiles, table %}`, then use them, for example as
`{{ tiles([Tile("pairs", "29,000")]) }}`. All text is escaped unless it is a fragment.

`{{ data_block("sentences", json_for_script(rows)) }}` embeds data for a script. The script reads
it with `JSON.parse(document.getElementById("sentences").textContent)`, and must insert text only
with `textContent`. The content security policy allows only the page's own scripts and forbids event
attributes and network access. It allows `style` attributes.
"""

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtcli import __version__
from mtcli.errors import DataError
from mtcli.files import write_file
from mtcli.reporting.messages import strip_control

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_TEMPLATES = Path(__file__).parent / "templates"
_GENERATOR = '<meta name="generator" content="mtcli '
# Marks of files that mtcli may replace: pages, and SVG and PNG pictures.
_MARKS = (_GENERATOR.encode(), b'data-generator="mtcli"', b"Software\x00mtcli")
_N_HEAD_BYTES = 500  # the mark is within this many bytes of the start of a file


@dataclass(frozen=True)
class Tile:
    """A number with its name and a note."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table of strings: `n_text_columns` left-aligned columns, then right-aligned columns."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str  # name of the table for screen readers
    n_text_columns: int = 1
    best_row: int | None = None  # highlighted


def render_page(template: str, values: Mapping[str, object], assets: Sequence[str] = ()) -> str:
    """Return a complete HTML page with its styles and scripts; replace control characters."""
    scripts = [_read_asset(name) for name in assets if name.endswith(".js")]
    styles = [_read_asset(name) for name in ("base.css", *assets) if name.endswith(".css")]
    text = render_fragment(
        template,
        {
            **values,
            "generator": f"mtcli {__version__}",
            "styles": styles,
            "scripts": scripts,
            "script_hashes": [_content_hash(script) for script in scripts],
        },
    )
    return strip_control(text)


def render_fragment(template: str, values: Mapping[str, object]) -> "Markup":
    """Return the output of a template as safe HTML."""
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(values))


def json_for_script(value: Any) -> "Markup":
    """Return `value` as JSON that is safe inside a `<script>` element.

    Control characters are replaced. No text can end the element or start a comment.
    """
    from markupsafe import Markup

    text = json.dumps(_without_control(value), ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def check_page_path(path: Path) -> None:
    """Raise `DataError` unless `path` is new, an empty file or a report written by mtcli.

    Pictures of attention maps also count as reports.
    """
    if not path.exists():
        return
    if not path.is_file():
        raise DataError(
            f"cannot write {path}: it is not a regular file", hint="choose another file name"
        )
    with path.open("rb") as file:
        head = file.read(_N_HEAD_BYTES)
    if head and not any(mark in head for mark in _MARKS):
        raise DataError(
            f"{path} already exists and is not an mtcli report",
            hint="choose another file name, or delete the file",
        )


def write_page(path: Path, page: str) -> None:
    """Write `page` atomically; replace only an empty file or a page written by mtcli."""
    check_page_path(path)
    write_file(path.resolve(), page)


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@functools.cache
def _read_asset(name: str) -> "Markup":
    from markupsafe import Markup

    return Markup((_TEMPLATES / name).read_text(encoding="utf-8"))


def _content_hash(script: str) -> str:
    """Return the hash that a content security policy needs to allow an inline script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _without_control(value: Any) -> Any:
    match value:
        case str():
            return strip_control(value)
        case Mapping():
            return {strip_control(str(key)): _without_control(item) for key, item in value.items()}
        case list() | tuple():
            return [_without_control(item) for item in value]
        case _:
            return value
