"""The lock on a run directory: only one process trains in it at a time."""

import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading

import pytest
from typer.testing import CliRunner

from mtcli.cli.base import app
from mtcli.errors import CheckpointError
from mtcli.model_dir.directory import check_is_run
from mtcli.model_dir.layout import LOCK
from mtcli.model_dir.lock import RunLock, check_is_unlocked
from mtcli.reporting.events import Finished, Notice, StepDone
from mtcli.training.run import RunOptions, train_run

LIMIT = 100  # maximum seconds to wait for a process
BUSY = "another process is training in"
LONG = ["--set", "train.steps=100000", "--set", "train.validate_every=100000"]


def ignore(_event: object) -> None:
    """Ignore an event."""


def read_log(directory) -> list[dict]:
    return [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]


@pytest.fixture
def command(corpus_files, tmp_path, tiny_options) -> list[str]:
    arguments = [*corpus_files, "--out", tmp_path / "run", *tiny_options, *LONG]
    return [sys.executable, "-m", "mtcli", "train", *map(str, arguments)]


@pytest.fixture
def training(command):
    """Start a process that trains in `run`; yield it after its first step."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    killer = threading.Timer(LIMIT, process.kill)
    killer.start()
    try:
        assert any(line.startswith("step ") for line in process.stderr)
        yield process
    finally:
        killer.cancel()
        process.kill()
        process.communicate(timeout=LIMIT)


@pytest.mark.parametrize(
    "options",
    [["--fresh"], *(pytest.param(o, marks=pytest.mark.long) for o in ([], ["--processes", "2"]))],
)
def test_a_second_process_is_refused_with_the_pid_of_the_first(
    command, training, tmp_path, options
):
    second = subprocess.run([*command, *options], capture_output=True, text=True, timeout=LIMIT)
    assert second.returncode == 1
    run, host = tmp_path / "run", socket.gethostname()
    message, hint = second.stderr.splitlines()
    assert message == f"error: {BUSY} {run} (PID {training.pid} on {host})"
    assert hint == "  hint: wait for it to end, or choose another --out"
    training.send_signal(signal.SIGTERM)
    training.communicate(timeout=LIMIT)
    steps = [event["step"] for event in read_log(run) if event["event"] == "step"]
    assert steps == sorted(set(steps))
    assert not (run / LOCK).exists()


@pytest.mark.long
def test_the_lock_file_of_a_killed_process_does_not_block_the_next_run(command, training, tmp_path):
    training.kill()
    training.wait(timeout=LIMIT)
    assert (tmp_path / "run" / LOCK).exists()
    again = subprocess.run(
        [*command, "--stop-after", "0.01"], capture_output=True, text=True, timeout=LIMIT
    )
    assert again.returncode == 0, again.stderr
    assert not (tmp_path / "run" / LOCK).exists()


def test_a_run_holds_the_lock_until_its_end(tiny_config, tmp_path):
    held: list[bool] = []

    def listen(event):
        if isinstance(event, StepDone):
            with pytest.raises(CheckpointError, match=f"{BUSY}.*PID {os.getpid()} on "):
                check_is_unlocked(tmp_path / "run")
            held.append(True)
            if event.step == 6:
                signal.raise_signal(signal.SIGTERM)

    train_run(tiny_config, tmp_path / "run", listen)
    assert len(held) == 6
    assert not (tmp_path / "run" / LOCK).exists()
    check_is_unlocked(tmp_path / "run")


def test_a_run_is_locked_before_its_corpus_is_read(tiny_config, tmp_path):
    train_run(tiny_config, tmp_path / "run", ignore)
    tiny_config.data.train.text_files[0].unlink()
    lock = RunLock(tmp_path / "run")
    lock.acquire()
    for options in (RunOptions(), RunOptions(fresh=True)):
        with pytest.raises(CheckpointError, match=BUSY):
            train_run(tiny_config, tmp_path / "run", ignore, options)
    lock.close()


def before_first_write(action):
    """Return a listener that calls `action` after preparation and before the first write."""

    def listen(event):
        if isinstance(event, Notice) and event.text.startswith("training: "):
            action()

    return listen


@pytest.mark.parametrize("fresh", [False, True])
def test_a_second_process_in_a_new_directory_is_refused(tiny_config, tmp_path, fresh):
    lock = RunLock(tmp_path / "run")
    options = RunOptions(fresh=fresh)
    with pytest.raises(CheckpointError, match=BUSY):
        train_run(tiny_config, tmp_path / "run", before_first_write(lock.acquire), options)
    lock.close()
    assert not any((tmp_path / "run").iterdir())


def test_a_run_created_during_preparation_is_not_overwritten(tiny_config, tmp_path):
    run = tmp_path / "run"
    other = before_first_write(lambda: train_run(tiny_config, run, ignore))
    with pytest.raises(CheckpointError, match="another process has just started a run"):
        train_run(tiny_config, run, other)
    assert isinstance(train_run(tiny_config, run, ignore), Finished)
    assert [event["event"] for event in read_log(run)].count("finished") == 1


def test_a_run_can_start_in_a_directory_with_only_a_lock_file(tiny_config, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).write_text("1 elsewhere\n")
    check_is_run(tmp_path / "run")
    assert isinstance(train_run(tiny_config, tmp_path / "run", ignore), Finished)


@pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
def test_a_lock_path_that_is_not_a_file_is_refused_and_left_unchanged(tmp_path, kind):
    path, other = tmp_path / LOCK, tmp_path / "other"
    other.write_text("mine")
    match kind:
        case "link":
            path.symlink_to(other)
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
    with pytest.raises(CheckpointError, match="is not a regular file"):
        RunLock(tmp_path).acquire()
    with pytest.raises(CheckpointError, match="is not a regular file"):
        check_is_unlocked(tmp_path)
    assert other.read_text() == "mine"


def test_locking_a_removed_file_does_not_lock_the_run(tmp_path, monkeypatch):
    """Between opening and locking the file, a second run ends and a third one starts."""
    flock = fcntl.flock
    third = RunLock(tmp_path)

    def delayed_flock(descriptor, operation):
        monkeypatch.setattr(fcntl, "flock", flock)
        (tmp_path / LOCK).unlink()
        third.acquire()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", delayed_flock)
    with pytest.raises(CheckpointError, match=BUSY):
        RunLock(tmp_path).acquire()
    third.close()


def test_closing_a_lock_does_not_remove_the_lock_file_of_another_run(tmp_path):
    lost, other = RunLock(tmp_path), RunLock(tmp_path)
    lost.acquire()
    (tmp_path / LOCK).unlink()
    other.acquire()
    lost.close()
    assert (tmp_path / LOCK).exists()
    other.close()


def fail_without_locks(*_: object) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


@pytest.mark.parametrize("reason", ["no module", "no locks"])
def test_training_works_without_lock_support(tiny_config, tmp_path, monkeypatch, reason):
    if reason == "no module":
        monkeypatch.setitem(sys.modules, "fcntl", None)
    else:
        monkeypatch.setattr(fcntl, "flock", fail_without_locks)
    assert isinstance(train_run(tiny_config, tmp_path / "run", ignore), Finished)


def test_other_commands_ignore_the_lock(tiny_trained, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(tiny_trained, model)
    lock = RunLock(model)
    lock.acquire()
    runner = CliRunner()
    for arguments in (["info", model], ["translate", model]):
        result = runner.invoke(app, list(map(str, arguments)), input=b"water\n")
        assert result.exit_code == 0, result.output
    lock.close()
