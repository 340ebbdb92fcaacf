"""Signals: they end preparation and finish at once, and let steps be saved."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

import killing
from mtcli.errors import Interrupted
from mtcli.report import Activity, Finished, Notice, StepDone, Stopped
from mtcli.signals import handling, is_importing, is_working, raising, run_interruptibly
from mtcli.training import interrupt, preparation, train_run

MTCLI = [sys.executable, "-m", "mtcli"]
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
LIMIT = 100  # seconds that a test waits for a process
STOPPED_EARLY = "stopped during preparation; run the same command again"


@pytest.fixture(autouse=True)
def hangup_is_not_ignored():
    """Run the tests under nohup, too: the processes that they start inherit what is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def silent(_event: object) -> None:
    """Show nothing."""


def raise_at(text: str, number: int, events: list):
    """Return a listener that raises a signal when an event's text starts with `text`."""

    def listen(event):
        events.append(event)
        if isinstance(event, Notice | Activity) and event.text.startswith(text):
            signal.raise_signal(number)

    return listen


# In one process.


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_preparation_at_once(tiny_config, tmp_path, number):
    events: list = []
    stopped = train_run(tiny_config, tmp_path / "run", raise_at("data: ", number, events))
    assert stopped == events[-1] == Stopped(0, number)
    assert isinstance(events[-2], Notice)
    assert events[-2].text.startswith("data: ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_finish_at_once_and_nothing_is_lost(tiny_config, tmp_path, number):
    run = tmp_path / "run"
    train_run(tiny_config, tmp_path / "undisturbed", silent)
    events: list = []
    assert train_run(tiny_config, run, raise_at("exporting", number, events)) == Stopped(12, number)
    assert events[-1] == Stopped(12, number)
    assert not any("stopping" in e.text for e in events if isinstance(e, Notice))
    assert isinstance(train_run(tiny_config, run, silent), Finished)
    assert killing.result(run) == killing.result(tmp_path / "undisturbed")


def test_a_signal_during_the_steps_saves_first_and_only_then_is_it_answered(tiny_config, tmp_path):
    events: list = []

    def interrupt(event):
        events.append(event)
        if isinstance(event, StepDone) and event.step == 5:
            signal.raise_signal(signal.SIGINT)
            assert events[-1].text.startswith("stopping after this step")

    assert train_run(tiny_config, tmp_path / "run", interrupt) == Stopped(5, signal.SIGINT)
    assert "stopping" not in (tmp_path / "run" / "log.jsonl").read_text()


def test_a_hangup_saves_like_a_sigterm(tiny_config, tmp_path):
    def hang_up(event):
        if isinstance(event, StepDone) and event.step == 5:
            signal.raise_signal(signal.SIGHUP)

    assert train_run(tiny_config, tmp_path / "run", hang_up) == Stopped(5, signal.SIGHUP)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_is_ignored_stays_ignored(tiny_config, tmp_path, number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        listen = raise_at("data: ", number, [])
        assert isinstance(train_run(tiny_config, tmp_path / "run", listen), Finished)
    finally:
        signal.signal(number, before)


def test_an_error_between_a_signal_and_the_save_is_reported():
    request = interrupt.StopRequest()

    def fail():
        with interrupt.stop_on_signals(request, silent), request.during_steps():
            signal.raise_signal(signal.SIGTERM)
            raise RuntimeError("a bug")

    with pytest.raises(Interrupted, match=r"stopped without saving; (?s:.)*\(a bug\)"):
        fail()


def test_signals_are_handled_where_there_is_no_sighup(monkeypatch):
    monkeypatch.delattr(signal, "SIGHUP")
    with pytest.raises(Interrupted), raising("stopped"):
        signal.raise_signal(signal.SIGTERM)


def test_a_second_signal_does_not_wait_for_the_end_of_the_step(tiny_config, tmp_path):
    def interrupt(event):
        if isinstance(event, StepDone) and event.step == 5:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match="stopped without saving") as error:
        train_run(tiny_config, tmp_path / "run", interrupt)
    assert error.value.exit_code == 130


def test_a_signal_after_the_last_step_ends_before_the_finish(tiny_config, tmp_path, monkeypatch):
    events: list = []

    def interrupt_late(run, *_):  # after the last check of the loop
        if (run.directory / "checkpoints" / "step-00000012.safetensors").exists():
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("mtcli.training.course.write_report", interrupt_late)
    stopped = train_run(tiny_config, tmp_path / "run", events.append)
    assert stopped == events[-1] == Stopped(12, signal.SIGTERM)


def test_an_error_that_follows_a_signal_is_its_consequence(tiny_config, tmp_path, monkeypatch):
    def fail(*_):
        try:
            signal.raise_signal(signal.SIGTERM)
        except Interrupted as error:  # as numpy does while it is imported
            raise ImportError("damaged") from error

    monkeypatch.setattr(preparation, "read_corpus", fail)
    assert train_run(tiny_config, tmp_path / "run", silent) == Stopped(0, signal.SIGTERM)


def test_a_signal_that_a_destructor_swallows_ends_the_run_before_the_steps():
    request = interrupt.StopRequest()
    with pytest.raises(Interrupted):
        request.receive(signal.SIGTERM)
    with pytest.raises(Interrupted), request.during_steps():
        raise AssertionError("there are no steps")


def test_handlers_are_restored():
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(Interrupted), raising("stopped"):
        signal.raise_signal(signal.SIGHUP)
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_another_thread_runs_without_handlers():
    ran: list[bool] = []

    def work():
        with handling(lambda *_: None):
            ran.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(LIMIT)
    assert ran == [True]


def test_work_in_the_background_returns_its_result_or_its_error():
    assert run_interruptibly(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        run_interruptibly(lambda: 1 // 0)
    assert not is_working()


def test_a_signal_does_not_wait_for_work_in_the_background():
    may_end = threading.Event()

    def work():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
        return may_end.wait(LIMIT)

    with pytest.raises(Interrupted), raising("stopped"):
        run_interruptibly(work)
    assert is_working()
    may_end.set()


def test_an_import_is_recognized(tmp_path, monkeypatch):
    (tmp_path / "imported_by_test.py").write_text("import sys\nframe = sys._getframe()\n")
    monkeypatch.syspath_prepend(tmp_path)
    import imported_by_test

    assert is_importing(imported_by_test.frame)


# Real processes.


def ended(process: subprocess.Popen) -> tuple[int, str]:
    """Wait for the end of a process; return its exit code and its stderr."""
    try:
        _, stderr = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, stderr


def start(arguments: list, *, script: str = "") -> subprocess.Popen:
    """Start `mtcli train`; `script` is Python code that runs before it."""
    code = f"import sys\n{script}\nfrom mtcli.__main__ import main\nmain()\n"
    command = [sys.executable, "-c", code] if script else MTCLI
    return subprocess.Popen(
        [*command, "train", *map(str, arguments)], stderr=subprocess.PIPE, text=True
    )


def wait_for_line(process: subprocess.Popen, start: str) -> None:
    """Read stderr up to a line; kill the process if that takes too long."""
    killer = threading.Timer(LIMIT, process.kill)
    killer.start()
    lines = []
    try:
        for line in process.stderr:
            lines.append(line)
            if line.startswith(start):
                return
    finally:
        killer.cancel()
    raise AssertionError(f"there was no line {start!r} in {lines}")


# A call into C that takes minutes, without the GIL: like SentencePiece's trainer.
ENDLESS_TOKENIZER = """
import hashlib
import mtcli.training.preparation as preparation
def train_tokenizers(*_):
    print("in the trainer", file=sys.stderr, flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
preparation.train_tokenizers = train_tokenizers
"""

# SentencePiece while it reads sentences: its thread returns to Python all the time, which must not
# happen while Python exits.
READING_TOKENIZER = """
import io, itertools, sentencepiece
import mtcli.training.preparation as preparation
def sentences():
    print("in the trainer", file=sys.stderr, flush=True)
    while True:
        sum(range(10_000))  # not faster: SentencePiece keeps all sentences
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
    assert ended(process) == (128 + number, f"{STOPPED_EARLY}\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_signal_ends_the_real_tokenizer_trainer(tmp_path, tiny_options):
    """A text without spaces: SentencePiece would work on it for a long time."""
    words = [f"{i * 7919 % 999_983:x}" * 8 for i in range(60_000)]
    for side in ("en", "de"):
        (tmp_path / f"train.{side}").write_text("".join(f"{word}\n" for word in words))
    files = [tmp_path / f"train.{side}" for side in ("en", "de")]
    size = ["--set", "tokenizer.vocab_size=60000"]
    process = start([*files, "--out", tmp_path / "run", *tiny_options, *size])
    wait_for_line(process, "data: ")
    process.send_signal(signal.SIGTERM)
    code, stderr = ended(process)
    assert code == 143
    assert stderr.splitlines()[-1] == STOPPED_EARLY
    assert "vocabulary: " not in stderr


READING = """
import mtcli.data.corpus as corpus
read = corpus.read_aligned
corpus.read_aligned = lambda paths: print("reading", file=sys.stderr, flush=True) or read(paths)
"""


@pytest.mark.parametrize("processes", [[], ["--processes", "2"]])
def test_a_fifo_without_a_writer_does_not_swallow_a_signal(
    corpus_files, tmp_path, tiny_options, processes
):
    corpus_files[0].unlink()
    os.mkfifo(corpus_files[0])
    arguments = [*corpus_files, "--out", tmp_path / "run", *tiny_options, *processes]
    process = start(arguments, script=READING)
    wait_for_line(process, "reading")  # any moment is right: before the FIFO is opened, or after
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (143, f"{STOPPED_EARLY}\n")


@pytest.mark.long
def test_a_signal_ends_the_preparation_of_several_processes(corpus_files, tmp_path, tiny_options):
    launcher = (
        "import sys, mtcli.cli.train as t\n"
        "t._start_again = lambda n: t.run_together([sys.executable, '-c', CODE, *sys.argv[1:]], n)"
    )
    code = f"import sys\n{ENDLESS_TOKENIZER}\nfrom mtcli.__main__ import main\nmain()\n"
    arguments = [*corpus_files, "--out", tmp_path / "run", *tiny_options, "--processes", "2"]
    process = start(arguments, script=f"CODE = {code!r}\n{launcher.replace('CODE', repr(code))}")
    wait_for_line(process, "in the trainer")
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (143, f"{STOPPED_EARLY}\n")


def test_a_hangup_of_a_real_run_saves(corpus_files, tmp_path, tiny_options):
    steps = ["--set", "train.steps=100000", "--set", "train.validate_every=100000"]
    process = start([*corpus_files, "--out", tmp_path / "run", *tiny_options, *steps])
    wait_for_line(process, "step ")
    process.send_signal(signal.SIGHUP)
    code, stderr = ended(process)
    assert code == 128 + signal.SIGHUP
    assert stderr.splitlines()[-1].endswith("; run the same command again to resume")
    assert list((tmp_path / "run" / "checkpoints").iterdir())


@pytest.mark.parametrize("command", [["translate", "no-such-model"], ["train", "a", "b"]])
def test_ctrl_c_is_quiet_at_any_moment_of_the_start(command, tmp_path):
    """Before `main` runs, Python handles signals and prints a traceback."""
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
        code, stderr = ended(process)
        if "Traceback" in stderr:
            assert not re.search(r"mtcli.__main__\.py., line \d+, in main", stderr), stderr
        else:
            assert code in (1, 2, 130, -signal.SIGINT), stderr
