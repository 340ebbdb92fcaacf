"""Attention maps as text for the terminal."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mtcli.reporting.attention.maps import AttentionMap, piece_labels
from mtcli.reporting.messages import strip_control

if TYPE_CHECKING:
    from mtcli.reporting.attention.maps import Floats

_SHADES = ((0.65, "██"), (0.4, "▓▓"), (0.2, "▒▒"), (0.05, "░░"), (0.0, " ·"))
_LEGEND = "░░ ≥ 5%   ▒▒ ≥ 20%   ▓▓ ≥ 40%   ██ ≥ 65%"
_CELL = 2  # terminal columns
_MIN_COLUMNS = 4  # columns of the map per block, even in a very narrow terminal


def render_text(attention_map: AttentionMap, width: int | None = None) -> Iterator[str]:
    """Yield the lines of a map; denser shading means more attention.

    A map that is wider than `width` terminal columns is divided into blocks of columns.
    """
    from rich.cells import cell_len

    rows = [strip_control(label) for label in piece_labels(attention_map.rows)]
    columns = [strip_control(label) for label in piece_labels(attention_map.columns)]
    if not rows:
        return
    margin = max(map(cell_len, rows)) + 2
    n = len(columns) if width is None else max((width - margin) // _CELL, _MIN_COLUMNS)
    for start in range(0, len(columns), n):
        block = slice(start, start + n)
        yield from _block(rows, columns[block], attention_map.weights[:, block], margin)
        yield ""
    yield from _legend(margin, width)
    yield ""


def _block(
    rows: Sequence[str], columns: Sequence[str], weights: "Floats", margin: int
) -> Iterator[str]:
    from rich.cells import cell_len

    for line in _vertical(columns):
        yield f"{' ' * margin}{line}".rstrip()
    for label, row in zip(rows, weights, strict=True):
        cells = "".join(_shade(float(weight)) for weight in row)
        yield f"{' ' * (margin - 2 - cell_len(label))}{label}  {cells}"


def _vertical(labels: Sequence[str]) -> Iterator[str]:
    """Yield text rows that show each label from top to bottom, in a column two cells wide."""
    from rich.cells import cell_len

    height = max(map(len, labels), default=0)
    for row in zip(*(label.rjust(height) for label in labels), strict=True):
        yield "".join(" " * (_CELL - cell_len(char)) + char for char in row)


def _legend(margin: int, width: int | None) -> Iterator[str]:
    if width is None or margin + len(_LEGEND) <= width:
        yield f"{' ' * margin}{_LEGEND}"
    else:
        yield from _LEGEND.split("   ")


def _shade(weight: float) -> str:
    return next(shade for least, shade in _SHADES if weight >= least)
