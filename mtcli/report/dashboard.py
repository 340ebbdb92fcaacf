"""The bottom of the terminal during training: a progress bar and three lines of numbers."""

import math
import time

from rich.console import Console, ConsoleOptions, OverflowMethod, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mtcli.report.events import Resumed, RolledBack, StepDone, Validated
from mtcli.report.log import STEP_INTERVAL
from mtcli.report.pace import Pace
from mtcli.report.sparkline import sparkline
from mtcli.report.wording import duration, size

_HISTORY = 500  # losses to remember of a whole run: more than any terminal has columns
_GAP = 2  # columns between two parts of a line
_NUMBERS_WIDTH = 8 + _GAP + 6 + _GAP  # a label and a number
_FACTS_WIDTHS = 30, 16  # facts in full and in short
_SHORTEST_SPARKLINE, _LONGEST_SPARKLINE = 8, 64
_SHORTEST_BAR = 8


class Dashboard:
    """How a run stands, drawn anew as often as one likes."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.step: StepDone | None = None
        self.best: Validated | None = None
        self.losses: list[tuple[int, float]] = []  # step, smoothed loss
        self.validations: list[Validated] = []
        self.activity = ""  # current work other than training steps
        self.is_over = False
        self._line_widths: list[int] = []  # of the last frame
        self._began = time.monotonic()

    def see_step(self, event: StepDone) -> None:
        """Advance by one step."""
        self.step, self.activity = event, ""
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

    def end(self) -> None:
        """Drop activity and time left: the run has finished or stopped."""
        self.activity, self.is_over = "", True

    def n_wrapped(self, width: int) -> int:
        """Return the extra lines of the last frame in a terminal of this width."""
        return sum(max(0, n - 1) // width for n in self._line_widths)

    def _remember_step(self, past: StepDone) -> None:
        """A step that is logged stands for those before it that are not."""
        for number in range(past.step - STEP_INTERVAL + 1, past.step + 1):
            self.pace.see_loss(past.loss)
            self._draw_loss(number, past.steps)

    def _draw_loss(self, step: int, steps: int) -> None:
        if step % max(1, steps // _HISTORY) == 0:
            self.losses.append((step, self.pace.loss))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw four lines at every width; none of them wraps."""
        if self.step is None:
            return
        overflow: OverflowMethod = "crop" if options.ascii_only else "ellipsis"
        # No block characters for a terminal that has only ASCII.
        shortest = 0 if options.ascii_only else _SHORTEST_SPARKLINE
        room = options.max_width - _NUMBERS_WIDTH
        columns = next((n for n in _FACTS_WIDTHS if room - n - _GAP >= shortest), 0)
        free = max(0, room - columns - _GAP * bool(columns))
        width = min(_LONGEST_SPARKLINE, free) if shortest else 0
        facts = self._facts(self.step, columns)
        self._line_widths = [options.max_width]
        yield self._bar(self.step, options.max_width, overflow)
        for line, fact in zip(self._numbers(width), facts, strict=True):
            line.append(" " * _GAP if width and columns else "").append_text(fact)
            line.truncate(options.max_width, overflow=overflow)
            self._line_widths.append(line.cell_len)
            yield line

    def _bar(self, step: StepDone, width: int, overflow: OverflowMethod) -> Table:
        """Draw the progress bar and the longest text beside it for which there is room."""
        room = width - _SHORTEST_BAR - _GAP
        texts = [Text.assemble((where, "bold"), *when) for where, when in self._positions(step)]
        text = next((text for text in texts if text.cell_len <= room), texts[-1])
        text.truncate(max(0, room), overflow=overflow)
        bar = ProgressBar(
            total=step.steps,
            completed=step.step,
            complete_style="cyan",
            finished_style="green",
        )
        table = Table.grid(padding=(0, _GAP, 0, 0), expand=True)
        table.add_column(ratio=1)
        table.add_column(no_wrap=True)
        table.add_row(bar, text)
        return table

    def _positions(self, step: StepDone) -> list[tuple[str, list[str]]]:
        """Return the step, and elapsed time and activity or time left; the longest text first."""
        gap = " " * _GAP
        count = f"{step.step:,}/{step.steps:,}"
        elapsed = duration(time.monotonic() - self._began)
        if self.activity:
            return [
                (f"step {count}", [gap, elapsed, ", ", self.activity]),
                (f"step {count}", [gap, self.activity]),
                (count, [gap, self.activity]),
                ("", [self.activity]),
            ]
        if step.step == step.steps or self.is_over:
            return [(f"step {count}", [gap, elapsed]), (count, [])]
        left = duration(self.pace.seconds_left(step))
        return [
            (f"step {count}", [gap, elapsed, f", about {left} left"]),
            (f"step {count}", [gap, f"about {left} left"]),
            (count, [gap, f"{left} left"]),
            (count, []),
        ]

    def _numbers(self, width: int) -> list[Text]:
        """Draw losses and scores, each with a sparkline of `width` columns."""
        past = self.validations
        rows: list[tuple[str, str, list[float], str]] = [
            ("loss", f"{self.pace.loss:.3f}", [loss for _, loss in self.losses], "cyan"),
            (
                "dev loss",
                f"{past[-1].loss:.3f}" if past else "-",
                [v.loss for v in past],
                "magenta",
            ),
            ("dev BLEU", f"{past[-1].bleu:.2f}" if past else "-", [v.bleu for v in past], "green"),
        ]
        gap = " " * _GAP
        return [
            Text.assemble(
                (f"{label:<8}{gap}", "dim"),
                (f"{value:>6}{gap}", "bold"),
                (f"{sparkline(values, width):<{width}}" if width else "", color),
            )
            for label, value, values, color in rows
        ]

    def _facts(self, step: StepDone, columns: int) -> list[Text]:
        """Return a fact for each line of numbers, in at most `columns` columns."""
        speed = Text.assemble(f"{self.pace.tokens_per_second:,.0f}", (" tokens/s", "dim"))
        memory = Text.assemble(("memory ", "dim"), size(step.memory)) if step.memory else Text()
        best, at = Text(), Text()
        if self.best:
            best = Text.assemble(("best ", "dim"), (f"{self.best.bleu:.2f}", "bold green"))
            at = Text(f" at step {self.best.step:,}", "dim")
        if not columns:
            return [Text(), Text(), Text()]
        if columns < _FACTS_WIDTHS[0]:
            return [speed, memory, best]
        rate = Text.assemble(("lr ", "dim"), f"{step.learning_rate:.3g}   ")
        padding = Text.assemble(("padding ", "dim"), f"{self.pace.padding:.0%}   ")
        return [rate + speed, padding + memory, best + at]
