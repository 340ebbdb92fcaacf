"""`mtcli attention`."""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from mtcli.cli import options as given
from mtcli.cli.base import ModelDirectory, app
from mtcli.lines import line_content
from mtcli.options import ENGINES, EngineOptions

if TYPE_CHECKING:
    from mtcli.translation.looking import Looks

_SHADES = ((0.65, "██"), (0.4, "▓▓"), (0.2, "▒▒"), (0.05, "░░"), (0.0, " ·"))
_LEGEND = "░░ from 5 %   ▒▒ from 20 %   ▓▓ from 40 %   ██ from 65 %"


@app.command(epilog="Example: mtcli attention runs/demo 'The old man sees a dog.'")
def attention(
    model: ModelDirectory,
    texts: Annotated[
        list[str], typer.Argument(metavar="[TEXT]...", help="Default: lines of standard input.")
    ] = [],
    engine: given.EngineName = "auto",
    device: given.Device = "auto",
) -> None:
    """Show the attention map of a translation: source pieces across, target pieces down.

    A hyphen marks pieces that continue a word. The map shows the mean
    attention of all heads: for a transformer, to the source in the last layer
    of the decoder; for a decoder-only model, the part that goes to the source
    in the last layer but one.
    """
    from mtcli.engines import open_engine
    from mtcli.translation.looking import look

    given.check_name("engine", engine, ENGINES)
    opened = open_engine(model, EngineOptions(engine=engine, device=device))
    for text in texts or _lines_of_stdin():
        for line in drawn(text, look(opened, text)):
            typer.echo(line)


def _lines_of_stdin() -> Iterator[str]:
    for number, raw in enumerate(sys.stdin.buffer):
        yield line_content(raw, is_first=number == 0).decode(errors="replace")


def drawn(line: str, looks: "Looks") -> Iterator[str]:
    """A map for people: the darker, the more a target piece looks at a source piece."""
    from rich.cells import cell_len

    yield line
    yield looks.text
    yield ""
    names = [*_names(looks.target)]
    width = max(map(cell_len, names), default=0)
    for row in _upright([*_names(looks.source)]):
        yield f"{' ' * width}  {row}".rstrip()
    for name, weights in zip(names, looks.weights, strict=True):
        cells = "".join(_shade(weight) for weight in weights)
        yield f"{' ' * (width - cell_len(name))}{name}  {cells}"
    if names:
        yield ""
        yield f"{' ' * width}  {_LEGEND}"
        yield ""


def _names(pieces: Iterable[str]) -> Iterator[str]:
    """Pieces as people write them; a hyphen says that one continues a word."""
    from mtcli.translation.parts import WORD_START

    for i, piece in enumerate(pieces):
        is_start = i == 0 or piece.startswith(WORD_START)
        yield (piece.removeprefix(WORD_START) or WORD_START) if is_start else f"-{piece}"


def _upright(names: list[str]) -> Iterator[str]:
    """Names written from top to bottom, each in a column two cells wide."""
    from rich.cells import cell_len

    height = max(map(len, names), default=0)
    for row in zip(*(name.rjust(height) for name in names), strict=True):
        yield "".join(" " * (2 - cell_len(char)) + char for char in row)


def _shade(weight: float) -> str:
    return next(shade for least, shade in _SHADES if weight >= least)
