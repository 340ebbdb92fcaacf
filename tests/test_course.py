"""The course of a run: budgets of time, detours, averages, beginnings from another model."""

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
from mtcli.checkpoint.averaging import average_models
from mtcli.checkpoint.directory import PAUSE, load_saved_config, weights_info
from mtcli.checkpoint.state import Progress, kept_steps, load_checked, weights_path
from mtcli.checkpoint.weights import mean_of
from mtcli.config import Config, overlaid
from mtcli.distributed import ALONE
from mtcli.errors import CheckpointError, ConfigError
from mtcli.feed import Position
from mtcli.models import build_model, parameters_of
from mtcli.optim import MovingAverage, exchanged
from mtcli.report import Finished, Notice, Resumed, RolledBack, StepDone, Stopped, Validated
from mtcli.training import RunOptions, learner, loop, rehearsal, train_run, validation
from mtcli.training import run as training
from mtcli.training.course import is_better
from mtcli.training.preparation import learn_pieces, prepare, read_pairs
from mtcli.training.setup import Place, Run

pytestmark = pytest.mark.cpu


def silent(_event: object) -> None:
    """Show nothing."""


def run(config: Config, directory: Path, **settings) -> list:
    """All events of a run with some settings changed; its result is the last."""
    shown: list = []
    changed = overlaid(config, [(f"train.{key}", value) for key, value in settings.items()])
    result = train_run(changed, directory, shown.append)
    return [*shown, result]


def of_kind(kind: type, events: list) -> list:
    return [event for event in events if isinstance(event, kind)]


# Time.


@pytest.fixture
def n_measured(monkeypatch) -> list[int]:
    """Let every speed measurement find that 10 steps fit into the time; count the measurements."""
    calls: list[int] = []
    monkeypatch.setattr(training, "steps_that_fit", lambda *_: calls.append(10) or 10)
    return calls


def test_minutes_become_steps_once_and_for_all(tiny_config, tmp_path, n_measured):
    events = run(tiny_config, tmp_path / "run", minutes=0.05)
    config = load_saved_config(tmp_path / "run")
    assert config.train.minutes == 0.05
    assert of_kind(StepDone, events)[-1].step == config.train.steps == events[-1].step == 10
    assert of_kind(StepDone, events)[-1].learning_rate == 0.0  # the schedule ends there
    again = run(tiny_config, tmp_path / "run", minutes=0.05)
    assert "already complete" in again[0].text
    with pytest.raises(CheckpointError, match=r"train\.minutes: 0\.05 before, 7\.0 now"):
        run(tiny_config, tmp_path / "run", minutes=7)
    assert len(n_measured) == 1


def test_a_run_in_minutes_that_was_stopped_keeps_its_number_of_steps(
    tiny_config, tmp_path, n_measured
):
    config = overlaid(tiny_config, [("train.minutes", 0.05), ("train.validate_every", 1000)])
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
    assert len(n_measured) == 1


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
    """Let the speed measurement read a clock by which a step and a validation take a second."""
    clock = Clock()
    for module in (rehearsal, loop, validation):
        monkeypatch.setattr(module, "time", clock)
    return clock


def test_the_steps_fill_the_time_that_is_left(tiny_config, tmp_path, clock):
    config = overlaid(tiny_config, [("train.minutes", 10)])
    pairs = read_pairs(config, silent)
    data = prepare(pairs, learn_pieces(pairs, config, silent), config, silent)

    def fitting(minutes_ago):
        place = Place(tmp_path, torch.device("cpu"), ALONE, silent, clock.now - minutes_ago * 60)
        return rehearsal.steps_that_fit(config, place, data)

    # A step takes 1 s, and after every 4 steps there is a validation of 1 s.
    assert fitting(0) - fitting(5) == 5 * 60 / 1.25
    assert 300 < fitting(0) < 10 * 60 / 1.25
    with pytest.raises(ConfigError, match="there is time for less than 4 steps"):
        fitting(9.9)


