"""Worker processes: the same gradients and matrices, resuming, errors and lost processes."""

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils import parameters_to_vector

from conftest import tiny_model_config
from mtcli.config.load import with_overrides
from mtcli.config.sections import TrainConfig
from mtcli.data.batches import BatchStream, DataPosition, Group, collate
from mtcli.data.encoding import encode
from mtcli.errors import ConfigError, EngineError
from mtcli.hardware import process_peak_memory
from mtcli.model_dir.directory import load_saved_config
from mtcli.models import build_model
from mtcli.planning.estimate import choose_n_workers
from mtcli.reporting.events import Notice, StepDone
from mtcli.training import run_settings, workers
from mtcli.training.optimizers import build_optimizers
from mtcli.training.run import train_run
from mtcli.training.step import LossModule, TrainStep
from mtcli.training.workers import Workers
from processes import Output, children, run, started, wait_until

pytestmark = [
    pytest.mark.cpu,
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forked only on Linux"),
]


@pytest.fixture
def groups(corpus, tokenizers) -> list[Group]:
    """Return steps of two batches, and a step with a single pair."""
    encoded = encode(corpus, tokenizers, 128, lambda _: None)
    stream = BatchStream(encoded, 256, 1, n_batches=2).groups()
    pair = Group([collate(encoded, [0])], DataPosition())
    return [next(stream), pair, next(stream)]


@pytest.fixture
def new_train_step():
    """Return a function that builds a training step; close all steps after the test."""
    built = []

    def build(n_workers: int, **settings) -> TrainStep:
        torch.manual_seed(0)
        model = build_model(tiny_model_config(dropout=0.0), 340, 340)
        options = TrainConfig(warmup=0, workers=n_workers, **settings)
        step = TrainStep(LossModule(model, 0.1), build_optimizers(model, options), options)
        step.start_workers()
        built.append(step)
        return step

    yield build
    for step in built:
        step.close()


def gradients(step: TrainStep) -> torch.Tensor:
    return parameters_to_vector([p.grad for p in step.model.parameters()])


@pytest.mark.parametrize("size", [2, 3])
def test_workers_compute_the_gradients_of_one_process(groups, new_train_step, size):
    single, several = new_train_step(1), new_train_step(size)
    for number, group in enumerate(groups, start=1):
        expected, found = single.backward(group), several.backward(group)
        assert found.loss == pytest.approx(expected.loss, rel=1e-5)
        assert found.n_tokens == expected.n_tokens
        torch.testing.assert_close(gradients(several), gradients(single), rtol=1e-3, atol=1e-5)
        single.update(number, 1.0)
        several.zero_grad()
        with torch.no_grad():  # as an update would, in the memory that the workers share
            for parameter, updated in zip(
                *(s.model.parameters() for s in (several, single)), strict=True
            ):
                parameter.copy_(updated)


def double_first_row(matrices: torch.Tensor) -> torch.Tensor:
    return torch.cat([2 * matrices[:, :1], matrices[:, 1:]], dim=1)


@pytest.mark.parametrize("size", [2, 3])
def test_workers_transform_all_matrices(new_train_step, size):
    generator = torch.Generator().manual_seed(1)
    shapes = [(5, 16, 16), (1, 32, 16), (2, 16, 32)]
    stacks = [torch.randn(shape, generator=generator) for shape in shapes]
    found = new_train_step(size).workers.map_matrices(double_first_row, stacks)
    for result, stack in zip(found, stacks, strict=True):
        assert torch.equal(result, double_first_row(stack))


def test_frozen_parameters_do_not_change(groups, new_train_step):
    single, several = new_train_step(1), new_train_step(1)
    for step in (single, several):
        step.model.encoder[0].feed_forward.to_inner.weight.requires_grad_(False)
    frozen = several.model.encoder[0].feed_forward.to_inner.weight
    before = frozen.detach().clone()
    several.workers = Workers(several._backward, several.model.parameters(), size=2, n_threads=1)
    for step in (single, several):
        step.backward(groups[0])
    trained = [
        [p.grad for p in step.model.parameters() if p.grad is not None]
        for step in (single, several)
    ]
    torch.testing.assert_close(trained[1], trained[0], rtol=1e-3, atol=1e-5)
    several.update(1, 1.0)
    assert frozen.grad is None
    assert torch.equal(frozen, before)


