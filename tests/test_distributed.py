import os
import signal
import socket
import sys
from subprocess import PIPE

import pytest

import killing
import processes
from mtcli.checkpoint.directory import load_saved_config
from mtcli.cli.team import reserved_port, run_together
from mtcli.config import overlaid
from mtcli.distributed import Processes
from mtcli.errors import EngineError
from mtcli.training import learner, setup, train_run
from teams import train, train_together, work_together
from test_learner import CPU_ERROR, SmallMemory

pytestmark = pytest.mark.cpu

# Dropout draws lots for other parts of a step in every process; all else must be the same.
RNN = {"arch": "rnn", "d_model": 16, "dropout": 0}
LANGUAGE_MODEL = {
    "arch": "decoder_only",
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 2,
    "dropout": 0,
    "source_attention": "causal",
    "loss_on": "both",
}
SETTINGS = {"model.dropout": 0, "train.steps": 8, "train.average": 2, "train.ema": 0.9}


@pytest.fixture
def config(tiny_config):
    return overlaid(tiny_config, SETTINGS.items())


def curve(directory) -> list[float]:
    return [event["loss"] for event in killing.result(directory)[1] if "loss" in event]


def scores(directory) -> list[float]:
    return [event["chrf"] for event in killing.result(directory)[1] if "chrf" in event]


@pytest.mark.parametrize(
    ("size", "settings"),
    [
        (3, {}),  # does not divide the number of batches, nor of matrices
        (2, {"train.accumulate": 2, "train.optimizer": "adamw", "data.subword_sampling": 0.1}),
        (2, {"train.sharding": "full"}),
        (2, {"model": RNN}),
        pytest.param(2, {"model": RNN, "train.sharding": "full"}, marks=pytest.mark.long),
        pytest.param(
            2, {"model": LANGUAGE_MODEL, "train.sharding": "full"}, marks=pytest.mark.long
        ),
    ],
)
def test_many_processes_learn_what_one_learns(config, tmp_path, size, settings):
    config = overlaid(config, settings.items())
    train_run(config, tmp_path / "one", lambda _: None)
    train_together(config, tmp_path / "many", size)
    assert curve(tmp_path / "many") == pytest.approx(curve(tmp_path / "one"), rel=1e-4)


def test_the_scores_do_not_depend_on_the_number_of_processes(config, tmp_path, copying_model):
    """The model copies its source: rounding changes none of its translations."""
    settings = {"start_from": str(copying_model), "steps": 1, "learning_rate": 1e-9}
    settings |= {"matrix_learning_rate": 1e-9, "average": 1, "ema": 0}
    config = overlaid(config, [(f"train.{key}", value) for key, value in settings.items()])
    config = config.model_copy(update={"model": load_saved_config(copying_model).model})
    train_run(config, tmp_path / "one", lambda _: None)
    train_together(config, tmp_path / "many", 2)
    assert len(scores(tmp_path / "one")) == 1
    assert scores(tmp_path / "one")[0] > 0
    assert scores(tmp_path / "many") == scores(tmp_path / "one")


def take_back(run) -> None:
    """Let a run be as it was in its middle: like one of fewer steps with the same schedule."""
    for path in (run / "checkpoints").glob("step-00000008*"):
        path.unlink()
    log = run / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for line in lines if b'"finished"' not in line))


@pytest.mark.parametrize(
    ("first", "then", "sharding"),
    [(2, 1, "none"), pytest.param(1, 2, "full", marks=pytest.mark.long)],
)
def test_another_number_of_processes_goes_on(config, tmp_path, first, then, sharding):
    config = overlaid(config, [("train.sharding", sharding), ("train.keep_checkpoints", 9)])
    run = tmp_path / "run"
    train_together(config, tmp_path / "whole", 2)
    train_together(config, run, first)
    take_back(run)
    train_together(config, run, then)
    assert curve(run) == pytest.approx(curve(tmp_path / "whole"), rel=1e-4)


def test_as_many_processes_as_before_go_on_bit_for_bit(config, tmp_path):
    """Of three processes or more: two numbers can be added up in one way only."""
    config = overlaid(config, [("train.keep_checkpoints", 9)])
    run = tmp_path / "run"
    train_together(config, run, 3)
    expected = killing.result(run)
    take_back(run)
    train_together(config, run, 3)
    assert killing.result(run) == expected