def test_too_little_time_is_told_before_anything_is_written(tiny_config, tmp_path):
    with pytest.raises(ConfigError, match=r"train\.minutes=1e-06 is too little") as error:
        run(tiny_config, tmp_path / "run", minutes=1e-6)
    assert re.search(r"hint: 100 steps would fit into about [\d.]+ minutes", str(error.value))
    assert not (tmp_path / "run").exists()


def test_a_run_stops_by_itself_when_its_time_is_up(tiny_config, tmp_path):
    run(tiny_config, tmp_path / "undisturbed")
    options = RunOptions(stop_after=1e-6)
    for step in (1, 2):
        stopped = train_run(tiny_config, tmp_path / "run", silent, options)
        assert stopped == Stopped(step, 0)
    run(tiny_config, tmp_path / "run")
    assert killing.result(tmp_path / "run") == killing.result(tmp_path / "undisturbed")


def test_there_is_a_checkpoint_at_least_every_few_minutes(tiny_config, tmp_path):
    seen: set[int] = set()

    def look(_event):
        path = tmp_path / "run" / PAUSE
        if path.exists():
            seen.add(Progress.from_json(load_checked(path)[0]).step)

    config = overlaid(tiny_config, [("train.save_minutes", 1e-9)])
    train_run(config, tmp_path / "run", look)
    assert seen == {1, 2, 3, 5, 6, 7, 9, 10, 11}


def test_a_run_goes_on_from_its_validation_and_not_from_a_pause_before_it(tiny_config, tmp_path):
    def stop_at(step):
        def stop(event):
            if isinstance(event, StepDone) and event.step == step:
                signal.raise_signal(signal.SIGTERM)

        return stop

    for step in (3, 4):
        stopped = train_run(tiny_config, tmp_path / "run", stop_at(step))
        assert stopped == Stopped(step, signal.SIGTERM)
    events = run(tiny_config, tmp_path / "run")
    assert [event.step for event in of_kind(Resumed, events)] == [4]


# Detours.


class Diverging:
    """A loss that is wrong now and then."""

    def __init__(self, value: float, when: range) -> None:
        self.value = value
        self.when = when  # of all steps that are made, those that are made again included
        self.n_calls = 0
        self.compute = learner.summed_loss

    def __call__(self, vectors, weight, labels, smoothing):
        loss = self.compute(vectors, weight, labels, smoothing)
        if vectors.requires_grad:
            self.n_calls += 1
            if self.n_calls in self.when:
                return loss * self.value
        return loss


@pytest.mark.parametrize("value", [math.nan, math.inf, 30.0])
def test_a_training_that_diverges_goes_back_and_on_with_smaller_steps(
    tiny_config, tmp_path, monkeypatch, value
):
    monkeypatch.setattr(learner, "summed_loss", Diverging(value, range(6, 7)))
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


@pytest.mark.parametrize("how", ["signal", "clock"])
def test_where_it_goes_back_to_does_not_depend_on_signals_and_clocks(
    tiny_config, tmp_path, monkeypatch, how
):
    config = overlaid(tiny_config, [("train.warmup", 0), ("train.decay_share", 0)])
    learn = learner.Learner.learn
    places: list[Position] = []
    monkeypatch.setattr(
        learner.Learner, "learn", lambda own, g: places.append(g.after) or learn(own, g)
    )
    run(config, tmp_path / "look")

    def wrong_at_seven(own, group):
        outcome = learn(own, group)
        group_of_adamw = own.optimizers[0].param_groups[0]
        is_fast = group_of_adamw["lr"] > 0.6 * group_of_adamw["peak"]
        if group.after == places[6] and is_fast:
            return replace(outcome, loss=math.nan)
        return outcome

    monkeypatch.setattr(learner.Learner, "learn", wrong_at_seven)
    run(config, tmp_path / "undisturbed")

    def stop(event):
        if isinstance(event, StepDone) and event.step == 6 and how == "signal":
            signal.raise_signal(signal.SIGTERM)

    save_minutes = 1e-9 if how == "clock" else 15
    disturbed = overlaid(config, [("train.save_minutes", save_minutes)])
    train_run(disturbed, tmp_path / "run", stop)
    assert isinstance(run(disturbed, tmp_path / "run")[-1], Finished)
    assert killing.result(tmp_path / "run") == killing.result(tmp_path / "undisturbed")
    events = killing.result(tmp_path / "run")[1]
    assert [e["to_step"] for e in events if e["event"] == "rollback"] == [4]


