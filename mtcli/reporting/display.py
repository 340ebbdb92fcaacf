"""Displays for training events: live on a terminal, text lines in a pipe or file, or quiet."""

import time
from contextlib import suppress
from typing import Protocol

from rich.console import Console, ConsoleRenderable
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.status import Status
from rich.table import Table
from rich.text import Text

from mtcli.reporting.dashboard import Dashboard, Throughput
from mtcli.reporting.events import (
    MAIN_METRIC,
    Activity,
    Event,
    Finished,
    Notice,
    Preparing,
    Resumed,
    RolledBack,
    Sample,
    StepDone,
    Stopped,
    Validated,
)
from mtcli.reporting.messages import (
    clip_text,
    format_duration,
    format_size,
    metric_label,
    preparation_line,
    resume_line,
    rollback_line,
    scores_text,
    strip_control,
    summary_line,
)


class Display(Protocol):
    """Listener that shows events to the user."""

    def __call__(self, event: Event) -> None:
        """Show `event`."""

    def close(self) -> None:
        """Release the terminal, with the cursor at the start of an empty line."""


def open_display(console: Console, *, is_quiet: bool = False, is_verbose: bool = False) -> Display:
    """Return the display for `console`: live on a terminal, text lines in a pipe or file.

    A quiet display shows nothing. A verbose display prints a line for every step.
    """
    if is_quiet:
        return QuietDisplay()
    if console.is_terminal and not is_verbose:
        return LiveDisplay(console)
    return PlainDisplay(console, interval=0.0) if is_verbose else PlainDisplay(console)


class QuietDisplay:
    """Display that shows nothing."""

    def __call__(self, event: Event) -> None:
        """Ignore `event`."""

    def close(self) -> None:
        """Do nothing."""


class TolerantDisplay:
    """Wrapper that lets training continue after the terminal or pipe is closed."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def __call__(self, event: Event) -> None:
        """Show `event`; after the first `OSError`, show nothing."""
        try:
            self._display(event)
        except OSError:
            self.close()
            self._display = QuietDisplay()

    def close(self) -> None:
        """Close the display; ignore a terminal that is already closed."""
        with suppress(OSError):
            self._display.close()


_PROGRESS_SECONDS = 10.0


class PlainDisplay:
    """Display that prints lines of text, with progress at most once every `interval` seconds."""

    def __init__(self, console: Console, interval: float = _PROGRESS_SECONDS) -> None:
        self.console = console
        self.interval = interval
        self.throughput = Throughput()
        self._last_progress = 0.0

    def __call__(self, event: Event) -> None:
        """Print `event`; skip steps until `interval` seconds after the last progress line."""
        match event:
            case Notice(text) | Activity(text, is_routine=False):
                self._print(text)
            case Preparing():
                self._print_preparation(event)
            case StepDone():
                self._print_step(event)
            case Validated():
                self._print_validation(event)
            case RolledBack():
                self._print(rollback_line(event))
            case Resumed():
                self._print(resume_line(event))
            case Stopped() | Finished():
                self._print(summary_line(event))

    def close(self) -> None:
        """Do nothing."""

    def _print_preparation(self, event: Preparing) -> None:
        now = time.monotonic()
        if min(event.seconds, now - self._last_progress) >= self.interval:
            self._last_progress = now
            self._print(preparation_line(event))

    def _print_step(self, event: StepDone) -> None:
        self.throughput.add_step(event)
        now = time.monotonic()
        if now - self._last_progress < self.interval and event.step != event.steps:
            return
        self._last_progress = now
        parts = [
            f"step {event.step}/{event.steps}",
            f"loss {self.throughput.loss:.3f}",
            f"lr {event.learning_rate:.3g}",
            f"{self.throughput.tokens_per_second:,.0f} tokens/s",
            f"padding {self.throughput.padding:.0%}",
        ]
        if event.memory:
            parts.append(f"memory {format_size(event.memory)}")
        if event.step < event.steps:
            parts.append(f"about {format_duration(self.throughput.seconds_left(event))} left")
        self._print("  ".join(parts))

    def _print_validation(self, event: Validated) -> None:
        best = ", best so far" if event.is_best else ""
        self._print(f"step {event.step}: dev {scores_text(event.loss, event.scores)}{best}")
        for scored in event.sets:
            self._print(f"  {scored.name}: {scores_text(scored.loss, scored.scores)}")
        for sample in event.samples:
            self._print(f"  {clip_text(sample.source)}\n  -> {clip_text(sample.translation)}")

    def _print(self, text: str) -> None:
        self.console.print(Text(strip_control(text)), soft_wrap=True)


class DashboardLive(Live):
    """Live dashboard that erases its last frame even after the terminal has become narrower."""

    def __init__(self, dashboard: Dashboard, console: Console) -> None:
        super().__init__(dashboard, console=console, refresh_per_second=4)
        self.dashboard = dashboard

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return output that erases the last frame, prints `renderables` and draws a new frame."""
        # A narrower terminal wraps the lines of the last frame, but rich erases only as many lines
        # as it printed. Erase the extra lines first.
        n_wrapped = self.dashboard.n_wrapped_lines(self.console.width)
        erase = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * n_wrapped
        return super().process_renderables([Control(*erase), *renderables])


