import os
import signal
import subprocess
import sys

import pytest

import killing
from mtcli.config import overlaid
from mtcli.distributed import Processes
from mtcli.training import train_run
from teams import train_together

# Dropout draws lots for other parts of a step in every process; all else must be the same.
SETTINGS = {"model.dropout": 0, "train.steps": 8, "train.average": 2, "train.ema": 0.9}


@pytest.fixture
def config(tiny_config):
    return overlaid(tiny_config, SETTINGS.items())


def curve(directory) -> list[float]:
    return [event["loss"] for event in killing.result(directory)[1] if "loss" in event]


def scores(directory) -> list[float]:
    return [event["bleu"] for event in killing.result(directory)[1] if "bleu" in event]


@pytest.mark.parametrize(
    ("size", "settings"),
    [
        (3, {}),  # does not divide the number of batches, nor of matrices
        (2, {"train.accumulate": 2, "train.optimizer": "adamw", "data.subword_sampling": 0.1}),
        (2, {"train.sharding": "full"}),
    ],
)
def test_many_processes_learn_what_one_learns(config, tmp_path, size, settings):
    config = overlaid(config, settings.items())
    train_run(config, tmp_path / "one", lambda _: None)
    train_together(config, tmp_path / "many", size)
    assert curve(tmp_path / "many") == pytest.approx(curve(tmp_path / "one"), rel=1e-4)
    assert scores(tmp_path / "many") == scores(tmp_path / "one")


@pytest.mark.parametrize(("first", "then", "sharding"), [(2, 1, "none"), (1, 3, "full")])
def test_another_number_of_processes_goes_on(config, tmp_path, first, then, sharding):
    """The first part ends like a run of fewer steps whose schedule is the same: at a checkpoint."""
    config = overlaid(config, [("train.sharding", sharding), ("train.keep_checkpoints", 9)])
    run = tmp_path / "run"
    train_together(config, tmp_path / "whole", 2)
    train_together(config, run, first)
    for path in (run / "checkpoints").glob("step-00000008*"):
        path.unlink()
    log = run / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for line in lines if b'"finished"' not in line))
    train_together(config, run, then)
    assert curve(run) == pytest.approx(curve(tmp_path / "whole"), rel=1e-4)


def test_work_that_is_dealt_out_comes_back_in_its_order():
    items = list(range(7))
    parts = [Processes(rank, 3).dealt(items) for rank in range(3)]

    class Everyone(Processes):
        def gather(self, value):
            assert value in parts
            return parts

    assert Everyone(0, 3).joined(parts[0]) == items
    assert sorted(len(part) for part in parts) == [2, 2, 3]


COMMAND = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3"]


def workers(parent: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def test_torchrun_goes_on_when_a_worker_is_killed(config, tmp_path, tiny_options, corpus_files):
    run = tmp_path / "run"
    train_together(config, tmp_path / "undisturbed", 2)
    overrides = [part for item in SETTINGS.items() for part in ("--set", "{}={}".format(*item))]
    arguments = [*corpus_files, "--out", run, *tiny_options, *overrides]
    process = subprocess.Popen(
        [sys.executable, *COMMAND, "-m", "mtcli", "train", *map(str, arguments), "--verbose"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        for line in process.stderr:
            if line.startswith("step 5/"):
                os.kill(workers(process.pid)[-1], signal.SIGKILL)
                break
        _, rest = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, rest
    assert "going on after step 4" in rest
    # The command line has made a plan, and logged it.
    (weights, events), (expected, others) = map(killing.result, (run, tmp_path / "undisturbed"))
    assert weights == expected
    assert [e for e in events if "step" in e] == [e for e in others if "step" in e]
