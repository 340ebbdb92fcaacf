import io
import json

import pytest
from rich.console import Console

from mtcli.report import (
    EventLog,
    Finished,
    LiveDisplay,
    Notice,
    PlainDisplay,
    Sample,
    StepDone,
    Stopped,
    Validated,
    open_display,
)


def step(number: int, loss: float = 2.0) -> StepDone:
    return StepDone(
        step=number,
        steps=100,
        epoch=0,
        loss=loss,
        learning_rate=0.0125,
        n_words=10,
        n_tokens=20,
        seconds=0.01,
    )


SAMPLE = Sample("a [bold] man", "ein Mann", "ein Hund")
VALIDATED = Validated(
    step=50, loss=1.5, bleu=33.3, signature="s", is_best=True, seconds=1.0, samples=(SAMPLE,)
)
FINISHED = Finished(step=100, best_step=50, bleu=33.3, signature="s", reason="all steps done")
EVENTS = [Notice("hello [there]"), step(1), VALIDATED, step(100), FINISHED]


@pytest.fixture(params=[True, False], ids=["terminal", "pipe"])
def console(request):
    return Console(file=io.StringIO(), force_terminal=request.param, width=140)


def test_a_display_shows_what_matters_and_takes_text_for_text(console):
    display = open_display(console)
    for event in EVENTS:
        display(event)
    display.close()
    shown = console.file.getvalue()
    for expected in (
        "hello [there]",
        "a [bold] man",
        "ein Hund",
        "33.30",
        "2.000",
        "0.013",
        "finished",
    ):
        assert expected in shown


def test_a_terminal_gets_a_bar_and_a_pipe_plain_lines():
    terminal = Console(file=io.StringIO(), force_terminal=True)
    pipe = Console(file=io.StringIO(), force_terminal=False)
    assert isinstance(open_display(terminal), LiveDisplay)
    assert isinstance(open_display(pipe), PlainDisplay)


def test_a_pipe_gets_no_escape_sequences():
    console = Console(file=io.StringIO(), force_terminal=False)
    display = open_display(console)
    for event in EVENTS:
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
        console = Console(file=io.StringIO(), force_terminal=False)
        display = open_display(console, is_verbose=is_verbose)
        for number in range(51, 101):
            display(step(number))
        assert console.file.getvalue().count("tokens/s") == expected


def test_an_interrupted_run_says_how_to_go_on(console):
    open_display(console)(Stopped(7, signal=2))
    assert "stopped after step 7; run the same command again" in console.file.getvalue()


def test_the_log_has_one_object_per_event_and_every_tenth_step(tmp_path):
    log = EventLog(tmp_path / "log.jsonl")
    for event in [Notice("ü"), *(step(number) for number in range(1, 31)), VALIDATED]:
        log(event)
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text("utf-8").splitlines()]
    assert [event["event"] for event in events] == ["notice", *["step"] * 3, "validation"]
    assert events[0]["text"] == "ü"
    assert [event["step"] for event in events[1:4]] == [10, 20, 30]
    assert events[4]["samples"][0]["source"] == SAMPLE.source


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
    log.cut(size)
    assert len(log.path.read_bytes()) == size