class LiveDisplay:
    """Dashboard at the bottom of the terminal; validations and messages scroll above it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.dashboard = Dashboard()
        self.live = DashboardLive(self.dashboard, console)
        self.status = Status("", console=console)  # shown before the first step

    def __call__(self, event: Event) -> None:
        """Update the dashboard and print messages above it."""
        if isinstance(event, Preparing):
            self.status.update(strip_control(preparation_line(event)))
            self.status.start()  # no effect if already started
            return
        self.status.stop()
        match event:
            case Notice(text):
                self._print(text, style="dim")
            case Activity(text):
                self.dashboard.activity = strip_control(text)
                if not self.live.is_started and not event.is_routine:
                    self._print(text, style="dim")
            case StepDone():
                self.dashboard.add_step(event)
                self.live.start()  # no effect if already started
            case Validated():
                self.dashboard.add_validation(event)
                self.console.print(_validation_table(event))
            case RolledBack():
                self.dashboard.roll_back(event)
                self._print(rollback_line(event), style="yellow")
            case Resumed():
                self.dashboard.restore_history(event)
                self._print(resume_line(event), style="dim")
            case Stopped() | Finished():
                self.dashboard.stop()
                self.live.stop()
                self._print(summary_line(event), style="bold")

    def close(self) -> None:
        """Stop drawing."""
        self.status.stop()
        self.live.stop()

    def _print(self, text: str, style: str) -> None:
        self.console.print(Text(strip_control(text), style=style))


def _validation_table(event: Validated) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row(Text(f"step {event.step:,}", style="bold"), _score_text(event))
    for scored in event.sets:
        scores = scores_text(scored.loss, scored.scores)
        table.add_row(Text(clip_text(scored.name, 40), style="dim", justify="right"), Text(scores))
    for sample in event.samples:
        for label, text in _sample_rows(sample):
            table.add_row(Text(label, style="dim", justify="right"), Text(text))
    return table


def _score_text(event: Validated) -> Text:
    others = [
        f"   {metric_label(name)} {score.value:.2f}"
        for name, score in event.scores.items()
        if name != MAIN_METRIC
    ]
    return Text.assemble(
        f"{metric_label(MAIN_METRIC)} ",
        (f"{event.scores[MAIN_METRIC].value:.2f}", "bold"),
        ("   best so far" if event.is_best else "", "bold green"),
        *others,
        f"   dev loss {event.loss:.3f}",
    )


def _sample_rows(sample: Sample) -> list[tuple[str, str]]:
    return [
        ("source", clip_text(sample.source)),
        ("model", clip_text(sample.translation)),
        ("reference", clip_text(sample.reference)),
    ]
