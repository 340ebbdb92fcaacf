"""`mtcli attention`: show the attention of a translation."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtcli.cli import options as opts
from mtcli.cli.base import INPUT_OUTPUT, Command, ModelDirectory, Tag, To, app
from mtcli.cli.completion import complete
from mtcli.config.search import ATTENTION_KINDS, EngineOptions
from mtcli.config.tags import Symbols
from mtcli.data.lines import line_content
from mtcli.errors import DataError

if TYPE_CHECKING:
    from mtcli.reporting.attention.maps import AttentionMap, SentenceAttention
    from mtcli.translation.attention import LineAttention
    from mtcli.translation.engines import LoadedEngine

_LAYERS_AND_HEADS = "Layers and heads"
_SUFFIXES = (".html", ".svg", ".png")


@dataclass(frozen=True)
class _Selection:
    """Kind, layer and head of the map to show; None selects the default."""

    kind: str | None
    layer: int | None  # counted from 1, like the head
    head: int | None

    @property
    def is_default(self) -> bool:
        return self == _Selection(None, None, None)

    def map(self, attention: "SentenceAttention") -> "AttentionMap":
        """Return the selected map of a sentence."""
        layer, head = (None if n is None else n - 1 for n in (self.layer, self.head))
        return attention.map(self.kind, layer, head)


@app.command(cls=Command, epilog="Example: mtcli attention runs/demo 'The old man sees a dog.'")
def attention(
    model: ModelDirectory,
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="[TEXT]...",
            help="Sentences to translate.",
            show_default="lines of standard input",
        ),
    ] = [],
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write an interactive page (.html) or a picture (.svg, .png) to this file; an "
            "existing file is replaced only if mtcli wrote it.",
            show_default="print a text map",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Show the attention for this translation instead of the model's own.",
            show_default="the model's translation",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Kind of attention: cross (decoder to source), decoder (decoder to itself) or "
            "encoder (encoder to itself).",
            show_default="attention to the source",
            autocompletion=complete(ATTENTION_KINDS),
            rich_help_panel=_LAYERS_AND_HEADS,
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Layer, counted from 1.",
            show_default="with --kind cross, the alignment layer; otherwise, the last layer",
            rich_help_panel=_LAYERS_AND_HEADS,
        ),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Head, counted from 1.",
            show_default="mean of the alignment heads; of all heads with --layer or another --kind",
            rich_help_panel=_LAYERS_AND_HEADS,
        ),
    ] = None,
    to: To = None,
    tag: Tag = None,
    engine: opts.EngineName = "auto",
    device: opts.Device = "auto",
) -> None:
    """Show the attention of a translation: one row per target piece, one column per source piece.

    A leading hyphen marks a piece that continues a word. The default map shows
    the attention to the source, averaged over the heads that
    `mtcli translate --alignment` uses. Training chooses these heads. For models
    from earlier versions, they are all heads of the last decoder layer or, in
    decoder-only models, of the second-to-last layer. An HTML page contains all
    layers and heads.
    """
    from mtcli.translation.engines import open_engine

    engine_options = EngineOptions(engine=engine, device=device)
    selection = _Selection(kind, layer, head)
    opts.check_engine_options(engine_options)
    opts.check_choice("kind", kind, ATTENTION_KINDS)
    if output is not None:
        _check_output(output, selection)
    if reference is not None and len(texts) != 1:
        raise typer.BadParameter("--reference requires exactly one TEXT")
    loaded = open_engine(model, engine_options)
    symbols = loaded.tags.symbols(to, tag)
    lines = texts or _stdin_lines()
    if output is not None:
        traced = [_trace(loaded, text, reference, symbols) for text in lines]
        _write(output, traced, selection, model.resolve().name)
        return
    for text in lines:
        for attention_map in _maps(loaded, text, reference, symbols, selection):
            for row in _text_rows(attention_map):
                typer.echo(row)


def _check_output(path: Path, selection: _Selection) -> None:
    """Raise an error if mtcli cannot write to `path`, or if `selection` is set for an HTML page."""
    from mtcli.reporting.pages import check_page_path

    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise typer.BadParameter(f"--output {path}: the name must end in .html, .svg or .png")
    if suffix == ".html" and not selection.is_default:
        raise typer.BadParameter(
            "an HTML page contains all layers and heads; omit --kind, --layer and --head"
        )
    check_page_path(path)


def _stdin_lines() -> Iterator[str]:
    for number, raw in enumerate(sys.stdin.buffer):
        yield line_content(raw, is_first=number == 0).decode(errors="replace")


def _trace(
    loaded: "LoadedEngine", text: str, reference: str | None, symbols: Symbols
) -> "LineAttention":
    from mtcli.translation.attention import trace_attention

    return trace_attention(loaded, text, reference, symbols=symbols)


def _maps(
    loaded: "LoadedEngine",
    text: str,
    reference: str | None,
    symbols: Symbols,
    selection: _Selection,
) -> "list[AttentionMap]":
    """Return the selected map of a line, or one map for each part of a long line."""
    from mtcli.translation.alignment import compute_attention_maps

    if reference is None and selection.is_default:
        # With CTranslate2, `compute_attention_maps` does not need torch, but `_trace` does.
        return compute_attention_maps(loaded, text, symbols=symbols)
    return [selection.map(part) for part in _trace(loaded, text, reference, symbols).parts]


def _text_rows(attention_map: "AttentionMap") -> Iterator[str]:
    """Yield the lines of a text map, starting with the source and the target."""
    from mtcli.reporting.attention.text import render_text
    from mtcli.reporting.messages import strip_control

    width = shutil.get_terminal_size((0, 0)).columns or None  # None: not a terminal
    yield strip_control(attention_map.source)
    yield strip_control(attention_map.target)
    if attention_map.title:
        yield f"({attention_map.title})"
    yield ""
    yield from render_text(attention_map, width)


def _write(
    path: Path, lines: "Sequence[LineAttention]", selection: _Selection, model_name: str
) -> None:
    """Write an HTML page with all maps, or a picture of the selected maps."""
    from mtcli.files import write_file
    from mtcli.reporting.attention.page import attention_page
    from mtcli.reporting.attention.picture import png_picture, svg_picture
    from mtcli.reporting.pages import write_page

    parts = [part for line in lines for part in line.parts]
    if not parts:
        raise DataError(
            "there is no text to translate", hint="pass at least one sentence that is not blank"
        )
    match path.suffix.lower():
        case ".html":
            write_page(path, attention_page(parts, model_name))
        case ".svg":
            write_file(path, svg_picture([selection.map(part) for part in parts]))
        case _:
            write_file(path, png_picture([selection.map(part) for part in parts]))
