"""Attention maps as pictures: SVG, and PNG drawn by matplotlib."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from mtcli.errors import DataError
from mtcli.reporting.attention.maps import AttentionMap, piece_labels
from mtcli.reporting.messages import clip_text, strip_control
from mtcli.reporting.pages import render_fragment

if TYPE_CHECKING:
    from markupsafe import Markup

_CELL = 22  # SVG units
_CHARACTER = 7.5  # generous estimate of the mean character width at font size 12
_LINE = 20
_PADDING = 16
_MAX_TITLE = 120  # characters
_MIN_WEIGHT = 0.004  # smaller weights are not visible
_BLUE = "#2b6194"
_INCHES_PER_CELL = 0.22
_MAX_PIXELS = 20_000  # width or height of a PNG
_FONTS = ("DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans", "Arial Unicode MS")


@dataclass(frozen=True)
class _Drawing:
    """Layout of one map in a picture."""

    title: Sequence[str]
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[tuple[int, int, float]]  # row, column, weight
    left: float  # left edge of the cells
    top: float  # top edge of the cells
    y: float  # top edge of the map in the picture

    @classmethod
    def create(cls, attention_map: AttentionMap, y: float) -> "_Drawing":
        rows, columns = _labels(attention_map.rows), _labels(attention_map.columns)
        title = _title(attention_map)
        visible = (attention_map.weights >= _MIN_WEIGHT).nonzero()
        return cls(
            title=title,
            rows=rows,
            columns=columns,
            cells=[
                (int(i), int(j), round(float(attention_map.weights[i, j]), 3))
                for i, j in zip(*visible, strict=True)
            ],
            left=_PADDING + max(map(_width, rows), default=0) + 8,
            top=_PADDING + _LINE * len(title) + max(map(_width, columns), default=0) + 16,
            y=y,
        )

    @property
    def width(self) -> float:
        """Width of the map with its labels and margins."""
        longest = max(map(_width, self.title), default=0)
        return max(self.left + _CELL * len(self.columns), _PADDING + longest) + _PADDING

    @property
    def height(self) -> float:
        """Height of the map with its labels and margins."""
        return self.top + _CELL * len(self.rows) + _PADDING


def svg_picture(maps: Sequence[AttentionMap]) -> "Markup":
    """Return an SVG picture of maps, one below the other.

    The picture does not refer to other files, so it can be embedded in HTML.
    """
    drawings: list[_Drawing] = []
    for attention_map in maps:
        y = drawings[-1].y + drawings[-1].height if drawings else 0.0
        drawings.append(_Drawing.create(attention_map, y))
    values = {
        "drawings": drawings,
        "width": math.ceil(max((drawing.width for drawing in drawings), default=0)),
        "height": math.ceil(sum(drawing.height for drawing in drawings)),
        "cell": _CELL,
        "line": _LINE,
        "padding": _PADDING,
        "color": _BLUE,
    }
    return render_fragment("attention_map.svg.j2", values)


def png_picture(maps: Sequence[AttentionMap]) -> bytes:
    """Return a PNG picture of maps, one below the other.

    Raise `DataError` if matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DataError(
            "PNG pictures require matplotlib, which is not installed",
            hint="pip install 'mtcli[png]', or write an .svg or .html file",
        ) from error
    import logging
    import warnings

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # hide warnings about missing fonts
    heights = [len(m.rows) + 8 for m in maps]
    width = max((len(m.columns) for m in maps), default=0) + 8
    size = _INCHES_PER_CELL * max(width, 20), _INCHES_PER_CELL * sum(heights)
    with matplotlib.rc_context({"font.family": list(_FONTS)}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hide warnings about characters that no font has
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(len(maps), 1, height_ratios=heights)
        for i, attention_map in enumerate(maps):
            _plot(figure.add_subplot(grid[i]), attention_map)
        file = BytesIO()
        dpi = min(200, int(_MAX_PIXELS / max(size)))
        figure.savefig(file, format="png", dpi=dpi, metadata={"Software": "mtcli"})
    return file.getvalue()


def _plot(axes: Any, attention_map: AttentionMap) -> None:
    axes.imshow(attention_map.weights, cmap="Blues", vmin=0, vmax=1, aspect="equal")
    # Otherwise, matplotlib would parse text between two dollar signs as a formula.
    plain = {"parse_math": False, "fontsize": 8}
    rows, columns = _labels(attention_map.rows), _labels(attention_map.columns)
    axes.set_yticks(range(len(rows)), rows, **plain)
    axes.set_xticks(range(len(columns)), columns, rotation=90, **plain)
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    axes.set_title("\n".join(_title(attention_map)), loc="left", pad=8, **plain)


def _labels(pieces: Sequence[str]) -> list[str]:
    return [strip_control(label) for label in piece_labels(pieces)]


def _title(attention_map: AttentionMap) -> list[str]:
    lines = (attention_map.source, attention_map.target, attention_map.title)
    return [clip_text(line, _MAX_TITLE) for line in lines if line]


def _width(text: str) -> float:
    return _CHARACTER * sum(2 if c > "\u2e7f" else 1.5 if c in "mwMW%@" else 1 for c in text)
