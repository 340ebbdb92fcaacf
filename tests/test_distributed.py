"""Distributed training: process groups, `--processes` and torchrun."""

import os
import signal
import socket
import sys
from subprocess import PIPE

import pytest

import killing
import processes
from launching import run_in_processes, train, train_in_processes
from mtcli.cli.launcher import launch_processes, reserve_port
from mtcli.config.load import with_overrides
from mtcli.distributed import Processes
from mtcli.errors import EngineError
from mtcli.model_dir.directory import load_saved_config
from mtcli.training import run_state, step
from mtcli.training.run import train_run
from test_step import CPU_ERROR, SmallMemory

pytestmark = pytest.mark.cpu

# No dropout: its random numbers depend on how a step is divided among processes.
RNN = {"arch": "rnn", "d_model": 16, "dropout": 0}
DECODER_ONLY = {
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
    return with_overrides(tiny_config, SETTINGS.items())


def curve(directory) -> list[float]:
    return [event["loss"] for event in killing.result(directory)[1] if "loss" in event]


def scores(directory) -> list[float]:
    return [event["chrf"] for event in killing.result(directory)[1] if "chrf" in event]


@pytest.mark.parametrize(
    ("size", "settings"),
    [
        # 3 divides neither the number of batches nor the number of matrices.
        pytest.param(3, {}, marks=pytest.mark.long),
        pytest.param(
            2,
            {"train.accumulate": 2, "train.optimizer": "adamw", "data.subword_sampling": 0.1},
            marks=pytest.mark.long,
        ),
        (2, {"train.sharding": "full"}),
        pytest.param(2, {"model": RNN}, marks=pytest.mark.long),
        pytest.param(2, {"model": RNN, "train.sharding": "full"}, marks=pytest.mark.long),
        pytest.param(2, {"model": DECODER_ONLY, "train.sharding": "full"}, marks=pytest.mark.long),
    ],
)
def test_several_processes_compute_the_same_losses_as_one(config, tmp_path, size, settings):
    config = with_overrides(config, settings.items())
    train_run(config, tmp_path / "one", lambda _: None)
    train_in_processes(config, tmp_path / "many", size)
    assert curve(tmp_path / "many") == pytest.approx(curve(tmp_path / "one"), rel=1e-4)


def test_the_scores_do_not_depend_on_the_number_of_processes(config, tmp_path, copying_model):
    """The model copies its source, so rounding does not change its translations."""
    settings = {"start_from": str(copying_model), "steps": 1, "learning_rate": 1e-9}
    settings |= {"matrix_learning_rate": 1e-9, "average": 1, "ema": 0}
    config = with_overrides(config, [(f"train.{key}", value) for key, value in settings.items()])
    config = config.model_copy(update={"model": load_saved_config(copying_model).model})
    train_run(config, tmp_path / "one", lambda _: None)
    train_in_processes(config, tmp_path / "many", 2)
    assert len(scores(tmp_path / "one")) == 1
    assert scores(tmp_path / "one")[0] > 0
    assert scores(tmp_path / "many") == scores(tmp_path / "one")


def undo_second_half(run) -> None:
    """Remove the final checkpoint and the `finished` event, as if the run had been stopped."""
    for path in (run / "checkpoints").glob("step-00000008*"):
        path.unlink()
    log = run / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for line in lines if b'"finished"' not in line))


@pytest.mark.long
@pytest.mark.parametrize(
    ("first", "then", "sharding"),
    [(2, 1, "none"), (1, 2, "full")],
)
def test_a_run_resumes_with_a_different_number_of_processes(
    config, tmp_path, first, then, sharding
):
    config = with_overrides(config, [("train.sharding", sharding), ("train.keep_checkpoints", 9)])
    run = tmp_path / "run"
    train_in_processes(config, tmp_path / "uninterrupted", 2)
    train_in_processes(config, run, first)
    undo_second_half(run)
    train_in_processes(config, run, then)
    assert curve(run) == pytest.approx(curve(tmp_path / "uninterrupted"), rel=1e-4)


def test_a_run_resumes_bit_for_bit_with_the_same_number_of_processes(config, tmp_path):
    """Use three processes: with two, the order of summation does not matter."""
    config = with_overrides(config, [("train.keep_checkpoints", 9)])
    run = tmp_path / "run"
    train_in_processes(config, run, 3)
    expected = killing.result(run)
    undo_second_half(run)
    train_in_processes(config, run, 3)
    assert killing.result(run) == expected


