"""Signals stop a run immediately; during training steps, they save a checkpoint first."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

import killing
from mtcli.__main__ import main
from mtcli.errors import Interrupted
from mtcli.reporting.events import Activity, Finished, Notice, StepDone, Stopped
from mtcli.signals import (
    handle_signals,
    has_background_thread,
    is_importing,
    raise_on_signals,
    run_interruptibly,
)
from mtcli.training import stop_request
from mtcli.training.run import train_run

MTCLI = [sys.executable, "-m", "mtcli"]
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
TIMEOUT = 100  # maximum seconds to wait for a process
STOPPED_EARLY = "stopped during preparation; run the same command again"


@pytest.fixture(autouse=True)
def default_sighup():
    """Restore the default for SIGHUP: under nohup, test processes would ignore it."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)


def ignore(_event: object) -> None:
    """Do nothing."""


def raise_at(text: str, number: int, events: list):
    """Return a listener that raises a signal when an event's text starts with `text`."""

    def listen(event):
        events.append(event)
        if isinstance(event, Notice | Activity) and event.text.startswith(text):
            signal.raise_signal(number)

    return listen


# Tests with signals that are raised in the test process.


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_preparation_immediately(tiny_config, tmp_path, number):
    events: list = []
    stopped = train_run(tiny_config, tmp_path / "run", raise_at("data: ", number, events))
    assert stopped == events[-1] == Stopped(0, number)
    assert isinstance(events[-2], Notice)
    assert events[-2].text.startswith("data: ")
    # The cache is kept, so the next start does not read the corpus again.
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["cache"]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_run_stopped_by_a_signal_while_finishing_can_be_resumed(tiny_config, tmp_path, number):
    run = tmp_path / "run"
    train_run(tiny_config, tmp_path / "uninterrupted", ignore)
    events: list = []
    assert train_run(tiny_config, run, raise_at("exporting", number, events)) == Stopped(12, number)
    assert events[-1] == Stopped(12, number)
    assert not any("stopping" in e.text for e in events if isinstance(e, Notice))
    assert isinstance(train_run(tiny_config, run, ignore), Finished)
    assert killing.result(run) == killing.result(tmp_path / "uninterrupted")


def test_a_signal_during_the_steps_is_reported_and_saves_before_it_stops(tiny_config, tmp_path):
    events: list = []

    def interrupt(event):
        events.append(event)
        if isinstance(event, StepDone) and event.step == 5:
            signal.raise_signal(signal.SIGINT)
            assert events[-1].text.startswith("stopping after this step")

    assert train_run(tiny_config, tmp_path / "run", interrupt) == Stopped(5, signal.SIGINT)
    assert "stopping" not in (tmp_path / "run" / "log.jsonl").read_text()


def test_sighup_saves_a_checkpoint(tiny_config, tmp_path):
    def hang_up(event):
        if isinstance(event, StepDone) and event.step == 5:
            signal.raise_signal(signal.SIGHUP)

    assert train_run(tiny_config, tmp_path / "run", hang_up) == Stopped(5, signal.SIGHUP)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_an_ignored_signal_stays_ignored(tiny_config, tmp_path, number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        listen = raise_at("data: ", number, [])
        assert isinstance(train_run(tiny_config, tmp_path / "run", listen), Finished)
    finally:
        signal.signal(number, before)


def test_an_error_between_a_signal_and_the_save_is_reported():
    request = stop_request.StopRequest()

    def fail():
        with stop_request.stop_on_signals(request, ignore), request.during_steps():
            signal.raise_signal(signal.SIGTERM)
            raise RuntimeError("a bug")

    with pytest.raises(Interrupted, match=r"stopped without saving; (?s:.)*\(a bug\)"):
        fail()


def test_signals_are_handled_on_systems_without_sighup(monkeypatch):
    monkeypatch.delattr(signal, "SIGHUP")
    with pytest.raises(Interrupted), raise_on_signals("stopped"):
        signal.raise_signal(signal.SIGTERM)


def test_a_second_signal_stops_without_saving(tiny_config, tmp_path):
    def interrupt(event):
        if isinstance(event, StepDone) and event.step == 5:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match="stopped without saving") as error:
        train_run(tiny_config, tmp_path / "run", interrupt)
    assert error.value.exit_code == 130


def test_a_signal_after_the_last_step_stops_the_run_before_it_finishes(
    tiny_config, tmp_path, monkeypatch
):
    events: list = []

    def interrupt_late(run, *_):  # after the last check in the loop
        if (run.directory / "checkpoints" / "step-00000012.safetensors").exists():
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("mtcli.training.loop.write_report", interrupt_late)
    stopped = train_run(tiny_config, tmp_path / "run", events.append)
    assert stopped == events[-1] == Stopped(12, signal.SIGTERM)


