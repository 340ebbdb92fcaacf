"""What a person sees while a run trains: a live display on a terminal, plain lines elsewhere."""

import math
import time
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from mtcli.report.events import Event, Finished, Notice, Sample, StepDone, Stopped, Validated

_NO_FIELDS: dict[str, Any] = {"loss": "-", "bleu": "-", "rate": "-", "speed": "-"}
_PLAIN_SECONDS = 10.0  # between two progress lines in a log


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
    return PlainDisplay(console, seconds=0.0 if is_verbose else _PLAIN_SECONDS)


class QuietDisplay:
    """Shows nothing."""

    def __call__(self, event: Event) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing was opened."""


class Speed:
    """Smoothed loss and tokens per second."""

    def __init__(self) -> None:
        self.loss = math.nan
        self.tokens_per_second = math.nan

    def see(self, step: StepDone) -> None:
        """Take one more step into account."""
        self.loss = _smoothed(self.loss, step.loss)
        self.tokens_per_second = _smoothed(self.tokens_per_second, step.n_tokens / step.seconds)


class PlainDisplay:
    """One line now and then."""

    def __init__(self, console: Console, seconds: float = _PLAIN_SECONDS) -> None:
        self.console = console
        self.seconds = seconds
        self.speed = Speed()
        self._shown_at = 0.0

    def __call__(self, event: Event) -> None:
        """Show `event` as one line, or as none if it is too soon after the last."""
        match event:
            case Notice(text):
                self._line(text)
            case StepDone():
                self._step(event)
            case Validated():
                best = ", the best so far" if event.is_best else ""
                self._line(
                    f"step {event.step}: dev loss {event.loss:.3f}, BLEU {event.bleu:.2f}{best}"
                )
                for sample in event.samples:
                    self._line(f"  {_clipped(sample.source)}\n  -> {_clipped(sample.translation)}")
            case Stopped() | Finished():
                self._line(farewell(event))

    def close(self) -> None:
        """Lines need no tidying."""

    def _step(self, event: StepDone) -> None:
        self.speed.see(event)
        now = time.monotonic()
        if now - self._shown_at < self.seconds and event.step != event.steps:
            return
        self._shown_at = now
        left = (event.steps - event.step) * event.n_tokens / self.speed.tokens_per_second
        self._line(
            f"step {event.step}/{event.steps}  loss {self.speed.loss:.3f}  "
            f"lr {event.learning_rate:.2g}  "
            f"{self.speed.tokens_per_second:,.0f} tokens/s  about {_minutes(left)} left"
        )

    def _line(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)


class LiveDisplay:
    """A progress bar with what one wants to watch; validations scroll by above it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.speed = Speed()
        self.progress = Progress(
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("loss [bold]{task.fields[loss]}"),
            TextColumn("BLEU [bold green]{task.fields[bleu]}"),
            TextColumn("lr {task.fields[rate]}"),
            TextColumn("{task.fields[speed]} tok/s"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            expand=True,
        )

    def close(self) -> None:
        """Stop drawing."""
        self.progress.stop()

    def __call__(self, event: Event) -> None:
        """Move the bar, or print what belongs above it."""
        match event:
            case Notice(text):
                self.console.print(Text(text, style="dim"))
            case StepDone():
                self._step(event)
            case Validated():
                self._update(event.step, bleu=f"{event.bleu:.2f}")
                self.console.print(_validation(event))
            case Stopped() | Finished():
                self.progress.stop()
                self.console.print(Text(farewell(event), style="bold"))

    def _step(self, event: StepDone) -> None:
        self.speed.see(event)
        if not self.progress.tasks:
            # What an earlier part of the run has done must not count as speed of this one.
            self.progress.add_task("", total=event.steps, completed=event.step, **_NO_FIELDS)
            self.progress.start()
        self._update(
            event.step,
            loss=f"{self.speed.loss:.3f}",
            rate=f"{event.learning_rate:.2g}",
            speed=f"{self.speed.tokens_per_second:,.0f}",
        )

    def _update(self, step: int, **fields: Any) -> None:
        for task in self.progress.tasks:
            self.progress.update(task.id, completed=step, **fields)


def farewell(event: Stopped | Finished) -> str:
    """The last line a run shows."""
    if isinstance(event, Stopped):
        return f"stopped after step {event.step}; run the same command again to go on"
    return (
        f"finished after step {event.step} ({event.reason}); "
        f"best dev BLEU {event.bleu:.2f} at step {event.best_step}"
    )


def _validation(event: Validated) -> Table:
    table = Table.grid(padding=(0, 2))
    star = " [bold green]best[/]" if event.is_best else ""
    table.add_row(
        f"[bold]step {event.step}[/]",
        f"BLEU [bold]{event.bleu:.2f}[/]{star}   dev loss {event.loss:.3f}",
    )
    for sample in event.samples:
        for label, text in _rows(sample):
            table.add_row(Text(label, style="dim", justify="right"), Text(text))
    return table


def _rows(sample: Sample) -> list[tuple[str, str]]:
    return [
        ("source", _clipped(sample.source)),
        ("model", _clipped(sample.translation)),
        ("reference", _clipped(sample.reference)),
    ]


def _clipped(text: str, limit: int = 200) -> str:
    """`text`, unless it babbles as young models do."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def _smoothed(old: float, new: float, share: float = 0.05) -> float:
    return new if math.isnan(old) else old + share * (new - old)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
