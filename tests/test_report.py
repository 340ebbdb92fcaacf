import errno
import io
import json
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from mtcli.report import (
    Activity,
    EventLog,
    Finished,
    LiveDisplay,
    Notice,
    PlainDisplay,
    Resumed,
    RolledBack,
    Sample,
    StepDone,
    Stopped,
    TolerantDisplay,
    Validated,
    open_display,
    read_events,
)
from mtcli.report.dashboard import Dashboard
from mtcli.report.pace import Pace
from mtcli.report.sparkline import sparkline
from mtcli.report.wording import duration, size


def step(number: int, loss: float = 2.0, seconds: float = 0.01, steps: int = 100) -> StepDone:
    return StepDone(
        step=number,
        steps=steps,
        epoch=0,
        loss=loss,
        learning_rate=0.0125,
        n_words=10,
        n_tokens=20,
        n_positions=25,
        seconds=seconds,
        memory=3_400_000_000,
    )


def validated(number: int, bleu: float, *, is_best: bool) -> Validated:
    return Validated(number, 1.5, bleu, 55.5, "s", is_best, seconds=1.0, samples=(SAMPLE,))


SAMPLE = Sample("a [bold] man", "ein Mann", "ein Hund")
VALIDATED = validated(50, 33.3, is_best=True)
ROLLED_BACK = RolledBack(step=120, to_step=100, reason="the loss is not a number", factor=0.5)
FINISHED = Finished(
    step=100,
    best_step=50,
    bleu=33.3,
    signature="s",
    reason="all steps done",
    weights="the mean of steps 50 and 100",
)
EVENTS = [Notice("hello [there]"), step(1), VALIDATED, step(100), FINISHED]


def pipe() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=140)


@pytest.fixture(params=[True, False], ids=["terminal", "pipe"])
def console(request):
    return Console(file=io.StringIO(), force_terminal=request.param, width=160)


