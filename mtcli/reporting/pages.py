"""HTML pages: one file without external resources, rendered from the templates of this package.

Render a page from a template that extends `base.html.j2` and fills its blocks `title` and
`content`. `values` are the variables of the template. `assets` are further files of `templates/`:
`.css` files extend the style sheet, `.js` files become scripts at the end of the page.

    page = render_page("check.html.j2", {"tiles": tiles, "lengths": lengths}, ["charts.js"])
    write_page(path, page)

Call `check_page_path(path)` before slow work: it raises the errors that `write_page` would raise
for an existing file.

A fragment is a part of a page: `render_fragment("map.html.j2", values)` returns safe HTML that
other templates insert with `{{ fragment }}`. A chart is a fragment (module `charts`), for pages
that have the asset `charts.js`:

    chart = Chart("Lengths", "...", [Curve("source", points, "blue")], digits=0)
    fragment = chart_html(chart, "lengths")

`macros.html.j2` has the common elements: `{% from "macros.html.j2" import tiles, table %}`, then
`{{ tiles([Tile("pairs", "29,000")]) }}`. All text is escaped unless it is a fragment. Data for a
script is `{{ data_block("sentences", json_for_script(rows)) }}`; the script reads it with
`JSON.parse(document.getElementById("sentences").textContent)` and must write text with
`textContent` only. The content security policy allows the scripts of the page and nothing else: no
event attributes, no network. A `style` attribute is allowed.
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
_N_HEAD_BYTES = 500  # of a page; the generator is in its first lines


@dataclass(frozen=True)
class Tile:
    """A number with its name and a note."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table of texts. The first `n_text_columns` columns are left-aligned, the others right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str  # name of the table for screen readers
    n_text_columns: int = 1
    best_row: int | None = None  # highlighted


def render_page(template: str, values: Mapping[str, object], assets: Sequence[str] = ()) -> str:
    """Return a complete page without control characters."""
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

    Control characters are replaced. No text can end the element or begin a comment.
    """
    from markupsafe import Markup

    text = json.dumps(_without_control(value), ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def check_page_path(path: Path) -> None:
    """Raise `DataError` if `path` exists and is not a page of mtcli, which may be replaced."""
    if not path.exists():
        return
    if not path.is_file():
        raise DataError(f"cannot write {path}: it is not a regular file")
    with path.open("rb") as file:
        head = file.read(_N_HEAD_BYTES)
    if head and _GENERATOR.encode() not in head:
        raise DataError(
            f"{path} exists and is not a report of mtcli",
            hint="choose another file name, or delete the file",
        )


def write_page(path: Path, page: str) -> None:
    """Write `page` atomically; replace only an earlier page of mtcli."""
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
    """Return the hash by which a content security policy allows an inline script."""
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
