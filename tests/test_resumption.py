"""Resetting a run, and models that are thrown away."""

import gc
import math
import weakref

import pytest
import torch

from mtcli.checkpoint.state import Progress
from mtcli.config import overlaid
from mtcli.distributed import ALONE
from mtcli.report import StepDone
from mtcli.training import course, learner, rehearsal, run, train_run
from mtcli.training.preparation import learn_pieces, prepare, read_pairs
from mtcli.training.resumption import begin_again
from mtcli.training.setup import Place, build_run
from teams import work_together


def silent(_event: object) -> None:
    """Show nothing."""


def new_run(config, directory):
    pairs = read_pairs(config, silent)
    data = prepare(pairs, learn_pieces(pairs, config, silent), config, silent)
    return build_run(config, Place(directory, torch.device("cpu"), ALONE, silent), data)


def test_a_restart_resets_the_scaler_and_the_memory_limit(tiny_config, tmp_path):
    config = overlaid(tiny_config, [("train.precision", "float16")])
    started = new_run(config, tmp_path)
    fresh = started.learner.scaler.state_dict()
    started.learner.scaler.load_state_dict({**fresh, "scale": 2.0, "_growth_tracker": 7})
    started.learner.most_positions = 40
    begin_again(started, Progress("digest"))
    assert started.learner.scaler.state_dict() == fresh
    assert started.learner.most_positions is None


def test_a_restart_finds_the_memory_limit_again(tiny_config, tmp_path, monkeypatch):
    """The log says so again, because it was cut."""
    compute, n_calls = learner.summed_loss, 0

    def summed_loss(vectors, weight, labels, smoothing):
        nonlocal n_calls
        if vectors.requires_grad and labels.numel() > 60:
            raise torch.OutOfMemoryError("CUDA out of memory")
        loss = compute(vectors, weight, labels, smoothing)
        n_calls += vectors.requires_grad
        return loss * math.nan if n_calls == 20 and vectors.requires_grad else loss

    monkeypatch.setattr(learner, "summed_loss", summed_loss)
    config = overlaid(tiny_config, [("train.validate_every", 12)])
    events: list = []
    train_run(config, tmp_path / "run", events.append)
    steps = [event.step for event in events if isinstance(event, StepDone)]
    assert steps.count(1) == 2  # it has started again
    log = (tmp_path / "run" / "log.jsonl").read_text()
    assert log.count("memory is short") == 1


def watch_models() -> list:
    """Return a list that gets a weak reference to every model that is trained."""
    models: list = []
    create = learner.Learner.__init__

    def watched(self, *arguments):
        create(self, *arguments)
        models.append(weakref.ref(self.model))

    learner.Learner.__init__ = watched
    return models


def train_and_count(config, directory, how: str) -> None:
    """Train in one of several processes; at every step only one model is alive."""
    models = watch_models()
    counts: list[int] = []
    describe, measure, compute = course._step_done, run.steps_that_fit, learner.summed_loss
    n_calls = 0

    def step_done(*arguments):
        gc.collect()
        counts.append(sum(model() is not None for model in models))
        return describe(*arguments)

    def diverge(vectors, *arguments):
        nonlocal n_calls
        n_calls += vectors.requires_grad
        loss = compute(vectors, *arguments)
        return loss * math.nan if n_calls == 4 and vectors.requires_grad else loss

    course._step_done = step_done
    rehearsal._MOST = 0.0
    run.steps_that_fit = lambda *arguments: min(6, measure(*arguments))
    if how == "restart":
        learner.summed_loss = diverge
    train_run(config, directory, silent)
    assert len(models) == 2, len(models)
    assert set(counts) == {1}, counts


@pytest.mark.long
def test_the_model_that_measures_the_speed_is_freed(tiny_config, tmp_path):
    config = overlaid(tiny_config, [("train.minutes", 30)])
    work_together(train_and_count, 2, config, tmp_path / "run", "minutes")


@pytest.mark.long
def test_the_model_that_resets_a_run_is_freed(tiny_config, tmp_path):
    config = overlaid(tiny_config, [("train.steps", 6)])
    work_together(train_and_count, 2, config, tmp_path / "run", "restart")
