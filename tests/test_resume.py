"""Restarting a run, and freeing temporary models."""

import gc
import math
import weakref

import pytest
import torch

from launching import run_in_processes
from mtcli.config.load import with_overrides
from mtcli.data.cache import DataCache
from mtcli.distributed import SINGLE
from mtcli.model_dir.checkpoints import Progress
from mtcli.reporting.events import StepDone
from mtcli.training import loop, run_settings, step, time_budget
from mtcli.training.preparation import Preparation
from mtcli.training.resume import restart_run
from mtcli.training.run import train_run
from mtcli.training.run_state import RunContext, build_run


def silent(_event: object) -> None:
    """Ignore an event."""


def new_run(config, directory):
    data = Preparation(config, DataCache(directory / "data")).dataset(silent)
    return build_run(config, RunContext(directory, torch.device("cpu"), SINGLE, silent), data)


def test_a_restart_resets_the_scaler_and_the_memory_limit(tiny_config, tmp_path):
    config = with_overrides(tiny_config, [("train.precision", "float16")])
    started = new_run(config, tmp_path)
    initial = started.train_step.scaler.state_dict()
    started.train_step.scaler.load_state_dict({**initial, "scale": 2.0, "_growth_tracker": 7})
    started.train_step.max_positions = 40
    restart_run(started, Progress("digest"))
    assert started.train_step.scaler.state_dict() == initial
    assert started.train_step.max_positions is None


def test_a_restart_finds_the_memory_limit_again(tiny_config, tmp_path, monkeypatch):
    """The restart truncates the log, so the notice must be logged again."""
    compute, n_calls = step.summed_loss, 0

    def summed_loss(hidden, weight, labels, smoothing):
        nonlocal n_calls
        if hidden.requires_grad and labels.numel() > 60:
            raise torch.OutOfMemoryError("CUDA out of memory")
        loss = compute(hidden, weight, labels, smoothing)
        n_calls += hidden.requires_grad
        return loss * math.nan if n_calls == 20 and hidden.requires_grad else loss

    monkeypatch.setattr(step, "summed_loss", summed_loss)
    config = with_overrides(tiny_config, [("train.validate_every", 12)])
    events: list = []
    train_run(config, tmp_path / "run", events.append)
    steps = [event.step for event in events if isinstance(event, StepDone)]
    assert steps.count(1) == 2  # the run restarted
    log = (tmp_path / "run" / "log.jsonl").read_text()
    assert log.count("out of memory: splitting batches") == 1


def watch_models() -> list:
    """Return a list that collects a weak reference to every trained model."""
    models: list = []
    initialize = step.TrainStep.__init__

    def watched(self, *arguments):
        initialize(self, *arguments)
        models.append(weakref.ref(self.model))

    step.TrainStep.__init__ = watched
    return models


def train_and_count(config, directory, how: str) -> None:
    """Train in one of several processes; check that only one model exists at every step."""
    models = watch_models()
    counts: list[int] = []
    make_event, estimate, compute = loop._step_done, run_settings.estimate_steps, step.summed_loss
    n_calls = 0

    def step_done(*arguments):
        gc.collect()
        counts.append(sum(model() is not None for model in models))
        return make_event(*arguments)

    def diverge(hidden, *arguments):
        nonlocal n_calls
        n_calls += hidden.requires_grad
        loss = compute(hidden, *arguments)
        return loss * math.nan if n_calls == 4 and hidden.requires_grad else loss

    loop._step_done = step_done
    time_budget._MAX_TIMING_SECONDS = 0.0
    run_settings.estimate_steps = lambda *arguments: min(6, estimate(*arguments))
    if how == "restart":
        step.summed_loss = diverge
    train_run(config, directory, silent)
    assert len(models) == 2, len(models)
    assert set(counts) == {1}, counts


@pytest.mark.long
def test_the_model_used_to_measure_the_speed_is_freed(tiny_config, tmp_path):
    config = with_overrides(tiny_config, [("train.minutes", 30)])
    run_in_processes(train_and_count, 2, config, tmp_path / "run", "minutes")


@pytest.mark.long
def test_the_model_used_to_restart_a_run_is_freed(tiny_config, tmp_path):
    config = with_overrides(tiny_config, [("train.steps", 6)])
    run_in_processes(train_and_count, 2, config, tmp_path / "run", "restart")
