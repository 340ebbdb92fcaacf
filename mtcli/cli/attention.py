"""`mtcli attention`: print attention maps."""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from mtcli.cli import options as opts
from mtcli.cli.base import Command, ModelDirectory, Tag, To, app
from mtcli.config.search import EngineOptions
from mtcli.data.lines import line_content

if TYPE_CHECKING:
    from mtcli.translation.alignment import AttentionMap

_SHADES = ((0.65, "██"), (0.4, "▓▓"), (0.2, "▒▒"), (0.05, "░░"), (0.0, " ·"))
_LEGEND = "░░ ≥ 5%   ▒▒ ≥ 20%   ▓▓ ≥ 40%   ██ ≥ 65%"


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
    to: To = None,
    tag: Tag = None,
    engine: opts.EngineName = "auto",
    device: opts.Device = "auto",
) -> None:
    """Print the attention map of a translation: source pieces across, target pieces down.

    A hyphen marks pieces that continue a word. The map shows the mean
    attention of all heads: for a transformer, the attention to the source in
    the last decoder layer; for a decoder-only model, the attention to the
    source in the second-to-last layer.
    """
    from mtcli.translation.alignment import compute_attention_map
    from mtcli.translation.engines import open_engine

    engine_options = EngineOptions(engine=engine, device=device)
    opts.check_engine_options(engine_options)
    loaded = open_engine(model, engine_options)
    for text in texts or _stdin_lines():
        for line in render(text, compute_attention_map(loaded, text, to=to, tag=tag)):
            typer.echo(line)


def _stdin_lines() -> Iterator[str]:
    for number, raw in enumerate(sys.stdin.buffer):
        yield line_content(raw, is_first=number == 0).decode(errors="replace")


def render(line: str, attention_map: "AttentionMap") -> Iterator[str]:
    """Yield the lines of an attention map; darker cells mean more attention."""
    from rich.cells import cell_len

    yield line
    yield attention_map.text
    yield ""
    row_labels = [*_piece_labels(attention_map.target)]
    width = max(map(cell_len, row_labels), default=0)
    for row in _vertical([*_piece_labels(attention_map.source)]):
        yield f"{' ' * width}  {row}".rstrip()
    for label, weights in zip(row_labels, attention_map.weights, strict=True):
        cells = "".join(_shade(weight) for weight in weights)
        yield f"{' ' * (width - cell_len(label))}{label}  {cells}"
    if row_labels:
        yield ""
        yield f"{' ' * width}  {_LEGEND}"
        yield ""


def _piece_labels(pieces: Iterable[str]) -> Iterator[str]:
    """Yield pieces without word-start markers; a hyphen marks those that continue a word."""
    from mtcli.tokenizer import WORD_START

    for i, piece in enumerate(pieces):
        is_start = i == 0 or piece.startswith(WORD_START)
        yield (piece.removeprefix(WORD_START) or WORD_START) if is_start else f"-{piece}"


def _vertical(labels: list[str]) -> Iterator[str]:
    """Yield text rows that show each label from top to bottom, in a column two cells wide."""
    from rich.cells import cell_len

    height = max(map(len, labels), default=0)
    for row in zip(*(label.rjust(height) for label in labels), strict=True):
        yield "".join(" " * (2 - cell_len(char)) + char for char in row)


def _shade(weight: float) -> str:
    return next(shade for least, shade in _SHADES if weight >= least)
