import errno
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from event_samples import (
    EVENTS,
    FINISHED,
    HISTORY,
    ROLLED_BACK,
    SAMPLE,
    VALIDATED,
    make_step,
    pipe_console,
    shown_text,
)
from mtcli.reporting.display import LiveDisplay, PlainDisplay, TolerantDisplay, open_display
from mtcli.reporting.events import (
    Activity,
    Notice,
    Resumed,
    RolledBack,
    Sample,
    Score,
    Stopped,
    Validated,
)


@pytest.fixture(params=[True, False], ids=["terminal", "pipe"])
def console(request):
    return Console(file=io.StringIO(), force_terminal=request.param, width=160)


def test_a_display_shows_all_facts_and_interprets_no_markup(console):
    display = open_display(console)
    for event in EVENTS:
        display(event)
    display.close()
    shown = shown_text(console)
    for expected in (
        "hello [there]",
        "a [bold] man",
        "ein Hund",
        "33.30",
        "55.50",
        "2.000",
        "0.0125",
        "2,000 tokens/s",
        "padding 20%",
        "memory 3.4 GB",
        "finished",
        "the mean of steps 50 and 100",
    ):
        assert expected in shown


def test_a_display_shows_every_metric(console):
    scores = {**VALIDATED.scores, "comet": Score("comet", 0.8, "")}
    open_display(console)(replace(VALIDATED, scores=scores))
    shown = shown_text(console)
    for expected in ("BLEU 33.30", "chrF 55.50", "comet 0.80", "dev loss 1.500", "best so far"):
        assert expected in shown


def test_displayed_text_cannot_control_the_terminal(console):
    hostile = "x\x1b[31m\x07\x9b2Jy"
    display = open_display(console)
    display(Notice(hostile))
    scores = {"bleu": Score("BLEU", 1.0, "s")}
    display(Validated(1, 1.0, scores, True, 1.0, (Sample(hostile, hostile, hostile),)))
    display(RolledBack(2, 1, hostile, 0.5))
    display.close()
    shown = console.file.getvalue()
    assert "y" in shown
    for forbidden in ("x\x1b", "\x07", "\x9b"):
        assert forbidden not in shown


def test_a_terminal_gets_a_live_display_and_a_pipe_gets_plain_lines():
    terminal = Console(file=io.StringIO(), force_terminal=True)
    assert isinstance(open_display(terminal), LiveDisplay)
    assert isinstance(open_display(pipe_console()), PlainDisplay)


def test_a_pipe_gets_no_escape_sequences():
    console = pipe_console()
    display = open_display(console)
    for event in [*EVENTS, ROLLED_BACK]:
        display(event)
    assert "\x1b" not in console.file.getvalue()
    assert "\r" not in console.file.getvalue()


def test_a_quiet_display_shows_nothing(console):
    display = open_display(console, is_quiet=True)
    for event in EVENTS:
        display(event)
    assert console.file.getvalue() == ""


def test_only_a_verbose_display_prints_every_step():
    for is_verbose, expected in ((False, 2), (True, 50)):
        console = pipe_console()
        display = open_display(console, is_verbose=is_verbose)
        for number in range(51, 101):
            display(make_step(number))
        assert console.file.getvalue().count("tokens/s") == expected


def test_a_display_explains_how_to_resume_an_interrupted_run(console):
    open_display(console)(Stopped(7, signal=2))
    assert "stopped after step 7; run the same command again" in shown_text(console)


def test_a_display_reports_that_the_time_limit_was_reached(console):
    open_display(console)(Stopped(7, signal=0))
    assert "time limit reached at step 7; run the same command again" in shown_text(console)


def test_a_rollback_is_printed_as_one_line(console):
    open_display(console)(ROLLED_BACK)
    expected = (
        "step 120: the loss is NaN or infinite; "
        "rolling back to step 100 with learning-rate factor 0.5"
    )
    assert expected in shown_text(console)


