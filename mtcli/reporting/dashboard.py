"""Dashboard of the live display: four lines with throughput, sparklines and progress."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, OverflowMethod, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mtcli.reporting.events import MAIN_METRIC, Resumed, RolledBack, StepDone, Validated
from mtcli.reporting.log import STEP_INTERVAL
from mtcli.reporting.messages import format_duration, format_size, metric_label

_MIN_WEIGHT = 0.05  # weight of a new step; the moving averages cover about 20 steps


@dataclass
class Throughput:
    """Moving averages over the latest steps.

    Validations and pauses are excluded. Steps restored from the log contribute only their losses.
    """

    loss: float = math.nan
    seconds: float = math.nan  # per step
    n_tokens: float = math.nan  # per step
    n_positions: float = math.nan  # per step, with padding
    n_steps: int = 0
    n_losses: int = 0

    def add_step(self, step: StepDone) -> None:
        """Update all averages with one step."""
        self.add_loss(step.loss)
        # The second step replaces the first, which includes warm-up and compilation.
        weight = max(_MIN_WEIGHT, 1 / max(1, self.n_steps))
        self.seconds = _update_mean(self.seconds, step.seconds, weight)
        self.n_tokens = _update_mean(self.n_tokens, step.n_tokens, weight)
        self.n_positions = _update_mean(self.n_positions, step.n_positions, weight)
        self.n_steps += 1

    def add_loss(self, loss: float) -> None:
        """Update only the average loss."""
        self.n_losses += 1
        self.loss = _update_mean(self.loss, loss, max(_MIN_WEIGHT, 1 / self.n_losses))

    @property
    def tokens_per_second(self) -> float:
        """Source and target tokens per second, without padding."""
        return self.n_tokens / self.seconds if self.seconds else 0.0

    @property
    def padding(self) -> float:
        """Fraction of the positions that are padding."""
        return 1 - self.n_tokens / self.n_positions if self.n_positions else 0.0

    def seconds_left(self, step: StepDone) -> float:
        """Return the estimated time in seconds for the steps after `step`."""
        return (step.steps - step.step) * self.seconds


def _update_mean(mean: float, value: float, weight: float) -> float:
    """Return the moving average `mean` updated with `value`; ignore NaN and infinite values."""
    if not math.isfinite(value):
        return mean
    return value if weight == 1 or math.isnan(mean) else mean + weight * (value - mean)


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return at most `width` bars, scaled to the range of the values that they show.

    If there are more values than bars, each bar shows the last value of its group, so the newest
    value is always shown. NaN and infinite values are skipped. If all values are equal, the bars
    have half height.
    """
    finite = [value for value in values if math.isfinite(value)]
    n_bars = min(len(finite), max(0, width))
    shown = [finite[(i + 1) * len(finite) // n_bars - 1] for i in range(n_bars)]
    if not shown:
        return ""
    low, span = min(shown), max(shown) - min(shown)
    if not 0 < span < math.inf:
        return _BARS[len(_BARS) // 2 - 1] * n_bars
    return "".join(_bar_of_height((value - low) / span) for value in shown)


def _bar_of_height(fraction: float) -> str:
    return _BARS[min(int(fraction * len(_BARS)), len(_BARS) - 1)]


_MAX_LOSSES = 500  # more than the number of columns in a terminal
_GAP = 2  # columns between two parts of a line
_SCORE_LABEL = f"dev {metric_label(MAIN_METRIC)}"
_LABEL_WIDTH = max(len("dev loss"), len(_SCORE_LABEL))
_NUMBERS_WIDTH = _LABEL_WIDTH + _GAP + 6 + _GAP  # label and number
_FACTS_WIDTHS = 30, 16  # widths of the long and the short form
_MIN_SPARKLINE_WIDTH, _MAX_SPARKLINE_WIDTH = 8, 64
_MIN_BAR_WIDTH = 8


class Dashboard:
    """State of a run, rendered by rich as four lines."""

    def __init__(self) -> None:
        self.throughput = Throughput()
        self.step: StepDone | None = None
        self.best: Validated | None = None
        self.losses: list[tuple[int, float]] = []  # step, smoothed loss
        self.validations: list[Validated] = []
        self.activity = ""  # current work other than training steps
        self.is_stopped = False
        self._line_widths: list[int] = []  # of the last frame
        self._start_time = time.monotonic()

    def add_step(self, event: StepDone) -> None:
        """Record a step and clear the current activity."""
        self.step, self.activity = event, ""
        self.throughput.add_step(event)
        self._record_loss(event.step, event.steps)

    def add_validation(self, event: Validated) -> None:
        """Record the results of a validation."""
        self.validations.append(event)
        self.best = event if event.is_best else self.best

    def restore_history(self, event: Resumed) -> None:
        """Record the logged events of a resumed run, ignoring their speed."""
        for earlier in event.history:
            match earlier:
                case StepDone():
                    self._restore_step(earlier)
                case Validated():
                    self.add_validation(earlier)
                case RolledBack():
                    self.roll_back(earlier)

    def roll_back(self, event: RolledBack) -> None:
        """Drop the losses and validations that a rollback undoes."""
        self.losses = [(step, loss) for step, loss in self.losses if step <= event.to_step]
        self.validations = [v for v in self.validations if v.step <= event.to_step]
        if self.best and self.best.step > event.to_step:
            self.best = next((v for v in self.validations[::-1] if v.is_best), None)
        self.throughput.loss = self.losses[-1][1] if self.losses else math.nan

    def stop(self) -> None:
        """Clear the activity and the remaining time after the run has finished or stopped."""
        self.activity, self.is_stopped = "", True

    def n_wrapped_lines(self, width: int) -> int:
        """Return the number of extra lines that wrapping adds to the last frame at this width."""
        return sum(max(0, n - 1) // width for n in self._line_widths)

    def _restore_step(self, event: StepDone) -> None:
        """Record the loss of a logged step for each step since the previous logged step."""
        for number in range(event.step - STEP_INTERVAL + 1, event.step + 1):
            self.throughput.add_loss(event.loss)
            self._record_loss(number, event.steps)

    def _record_loss(self, step: int, steps: int) -> None:
        if step % max(1, steps // _MAX_LOSSES) == 0:
            self.losses.append((step, self.throughput.loss))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield four lines that do not wrap at any width; nothing before the first step."""
        if self.step is None:
            return
        overflow: OverflowMethod = "crop" if options.ascii_only else "ellipsis"
        # An ASCII terminal cannot show the block characters of a sparkline.
        min_width = 0 if options.ascii_only else _MIN_SPARKLINE_WIDTH
        room = options.max_width - _NUMBERS_WIDTH
        columns = next((n for n in _FACTS_WIDTHS if room - n - _GAP >= min_width), 0)
        free = max(0, room - columns - _GAP * bool(columns))
        width = min(_MAX_SPARKLINE_WIDTH, free) if min_width else 0
        facts = self._facts(self.step, columns)
        self._line_widths = [options.max_width]
        yield self._progress_bar(self.step, options.max_width, overflow)
        for line, fact in zip(self._numbers(width), facts, strict=True):
            line.append(" " * _GAP if width and columns else "").append_text(fact)
            line.truncate(options.max_width, overflow=overflow)
            self._line_widths.append(line.cell_len)
            yield line

    def _progress_bar(self, step: StepDone, width: int, overflow: OverflowMethod) -> Table:
        """Return a line with the progress bar and the longest text that fits."""
        room = width - _MIN_BAR_WIDTH - _GAP
        texts = [Text.assemble((count, "bold"), *rest) for count, rest in self._progress_text(step)]
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

    def _progress_text(self, step: StepDone) -> list[tuple[str, list[str]]]:
        """Return alternative progress texts, longest first, each with its bold and plain parts.

        The longest text has the step, the elapsed time, and the current activity or the time left.
        """
        gap = " " * _GAP
        count = f"{step.step:,}/{step.steps:,}"
        elapsed = format_duration(time.monotonic() - self._start_time)
        if self.activity:
            return [
                (f"step {count}", [gap, elapsed, ", ", self.activity]),
                (f"step {count}", [gap, self.activity]),
                (count, [gap, self.activity]),
                ("", [self.activity]),
            ]
        if step.step == step.steps or self.is_stopped:
            return [(f"step {count}", [gap, elapsed]), (count, [])]
        left = format_duration(self.throughput.seconds_left(step))
        return [
            (f"step {count}", [gap, elapsed, f", about {left} left"]),
            (f"step {count}", [gap, f"about {left} left"]),
            (count, [gap, f"{left} left"]),
            (count, []),
        ]

    def _numbers(self, width: int) -> list[Text]:
        """Return lines for loss, dev loss and score, each with a sparkline of `width` columns."""
        losses = [loss for _, loss in self.losses]
        dev_losses = [event.loss for event in self.validations]
        scores = [event.scores[MAIN_METRIC].value for event in self.validations]
        rows = [
            ("loss", f"{self.throughput.loss:.3f}", losses, "cyan"),
            ("dev loss", f"{dev_losses[-1]:.3f}" if dev_losses else "-", dev_losses, "magenta"),
            (_SCORE_LABEL, f"{scores[-1]:.2f}" if scores else "-", scores, "green"),
        ]
        gap = " " * _GAP
        return [
            Text.assemble(
                (f"{label:<{_LABEL_WIDTH}}{gap}", "dim"),
                (f"{value:>6}{gap}", "bold"),
                (f"{sparkline(values, width):<{width}}" if width else "", color),
            )
            for label, value, values, color in rows
        ]

    def _facts(self, step: StepDone, columns: int) -> list[Text]:
        """Return the text to the right of each line of numbers, at most `columns` wide."""
        speed = f"{self.throughput.tokens_per_second:,.0f}"
        speed_text = Text.assemble(speed, (" tokens/s", "dim"))
        memory = format_size(step.memory) if step.memory else ""
        memory_text = Text.assemble(("memory ", "dim"), memory) if memory else Text()
        best, at_step = Text(), Text()
        if self.best:
            score = self.best.scores[MAIN_METRIC].value
            best = Text.assemble(("best ", "dim"), (f"{score:.2f}", "bold green"))
            at_step = Text(f" at step {self.best.step:,}", "dim")
        if not columns:
            return [Text(), Text(), Text()]
        if columns < _FACTS_WIDTHS[0]:
            return [speed_text, memory_text, best]
        rate = Text.assemble(("lr ", "dim"), f"{step.learning_rate:.3g}   ")
        padding = Text.assemble(("padding ", "dim"), f"{self.throughput.padding:.0%}   ")
        return [rate + speed_text, padding + memory_text, best + at_step]
