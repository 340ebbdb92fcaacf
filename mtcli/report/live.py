"""What a terminal shows: a bar with the numbers one wants to watch; samples scroll by above."""

from rich.console import Console, ConsoleRenderable
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from mtcli.report.dashboard import Dashboard
from mtcli.report.events import (
    Activity,
    Event,
    Finished,
    Notice,
    Resumed,
    RolledBack,
    Sample,
    StepDone,
    Stopped,
    Validated,
)
from mtcli.report.wording import clipped, farewell, harmless, setback, welcome


class DashboardLive(Live):
    """A live dashboard that leaves no old frame behind when the terminal becomes narrower."""

    def __init__(self, dashboard: Dashboard, console: Console) -> None:
        super().__init__(dashboard, console=console, refresh_per_second=4)
        self.dashboard = dashboard

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Erase the last frame and draw a new one around what is printed."""
        # Terminals wrap the lines of a frame when they become narrower; rich erases the others.
        n_wrapped = self.dashboard.n_wrapped(self.console.width)
        up = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * n_wrapped
        return super().process_renderables([Control(*up), *renderables])


class LiveDisplay:
    """A dashboard at the bottom of the terminal; validations scroll by above it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.dashboard = Dashboard()
        self.live = DashboardLive(self.dashboard, console)

    def close(self) -> None:
        """Stop drawing."""
        self.live.stop()

    def __call__(self, event: Event) -> None:
        """Move the dashboard, or print what belongs above it."""
        match event:
            case Notice(text):
                self._print(text, style="dim")
            case Activity(text):
                self.dashboard.activity = harmless(text)
                if not self.live.is_started and not event.is_routine:
                    self._print(text, style="dim")
            case StepDone():
                self.dashboard.see_step(event)
                self.live.start()  # which does nothing from the second time on
            case Validated():
                self.dashboard.see_validation(event)
                self.console.print(_validation(event))
            case RolledBack():
                self.dashboard.go_back(event)
                self._print(setback(event), style="yellow")
            case Resumed():
                self.dashboard.remember(event)
                self._print(welcome(event), style="dim")
            case Stopped() | Finished():
                self.dashboard.end()
                self.live.stop()
                self._print(farewell(event), style="bold")

    def _print(self, text: str, style: str) -> None:
        self.console.print(Text(harmless(text), style=style))


def _validation(event: Validated) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row(Text(f"step {event.step:,}", style="bold"), _scores(event))
    for sample in event.samples:
        for label, text in _rows(sample):
            table.add_row(Text(label, style="dim", justify="right"), Text(text))
    return table


def _scores(event: Validated) -> Text:
    best = ("   best so far", "bold green") if event.is_best else ""
    bleu = Text.assemble("BLEU ", (f"{event.bleu:.2f}", "bold"), best)
    return Text.assemble(bleu, f"   chrF {event.chrf:.2f}   dev loss {event.loss:.3f}")


def _rows(sample: Sample) -> list[tuple[str, str]]:
    return [
        ("source", clipped(sample.source)),
        ("model", clipped(sample.translation)),
        ("reference", clipped(sample.reference)),
    ]