@given(st.lists(st.integers(1, 9), max_size=6), st.integers(1, 5))
def test_shares_contain_every_matrix_once_and_are_balanced(lengths, size):
    shares = workers._share_matrices(lengths, size)
    parts = [part for share in shares for part in share]
    rows = Counter((part.stack, row) for part in parts for row in range(part.start, part.end))
    assert set(rows.values()) <= {1}
    assert len(rows) == sum(lengths)
    for i, length in enumerate(lengths):
        sizes = [part.end - part.start for part in parts if part.stack == i]
        assert max(sizes) <= -(-length // size)


def test_an_error_in_a_worker_is_raised_and_the_next_step_works(groups, new_train_step):
    step = new_train_step(1)
    parent, batches = os.getpid(), groups[0].batches
    failing_seed = batches[0].micro_batch(1, 2).seed

    def compute(batch, scale):
        if os.getpid() != parent and batch.seed == failing_seed:
            raise RuntimeError("can't allocate memory")
        return step._backward(batch, scale)

    several = Workers(compute, step.model.parameters(), size=2, n_threads=1)
    try:
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            several.add_gradients(batches, 1.0)
        step.zero_grad()
        loss = several.add_gradients(groups[2].batches, 1.0)
        found = gradients(step)
        step.zero_grad()
        assert loss == pytest.approx(
            sum(step._backward(batch, 1.0).item() for batch in groups[2].batches), rel=1e-5
        )
        torch.testing.assert_close(found, gradients(step), rtol=1e-3, atol=1e-4)
    finally:
        several.close()


def test_running_out_of_memory_in_a_worker_splits_the_batch(groups, new_train_step, monkeypatch):
    parent, expected = os.getpid(), new_train_step(1)
    expected.backward(groups[0])
    backward = TrainStep._backward

    def limited(self, batch, scale):
        if os.getpid() != parent and batch.n_positions > 80:
            raise RuntimeError("can't allocate memory")
        return backward(self, batch, scale)

    monkeypatch.setattr(TrainStep, "_backward", limited)
    step = new_train_step(2)
    step.backward(groups[0])
    assert step.max_positions is not None
    torch.testing.assert_close(gradients(step), gradients(expected), rtol=1e-3, atol=1e-5)


def test_workers_can_use_several_threads(groups, new_train_step):
    """OpenMP's threads do not exist in a forked process; using them there would wait forever."""
    torch.set_num_threads(4)
    try:
        large = torch.ones(1_000, 1_000)
        assert (large @ large).sum() == 1e9  # creates the threads in this process
        single, several = new_train_step(1), new_train_step(2)
        assert several.workers.n_threads == 2
        single.backward(groups[0])
        several.backward(groups[0])
        torch.testing.assert_close(gradients(several), gradients(single), rtol=1e-3, atol=1e-5)
        [found] = several.workers.map_matrices(add_large_sum, [torch.zeros(4, 16, 16)])
        assert torch.equal(found, torch.full((4, 16, 16), 1e6))
    finally:
        torch.set_num_threads(1)


def add_large_sum(matrices: torch.Tensor) -> torch.Tensor:
    large = torch.ones(1_000, 1_000)
    return matrices + (large @ large).mean() * 1_000


def test_an_interrupted_step_ends_the_workers(groups, new_train_step, monkeypatch):
    step = new_train_step(2)
    [worker] = step.workers._workers

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Workers, "sum_gradients", interrupt)
    with pytest.raises(KeyboardInterrupt):
        step.backward(groups[0])
    assert worker.pid not in children(os.getpid())


def test_a_resumed_run_without_workers_says_that_its_weights_will_differ(
    tiny_config, tmp_path, monkeypatch
):
    with pytest.raises(KeyboardInterrupt):
        train_run(with_workers(tiny_config, 2), tmp_path / "run", stop_at_six)
    monkeypatch.setattr(run_settings, "can_start_workers", lambda _: False)
    events = []
    train_run(with_workers(tiny_config, None), tmp_path / "run", events.append)
    texts = [event.text for event in events if isinstance(event, Notice)]
    assert any("workers: 1 instead of 2: workers require Linux" in text for text in texts)


def test_the_peak_memory_includes_the_workers(groups, new_train_step):
    step = new_train_step(2)
    step.backward(groups[0])
    assert step.workers.memory > 10e6  # a process with torch needs more
    assert step.peak_memory() > process_peak_memory()