def train_and_check_shards(config, directory) -> None:
    """Train, and check after every validation that each process holds only its shard."""
    measure = run_state.Run.measure

    def measure_and_check(run, *arguments):
        scores = measure(run, *arguments)
        for parameter in run.model.parameters():
            n_rows = -(-len(parameter) // run.processes.size)
            assert len(parameter.to_local()) <= n_rows
        return scores

    run_state.Run.measure = measure_and_check
    train(config, directory)


@pytest.mark.long
def test_a_sharded_model_is_resharded_after_validation(config, tmp_path):
    config = with_overrides(config, [("train.sharding", "full"), ("train.steps", 4)])
    run_in_processes(train_and_check_shards, 2, config, tmp_path / "run")


def train_with_small_memory(config, directory) -> None:
    """Train with less memory on rank 1 than on rank 0."""
    if os.environ["RANK"] == "1":
        step.summed_loss = SmallMemory(40, CPU_ERROR)
    train(config, directory)


@pytest.mark.long
def test_all_processes_split_a_batch_that_one_of_them_cannot_fit(config, tmp_path):
    train_in_processes(config, tmp_path / "large", 2)
    run_in_processes(train_with_small_memory, 2, config, tmp_path / "small")
    assert curve(tmp_path / "small") == pytest.approx(curve(tmp_path / "large"), rel=1e-4)
    notices = [event.get("text", "") for event in killing.result(tmp_path / "small")[1]]
    assert any("splitting batches" in text for text in notices)


def test_merging_slices_restores_the_order_of_the_items():
    items = list(range(7))
    parts = [Processes(rank, 3).local_slice(items) for rank in range(3)]

    class FakeGroup(Processes):
        def gather(self, value):
            assert value in parts
            return parts

    assert FakeGroup(0, 3).merge_slices(parts[0]) == items
    assert sorted(len(part) for part in parts) == [2, 2, 3]


COMMAND = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3"]
# Worker 1 is killed in its fifth step, but not again after the restart.
WORKER = """
import os, signal
from mtcli.__main__ import main
from mtcli.training.step import TrainStep

update = TrainStep.update

def update_or_die(train_step, number, factor):
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    update(train_step, number, factor)

if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    TrainStep.update = update_or_die
main()
"""


@pytest.mark.long
def test_torchrun_resumes_after_a_worker_is_killed(config, tmp_path, tiny_options, corpus_files):
    run, script = tmp_path / "run", tmp_path / "worker.py"
    train_in_processes(config, tmp_path / "uninterrupted", 2)
    script.write_text(WORKER)
    # Without these settings, the command would choose others than `config`.
    blocks = {"model.positions": "sinusoidal", "model.norm_kind": "layer", "model.biases": True}
    settings = {**SETTINGS, **blocks}
    overrides = [part for item in settings.items() for part in ("--set", "{}={}".format(*item))]
    arguments = [*corpus_files, "--out", run, *tiny_options, *overrides]
    result = processes.run([sys.executable, *COMMAND, script, "train", *arguments])
    assert result.returncode == 0, result.stderr
    assert "resuming from step 4" in result.stderr
    # Compare only events that have a step: the command also logs its plan.
    (weights, events), (expected, others) = map(killing.result, (run, tmp_path / "uninterrupted"))
    assert weights == expected
    assert [e for e in events if "step" in e] == [e for e in others if "step" in e]


# Tests of the option `--processes N`.


def launch_script(script: str) -> int:
    """Run `script` in three processes; return the exit code of the group."""
    code = f"import os, signal, time; rank = int(os.environ['RANK']); {script}"
    return launch_processes([sys.executable, "-c", code], 3)


def test_a_process_group_has_one_exit_code():
    assert launch_script("assert os.environ['WORLD_SIZE'] == '3'") == 0
    # The launcher does not wait for the other processes, which sleep longer than the timeout.
    assert launch_script("time.sleep(3600 * (rank != 1)); os._exit(7)") == 7


def test_a_killed_process_is_reported():
    with pytest.raises(EngineError, match="one of the 3 processes was killed by SIGKILL"):
        launch_script("time.sleep(3600 * (rank != 1)); os.kill(os.getpid(), signal.SIGKILL)")


def test_the_remaining_processes_print_nothing_after_one_was_killed(tmp_path, capfd):
    script = f"""
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: print("stopped", flush=True))
Path({str(tmp_path)!r}, str(rank)).touch()
while rank != 1 or len(os.listdir({str(tmp_path)!r})) < 3:
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with pytest.raises(EngineError, match="SIGKILL"):
        launch_script(script)
    assert capfd.readouterr() == ("", "")


def test_a_reserved_port_can_be_bound_only_with_so_reuseaddr():
    with reserve_port() as port:
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


def test_an_error_in_all_processes_is_printed_once(command, tmp_path):
    result = processes.run([*command, "--quiet", "--set", "train.freeze=[x.*]"])
    assert result.returncode == 1
    assert result.stdout == ""
    message, hint = result.stderr.splitlines()
    assert message == "error: train.freeze: x.* matches no parameter of this model"
    assert hint.startswith("  hint: ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGINT, 130, marks=pytest.mark.long), (signal.SIGTERM, 143)],
)
def test_processes_save_on_a_signal_and_print_one_error_for_a_damaged_checkpoint(
    command, tmp_path, number, code
):
    with processes.started([*command, *LONG], stderr=PIPE) as process:
        output = processes.Output(process.stderr.fileno())
        output.line_with(b"step ")
        process.send_signal(number)
        last = output.rest().decode().splitlines()[-1]
        assert process.wait(processes.TIMEOUT) == code
    assert "run the same command again to resume" in last
    [checkpoint] = (tmp_path / "run" / "checkpoints").iterdir()
    checkpoint.write_bytes(b"damaged")
    (tmp_path / "run" / "model.safetensors").touch()
    again = processes.run([*command, *LONG, "--quiet"])
    assert again.returncode == 1
    message, hint = again.stderr.splitlines()
    assert message == f"error: {tmp_path / 'run'} has weights, but no checkpoint to resume from"
    assert hint.startswith("  hint: ")


@pytest.mark.parametrize("which", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_killed_process_ends_the_others_and_is_reported_once(command, which):
    with processes.started([*command, *LONG], stderr=PIPE) as process:
        output = processes.Output(process.stderr.fileno())
        output.line_with(b"step ")
        os.kill(processes.children(process.pid)[which], signal.SIGKILL)
        stderr = output.rest().decode()
        assert process.wait(processes.TIMEOUT) == 1
    lines = [line for line in stderr.splitlines() if not line.startswith("step ")]
    assert lines[0] == "error: one of the 2 processes was killed by SIGKILL"
    assert "run the same command again" in lines[1]
    assert "Traceback" not in stderr
