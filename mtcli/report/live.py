"""What a terminal shows: a bar with the numbers one wants to watch; samples scroll by above."""

from rich.console import Console
from rich.live import Live
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


class LiveDisplay:
    """A dashboard at the bottom of the terminal; validations scroll by above it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.dashboard = Dashboard()
        self.live = Live(self.dashboard, console=console, refresh_per_second=4)

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