def test_closing_ends_the_worker_processes(new_train_step):
    before = children(os.getpid())
    step = new_train_step(3)
    pids = set(children(os.getpid())) - set(before)
    assert len(pids) >= 2
    step.close()
    assert not pids & set(children(os.getpid()))


def test_a_killed_worker_is_an_error_with_a_hint(groups, new_train_step):
    step = new_train_step(2)
    os.kill(step.workers._workers[0].pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="run the same command again"):
        step.backward(groups[0])


@pytest.mark.parametrize(
    ("n_threads", "batch_tokens", "n_parameters", "expected"),
    [
        (1, 100_000, 10**9, 1),
        (2, 4_096, 3_000_000, 2),
        (2, 1_500, 3_000_000, 1),
        (2, 4_096, 500_000, 1),
        (64, 4_096, 3_000_000, 4),
        (64, 10**6, 10**9, 8),
        (8, 5_120, 3_000_000, 4),
        (6, 4_096, 3_000_000, 3),
    ],
)
def test_the_number_of_workers_depends_on_threads_batch_and_model(
    n_threads, batch_tokens, n_parameters, expected
):
    found = choose_n_workers(n_threads, batch_tokens=batch_tokens, n_parameters=n_parameters)
    assert found == expected


def with_workers(config, n_workers):
    return with_overrides(config, [("train.workers", n_workers), ("train.save_minutes", 1e-9)])


def ignore(_event: object) -> None:
    """Ignore an event."""


def stop_at_six(event: object) -> None:
    if isinstance(event, StepDone) and event.step == 6:
        raise KeyboardInterrupt


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_resumed_run_keeps_its_workers_and_has_the_same_weights(
    tiny_config, tmp_path, monkeypatch, precision
):
    chosen = [2, 5]  # a resumed run must not choose again
    monkeypatch.setattr(run_settings, "choose_n_workers", lambda *_, **__: chosen.pop(0))
    config = with_overrides(with_workers(tiny_config, None), [("train.precision", precision)])
    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path / "parts", stop_at_six)
    assert load_saved_config(tmp_path / "parts").train.workers == 2
    train_run(config, tmp_path / "parts", ignore)
    train_run(with_workers(config, 2), tmp_path / "whole", ignore)
    names = ("parts", "whole")
    first, second = ((tmp_path / n / "model.safetensors").read_bytes() for n in names)
    assert first == second


def test_a_run_of_an_earlier_format_has_one_worker(tiny_config, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train_run(with_workers(tiny_config, 2), tmp_path / "run", stop_at_six)
    path = tmp_path / "run" / "config.yaml"
    tree = yaml.safe_load(path.read_text())
    tree["format"] = 4
    del tree["train"]["workers"]
    path.write_text(yaml.safe_dump(tree))
    assert load_saved_config(tmp_path / "run").train.workers == 1


@pytest.mark.parametrize("key", ["compile", "precision"])
def test_workers_cannot_be_combined_with_some_settings(tiny_config, tmp_path, key):
    value = {"compile": True, "precision": "float16"}[key]
    config = with_overrides(with_workers(tiny_config, 2), [(f"train.{key}", value)])
    with pytest.raises(ConfigError, match=f"train.workers=2 is not possible: train.{key}"):
        train_run(config, tmp_path / "run", ignore)
    train_run(with_workers(tiny_config, None), tmp_path / "run", ignore)


def test_a_run_can_resume_at_once_after_its_main_process_is_killed(
    tiny_options, corpus_files, tmp_path
):
    command = [sys.executable, "-m", "mtcli", "train", *corpus_files, *tiny_options, "--verbose"]
    command += ["--out", tmp_path / "run", "--set", "train.workers=2"]
    long = ["--set", "train.steps=100000", "--set", "train.validate_every=100"]
    with started([*command, *long], stderr=subprocess.PIPE) as process:
        Output(process.stderr.fileno()).line_with(b"step 200:")
        [worker] = children(process.pid)
        process.kill()
        process.wait(60)
        result = run([*command, *long, "--stop-after", "0.01"])
        assert result.returncode == 0, result.stderr
        assert "resuming from step" in result.stderr
        wait_until(lambda: not os.path.exists(f"/proc/{worker}"))  # noqa: PTH110
