"""Options of the commands that write an HTML report."""

from pathlib import Path
from typing import Annotated

import typer

from mtcli.cli.base import INPUT_OUTPUT
from mtcli.config.report import MAX_MAPS

REPORT = "Report"

Report = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write a report to this HTML file, which may only replace an earlier report.",
        show_default="not written",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
Maps = Annotated[
    int,
    typer.Option(
        metavar="N",
        help=f"Number of lines with an attention map in the report, at most {MAX_MAPS}.",
        rich_help_panel=REPORT,
    ),
]
MapLines = Annotated[
    list[int],
    typer.Option(
        "--map-line",
        metavar="N",
        help="Number of a line that gets an attention map, counted from 1; repeatable.",
        show_default="lines with low scores, large differences and long lines",
        rich_help_panel=REPORT,
    ),
]
