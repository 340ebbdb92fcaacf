"""Options of the commands that write an HTML report."""

from pathlib import Path
from typing import Annotated

import typer

from mtcli.cli.base import INPUT_OUTPUT
from mtcli.cli.usage import name_options_in_errors
from mtcli.config.report import DEFAULT_MAPS, MAX_MAPS, ReportOptions

REPORT = "Report"

Report = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write an HTML report to this file; an existing file is replaced only if mtcli "
        "wrote it.",
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
        help="Line to show with an attention map in the report, counted from 1; repeatable.",
        show_default="lines with low scores or large differences, and long lines",
        rich_help_panel=REPORT,
    ),
]


def read_report_options(
    path: Path | None, n_maps: int, map_lines: list[int]
) -> ReportOptions | None:
    """Return the report options, or None without --report; raise an error if they are invalid."""
    if path is None:
        if map_lines or n_maps != DEFAULT_MAPS:
            option = "--map-line" if map_lines else "--maps"
            raise typer.BadParameter(f"{option} requires --report")
        return None
    from mtcli.reporting.pages import check_page_path

    check_page_path(path)
    with name_options_in_errors(("maps", "map_line")):
        return ReportOptions(path, n_maps, tuple(map_lines))