def train_watched(config, directory) -> None:
    """Whenever the model was used for a validation, each process holds its share again."""
    measure = setup.Run.measure

    def watched(run, *arguments):
        measured = measure(run, *arguments)
        for parameter in run.model.parameters():
            n_rows = -(-len(parameter) // run.processes.size)
            assert len(parameter.to_local()) <= n_rows
        return measured

    setup.Run.measure = watched
    train(config, directory)


def test_no_process_keeps_more_than_its_share_of_a_model_that_is_shared_out(config, tmp_path):
    config = overlaid(config, [("train.sharding", "full"), ("train.steps", 4)])
    work_together(train_watched, 2, config, tmp_path / "run")


def train_short_of_memory(config, directory) -> None:
    """One of the processes has room for fewer positions than the others."""
    if os.environ["RANK"] == "1":
        learner.summed_loss = SmallMemory(40, CPU_ERROR)
    train(config, directory)


def test_all_processes_divide_batches_that_do_not_fit_for_one_of_them(config, tmp_path):
    train_together(config, tmp_path / "ample", 2)
    work_together(train_short_of_memory, 2, config, tmp_path / "short")
    assert curve(tmp_path / "short") == pytest.approx(curve(tmp_path / "ample"), rel=1e-4)
    notices = [event.get("text", "") for event in killing.result(tmp_path / "short")[1]]
    assert any("batches are divided" in text for text in notices)


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
# Worker 1 is killed in its fifth step, but not again after the restart.
WORKER = """
import os, signal
from mtcli.__main__ import main
from mtcli.training.learner import Learner

update = Learner.update

def killed(learner, number, factor):
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    update(learner, number, factor)

if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    Learner.update = killed
main()
"""


@pytest.mark.long
def test_torchrun_goes_on_when_a_worker_is_killed(config, tmp_path, tiny_options, corpus_files):
    run, script = tmp_path / "run", tmp_path / "worker.py"
    train_together(config, tmp_path / "undisturbed", 2)
    script.write_text(WORKER)
    overrides = [part for item in SETTINGS.items() for part in ("--set", "{}={}".format(*item))]
    arguments = [*corpus_files, "--out", run, *tiny_options, *overrides]
    result = processes.run([sys.executable, *COMMAND, script, "train", *arguments])
    assert result.returncode == 0, result.stderr
    assert "going on after step 4" in result.stderr
    # The command line has made a plan, and logged it.
    (weights, events), (expected, others) = map(killing.result, (run, tmp_path / "undisturbed"))
    assert weights == expected
    assert [e for e in events if "step" in e] == [e for e in others if "step" in e]


# --processes N.


def together(script: str) -> int:
    lines = f"import os, signal, time; rank = int(os.environ['RANK']); {script}"
    return run_together([sys.executable, "-c", lines], 3)


def test_a_team_has_one_exit_code():
    assert together("assert os.environ['WORLD_SIZE'] == '3'") == 0
    # Nobody waits for the others, which would take longer than a test may.
    assert together("time.sleep(3600 * (rank != 1)); os._exit(7)") == 7


def test_a_process_that_is_killed_is_told():
    with pytest.raises(EngineError, match="one of the 3 processes was killed by SIGKILL"):
        together("time.sleep(3600 * (rank != 1)); os.kill(os.getpid(), signal.SIGKILL)")


def test_a_reserved_port_is_free_only_for_those_who_know_it():
    with reserved_port() as port:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.socket() as rank_0:
            rank_0.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            rank_0.bind(("0.0.0.0", port))
            rank_0.listen()


@pytest.fixture
def command(corpus_files, tmp_path, tiny_options):
    arguments = [*corpus_files, "--out", tmp_path / "run", *tiny_options]
    return [sys.executable, "-m", "mtcli", "train", *map(str, arguments), "--processes", "2"]


LONG = ["--set", "train.steps=100000", "--set", "train.validate_every=100000"]


def test_a_mistake_that_only_the_processes_find_is_told_once(command, tmp_path):
    wrong = processes.run([*command, "--quiet", "--set", "train.freeze=[x.*]"])
    assert wrong.returncode == 1
    assert wrong.stdout == ""
    message, hint = wrong.stderr.splitlines()
    assert message == "error: train.freeze: x.* matches no parameter of this model"
    assert hint.startswith("  hint: ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGINT, 130, marks=pytest.mark.long), (signal.SIGTERM, 143)],
)
def test_processes_save_when_they_are_asked_to_stop_and_what_is_damaged_is_told_once(
    command, tmp_path, number, code
):
    with processes.started([*command, *LONG], stderr=PIPE) as process:
        output = processes.Output(process.stderr.fileno())
        output.line_with(b"step ")
        process.send_signal(number)
        last = output.rest().decode().splitlines()[-1]
        assert process.wait(processes.LIMIT) == code
    assert "run the same command again to resume" in last
    [checkpoint] = (tmp_path / "run" / "checkpoints").iterdir()
    checkpoint.write_bytes(b"damaged")
    (tmp_path / "run" / "model.safetensors").touch()
    again = processes.run([*command, *LONG, "--quiet"])
    assert again.returncode == 1
    message, hint = again.stderr.splitlines()
    assert message == f"error: {tmp_path / 'run'} has weights, but no checkpoint to go on from"
    assert hint.startswith("  hint: ")


@pytest.mark.parametrize("which", [0, pytest.param(1, marks=pytest.mark.long)])
def test_when_a_process_is_killed_all_end_and_it_is_told_once(command, which):
    with processes.started([*command, *LONG], stderr=PIPE) as process:
        output = processes.Output(process.stderr.fileno())
        output.line_with(b"step ")
        os.kill(processes.children(process.pid)[which], signal.SIGKILL)
        stderr = output.rest().decode()
        assert process.wait(processes.LIMIT) == 1
    told = [line for line in stderr.splitlines() if not line.startswith("step ")]
    assert told[0] == "error: one of the 2 processes was killed by SIGKILL"
    assert "run the same command again" in told[1]
    assert "Traceback" not in stderr
