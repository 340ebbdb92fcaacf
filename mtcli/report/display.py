"""What a person sees while a run trains: a live display on a terminal, plain lines elsewhere."""

from contextlib import suppress
from typing import Protocol

from rich.console import Console

from mtcli.report.events import Event
from mtcli.report.live import LiveDisplay
from mtcli.report.plain import PlainDisplay


class Display(Protocol):
    """Shows events to a person."""

    def __call__(self, event: Event) -> None:
        """Show `event`."""

    def close(self) -> None:
        """Leave the terminal tidy: what is printed next stands on a line of its own."""


def open_display(console: Console, *, is_quiet: bool = False, is_verbose: bool = False) -> Display:
    """The display that suits the console: live on a terminal, plain lines in a pipe or log."""
    if is_quiet:
        return QuietDisplay()
    if console.is_terminal and not is_verbose:
        return LiveDisplay(console)
    return PlainDisplay(console, seconds=0.0) if is_verbose else PlainDisplay(console)


class TolerantDisplay:
    """A display on a terminal or pipe that may go away: then training continues without it."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def __call__(self, event: Event) -> None:
        """Show `event`; after the first error of the system, show nothing."""
        try:
            self._display(event)
        except OSError:
            self.close()
            self._display = QuietDisplay()

    def close(self) -> None:
        """Close the display, if its terminal is still there."""
        with suppress(OSError):
            self._display.close()


class QuietDisplay:
    """Shows nothing."""

    def __call__(self, event: Event) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing was opened."""
