"""What a pipe or a log file gets: one line now and then."""

import time

from rich.console import Console
from rich.text import Text

from mtcli.report.events import (
    Activity,
    Event,
    Finished,
    Notice,
    Resumed,
    RolledBack,
    StepDone,
    Stopped,
    Validated,
)
from mtcli.report.pace import Pace
from mtcli.report.wording import clipped, duration, farewell, harmless, setback, size, welcome

_SECONDS = 10.0  # between two progress lines


class PlainDisplay:
    """One line now and then."""

    def __init__(self, console: Console, seconds: float = _SECONDS) -> None:
        self.console = console
        self.seconds = seconds
        self.pace = Pace()
        self._shown_at = 0.0

    def __call__(self, event: Event) -> None:
        """Show `event` as one line, or as none if it is too soon after the last."""
        match event:
            case Notice(text) | Activity(text, is_routine=False):
                self._line(text)
            case StepDone():
                self._step(event)
            case Validated():
                self._validation(event)
            case RolledBack():
                self._line(setback(event))
            case Resumed():
                self._line(welcome(event))
            case Stopped() | Finished():
                self._line(farewell(event))

    def close(self) -> None:
        """Lines need no tidying."""

    def _step(self, event: StepDone) -> None:
        self.pace.see(event)
        now = time.monotonic()
        if now - self._shown_at < self.seconds and event.step != event.steps:
            return
        self._shown_at = now
        parts = [
            f"step {event.step}/{event.steps}",
            f"loss {self.pace.loss:.3f}",
            f"lr {event.learning_rate:.3g}",
            f"{self.pace.tokens_per_second:,.0f} tokens/s",
            f"padding {self.pace.padding:.0%}",
        ]
        if event.memory:
            parts.append(f"memory {size(event.memory)}")
        if event.step < event.steps:
            parts.append(f"about {duration(self.pace.seconds_left(event))} left")
        self._line("  ".join(parts))

    def _validation(self, event: Validated) -> None:
        best = ", the best so far" if event.is_best else ""
        self._line(
            f"step {event.step}: dev loss {event.loss:.3f}, "
            f"BLEU {event.bleu:.2f}, chrF {event.chrf:.2f}{best}"
        )
        for sample in event.samples:
            self._line(f"  {clipped(sample.source)}\n  -> {clipped(sample.translation)}")

    def _line(self, text: str) -> None:
        self.console.print(Text(harmless(text)), soft_wrap=True)