def test_before_the_first_checkpoint_it_goes_back_to_the_beginning(
    tiny_config, tmp_path, monkeypatch
):
    monkeypatch.setattr(learner, "summed_loss", Diverging(math.nan, range(2, 3)))
    events = run(tiny_config, tmp_path / "run", ema=0.9)
    [rolled] = of_kind(RolledBack, events)
    assert (rolled.step, rolled.to_step) == (2, 0)
    first, *_ = of_kind(StepDone, events)
    again = next(e for e in of_kind(StepDone, events)[1:] if e.step == 1)
    assert first.loss == again.loss  # the same weights and the same batch


def test_a_new_beginning_remembers_nothing_but_that_its_steps_are_smaller(
    tiny_config, tmp_path, monkeypatch
):
    rates = {"learning_rate": 0.004, "matrix_learning_rate": 0.02}
    halves = {key: rate / 2 for key, rate in rates.items()}
    smaller = of_kind(StepDone, run(tiny_config, tmp_path / "smaller", **halves))
    monkeypatch.setattr(learner, "summed_loss", Diverging(math.nan, range(3, 4)))
    again = of_kind(StepDone, run(tiny_config, tmp_path / "run", **rates))[2:]
    assert [event.loss for event in again] == [event.loss for event in smaller]


def test_steps_get_smaller_each_time_it_goes_back_to_the_same_place(
    tiny_config, tmp_path, monkeypatch
):
    monkeypatch.setattr(learner, "summed_loss", Diverging(math.nan, range(6, 8)))
    rolled = of_kind(RolledBack, run(tiny_config, tmp_path / "run"))
    assert [(event.to_step, event.factor) for event in rolled] == [(4, 0.5), (4, 0.25)]


def test_it_does_not_try_for_ever_and_what_was_learned_stays(tiny_config, tmp_path, monkeypatch):
    monkeypatch.setattr(learner, "summed_loss", Diverging(math.nan, range(6, 10**6)))
    with pytest.raises(ConfigError, match="training has diverged at step 5"):
        run(tiny_config, tmp_path / "run", max_rollbacks=2)
    assert (tmp_path / "run" / "checkpoints" / "step-00000004.safetensors").exists()
    text = (tmp_path / "run" / "log.jsonl").read_text()
    assert "NaN" not in text
    monkeypatch.undo()
    assert isinstance(run(tiny_config, tmp_path / "run", max_rollbacks=2)[-1], Finished)


def test_a_full_disk_is_a_message_and_the_last_checkpoint_stays(tiny_config, tmp_path, monkeypatch):
    from mtcli.checkpoint import weights

    run(tiny_config, tmp_path / "undisturbed")
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
    assert killing.result(tmp_path / "run") == killing.result(tmp_path / "undisturbed")


def damage(path: Path, at: float = 0.5) -> None:
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 1
    path.write_bytes(content)


def test_where_no_checkpoint_is_whole_none_is_gone_back_to(tiny_config, tmp_path):
    events: list[object] = []

    def crash(event):
        events.append(event)
        if isinstance(event, StepDone) and event.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(tiny_config, tmp_path / "run", crash)
    [path] = (tmp_path / "run" / "checkpoints").iterdir()
    damage(path)
    with pytest.raises(CheckpointError, match="no checkpoint to go on from"):
        train_run(tiny_config, tmp_path / "run", events.append)
    assert events[-1].text == f"{path} is damaged (its checksum is wrong)"