def test_an_error_after_a_signal_is_reported_as_the_signal(tiny_config, tmp_path, monkeypatch):
    def fail(*_):
        try:
            signal.raise_signal(signal.SIGTERM)
        except Interrupted as error:  # as numpy does during its import
            raise ImportError("damaged") from error

    monkeypatch.setattr("mtcli.data.corpus.open_entries", fail)
    assert train_run(tiny_config, tmp_path / "run", ignore) == Stopped(0, signal.SIGTERM)


def test_a_signal_swallowed_by_a_destructor_stops_the_run_before_the_steps():
    request = stop_request.StopRequest()
    with pytest.raises(Interrupted):
        request.receive(signal.SIGTERM)
    with pytest.raises(Interrupted), request.during_steps():
        raise AssertionError("there are no steps")


def test_previous_handlers_are_restored():
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(Interrupted), raise_on_signals("stopped"):
        signal.raise_signal(signal.SIGHUP)
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_other_threads_run_without_handlers():
    ran: list[bool] = []

    def work():
        with handle_signals(lambda *_: None):
            ran.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(TIMEOUT)
    assert ran == [True]


def test_run_interruptibly_returns_the_result_or_raises_the_error():
    assert run_interruptibly(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        run_interruptibly(lambda: 1 // 0)
    assert not has_background_thread()


def test_a_signal_does_not_wait_for_the_background_thread():
    may_return = threading.Event()

    def work():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
        return may_return.wait(TIMEOUT)

    with pytest.raises(Interrupted), raise_on_signals("stopped"):
        run_interruptibly(work)
    assert has_background_thread()
    may_return.set()


def test_is_importing_detects_an_import(tmp_path, monkeypatch):
    (tmp_path / "imported_by_test.py").write_text("import sys\nframe = sys._getframe()\n")
    monkeypatch.syspath_prepend(tmp_path)
    import imported_by_test

    assert is_importing(imported_by_test.frame)


# Tests with signals that are sent to other processes.


def wait_for_exit(process: subprocess.Popen) -> tuple[int, str]:
    """Wait until a process exits; return its exit code and stderr."""
    try:
        _, stderr = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, stderr


def start(arguments: list, *, script: str = "") -> subprocess.Popen:
    """Start a process that runs the Python code `script` and then `mtcli train`."""
    code = f"import sys\n{script}\nfrom mtcli.__main__ import main\nmain()\n"
    command = [sys.executable, "-c", code] if script else MTCLI
    return subprocess.Popen(
        [*command, "train", *map(str, arguments)], stderr=subprocess.PIPE, text=True
    )


def wait_for_line(process: subprocess.Popen, prefix: str) -> None:
    """Read stderr up to a line that starts with `prefix`; kill the process after the timeout."""
    killer = threading.Timer(TIMEOUT, process.kill)
    killer.start()
    lines = []
    try:
        for line in process.stderr:
            lines.append(line)
            if line.startswith(prefix):
                return
    finally:
        killer.cancel()
    raise AssertionError(f"no line starts with {prefix!r}: {lines}")


# A call into C that runs for minutes without the GIL, like SentencePiece's trainer.
ENDLESS_TOKENIZER = """
import hashlib
import mtcli.training.preparation as preparation
def train_tokenizers(*_):
    print("in the trainer", file=sys.stderr, flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
preparation.train_tokenizers = train_tokenizers
"""

# Imitates SentencePiece while it reads sentences: its thread often returns to Python, which must
# not happen while Python exits.
READING_TOKENIZER = """
import io, itertools, sentencepiece
import mtcli.training.preparation as preparation
def sentences():
    print("in the trainer", file=sys.stderr, flush=True)
    while True:
        sum(range(10_000))  # slow down: SentencePiece keeps all sentences
        yield "a b c"
def train_tokenizers(*_):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences(), model_writer=io.BytesIO(), vocab_size=100, minloglevel=2
    )
preparation.train_tokenizers = train_tokenizers
"""


@pytest.mark.parametrize(
    ("number", "script"),
    [
        (signal.SIGTERM, ENDLESS_TOKENIZER),
        pytest.param(signal.SIGINT, ENDLESS_TOKENIZER, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, ENDLESS_TOKENIZER, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, READING_TOKENIZER, marks=pytest.mark.long),
    ],
)
def test_a_signal_ends_the_process_inside_the_tokenizer_trainer(
    corpus_files, tmp_path, tiny_options, number, script
):
    arguments = [*corpus_files, "--out", tmp_path / "run", *tiny_options]
    process = start(arguments, script=script)
    wait_for_line(process, "in the trainer")
    process.send_signal(number)
    assert wait_for_exit(process) == (128 + number, f"{STOPPED_EARLY}\n")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["cache"]


@pytest.mark.long
def test_a_signal_ends_the_real_tokenizer_trainer(tmp_path, tiny_options):
    """SentencePiece takes a long time to train on text without spaces."""
    words = [f"{i * 7919 % 999_983:x}" * 8 for i in range(60_000)]
    for side in ("en", "de"):
        (tmp_path / f"train.{side}").write_text("".join(f"{word}\n" for word in words))
    files = [tmp_path / f"train.{side}" for side in ("en", "de")]
    size = ["--set", "tokenizer.vocab_size=60000"]
    process = start([*files, "--out", tmp_path / "run", *tiny_options, *size])
    wait_for_line(process, "data: ")
    process.send_signal(signal.SIGTERM)
    code, stderr = wait_for_exit(process)
    assert code == 143
    assert stderr.splitlines()[-1] == STOPPED_EARLY
    assert "vocabulary: " not in stderr


READING = """
import mtcli.data.corpus as corpus
read = corpus.CorpusReader._read
def print_and_read(*arguments):
    print("reading", file=sys.stderr, flush=True)
    return read(*arguments)
corpus.CorpusReader._read = print_and_read
"""


def in_children(script: str) -> str:
    """Return a script for the launcher that makes each of its processes run `script` first."""
    code = f"import sys\n{script}\nfrom mtcli.__main__ import main\nmain()\n"
    return (
        f"CODE = {code!r}\nimport sys, mtcli.cli.train as t\n"
        "t._launch = lambda n: t.launch_processes([sys.executable, '-c', CODE, *sys.argv[1:]], n)"
    )


@pytest.mark.parametrize(
    ("processes", "script"),
    [([], READING), (["--processes", "2"], in_children(READING))],
    ids=["one process", "two processes"],
)
def test_a_signal_ends_the_process_that_opens_a_fifo_without_a_writer(
    corpus_files, tmp_path, tiny_options, processes, script
):
    corpus_files[0].unlink()
    os.mkfifo(corpus_files[0])
    arguments = [*corpus_files, "--out", tmp_path / "run", *tiny_options, *processes]
    process = start(arguments, script=script)
    wait_for_line(process, "reading")  # the signal may come before or during `open`
    process.send_signal(signal.SIGTERM)
    code, stderr = wait_for_exit(process)
    assert code == 143
    lines = [line for line in stderr.splitlines() if line != "reading"]  # both processes print it
    assert lines == [STOPPED_EARLY]


@pytest.mark.long
def test_a_signal_ends_the_preparation_of_several_processes(corpus_files, tmp_path, tiny_options):
    arguments = [*corpus_files, "--out", tmp_path / "run", *tiny_options, "--processes", "2"]
    process = start(arguments, script=in_children(ENDLESS_TOKENIZER))
    wait_for_line(process, "in the trainer")
    process.send_signal(signal.SIGTERM)
    assert wait_for_exit(process) == (143, f"{STOPPED_EARLY}\n")


def test_sighup_makes_a_real_run_save_a_checkpoint(corpus_files, tmp_path, tiny_options):
    steps = ["--set", "train.steps=100000", "--set", "train.validate_every=100000"]
    process = start([*corpus_files, "--out", tmp_path / "run", *tiny_options, *steps])
    wait_for_line(process, "step ")
    process.send_signal(signal.SIGHUP)
    code, stderr = wait_for_exit(process)
    assert code == 128 + signal.SIGHUP
    assert stderr.splitlines()[-1].endswith("; run the same command again to resume")
    assert list((tmp_path / "run" / "checkpoints").iterdir())


@pytest.mark.parametrize("command", [["translate", "no-such-model"], ["train", "a", "b"]])
def test_ctrl_c_during_startup_prints_no_traceback_from_main(command, tmp_path):
    """Python may print a traceback only before `main` runs."""
    for delay in [i * 0.04 for i in range(8)]:
        process = subprocess.Popen(
            [*MTCLI, *command, *(["--out", str(tmp_path)] if command[0] == "train" else [])],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        code, stderr = wait_for_exit(process)
        if "Traceback" in stderr:
            lines = re.findall(r"mtcli.__main__\.py., line (\d+), in main", stderr)
            # Python reports the line of `def` if the signal arrives before the first statement.
            assert {int(line) for line in lines} <= {main.__code__.co_firstlineno}, stderr
        else:
            assert code in (1, 2, 130, -signal.SIGINT), stderr
