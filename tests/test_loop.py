"""Training loop: time budget, rollbacks, checkpoints, averages, fine-tuning and reports."""

import errno
import json
import math
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import killing
from mtcli.config.load import with_overrides
from mtcli.config.sections import Config
from mtcli.data.batches import DataPosition
from mtcli.data.cache import DataCache
from mtcli.distributed import SINGLE
from mtcli.errors import CheckpointError, ConfigError
from mtcli.model_dir.averaging import average_models
from mtcli.model_dir.checkpoints import Progress, load_with_checksum, steps_to_average, weights_path
from mtcli.model_dir.directory import load_saved_config, weights_info
from mtcli.model_dir.layout import INTERIM_CHECKPOINT
from mtcli.model_dir.weights import average_weights
from mtcli.models import build_model
from mtcli.models.base import parameters_of
from mtcli.reporting.events import (
    Finished,
    Notice,
    Resumed,
    RolledBack,
    StepDone,
    Stopped,
    Validated,
)
from mtcli.training import dataset, loop, run_settings, time_budget
from mtcli.training import step as step_module
from mtcli.training.loop import is_better
from mtcli.training.optimizers import MovingAverage, swapped_weights
from mtcli.training.preparation import Preparation
from mtcli.training.run import RunOptions, train_run
from mtcli.training.run_state import Run, RunContext

pytestmark = pytest.mark.cpu


def silent(_event: object) -> None:
    """Ignore an event."""


def run(config: Config, directory: Path, **settings) -> list:
    """Train with changed `train` settings; return all events, then the result."""
    events: list = []
    changed = with_overrides(config, [(f"train.{key}", value) for key, value in settings.items()])
    result = train_run(changed, directory, events.append)
    return [*events, result]


def of_kind(kind: type, events: list) -> list:
    return [event for event in events if isinstance(event, kind)]


# Tests of the time budget, the time limit and pauses.


@pytest.fixture
def estimates(monkeypatch) -> list[int]:
    """Replace the speed measurement with an estimate of 10 steps; return the list of estimates."""
    calls: list[int] = []
    monkeypatch.setattr(run_settings, "estimate_steps", lambda *_: calls.append(10) or 10)
    return calls


def test_minutes_are_converted_to_steps_only_once(tiny_config, tmp_path, estimates):
    events = run(tiny_config, tmp_path / "run", minutes=0.05)
    config = load_saved_config(tmp_path / "run")
    assert config.train.minutes == 0.05
    assert of_kind(StepDone, events)[-1].step == config.train.steps == events[-1].step == 10
    assert of_kind(StepDone, events)[-1].learning_rate == 0.0  # end of the schedule
    again = run(tiny_config, tmp_path / "run", minutes=0.05)
    assert "already complete" in again[0].text
    with pytest.raises(CheckpointError, match=r"train\.minutes: 0\.05 before, 7\.0 now"):
        run(tiny_config, tmp_path / "run", minutes=7)
    assert len(estimates) == 1


def test_a_resumed_run_with_a_time_budget_keeps_its_number_of_steps(
    tiny_config, tmp_path, estimates
):
    config = with_overrides(tiny_config, [("train.minutes", 0.05), ("train.validate_every", 1000)])
    steps: set[int] = set()

    def stop(event):
        if isinstance(event, StepDone):
            steps.add(event.steps)
            if event.step == 5:
                signal.raise_signal(signal.SIGTERM)

    assert isinstance(train_run(config, tmp_path / "run", stop), Stopped)
    finished = train_run(config, tmp_path / "run", lambda e: stop(e))
    assert isinstance(finished, Finished)
    assert steps == {finished.step} == {10}
    assert len(estimates) == 1