@pytest.mark.parametrize("at", [0.3, 0.6, 0.95])
def test_a_single_wrong_bit_in_a_checkpoint_is_found(tiny_config, tmp_path, at):
    def crash(event):
        if isinstance(event, StepDone) and event.step == 10:
            raise KeyboardInterrupt

    run(tiny_config, tmp_path / "undisturbed")
    with pytest.raises(KeyboardInterrupt):
        train_run(tiny_config, tmp_path / "run", crash)
    _, latest = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))
    damage(latest, at)
    events = run(tiny_config, tmp_path / "run")
    [told] = [event.text for event in of_kind(Notice, events) if f"{latest} is" in event.text]
    assert "is damaged" in told
    assert told.endswith("; going back to the one before it")
    assert [event.step for event in of_kind(Resumed, events)] == [4]
    assert killing.result(tmp_path / "run") == killing.result(tmp_path / "undisturbed")


def test_a_run_that_goes_on_knows_what_did_not_fit_into_memory(tiny_config, tmp_path, monkeypatch):
    compute, too_large = learner.summed_loss, []

    def small_memory(vectors, weight, labels, smoothing):
        if vectors.requires_grad and labels.numel() > 60:
            too_large.append(labels.numel())
            raise torch.OutOfMemoryError("CUDA out of memory")
        return compute(vectors, weight, labels, smoothing)

    def stop(event):
        if isinstance(event, StepDone) and event.step == 6:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(learner, "summed_loss", small_memory)
    assert isinstance(train_run(tiny_config, tmp_path / "run", stop), Stopped)
    assert too_large
    too_large.clear()
    assert isinstance(run(tiny_config, tmp_path / "run")[-1], Finished)
    assert not too_large


def test_a_kill_between_checkpoint_and_weights_loses_nothing(tiny_config, tmp_path, monkeypatch):
    def kill(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr("mtcli.training.setup.save_weights", kill)
    with pytest.raises(KeyboardInterrupt):
        run(tiny_config, tmp_path / "run", steps=4)
    monkeypatch.undo()
    assert run(tiny_config, tmp_path / "run", steps=4)[-1].best_step == 4
    assert weights_info(tmp_path / "run").step == 4


def test_a_run_whose_directory_is_removed_says_so(tiny_config, tmp_path):
    def remove(event):
        if isinstance(event, StepDone) and event.step == 6:
            shutil.rmtree(tmp_path / "run")

    with pytest.raises(CheckpointError, match=r"cannot write .*log\.jsonl(?s:.)*directory removed"):
        train_run(tiny_config, tmp_path / "run", remove)


# What becomes the model.


def test_the_best_of_all_weights_stays_and_the_model_says_which(tiny_config, tmp_path):
    events = run(tiny_config, tmp_path / "run", metric="loss", average=3, ema=0.5, steps=20)
    directory = tmp_path / "run"
    info = weights_info(directory)
    losses = {f"step {e.step}": e.loss for e in of_kind(Validated, events)}
    tried = [e.text for e in of_kind(Notice, events) if "better than step" in e.text]
    assert any(text.startswith("the mean of steps 12, 16 and 20") for text in tried)
    assert any(text.startswith("the last step without moving average") for text in tried)
    better = [text for text in tried if "; better" in text]
    expected = better[-1].partition(":")[0] if better else min(losses, key=losses.get)
    assert events[-1].weights == expected
    assert info.weights == ("" if not better else expected)


def test_weights_must_be_better_than_all_that_were_tried_before(tiny_config, tmp_path, monkeypatch):
    losses = iter([0.1, 0.2])  # of the mean and of the last step: both better than any validation
    measure = Run.measure

    def pretend(self, weights=None):
        measured = measure(self, weights)
        return measured if weights is None else replace(measured, loss=next(losses))

    monkeypatch.setattr(Run, "measure", pretend)
    events = run(tiny_config, tmp_path / "run", metric="loss", average=2, ema=0.5)
    assert next(losses, None) is None
    assert events[-1].weights == "the mean of steps 8 and 12"


@pytest.mark.parametrize("which", ["best", "last"])
def test_what_is_kept_for_the_mean_are_the_best_or_the_last(tiny_config, tmp_path, which):
    # Steps so large that the last validations are not the best ones.
    settings = {"metric": "loss", "average": 2, "average_of": which, "learning_rate": 0.2}
    events = run(tiny_config, tmp_path / "run", steps=20, decay_share=0.0, **settings)
    validated = of_kind(Validated, events)
    best = sorted(validated, key=lambda event: event.loss)[:2]
    expected = {event.step for event in (best if which == "best" else validated[-2:])}
    latest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    assert {step for step, _ in Progress.from_json(load_checked(latest)[0]).kept} == expected


@pytest.mark.parametrize("which", ["best", "last"])
def test_the_mean_of_the_kept_weights_is_their_mean(tiny_config, tmp_path, which):
    run(tiny_config, tmp_path / "run", average=3, average_of=which, steps=20)
    latest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    steps = kept_steps(latest)  # others may be there, which only an older checkpoint counts
    assert len(steps) == 3
    weights = [load_file(weights_path(tmp_path / "run", step)) for step in steps]
    average_models([tmp_path / "run"], tmp_path / "mean")
    found = load_file(tmp_path / "mean" / "model.safetensors")
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, sum(one[name] for one in weights) / 3)
    assert weights_info(tmp_path / "mean").weights == "the mean of 3 validations"