def text_of(console: Console) -> str:
    """What was shown, without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())


def drawn(dashboard: Dashboard, width: int) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    console.print(dashboard)
    return text_of(console).splitlines()


def test_a_display_shows_what_matters_and_takes_text_for_text(console):
    display = open_display(console)
    for event in EVENTS:
        display(event)
    display.close()
    shown = text_of(console)
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


def test_no_text_steers_the_terminal(console):
    evil = "x\x1b[31m\x07\x9b2Jy"
    display = open_display(console)
    display(Notice(evil))
    display(Validated(1, 1.0, 1.0, 1.0, "s", True, 1.0, (Sample(evil, evil, evil),)))
    display(RolledBack(2, 1, evil, 0.5))
    display.close()
    shown = console.file.getvalue()
    assert "y" in shown
    for forbidden in ("x\x1b", "\x07", "\x9b"):
        assert forbidden not in shown


def test_a_terminal_gets_a_bar_and_a_pipe_plain_lines():
    terminal = Console(file=io.StringIO(), force_terminal=True)
    assert isinstance(open_display(terminal), LiveDisplay)
    assert isinstance(open_display(pipe()), PlainDisplay)


def test_a_pipe_gets_no_escape_sequences():
    console = pipe()
    display = open_display(console)
    for event in [*EVENTS, ROLLED_BACK]:
        display(event)
    assert "\x1b" not in console.file.getvalue()
    assert "\r" not in console.file.getvalue()


def test_quiet_shows_nothing(console):
    display = open_display(console, is_quiet=True)
    for event in EVENTS:
        display(event)
    assert console.file.getvalue() == ""


def test_a_log_of_steps_is_short_unless_one_wants_it_long():
    for is_verbose, expected in ((False, 2), (True, 50)):
        console = pipe()
        display = open_display(console, is_verbose=is_verbose)
        for number in range(51, 101):
            display(step(number))
        assert console.file.getvalue().count("tokens/s") == expected


def test_an_interrupted_run_says_how_to_go_on(console):
    open_display(console)(Stopped(7, signal=2))
    assert "stopped after step 7; run the same command again" in text_of(console)


def test_a_run_whose_time_was_up_says_so(console):
    open_display(console)(Stopped(7, signal=0))
    assert "time limit reached at step 7; run the same command again" in text_of(console)


def test_a_rollback_is_told_in_a_line(console):
    open_display(console)(ROLLED_BACK)
    expected = (
        "step 120: the loss is not a number; "
        "going back to step 100 with 0.5 times the learning rate"
    )
    assert expected in text_of(console)


@pytest.mark.parametrize("width", [40, 80, 160])
def test_the_dashboard_fits_and_never_changes_its_height(width):
    dashboard = Dashboard()
    assert drawn(dashboard, width) == []
    for number in range(1, 1001):
        dashboard.see_step(step(number, steps=100_000, loss=9 / number))
        if number % 100 == 0:
            dashboard.see_validation(validated(number, number / 30, is_best=True))
        if number in (1, 500, 1000):
            lines = drawn(dashboard, width)
            assert len(lines) == 4
            assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("width", [1, 5, 10, 17, 18, 25])
def test_a_very_narrow_terminal_does_not_end_a_run(width):
    dashboard = Dashboard()
    dashboard.see_step(step(12_000, steps=120_000))
    dashboard.see_validation(validated(12_000, 10.0, is_best=True))
    lines = drawn(dashboard, width)
    assert len(lines) == 4
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("width", range(30, 121))
def test_every_frame_has_the_same_height_and_no_line_wraps(width):
    dashboard = Dashboard()
    frames = []
    for number in range(1, 11):
        dashboard.see_step(step(12_000 * number, steps=120_000, seconds=9.0, loss=90 / number))
        frames.append(drawn(dashboard, width))
        dashboard.activity = "evaluating the mean of steps 10,000, 20,000 and 30,000"
        frames.append(drawn(dashboard, width))
        dashboard.see_validation(validated(12_000 * number, 10.0 * number, is_best=True))
    dashboard.activity = "exporting to CTranslate2"
    frames.append(drawn(dashboard, width))
    dashboard.end()
    frames.append(drawn(dashboard, width))
    for lines in frames:
        assert len(lines) == 4
        assert max(map(cell_len, lines)) <= width
    losses, scores = frames[-1][1], frames[-1][3]
    assert len(re.findall("[▁-█]", losses)) >= 8
    assert len(re.findall("[▁-█]", scores)) >= 8
    assert "100.00" in scores


class Screen:
    """A terminal that wraps its lines again when its width changes, as most do."""

    def __init__(self) -> None:
        self.lines = [""]  # the cursor is at the end of the last one

    def write(self, text: str, width: int) -> None:
        rows = [row for line in self.lines for row in self._wrapped(line, width)]
        at, column = len(rows) - 1, len(rows[-1])
        for part in re.findall(r"\x1b\[[0-9;?]*[a-zA-Z]|\r|\n|[^\x1b\r\n]+", text):
            if part == "\r":
                column = 0
            elif part == "\n":
                at, column = at + 1, 0
                rows += [""] * (at == len(rows))
            elif part == "\x1b[2K":
                rows[at] = ""
            elif part.endswith("A") and part.startswith("\x1b"):
                at = max(0, at - int(part[2:-1]))
            elif not part.startswith("\x1b"):
                rows[at] = rows[at][:column].ljust(column) + part
                column += len(part)
        self.lines = rows[: at + 1]

    @staticmethod
    def _wrapped(line: str, width: int) -> list[str]:
        return [line[i : i + width] for i in range(0, max(1, len(line)), width)]


def test_a_narrower_terminal_keeps_no_old_frame():
    screen, file = Screen(), io.StringIO()
    console = Console(file=file, force_terminal=True, width=90, height=40, legacy_windows=False)
    display = LiveDisplay(console)
    display.live.auto_refresh = False
    for number, width in enumerate((90, 90, 50, 70, 33, 33, 80), start=1):
        console.width = width
        display(step(number, loss=9 / number))
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
    assert shown[11].startswith("finished after step 100")


def test_after_the_last_step_a_display_shows_the_activity_and_no_time_left(console):
    display = open_display(console, is_verbose=not console.is_terminal)
    display(step(100))
    display(Activity("validating", is_routine=True))
    display(Activity("exporting to CTranslate2"))
    if console.is_terminal:
        display.live.refresh()
    shown = text_of(console)
    display.close()
    assert "exporting to CTranslate2" in shown
    assert "0 s left" not in shown


def test_the_live_display_shows_the_activity_until_the_next_step_or_the_end():
    dashboard = Dashboard()
    dashboard.see_step(step(50, seconds=1.0))
    dashboard.activity = "validating"
    assert "validating" in drawn(dashboard, 80)[0]
    assert "left" not in drawn(dashboard, 80)[0]
    dashboard.see_step(step(51, seconds=1.0))
    assert "validating" not in drawn(dashboard, 80)[0]
    assert "about 49 s left" in drawn(dashboard, 80)[0]
    dashboard.activity = "exporting"
    dashboard.end()
    assert "left" not in drawn(dashboard, 80)[0]
    assert "exporting" not in drawn(dashboard, 80)[0]


@pytest.mark.parametrize("width", [80, 160])
def test_the_dashboard_tells_everything_without_cutting(width):
    dashboard = Dashboard()
    for number in range(12_001, 12_101):
        dashboard.see_step(step(number, steps=100_000, seconds=0.4, loss=4.0))
    dashboard.see_validation(validated(12_050, 34.12, is_best=True))
    dashboard.see_validation(validated(12_100, 33.5, is_best=False))
    shown = " ".join(drawn(dashboard, width))
    assert "…" not in shown
    for expected in (
        "step 12,100/100,000",
        "about 9 h 46 min left",
        "4.000",
        "1.500",
        "33.50",
        "best 34.12 at step 12,050",
        "lr 0.0125",
        "50 tokens/s",
        "padding 20%",
        "memory 3.4 GB",
    ):
        assert expected in shown


def test_a_terminal_that_has_only_ascii_gets_ascii():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    dashboard = Dashboard()
    dashboard.see_step(step(1))
    dashboard.see_validation(VALIDATED)
    Console(file=file, force_terminal=True, width=80).print(dashboard)
    file.seek(0)
    assert "best" in file.read()


def test_the_time_left_of_a_run_that_goes_on_is_that_of_its_own_steps():
    console = pipe()
    display = open_display(console, is_verbose=True)
    for number in range(901, 961):
        display(step(number, seconds=6.0, steps=1000))
    assert console.file.getvalue().splitlines()[-1].endswith("about 4 min left")


def test_the_dashboard_forgets_what_a_rollback_has_undone():
    dashboard = Dashboard()
    for number in range(1, 121):
        dashboard.see_step(step(number, steps=500, loss=5.0 if number <= 100 else 99.0))
    dashboard.see_validation(validated(100, 20.0, is_best=True))
    dashboard.see_validation(validated(110, 21.0, is_best=True))
    dashboard.go_back(ROLLED_BACK)
    dashboard.see_step(step(101, steps=500, loss=5.0))
    shown = " ".join(drawn(dashboard, 80))
    assert "5.000" in shown
    assert "best 20.00 at step 100" in shown
    assert "21.00" not in shown


PAST = (
    *(step(number, steps=500, loss=900 / number) for number in range(10, 101, 10)),
    validated(50, 20.0, is_best=True),
    validated(100, 19.0, is_best=False),
)


def test_a_run_that_goes_on_says_so_and_prints_nothing_again(console):
    display = open_display(console)
    display(Resumed(105, PAST))
    display.close()
    shown = text_of(console)
    assert "going on after step 105" in shown
    assert "20.00" not in shown
    assert SAMPLE.source not in shown


def test_the_live_display_of_a_run_that_goes_on_shows_what_came_before():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    display = open_display(console)
    display(Resumed(105, PAST))
    display(step(106, steps=500, loss=9.0, seconds=1.0))
    display.close()
    shown = text_of(console)
    for expected in ("1.500", "19.00", "best 20.00 at step 50", "20 tokens/s"):
        assert expected in shown
    [losses] = [line for line in shown.splitlines() if line.startswith("loss")][-1:]
    assert len(re.findall("[▁-█]", losses)) == 100 - 50
    assert "█" in losses


def test_the_dashboard_that_remembers_is_like_one_that_has_seen_everything():
    """Nine in ten losses are not logged: the curves are of equal length, and nearly the same."""
    steps = [step(number, steps=500, loss=9 - number / 100) for number in range(1, 201)]
    seen, remembering = Dashboard(), Dashboard()
    for event in steps:
        seen.see_step(event)
    remembering.remember(Resumed(200, tuple(event for event in steps if event.step % 10 == 0)))
    assert [number for number, _ in remembering.losses] == [number for number, _ in seen.losses]
    for (_, loss), (_, expected) in zip(remembering.losses, seen.losses, strict=True):
        assert loss == pytest.approx(expected, abs=0.1)
    for dashboard in (seen, remembering):
        dashboard.see_step(step(201, steps=500, loss=99.0))  # one step does not count for all
    assert remembering.pace.loss == pytest.approx(seen.pace.loss, abs=0.1)


def test_the_dashboard_does_not_remember_what_a_rollback_has_undone():
    dashboard = Dashboard()
    undone = (step(110, steps=500, loss=99.0), validated(120, 30.0, is_best=True), ROLLED_BACK)
    dashboard.remember(Resumed(100, (*PAST, *undone)))
    dashboard.see_step(step(101, steps=500, loss=9.0))
    shown = " ".join(drawn(dashboard, 80))
    assert "best 20.00 at step 50" in shown
    assert max(number for number, _ in dashboard.losses) == 101
    assert max(loss for _, loss in dashboard.losses) <= 90


def test_pace_counts_the_steps_it_has_seen_and_nothing_else():
    pace = Pace()
    pace.see(step(901, seconds=60.0, steps=1000))  # the first: it compiles
    for number in range(902, 951):
        pace.see(step(number, seconds=0.5, steps=1000))
    assert pace.seconds_left(step(950, steps=1000)) == pytest.approx(25.0)
    assert pace.tokens_per_second == pytest.approx(40.0)
    assert pace.padding == pytest.approx(0.2)


def test_pace_moves_smoothly_to_what_is_new():
    pace = Pace()
    for number in range(1, 101):
        pace.see(step(number, loss=4.0))
    pace.see(step(101, loss=2.0))
    assert 3.5 < pace.loss < 4.0
    pace.see(step(102, loss=math.nan))
    assert 3.5 < pace.loss < 4.0
    for number in range(103, 303):
        pace.see(step(number, loss=2.0))
    assert pace.loss == pytest.approx(2.0, abs=0.01)


numbers = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=60)


@given(numbers, st.integers(-1, 30))
def test_a_sparkline_is_never_wider_than_asked_and_has_a_bar_for_every_number(values, width):
    finite = [value for value in values if math.isfinite(value)]
    assert len(sparkline(values, width)) == min(len(finite), max(0, width))


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60), st.integers(1, 30))
def test_a_sparkline_rises_with_its_numbers(values, width):
    bars = sparkline(sorted(values), width)
    assert list(bars) == sorted(bars)
    falling = sparkline(sorted(values, reverse=True), width)
    assert list(falling) == sorted(falling, reverse=True)


@given(st.floats(-1e9, 1e9), st.integers(1, 60))
def test_a_sparkline_of_one_number_is_level(value, count):
    assert len(set(sparkline([value] * count, 20))) == 1


def test_a_sparkline_uses_its_whole_height_and_ends_with_the_newest():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0.0] * 99 + [1.0], 10) == "▁▁▁▁▁▁▁▁▁█"
    assert sparkline([], 10) == ""
    assert sparkline([-1e308, 0.0, 1e308], 10) == "▄▄▄"  # too far apart to be measured


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (89, "89 s"),
        (90, "2 min"),
        (3600, "60 min"),
        (11_100, "3 h 05 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_a_duration_is_said_as_people_say_it(seconds, expected):
    assert duration(seconds) == expected


def test_memory_has_units():
    assert size(512_000_000) == "512 MB"
    assert size(3_400_000_000) == "3.4 GB"


def test_the_log_has_one_object_per_event_and_every_tenth_step(tmp_path):
    log = EventLog(tmp_path / "log.jsonl")
    steps = (step(number) for number in range(1, 31))
    for event in [Notice("ü"), *steps, VALIDATED, ROLLED_BACK]:
        log(event)
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text("utf-8").splitlines()]
    assert [event["event"] for event in events] == [
        "notice",
        *["step"] * 3,
        "validation",
        "rollback",
    ]
    assert events[0]["text"] == "ü"
    assert [event["step"] for event in events[1:4]] == [10, 20, 30]
    assert events[1]["n_positions"] == 25
    assert "memory" not in events[1]  # it is the machine's, and the log is the run's
    assert events[4]["samples"][0]["source"] == SAMPLE.source
    assert events[5]["to_step"] == 100
    assert read_events(log.path) == events


def test_the_log_gives_back_the_course_of_a_run(tmp_path):
    log = EventLog(tmp_path / "log.jsonl")
    assert log.past() == ()
    for event in [Notice("x"), step(9), step(10), VALIDATED, ROLLED_BACK, FINISHED]:
        log(event)
    course = (replace(step(10), memory=0), VALIDATED, ROLLED_BACK)
    assert log.past() == course
    with log.path.open("a") as file:  # other versions of mtcli, and a kill
        file.write('{"event": "step", "step": 20}\n{"event": "validation", "steps": 1}\n{"ev')
    assert log.past() == course


def test_the_log_can_be_cut_back_and_knows_whether_the_run_is_complete(tmp_path):
    log = EventLog(tmp_path / "log.jsonl")
    assert log.finished() is None
    log(VALIDATED)
    size = log.size()
    assert log.finished() is None
    log(FINISHED)
    assert log.finished() == FINISHED
    log.cut(log.size() - 3)  # as a kill may leave it
    assert log.finished() is None
    assert [event["event"] for event in read_events(log.path)] == ["validation"]
    log.cut(size)
    assert len(log.path.read_bytes()) == size


def test_a_log_of_an_earlier_version_is_complete_all_the_same(tmp_path):
    line = {"event": "finished", "time": 0, "step": 9, "best_step": 6, "bleu": 1.0}
    (tmp_path / "log.jsonl").write_text(json.dumps({**line, "signature": "s", "reason": "r"}))
    finished = EventLog(tmp_path / "log.jsonl").finished()
    assert finished
    assert finished.weights == "step 6"


def test_a_log_that_is_not_there_has_no_events(tmp_path):
    assert read_events(tmp_path / "log.jsonl") == []


def test_a_run_continues_without_its_terminal():
    class Terminal:
        """A display that is gone after its first event."""

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
        display(step(i))
    display.close()
    assert terminal.events == [step(0)]
