"""The part of the terminal that stays: a bar, three short lines, the same height all the time."""

import math
import time

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mtcli.report.events import Resumed, RolledBack, StepDone, Validated
from mtcli.report.log import STEP_INTERVAL
from mtcli.report.pace import Pace
from mtcli.report.sparkline import sparkline
from mtcli.report.wording import duration, size

_HISTORY = 500  # losses to remember of a whole run: more than any terminal has columns
_FACTS_WIDTH = 46  # columns that are needed beside a sparkline
_LONGEST_SPARKLINE = 64


class Dashboard:
    """How a run stands, drawn anew as often as one likes."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.step: StepDone | None = None
        self.best: Validated | None = None
        self.losses: list[tuple[int, float]] = []  # step, smoothed loss
        self.validations: list[Validated] = []
        self._began = time.monotonic()

    def see_step(self, event: StepDone) -> None:
        """Move on by a step."""
        self.step = event
        self.pace.see(event)
        self._draw_loss(event.step, event.steps)

    def see_validation(self, event: Validated) -> None:
        """Remember how well the model does on the dev set."""
        self.validations.append(event)
        self.best = event if event.is_best else self.best

    def remember(self, event: Resumed) -> None:
        """Show what came before, as if it had been seen; how fast it was does not count."""
        for past in event.past:
            match past:
                case StepDone():
                    self._remember_step(past)
                case Validated():
                    self.see_validation(past)
                case RolledBack():
                    self.go_back(past)

    def go_back(self, event: RolledBack) -> None:
        """Forget what was undone."""
        self.losses = [(step, loss) for step, loss in self.losses if step <= event.to_step]
        self.validations = [past for past in self.validations if past.step <= event.to_step]
        if self.best and self.best.step > event.to_step:
            self.best = next((past for past in self.validations[::-1] if past.is_best), None)
        self.pace.loss = self.losses[-1][1] if self.losses else math.nan

    def _remember_step(self, past: StepDone) -> None:
        """A step that is logged stands for those before it that are not."""
        for number in range(past.step - STEP_INTERVAL + 1, past.step + 1):
            self.pace.see_loss(past.loss)
            self._draw_loss(number, past.steps)

    def _draw_loss(self, step: int, steps: int) -> None:
        if step % max(1, steps // _HISTORY) == 0:
            self.losses.append((step, self.pace.loss))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's way to ask a thing how it looks."""
        if self.step is None:
            return
        room = min(_LONGEST_SPARKLINE, options.max_width - _FACTS_WIDTH)
        # No block characters for a terminal that has only ASCII, no stumps on a narrow one.
        width = room if room >= 8 and not options.ascii_only else 0
        yield self._bar(self.step)
        yield self._numbers(self.step, width)

    def _bar(self, step: StepDone) -> Table:
        left = duration(self.pace.seconds_left(step))
        elapsed = duration(time.monotonic() - self._began)
        table = Table.grid(expand=True, padding=(0, 2, 0, 0))
        table.add_column(ratio=1)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_row(
            ProgressBar(
                total=step.steps,
                completed=step.step,
                complete_style="cyan",
                finished_style="green",
            ),
            Text(f"step {step.step:,}/{step.steps:,}", style="bold"),
            Text(f"{elapsed}, about {left} left"),
        )
        return table

    def _numbers(self, step: StepDone, width: int) -> Table:
        past = self.validations
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(style="bold", justify="right", min_width=5, no_wrap=True)
        table.add_column(min_width=width, no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")
        table.add_row(
            "loss",
            f"{self.pace.loss:.3f}",
            Text(sparkline([loss for _, loss in self.losses], width), style="cyan"),
            self._speed(step),
        )
        table.add_row(
            "dev loss",
            f"{past[-1].loss:.3f}" if past else "-",
            Text(sparkline([validated.loss for validated in past], width), style="magenta"),
            self._load(step),
        )
        table.add_row(
            "dev BLEU",
            f"{past[-1].bleu:.2f}" if past else "-",
            Text(sparkline([validated.bleu for validated in past], width), style="green"),
            self._best(),
        )
        return table

    def _speed(self, step: StepDone) -> Text:
        return Text.assemble(
            ("lr ", "dim"),
            f"{step.learning_rate:.3g}   {self.pace.tokens_per_second:,.0f}",
            (" tokens/s", "dim"),
        )

    def _load(self, step: StepDone) -> Text:
        memory = Text.assemble(("   memory ", "dim"), size(step.memory)) if step.memory else ""
        return Text.assemble(("padding ", "dim"), f"{self.pace.padding:.0%}", memory)

    def _best(self) -> Text:
        if self.best is None:
            return Text("")
        value = (f"{self.best.bleu:.2f}", "bold green")
        return Text.assemble(("best ", "dim"), value, (f" at step {self.best.step:,}", "dim"))