class Screen:
    """Fake terminal that rewraps its lines when its width changes, as most terminals do."""

    def __init__(self) -> None:
        self.lines = [""]  # the cursor is at the end of the last line

    def write(self, text: str, width: int) -> None:
        rows = [part for line in self.lines for part in self._wrap(line, width)]
        row, column = len(rows) - 1, len(rows[-1])
        for part in re.findall(r"\x1b\[[0-9;?]*[a-zA-Z]|\r|\n|[^\x1b\r\n]+", text):
            if part == "\r":
                column = 0
            elif part == "\n":
                row, column = row + 1, 0
                rows += [""] * (row == len(rows))
            elif part == "\x1b[2K":
                rows[row] = ""
            elif part.endswith("A") and part.startswith("\x1b"):
                row = max(0, row - int(part[2:-1]))
            elif not part.startswith("\x1b"):
                rows[row] = rows[row][:column].ljust(column) + part
                column += len(part)
        self.lines = rows[: row + 1]

    @staticmethod
    def _wrap(line: str, width: int) -> list[str]:
        return [line[i : i + width] for i in range(0, max(1, len(line)), width)]


def test_a_narrower_terminal_shows_no_stale_frame():
    screen, file = Screen(), io.StringIO()
    console = Console(file=file, force_terminal=True, width=90, height=40, legacy_windows=False)
    display = LiveDisplay(console)
    display.live.auto_refresh = False
    for number, width in enumerate((90, 90, 50, 70, 33, 33, 80), start=1):
        console.width = width
        display(make_step(number, loss=9 / number))
        display.live.refresh()
        display(Notice(f"notice {number}"))
        screen.write(file.getvalue(), width)
        file.seek(0)
        file.truncate()
    display(FINISHED)
    display.close()
    screen.write(file.getvalue(), 80)
    shown = [line for line in screen.lines if line.strip()]
    assert shown[:7] == [f"notice {number}" for number in range(1, 8)]
    assert [line.split()[0] for line in shown[8:11]] == ["loss", "dev", "dev"]
    assert shown[11].startswith("finished at step 100 (all steps done): dev BLEU 33.30")


def test_after_the_last_step_a_display_shows_the_activity_and_no_time_left(console):
    display = open_display(console, is_verbose=not console.is_terminal)
    display(make_step(100))
    display(Activity("validating", is_routine=True))
    display(Activity("exporting to CTranslate2"))
    if console.is_terminal:
        display.live.refresh()
    shown = shown_text(console)
    display.close()
    assert "exporting to CTranslate2" in shown
    assert "0 s left" not in shown


def test_a_resumed_run_estimates_the_time_left_from_its_new_steps():
    console = pipe_console()
    display = open_display(console, is_verbose=True)
    for number in range(901, 961):
        display(make_step(number, seconds=6.0, steps=1000))
    assert console.file.getvalue().splitlines()[-1].endswith("about 4 min left")


def test_a_resumed_run_prints_its_step_and_repeats_nothing(console):
    display = open_display(console)
    display(Resumed(105, HISTORY))
    display.close()
    shown = shown_text(console)
    assert "resuming from step 105" in shown
    assert "20.00" not in shown
    assert SAMPLE.source not in shown


def test_the_live_display_of_a_resumed_run_shows_its_history():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    display = open_display(console)
    display(Resumed(105, HISTORY))
    display(make_step(106, steps=500, loss=9.0, seconds=1.0))
    display.close()
    shown = shown_text(console)
    for expected in ("1.500", "19.00", "best 20.00 at step 50", "20 tokens/s"):
        assert expected in shown
    [losses] = [line for line in shown.splitlines() if line.startswith("loss")][-1:]
    assert len(re.findall("[▁-█]", losses)) == 100 - 50
    assert "█" in losses


def test_a_run_continues_after_its_terminal_closes():
    class Terminal:
        """Display that fails after its first event."""

        def __init__(self):
            self.events = []

        def __call__(self, event):
            if self.events:
                raise OSError(errno.EIO, "Input/output error")
            self.events.append(event)

        def close(self):
            raise OSError(errno.EIO, "Input/output error")

    terminal = Terminal()
    display = TolerantDisplay(terminal)
    for i in range(3):
        display(make_step(i))
    display.close()
    assert terminal.events == [make_step(0)]