class Clock:
    """A clock that advances by one second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now

    perf_counter = monotonic


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """Replace the clock so that a step and a validation take one second each."""
    clock = Clock()
    for module in (time_budget, loop, dataset):
        monkeypatch.setattr(module, "time", clock)
    return clock


def test_the_estimated_steps_fill_the_remaining_time(tiny_config, tmp_path, clock):
    config = with_overrides(tiny_config, [("train.minutes", 10)])
    data = Preparation(config, DataCache(tmp_path / "data")).dataset(silent)

    def estimate(minutes_ago):
        started_at = clock.now - minutes_ago * 60
        context = RunContext(tmp_path, torch.device("cpu"), SINGLE, silent, started_at)
        return time_budget.estimate_steps(config, context, data)

    # A step takes 1 s, and every fourth step is followed by a validation that takes 1 s.
    assert estimate(0) - estimate(5) == 5 * 60 / 1.25
    assert 300 < estimate(0) < 10 * 60 / 1.25
    with pytest.raises(ConfigError, match="there is time for fewer than 4 steps"):
        estimate(9.9)


def test_a_time_budget_that_is_too_short_is_refused_before_anything_is_written(
    tiny_config, tmp_path
):
    with pytest.raises(ConfigError, match=r"train\.minutes=1e-06 is too short") as error:
        run(tiny_config, tmp_path / "run", minutes=1e-6)
    assert re.search(r"hint: allow about [\d.]+ minutes for 100 steps", str(error.value))
    assert not (tmp_path / "run").exists()


def test_a_run_stops_at_its_time_limit(tiny_config, tmp_path):
    run(tiny_config, tmp_path / "uninterrupted")
    options = RunOptions(stop_after=1e-6)
    for number in (1, 2):
        stopped = train_run(tiny_config, tmp_path / "run", silent, options)
        assert stopped == Stopped(number, 0)
    run(tiny_config, tmp_path / "run")
    assert killing.result(tmp_path / "run") == killing.result(tmp_path / "uninterrupted")


def test_checkpoints_are_saved_between_validations(tiny_config, tmp_path):
    saved: set[int] = set()

    def listen(_event):
        path = tmp_path / "run" / INTERIM_CHECKPOINT
        if path.exists():
            saved.add(Progress.from_json(load_with_checksum(path)[0]).step)

    config = with_overrides(tiny_config, [("train.save_minutes", 1e-9)])
    train_run(config, tmp_path / "run", listen)
    assert saved == {1, 2, 3, 5, 6, 7, 9, 10, 11}


def test_a_run_resumes_from_its_last_validation_and_not_from_an_earlier_pause(
    tiny_config, tmp_path
):
    def stop_at(number):
        def stop(event):
            if isinstance(event, StepDone) and event.step == number:
                signal.raise_signal(signal.SIGTERM)

        return stop

    for number in (3, 4):
        stopped = train_run(tiny_config, tmp_path / "run", stop_at(number))
        assert stopped == Stopped(number, signal.SIGTERM)
    events = run(tiny_config, tmp_path / "run")
    assert [event.step for event in of_kind(Resumed, events)] == [4]


# Tests of divergence, rollbacks and damaged files.


class Diverging:
    """Loss that is multiplied by `factor` in the calls whose numbers are in `calls`."""

    def __init__(self, factor: float, calls: range) -> None:
        self.factor = factor
        self.calls = calls  # counted over all training steps, including repeated ones
        self.n_calls = 0
        self.compute = step_module.summed_loss

    def __call__(self, hidden, weight, labels, smoothing):
        loss = self.compute(hidden, weight, labels, smoothing)
        if hidden.requires_grad:
            self.n_calls += 1
            if self.n_calls in self.calls:
                return loss * self.factor
        return loss


@pytest.mark.parametrize("factor", [math.nan, math.inf, 30.0])
def test_divergence_rolls_back_and_halves_the_learning_rate(
    tiny_config, tmp_path, monkeypatch, factor
):
    monkeypatch.setattr(step_module, "summed_loss", Diverging(factor, range(6, 7)))
    events = run(tiny_config, tmp_path / "run")
    [rolled] = of_kind(RolledBack, events)
    assert (rolled.to_step, rolled.factor) == (4, 0.5)
    assert rolled.step == 6
    steps = [event.step for event in of_kind(StepDone, events)]
    assert steps[-8:] == list(range(5, 13))
    assert isinstance(events[-1], Finished)
    logged = killing.result(tmp_path / "run")[1]
    assert [e["event"] for e in logged].count("rollback") == 1
    assert [e["step"] for e in logged if e["event"] == "validation"] == [4, 8, 12]


@pytest.mark.parametrize("how", [pytest.param("signal", marks=pytest.mark.long), "clock"])
def test_the_rollback_step_does_not_depend_on_interruptions(
    tiny_config, tmp_path, monkeypatch, how
):
    config = with_overrides(tiny_config, [("train.warmup", 0), ("train.decay_share", 0)])
    backward = step_module.TrainStep.backward
    positions: list[DataPosition] = []

    def record_position(self, group):
        positions.append(group.after)
        return backward(self, group)

    monkeypatch.setattr(step_module.TrainStep, "backward", record_position)
    run(config, tmp_path / "recorded")

    def diverge_at_step_7(self, group):
        result = backward(self, group)
        parameters = self.optimizers[0].param_groups[0]
        is_fast = parameters["lr"] > 0.6 * parameters["peak"]
        if group.after == positions[6] and is_fast:
            return replace(result, loss=math.nan)
        return result

    monkeypatch.setattr(step_module.TrainStep, "backward", diverge_at_step_7)
    run(config, tmp_path / "uninterrupted")

    def stop(event):
        if isinstance(event, StepDone) and event.step == 6 and how == "signal":
            signal.raise_signal(signal.SIGTERM)

    save_minutes = 1e-9 if how == "clock" else 15
    interrupted = with_overrides(config, [("train.save_minutes", save_minutes)])
    train_run(interrupted, tmp_path / "run", stop)
    assert isinstance(run(interrupted, tmp_path / "run")[-1], Finished)
    assert killing.result(tmp_path / "run") == killing.result(tmp_path / "uninterrupted")
    events = killing.result(tmp_path / "run")[1]
    assert [e["to_step"] for e in events if e["event"] == "rollback"] == [4]


def test_divergence_before_the_first_checkpoint_restarts_the_run(
    tiny_config, tmp_path, monkeypatch
):
    monkeypatch.setattr(step_module, "summed_loss", Diverging(math.nan, range(2, 3)))
    events = run(tiny_config, tmp_path / "run", ema=0.9)
    [rolled] = of_kind(RolledBack, events)
    assert (rolled.step, rolled.to_step) == (2, 0)
    first, *_ = of_kind(StepDone, events)
    again = next(e for e in of_kind(StepDone, events)[1:] if e.step == 1)
    assert first.loss == again.loss  # the same weights and the same batch


def test_a_restarted_run_equals_a_new_run_with_half_the_learning_rate(
    tiny_config, tmp_path, monkeypatch
):
    rates = {"learning_rate": 0.004, "matrix_learning_rate": 0.02}
    half_rates = {key: rate / 2 for key, rate in rates.items()}
    smaller = of_kind(StepDone, run(tiny_config, tmp_path / "smaller", **half_rates))
    monkeypatch.setattr(step_module, "summed_loss", Diverging(math.nan, range(3, 4)))
    again = of_kind(StepDone, run(tiny_config, tmp_path / "run", **rates))[2:]
    assert [event.loss for event in again] == [event.loss for event in smaller]


def test_each_rollback_halves_the_learning_rate(tiny_config, tmp_path, monkeypatch):
    monkeypatch.setattr(step_module, "summed_loss", Diverging(math.nan, range(6, 8)))
    rolled = of_kind(RolledBack, run(tiny_config, tmp_path / "run"))
    assert [(event.to_step, event.factor) for event in rolled] == [(4, 0.5), (4, 0.25)]


def test_rollbacks_are_limited_and_keep_the_checkpoint(tiny_config, tmp_path, monkeypatch):
    monkeypatch.setattr(step_module, "summed_loss", Diverging(math.nan, range(6, 10**6)))
    with pytest.raises(
        ConfigError, match="training diverged at step 5: the loss or the gradient norm is NaN"
    ):
        run(tiny_config, tmp_path / "run", max_rollbacks=2)
    assert (tmp_path / "run" / "checkpoints" / "step-00000004.safetensors").exists()
    text = (tmp_path / "run" / "log.jsonl").read_text()
    assert ": NaN" not in text  # `NaN` is not valid JSON
    monkeypatch.undo()
    assert isinstance(run(tiny_config, tmp_path / "run", max_rollbacks=2)[-1], Finished)


def test_a_full_disk_raises_a_user_error_and_keeps_the_last_checkpoint(
    tiny_config, tmp_path, monkeypatch
):
    from mtcli.model_dir import weights

    run(tiny_config, tmp_path / "uninterrupted")
    save = weights.save_file

    def save_file(tensors, path, metadata):
        if "step-00000008" in str(path):
            Path(path).write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        save(tensors, path, metadata)

    with monkeypatch.context() as patch:
        patch.setattr(weights, "save_file", save_file)
        with pytest.raises(CheckpointError, match="No space left on device"):
            run(tiny_config, tmp_path / "run")
    names = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert names == {"step-00000004.safetensors"}
    run(tiny_config, tmp_path / "run")
    assert killing.result(tmp_path / "run") == killing.result(tmp_path / "uninterrupted")


def damage(path: Path, at: float = 0.5) -> None:
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 1
    path.write_bytes(content)


def test_a_run_without_an_intact_checkpoint_is_not_resumed(tiny_config, tmp_path):
    events: list[object] = []

    def crash(event):
        events.append(event)
        if isinstance(event, StepDone) and event.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(tiny_config, tmp_path / "run", crash)
    [path] = (tmp_path / "run" / "checkpoints").iterdir()
    damage(path)
    with pytest.raises(CheckpointError, match="no checkpoint to resume from"):
        train_run(tiny_config, tmp_path / "run", events.append)
    assert events[-1].text == f"{path} is damaged (its checksum is wrong)"


@pytest.mark.parametrize(
    "at", [*(pytest.param(at, marks=pytest.mark.long) for at in (0.3, 0.95)), 0.6]
)
def test_a_single_wrong_bit_in_a_checkpoint_is_detected(tiny_config, tmp_path, at):
    def crash(event):
        if isinstance(event, StepDone) and event.step == 10:
            raise KeyboardInterrupt

    run(tiny_config, tmp_path / "uninterrupted")
    with pytest.raises(KeyboardInterrupt):
        train_run(tiny_config, tmp_path / "run", crash)
    _, latest = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))
    damage(latest, at)
    events = run(tiny_config, tmp_path / "run")
    [text] = [event.text for event in of_kind(Notice, events) if f"{latest} is" in event.text]
    assert "is damaged" in text
    assert text.endswith("; using the previous checkpoint")
    assert [event.step for event in of_kind(Resumed, events)] == [4]
    assert killing.result(tmp_path / "run") == killing.result(tmp_path / "uninterrupted")


def test_a_resumed_run_remembers_its_batch_size_limit(tiny_config, tmp_path, monkeypatch):
    compute, too_large = step_module.summed_loss, []

    def small_memory(hidden, weight, labels, smoothing):
        if hidden.requires_grad and labels.numel() > 60:
            too_large.append(labels.numel())
            raise torch.OutOfMemoryError("CUDA out of memory")
        return compute(hidden, weight, labels, smoothing)

    def stop(event):
        if isinstance(event, StepDone) and event.step == 6:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(step_module, "summed_loss", small_memory)
    assert isinstance(train_run(tiny_config, tmp_path / "run", stop), Stopped)
    assert too_large
    too_large.clear()
    assert isinstance(run(tiny_config, tmp_path / "run")[-1], Finished)
    assert not too_large


def test_a_run_killed_between_saving_checkpoint_and_weights_keeps_the_weights(
    tiny_config, tmp_path, monkeypatch
):
    def kill(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr("mtcli.training.run_state.save_weights", kill)
    with pytest.raises(KeyboardInterrupt):
        run(tiny_config, tmp_path / "run", steps=4)
    monkeypatch.undo()
    assert run(tiny_config, tmp_path / "run", steps=4)[-1].best_step == 4
    assert weights_info(tmp_path / "run").step == 4


def test_removing_the_directory_raises_a_user_error(tiny_config, tmp_path):
    def remove(event):
        if isinstance(event, StepDone) and event.step == 6:
            shutil.rmtree(tmp_path / "run")

    with pytest.raises(
        CheckpointError, match=r"cannot write .*log\.jsonl(?s:.)*directory still exists"
    ):
        train_run(tiny_config, tmp_path / "run", remove)


# Tests of the final weights.


def test_the_best_candidate_becomes_the_model_and_is_reported(tiny_config, tmp_path):
    events = run(tiny_config, tmp_path / "run", metric="loss", average=3, ema=0.5, steps=20)
    directory = tmp_path / "run"
    info = weights_info(directory)
    losses = {f"step {e.step}": e.loss for e in of_kind(Validated, events)}
    candidates = [e.text for e in of_kind(Notice, events) if "better than step" in e.text]
    assert any(text.startswith("the mean of steps 12, 16 and 20") for text in candidates)
    assert any(text.startswith("the last step without the moving average") for text in candidates)
    better = [text for text in candidates if "; better" in text]
    expected = better[-1].partition(":")[0] if better else min(losses, key=losses.get)
    assert events[-1].weights == expected
    assert info.weights == ("" if not better else expected)


def test_a_candidate_must_beat_all_earlier_candidates(tiny_config, tmp_path, monkeypatch):
    losses = iter([0.1, 0.2])  # mean, last step; lower than in all validations
    measure = Run.measure

    def fake_measure(self, weights=None):
        measured = measure(self, weights)
        return measured if weights is None else replace(measured, loss=next(losses))

    monkeypatch.setattr(Run, "measure", fake_measure)
    events = run(tiny_config, tmp_path / "run", metric="loss", average=2, ema=0.5)
    assert next(losses, None) is None
    assert events[-1].weights == "the mean of steps 8 and 12"


@pytest.mark.parametrize("which", ["best", "last"])
def test_weights_of_the_best_or_the_last_validations_are_kept(tiny_config, tmp_path, which):
    # The learning rate is so high that the last validations are not the best ones.
    settings = {"metric": "loss", "average": 2, "average_of": which, "learning_rate": 0.2}
    events = run(tiny_config, tmp_path / "run", steps=20, decay_share=0.0, **settings)
    validated = of_kind(Validated, events)
    best = sorted(validated, key=lambda event: event.loss)[:2]
    expected = {event.step for event in (best if which == "best" else validated[-2:])}
    latest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    assert {step for step, _ in Progress.from_json(load_with_checksum(latest)[0]).kept} == expected


@pytest.mark.parametrize("which", ["best", "last"])
def test_averaging_a_run_gives_the_mean_of_its_kept_weights(tiny_config, tmp_path, which):
    run(tiny_config, tmp_path / "run", average=3, average_of=which, steps=20)
    latest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    steps = steps_to_average(
        latest
    )  # do not list the files: some may belong to an older checkpoint
    assert len(steps) == 3
    weights = [load_file(weights_path(tmp_path / "run", step)) for step in steps]
    average_models([tmp_path / "run"], tmp_path / "mean")
    found = load_file(tmp_path / "mean" / "model.safetensors")
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, sum(tensors[name] for tensors in weights) / 3)
    assert weights_info(tmp_path / "mean").weights == "the mean of 3 checkpoints"


@pytest.mark.parametrize("metric", ["bleu", "chrf", "loss"])
def test_the_metric_decides_which_step_is_best(tiny_config, tmp_path, metric):
    events = run(tiny_config, tmp_path / "run", metric=metric, steps=24, validate_every=3)
    validated = of_kind(Validated, events)

    def score_of(event):
        return -event.loss if metric == "loss" else event.scores[metric].value

    best = max(validated, key=lambda event: (score_of(event), -event.loss))
    assert events[-1].best_step == best.step


@pytest.mark.parametrize(
    ("score", "loss", "is_best"),
    [(0.0, 2.9, True), (0.0, 3.1, False), (0.0, 3.0, False), (0.1, 9.0, True), (-0.1, 1.0, False)],
)
def test_the_lower_loss_breaks_ties_between_equal_scores(score, loss, is_best):
    best = Progress("", best_step=4, best_score=0.0, best_loss=3.0)
    assert is_better(score, loss, best) == is_best


def test_averaged_models_must_match_and_give_the_mean_of_their_weights(tiny_config, tmp_path):
    for name, rate in (("1", 0.001), ("2", 0.01)):
        run(tiny_config, tmp_path / name, learning_rate=rate)
    average_models([tmp_path / "1", tmp_path / "2"], tmp_path / "mean")
    one, two, mean = (
        load_file(tmp_path / name / "model.safetensors") for name in ("1", "2", "mean")
    )
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (one[name] + two[name]) / 2)
    with pytest.raises(CheckpointError, match="already exists"):
        average_models([tmp_path / "1", tmp_path / "2"], tmp_path / "mean")
    with pytest.raises(CheckpointError, match="contains fewer than two sets of weights"):
        average_models([tmp_path / "1"], tmp_path / "new")
    wider = with_overrides(tiny_config, [("model.d_model", 32)])
    run(wider, tmp_path / "wider")
    with pytest.raises(CheckpointError, match="have different architectures"):
        average_models([tmp_path / "1", tmp_path / "wider"], tmp_path / "new")
    other = with_overrides(tiny_config, [("tokenizer.vocab_size", 330)])
    run(other, tmp_path / "other")
    with pytest.raises(CheckpointError, match="have different vocabularies"):
        average_models([tmp_path / "1", tmp_path / "other"], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_moving_average_converges_to_constant_weights(tiny_config):
    model = build_model(tiny_config.model, 20, 20)
    average = MovingAverage(model, 0.9)
    initial = {name: weight.clone() for name, weight in average.weights.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    for step in range(1, 200):
        average.update(model, step)
    for name, weight in parameters_of(model).items():
        torch.testing.assert_close(average.weights[name], weight)
        assert not torch.allclose(initial[name], weight)


@pytest.mark.parametrize(("step", "kept"), [(1, 2 / 11), (80, 81 / 90), (10_000, 0.99)])
def test_the_decay_of_a_moving_average_grows_to_its_limit(tiny_config, step, kept):
    model = build_model(tiny_config.model, 20, 20)
    average = MovingAverage(model, 0.99)
    initial = {name: weight.clone() for name, weight in average.weights.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    average.update(model, step)
    for name, weight in average.weights.items():
        torch.testing.assert_close(weight, initial[name] + (1 - kept))


def test_swapped_weights_are_restored(tiny_config):
    model = build_model(tiny_config.model, 20, 20)
    own = {name: weight.clone() for name, weight in parameters_of(model).items()}
    zeros = {name: torch.zeros_like(weight) for name, weight in own.items()}
    with swapped_weights(model, zeros.items()):
        assert all((weight == 0).all() for weight in parameters_of(model).values())
    assert all(torch.equal(parameters_of(model)[name], weight) for name, weight in own.items())


def test_the_mean_of_equal_weights_is_exact():
    weights = {"a": torch.tensor([0.1, 1e8])}
    assert torch.equal(average_weights([weights] * 7)["a"], weights["a"])


# Tests of fine-tuning.


def test_fine_tuning_starts_with_the_vocabulary_and_weights_of_the_parent(
    tiny_config, tmp_path, corpus_files
):
    run(tiny_config, tmp_path / "parent", steps=60, learning_rate=0.01)
    for path in corpus_files:  # train on fewer pairs: the vocabulary must not change
        lines = path.read_text(encoding="utf-8").splitlines()[:30]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    scratch = run(tiny_config, tmp_path / "scratch", steps=2)
    child = run(tiny_config, tmp_path / "child", steps=2, start_from=str(tmp_path / "parent"))
    losses = [of_kind(StepDone, events)[0].loss for events in (child, scratch)]
    assert losses[0] < 0.7 * losses[1]
    tokenizers = [(tmp_path / n / "tokenizer.model").read_bytes() for n in ("parent", "child")]
    assert tokenizers[0] == tokenizers[1]
    assert str(tmp_path) not in (tmp_path / "child" / "config.yaml").read_text()


def test_the_parent_is_needed_only_until_the_first_checkpoint(tiny_config, tmp_path):
    run(tiny_config, tmp_path / "parent")
    settings = [("train.start_from", str(tmp_path / "parent"))]
    config = with_overrides(tiny_config, settings)

    def stop(event):
        if isinstance(event, StepDone) and event.step == 6:
            signal.raise_signal(signal.SIGTERM)

    train_run(config, tmp_path / "child", stop)
    (tmp_path / "parent").rename(tmp_path / "gone")
    assert isinstance(train_run(config, tmp_path / "child", silent), Finished)


def test_frozen_parameters_do_not_change(tiny_config, tmp_path):
    run(tiny_config, tmp_path / "parent")
    patterns = ["encoder.*", "*_embedding.weight"]
    settings = {"start_from": str(tmp_path / "parent"), "freeze": patterns}
    run(tiny_config, tmp_path / "child", **settings)
    parent, child = (load_file(tmp_path / n / "model.safetensors") for n in ("parent", "child"))
    for name, weight in parent.items():
        is_frozen = name.startswith("encoder.") or name.endswith("_embedding.weight")
        assert torch.equal(child[name], weight) == is_frozen, name


@pytest.mark.parametrize(
    ("patterns", "message"),
    [(["encodr.*"], "encodr.* matches no parameter"), (["*"], "leaves no parameters to train")],
)
def test_invalid_freeze_patterns_raise_a_user_error(tiny_config, tmp_path, patterns, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        run(tiny_config, tmp_path / "run", freeze=patterns)
    assert not (tmp_path / "run").exists()


# Tests of the report and TensorBoard.


def test_the_report_is_updated_and_contains_the_final_score(tiny_config, tmp_path):
    pages = []

    def listen(_event):
        path = tmp_path / "run" / "report.html"
        if path.exists():
            pages.append(path.read_text(encoding="utf-8"))

    train_run(tiny_config, tmp_path / "run", listen)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    finished = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])
    assert f"{finished['bleu']:.2f}" in page
    assert "torch" in page
    assert len(set(pages)) >= 3  # written after each validation
    assert str(tmp_path) not in page


def test_tensorboard_receives_the_curves(tiny_config, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    directory = tmp_path / "run"
    train_run(tiny_config, directory, silent, RunOptions(tensorboard=True))
    found = EventAccumulator(str(directory / "tensorboard")).Reload()
    assert [event.step for event in found.Scalars("train/loss")] == list(range(1, 13))
    assert [event.step for event in found.Scalars("dev/bleu")] == [4, 8, 12]


def test_missing_tensorboard_raises_a_user_error_with_a_hint(tiny_config, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match="pip install 'mtcli"):
        train_run(tiny_config, tmp_path / "run", silent, RunOptions(tensorboard=True))
