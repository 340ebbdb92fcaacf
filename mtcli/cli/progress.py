"""Progress bar for the commands that translate."""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from mtcli.counts import format_count

if TYPE_CHECKING:
    from rich.progress import ProgressColumn, Task

    from mtcli.translation.stream import Progress

_REFRESHES_PER_SECOND = 4
_BAR_STEPS = 1000
_BAR_WIDTH = 20
_NUMBERS_WIDTH = 50  # columns for the percentage, lines, lines per second and time left


def can_show_bar(inputs: Sequence[IO[bytes]], output: IO[bytes]) -> bool:
    """Return whether stderr can show a progress bar without mixing it with input or output.

    The bar would mix with lines that the user types, with lines written to the same terminal, and
    with the output of a program at the other end of a pipe, such as `head`.
    """
    return (
        _is_terminal(sys.stderr)
        and not any(map(_is_terminal, inputs))
        and not _is_terminal(output)
        and not _is_pipe(output)
    )


@contextmanager
def progress_bar(progress: "Progress", *, is_visible: bool = True) -> Iterator[None]:
    """Run the block with a bar on stderr that shows `progress`, then clear the bar.

    There is no bar if `is_visible` is false, or if stderr is not a terminal that can show one.
    """
    if not (is_visible and _is_terminal(sys.stderr)) or os.environ.get("TERM") == "dumb":
        yield
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    bar = Bar(
        *_columns(progress, console.width),
        console=console,
        transient=True,
        refresh_per_second=_REFRESHES_PER_SECOND,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    total = None if progress.total is None else _BAR_STEPS
    task = bar.add_task("translating", total=total)
    progress.on_change = lambda: bar.update(task, completed=_BAR_STEPS * (progress.share or 0))
    with bar:
        # rich hides the cursor; show it, because a killed process could not restore it.
        console.show_cursor(True)
        yield


def _columns(progress: "Progress", width: int) -> "list[ProgressColumn]":
    from rich.progress import BarColumn, ProgressColumn, TaskProgressColumn, TimeRemainingColumn
    from rich.table import Column
    from rich.text import Text

    class Lines(ProgressColumn):
        """Column with the number of lines so far and the lines per second."""

        def render(self, task: "Task") -> Text:
            """Return the text of the column."""
            speed = progress.n_lines / task.elapsed if task.elapsed else 0
            rate = f"{speed:,.0f}" if speed >= 10 or not speed else f"{speed:.1f}"
            return Text(f"{format_count(progress.n_lines, 'line')}  {rate} lines/s")

    class TimeLeft(TimeRemainingColumn):
        """Column with the time left, such as "0:01:20 left"."""

        def render(self, task: "Task") -> Text:
            """Return the text of the column."""
            return super().render(task) + Text(" left", style="progress.remaining")

    lines = Lines(Column(no_wrap=True))
    if progress.total is None:
        return [lines]
    # In a narrow terminal, only the numbers fit.
    bar = [BarColumn(bar_width=_BAR_WIDTH)] if width > _BAR_WIDTH + _NUMBERS_WIDTH else []
    return [*bar, TaskProgressColumn(), lines, TimeLeft(table_column=Column(no_wrap=True))]


def _is_terminal(file: "IO[bytes] | IO[str] | None") -> bool:
    return file is not None and file.isatty()


def _is_pipe(file: IO[bytes]) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)
    except OSError:  # an in-memory file has no descriptor
        return False