@pytest.mark.parametrize("metric", ["bleu", "chrf", "loss"])
def test_the_metric_decides_which_step_is_the_best(tiny_config, tmp_path, metric):
    events = run(tiny_config, tmp_path / "run", metric=metric, steps=24, validate_every=3)
    validated = of_kind(Validated, events)
    sign = -1 if metric == "loss" else 1
    best = max(validated, key=lambda event: (sign * getattr(event, metric), -event.loss))
    assert events[-1].best_step == best.step


@pytest.mark.parametrize(
    ("score", "loss", "is_best"),
    [(0.0, 2.9, True), (0.0, 3.1, False), (0.0, 3.0, False), (0.1, 9.0, True), (-0.1, 1.0, False)],
)
def test_between_equal_scores_the_lower_loss_decides(score, loss, is_best):
    best = Progress("", best_step=4, best_score=0.0, best_loss=3.0)
    assert is_better(score, loss, best) == is_best


def test_the_mean_of_models_is_their_mean_and_they_must_be_alike(tiny_config, tmp_path):
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
    with pytest.raises(CheckpointError, match="has kept no validated weights"):
        average_models([tmp_path / "1"], tmp_path / "new")
    wider = overlaid(tiny_config, [("model.d_model", 32)])
    run(wider, tmp_path / "wider")
    with pytest.raises(CheckpointError, match="another architecture"):
        average_models([tmp_path / "1", tmp_path / "wider"], tmp_path / "new")
    other = overlaid(tiny_config, [("tokenizer.vocab_size", 330)])
    run(other, tmp_path / "other")
    with pytest.raises(CheckpointError, match="another vocabulary"):
        average_models([tmp_path / "1", tmp_path / "other"], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_moving_average_follows_and_forgets(tiny_config):
    model = build_model(tiny_config.model, 20, 20)
    average = MovingAverage(model, 0.9)
    begin = {name: weight.clone() for name, weight in average.weights.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    for step in range(1, 200):
        average.update(model, step)
    for name, weight in parameters_of(model).items():
        torch.testing.assert_close(average.weights[name], weight)
        assert not torch.allclose(begin[name], weight)


@pytest.mark.parametrize(("step", "kept"), [(1, 2 / 11), (80, 81 / 90), (10_000, 0.99)])
def test_a_moving_average_keeps_most_of_itself_once_it_is_old(tiny_config, step, kept):
    model = build_model(tiny_config.model, 20, 20)
    average = MovingAverage(model, 0.99)
    begin = {name: weight.clone() for name, weight in average.weights.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    average.update(model, step)
    for name, weight in average.weights.items():
        torch.testing.assert_close(weight, begin[name] + (1 - kept))


def test_exchanged_weights_come_back(tiny_config):
    model = build_model(tiny_config.model, 20, 20)
    own = {name: weight.clone() for name, weight in parameters_of(model).items()}
    zeros = {name: torch.zeros_like(weight) for name, weight in own.items()}
    with exchanged(model, zeros.items()):
        assert all((weight == 0).all() for weight in parameters_of(model).values())
    assert all(torch.equal(parameters_of(model)[name], weight) for name, weight in own.items())


def test_the_mean_of_one_is_itself_and_of_many_does_not_drift():
    weights = {"a": torch.tensor([0.1, 1e8])}
    assert torch.equal(mean_of([weights] * 7)["a"], weights["a"])


# From another model.


def test_a_model_that_begins_with_another_has_its_vocabulary_and_its_knowledge(
    tiny_config, tmp_path, corpus_files
):
    run(tiny_config, tmp_path / "parent", steps=60, learning_rate=0.01)
    for path in corpus_files:  # other pairs: the vocabulary stays all the same
        lines = path.read_text(encoding="utf-8").splitlines()[:30]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    alone = run(tiny_config, tmp_path / "alone", steps=2)
    child = run(tiny_config, tmp_path / "child", steps=2, start_from=str(tmp_path / "parent"))
    losses = [of_kind(StepDone, events)[0].loss for events in (child, alone)]
    assert losses[0] < 0.7 * losses[1]
    tokenizers = [(tmp_path / n / "tokenizer.model").read_bytes() for n in ("parent", "child")]
    assert tokenizers[0] == tokenizers[1]
    assert str(tmp_path) not in (tmp_path / "child" / "config.yaml").read_text()


def test_the_parent_is_needed_only_until_the_first_checkpoint(tiny_config, tmp_path):
    run(tiny_config, tmp_path / "parent")
    settings = [("train.start_from", str(tmp_path / "parent"))]
    config = overlaid(tiny_config, settings)

    def stop(event):
        if isinstance(event, StepDone) and event.step == 6:
            signal.raise_signal(signal.SIGTERM)

    train_run(config, tmp_path / "child", stop)
    (tmp_path / "parent").rename(tmp_path / "gone")
    assert isinstance(train_run(config, tmp_path / "child", silent), Finished)


def test_what_is_frozen_stays(tiny_config, tmp_path):
    run(tiny_config, tmp_path / "parent")
    patterns = ["encoder.*", "*_embedding.weight"]
    settings = {"start_from": str(tmp_path / "parent"), "freeze": patterns}
    run(tiny_config, tmp_path / "child", **settings)
    parent, child = (load_file(tmp_path / n / "model.safetensors") for n in ("parent", "child"))
    for name, weight in parent.items():
        is_frozen = name.startswith("encoder.") or name.endswith("_embedding.weight")
        assert torch.equal(child[name], weight) == is_frozen, name


@pytest.mark.parametrize(
    ("patterns", "says"),
    [(["encodr.*"], "encodr.* matches no parameter"), (["*"], "leaves nothing to learn")],
)
def test_a_mistake_in_what_is_frozen_is_a_message(tiny_config, tmp_path, patterns, says):
    with pytest.raises(ConfigError, match=says.replace("*", r"\*")):
        run(tiny_config, tmp_path / "run", freeze=patterns)
    assert not (tmp_path / "run").exists()


# What is written for people.


def test_the_report_tells_of_the_run_and_is_finished_when_it_is(tiny_config, tmp_path):
    pages = []

    def look(_event):
        path = tmp_path / "run" / "report.html"
        if path.exists():
            pages.append(path.read_text(encoding="utf-8"))

    train_run(tiny_config, tmp_path / "run", look)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    finished = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])
    assert f"{finished['bleu']:.2f}" in page
    assert "torch" in page
    assert len(set(pages)) >= 3  # written anew after each validation
    assert str(tmp_path) not in page


def test_tensorboard_gets_the_curves(tiny_config, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    directory = tmp_path / "run"
    train_run(tiny_config, directory, silent, RunOptions(tensorboard=True))
    found = EventAccumulator(str(directory / "tensorboard")).Reload()
    assert [event.step for event in found.Scalars("train/loss")] == list(range(1, 13))
    assert [event.step for event in found.Scalars("dev/bleu")] == [4, 8, 12]


def test_without_tensorboard_it_says_how_to_get_it(tiny_config, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match="pip install 'mtcli"):
        train_run(tiny_config, tmp_path / "run", silent, RunOptions(tensorboard=True))
