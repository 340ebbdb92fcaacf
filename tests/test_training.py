"""The training loss, and complete runs: resume, restart, divergence and refused settings."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.utils import parameters_to_vector

from conftest import tiny_model_config
from mtcli.config.load import with_overrides
from mtcli.config.search import SearchOptions
from mtcli.config.sections import Config, TrainConfig
from mtcli.data.batches import Batch, DataPosition, Group, batches_in_order, collate
from mtcli.data.encoding import encode
from mtcli.errors import CheckpointError, ConfigError, DataError, MtcliError
from mtcli.model_dir.directory import load_saved_config
from mtcli.models import build_model
from mtcli.reporting.events import Finished, Notice, Resumed, StepDone, Stopped, Validated
from mtcli.training.loop import fit
from mtcli.training.loss import summed_loss, total_loss
from mtcli.training.optimizers import build_optimizers
from mtcli.training.preparation import read_split
from mtcli.training.run import RunOptions, train_run
from mtcli.training.step import LossModule, TrainStep
from mtcli.translation.engines import LoadedEngine
from mtcli.translation.engines.pytorch import TorchEngine
from mtcli.translation.line_translator import LineTranslator, Request

pytestmark = pytest.mark.cpu

FRESH = RunOptions(fresh=True)


@pytest.fixture
def encoded(corpus, tokenizers):
    return encode(corpus, tokenizers, 128, lambda _: None)


def group_of(batches: list[Batch]) -> Group:
    """Return a group of batches for one step."""
    return Group(batches, DataPosition())


def weights_after(groups: list[list[Batch]], **settings) -> torch.Tensor:
    torch.manual_seed(0)
    model = build_model(tiny_model_config(dropout=0.0), 340, 340)
    options = TrainConfig(steps=100, warmup=0, **settings)
    # SGD applies the gradients unchanged, and zero gradients change nothing.
    optimizer = torch.optim.SGD([{"params": model.parameters(), "peak": 0.1}])
    for _ in fit(
        TrainStep(LossModule(model, options.label_smoothing), [optimizer], options),
        [group_of(g) for g in groups],
    ):
        pass
    return parameters_to_vector(model.parameters()).detach()


def test_accumulating_small_batches_equals_one_large_batch(encoded):
    rows = np.arange(6)
    one_batch = [[collate(encoded, rows)]]
    one_by_one = [[collate(encoded, rows[i : i + 1]) for i in range(6)]]
    unequal = [[collate(encoded, rows[:1]), collate(encoded, rows[1:])]]
    torch.testing.assert_close(weights_after(one_by_one), weights_after(one_batch))
    torch.testing.assert_close(weights_after(unequal), weights_after(one_batch))


def test_the_loss_is_the_label_smoothed_cross_entropy_of_the_target_tokens(encoded):
    model = build_model(tiny_model_config(), 340, 340).eval()
    [batch] = batches_in_order(encoded, 10**6)
    log_probs = model(batch.source, batch.target_in).detach().log_softmax(dim=-1)
    total = 0.0
    for row, labels in zip(log_probs, batch.labels.tolist(), strict=True):
        for scores, label in zip(row, labels, strict=True):
            if label >= 0:
                total += 0.9 * -float(scores[label]) + 0.1 * -float(scores.mean())
    hidden, _ = model.decode_hidden(batch.target_in, model.encode(batch.source))
    loss = summed_loss(hidden, model.output_weight, batch.labels, 0.1)
    assert loss.item() == pytest.approx(total, rel=1e-4)


def test_the_total_loss_does_not_depend_on_the_batch_size(encoded):
    model = build_model(tiny_model_config(dropout=0.3), 340, 340)
    results = [total_loss(model, batches_in_order(encoded, budget)) for budget in (60, 300, 9000)]
    losses, n_target_tokens = zip(*results, strict=True)
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
    assert n_target_tokens == (encoded.target.lengths().sum(),) * 3


def test_a_gradient_norm_above_max_norm_is_clipped(encoded):
    group = [[collate(encoded, np.arange(4))]] * 3
    unclipped, clipped, below_limit = (
        weights_after(group, max_norm=norm) for norm in (None, 1e-4, 1e6)
    )
    assert torch.equal(unclipped, below_limit)
    assert not torch.allclose(unclipped, clipped)


@pytest.mark.parametrize(
    ("options", "norm"),
    [({"optimizer": "muon"}, "pre"), ({"optimizer": "adamw", "learning_rate": 3e-3}, "post")],
)
def test_a_model_overfits_ten_sentences(corpus, tokenizers, encoded, options, norm):
    torch.manual_seed(1)
    rows = np.arange(0, 60, 6)
    batch = collate(encoded, rows)
    model = build_model(tiny_model_config(dropout=0.0, d_model=32, norm=norm), 340, 340)
    train = TrainConfig(steps=150, warmup=10, label_smoothing=0.0, **options)
    optimizers = build_optimizers(model, train)
    *_, last = fit(TrainStep(LossModule(model, 0.0), optimizers, train), [group_of([batch])] * 150)
    assert last.loss < 0.05
    engine = TorchEngine(model.eval(), tokenizers)
    translator = LineTranslator(LoadedEngine(engine, tokenizers, 128, SearchOptions()))
    requests = [Request(corpus.source[row]) for row in rows]
    for beam_size in (1, 4):
        found = translator.translate_all(requests, SearchOptions(beam_size=beam_size))
        assert [best[0].text for best in found] == [corpus.target[row] for row in rows]


# Tests of complete runs on the tiny corpus.


def events_of(directory) -> list[dict]:
    """Return the log of a run without times."""
    lines = (directory / "log.jsonl").read_text(encoding="utf-8").splitlines()
    time_fields = ("time", "seconds")
    return [{k: v for k, v in json.loads(line).items() if k not in time_fields} for line in lines]


def with_settings(config: Config, section: str, **settings) -> Config:
    changed = getattr(config, section).model_copy(update=settings)
    return config.model_copy(update={section: changed})


@pytest.fixture
def uninterrupted(tiny_config, tmp_path):
    train_run(tiny_config, tmp_path / "uninterrupted", lambda _: None)
    return tmp_path / "uninterrupted"


def test_a_finished_run_writes_a_complete_model(tiny_config, tmp_path):
    events = []
    finished = train_run(tiny_config, tmp_path / "run", events.append)
    assert isinstance(finished, Finished)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "config.yaml",
        "tokenizer.model",
        "model.safetensors",
        "README.md",
        "log.jsonl",
        "checkpoints",
        "ctranslate2",
        "report.html",
        "word_counts.safetensors",
    }
    assert [event.step for event in events if isinstance(event, StepDone)] == list(range(1, 13))
    assert [event.step for event in events if isinstance(event, Validated)] == [4, 8, 12]
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert f"{finished.bleu:.2f}" in card
    assert finished.signature in card


def test_a_model_directory_contains_no_absolute_path(uninterrupted, tmp_path):
    for path in uninterrupted.rglob("*"):
        if path.is_file():
            assert str(tmp_path).encode() not in path.read_bytes(), path
    assert [*load_saved_config(uninterrupted).data.train.corpora[0]] == ["train.en", "train.de"]


def test_the_same_settings_reproduce_a_run(tiny_config, uninterrupted, tmp_path):
    train_run(tiny_config, tmp_path / "again", lambda _: None)
    assert events_of(tmp_path / "again") == events_of(uninterrupted)
    assert_same_weights(tmp_path / "again", uninterrupted)


def assert_same_weights(one, other):
    a, b = (load_file(run / "model.safetensors") for run in (one, other))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


class CrashError(Exception):
    """Simulated crash."""


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize(
    "crash_at", [1, 6, *(pytest.param(step, marks=pytest.mark.long) for step in (4, 11))]
)
def test_a_crash_does_not_change_the_result(tiny_config, tmp_path, optimizer, crash_at):
    config = with_settings(tiny_config, "train", optimizer=optimizer, accumulate=2)
    train_run(config, tmp_path / "uninterrupted", lambda _: None)

    def crash(event):
        if isinstance(event, StepDone) and event.step == crash_at:
            raise CrashError

    with pytest.raises(CrashError):
        train_run(config, tmp_path / "run", crash)
    train_run(config, tmp_path / "run", lambda _: None)
    assert events_of(tmp_path / "run") == events_of(tmp_path / "uninterrupted")
    assert_same_weights(tmp_path / "run", tmp_path / "uninterrupted")


@pytest.mark.parametrize("name", ["config.yaml", "tokenizer.model", "step-", "model.", "README"])
@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_being_killed_while_writing_a_file_does_not_change_the_result(
    tiny_config, uninterrupted, tmp_path, monkeypatch, name, moment
):
    rename = Path.replace

    def crash(self, target):
        if Path(target).name.startswith(name):
            if moment == "during":
                self.write_bytes(self.read_bytes()[:40])
            if moment == "after":
                rename(self, target)
            raise CrashError
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(CrashError):
            train_run(tiny_config, tmp_path / "run", lambda _: None)
    assert isinstance(train_run(tiny_config, tmp_path / "run", lambda _: None), Finished)
    assert events_of(tmp_path / "run") == events_of(uninterrupted)
    assert_same_weights(tmp_path / "run", uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stopped_by_a_signal_can_be_resumed(tiny_config, uninterrupted, tmp_path, number):
    def interrupt(event):
        if isinstance(event, StepDone) and event.step == 6:
            signal.raise_signal(number)

    stopped = train_run(tiny_config, tmp_path / "run", interrupt)
    assert stopped == Stopped(6, number)
    events = []
    train_run(tiny_config, tmp_path / "run", events.append)
    assert next(event.step for event in events if isinstance(event, StepDone)) == 7
    [resumed] = [event for event in events if isinstance(event, Resumed)]
    assert resumed.step == 6
    assert [(type(event), event.step) for event in resumed.history] == [(Validated, 4)]
    assert events_of(tmp_path / "run") == events_of(uninterrupted)
    assert_same_weights(tmp_path / "run", uninterrupted)


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_is_used(
    tiny_config, uninterrupted, tmp_path
):
    def crash(event):
        if isinstance(event, StepDone) and event.step == 10:
            raise CrashError

    with pytest.raises(CrashError):
        train_run(tiny_config, tmp_path / "run", crash)
    latest = max((tmp_path / "run" / "checkpoints").iterdir())
    latest.write_bytes(latest.read_bytes()[:1000])
    events = []
    train_run(tiny_config, tmp_path / "run", events.append)
    assert any(f"{latest} is damaged" in e.text for e in events if isinstance(e, Notice))
    assert [event.step for event in events if isinstance(event, Resumed)] == [4]
    assert_same_weights(tmp_path / "run", uninterrupted)


def test_a_completed_run_is_reported_and_left_unchanged(tiny_config, uninterrupted):
    before = {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*")}
    events = []
    result = train_run(tiny_config, uninterrupted, events.append)
    assert isinstance(result, Finished)
    assert "already complete" in events[0].text
    assert {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*")} == before


def test_an_error_lists_the_changed_settings_of_a_run(tiny_config, uninterrupted):
    other = with_settings(with_settings(tiny_config, "train", seed=5), "model", dropout=0.3)
    with pytest.raises(CheckpointError) as error:
        train_run(other, uninterrupted, lambda _: None)
    assert "train.seed: 1 before, 5 now" in str(error.value)
    assert "model.dropout: 0.2 before, 0.3 now" in str(error.value)
    assert "--fresh" in str(error.value)


def test_fresh_starts_over_and_keeps_unrelated_files(tiny_config, uninterrupted, tmp_path):
    (uninterrupted / "notes.txt").write_text("mine")
    other = with_settings(tiny_config, "train", seed=5)
    train_run(other, uninterrupted, lambda _: None, FRESH)
    train_run(other, tmp_path / "new", lambda _: None)
    assert events_of(uninterrupted) == events_of(tmp_path / "new")
    assert load_saved_config(uninterrupted).train.seed == 5
    assert (uninterrupted / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("section", "mistake"),
    [
        ("tokenizer", {"vocab_size": 20}),
        ("data", {"max_length": 2}),
        ("train", {"device": "cuda:9"}),
    ],
)
def test_fresh_with_an_invalid_setting_deletes_nothing(
    tiny_config, uninterrupted, section, mistake
):
    before = {path: path.read_bytes() for path in uninterrupted.rglob("*") if path.is_file()}
    with pytest.raises(MtcliError):
        train_run(
            with_settings(tiny_config, section, **mistake), uninterrupted, lambda _: None, FRESH
        )
    assert {
        path: path.read_bytes() for path in uninterrupted.rglob("*") if path.is_file()
    } == before


def test_weights_without_a_checkpoint_are_not_overwritten(tiny_config, tmp_path):
    def crash(event):
        if isinstance(event, StepDone) and event.step == 6:
            raise CrashError

    with pytest.raises(CrashError):
        train_run(tiny_config, tmp_path / "run", crash)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(CheckpointError, match="has weights, but no checkpoint to resume from"):
        train_run(tiny_config, tmp_path / "run", lambda _: None)


def test_divergence_raises_a_user_error(tiny_config, tmp_path):
    config = with_settings(tiny_config, "train", learning_rate=1e30, max_rollbacks=0)
    with pytest.raises(ConfigError, match="training diverged at step"):
        train_run(config, tmp_path / "run", lambda _: None)
    text = (tmp_path / "run" / "log.jsonl").read_text()
    assert ": NaN" not in text  # NaN is not valid JSON


def test_changed_sentence_pairs_are_refused(tiny_config, corpus_files, tmp_path):
    def stop(event):
        if isinstance(event, StepDone) and event.step == 6:
            signal.raise_signal(signal.SIGINT)

    train_run(tiny_config, tmp_path / "run", stop)
    text = corpus_files[0].read_text(encoding="utf-8")
    corpus_files[0].write_text(text.replace("dog", "cat"), encoding="utf-8")
    with pytest.raises(CheckpointError, match="trained on different sentence pairs"):
        train_run(tiny_config, tmp_path / "run", lambda _: None)


def test_a_directory_that_is_not_a_run_is_refused_and_left_unchanged(tiny_config, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    (tmp_path / "photos" / "config.yaml").write_text("title: unrelated")
    for path in (tmp_path / "photos", tmp_path / "photos" / "cat.jpg"):
        with pytest.raises(CheckpointError, match="already exists and is not an mtcli run"):
            train_run(tiny_config, path, lambda _: None)
    assert {path.name for path in (tmp_path / "photos").iterdir()} == {"cat.jpg", "config.yaml"}


def test_training_stops_when_bleu_no_longer_improves(tiny_config, tmp_path):
    # The learning rates are so small that no validation beats the first one.
    config = with_settings(
        tiny_config, "train", steps=40, patience=2, learning_rate=1e-30, matrix_learning_rate=1e-30
    )
    finished = train_run(config, tmp_path / "run", lambda _: None)
    assert finished.step == 12
    assert finished.best_step == 4
    assert finished.reason == "BLEU did not improve in 2 validations"


def test_only_the_latest_checkpoints_are_kept(tiny_config, tmp_path):
    config = with_settings(tiny_config, "train", keep_checkpoints=1)
    train_run(config, tmp_path / "run", lambda _: None)
    names = [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()]
    assert names == ["step-00000012.safetensors"]


@pytest.mark.parametrize(("n_asked", "n_dev", "is_reduced"), [(5000, 6, True), (6, 6, False)])
def test_a_reduced_number_of_dev_pairs_is_reported(tiny_config, n_asked, n_dev, is_reduced):
    notices: list[str] = []
    config = with_overrides(tiny_config, [("data.dev_pairs", n_asked)])
    assert len(read_split(config, notices.append).dev) == n_dev
    notice = f"  data.dev_pairs={n_asked} exceeds 10% of the corpus; using {n_dev}"
    assert (notice in notices) == is_reduced
    notices.clear()
    read_split(with_overrides(config, [("data.dev", config.data.train)]), notices.append)
    assert notice not in notices


def test_a_missing_corpus_creates_no_directory(tiny_config, tmp_path, corpus_files):
    corpus_files[1].unlink()
    with pytest.raises(DataError, match="no such file"):
        train_run(tiny_config, tmp_path / "run", lambda _: None)
    assert not (tmp_path / "run").exists()


def test_settings_may_change_before_the_first_checkpoint(tiny_config, tmp_path):
    def crash(event):
        if isinstance(event, StepDone):
            raise CrashError

    with pytest.raises(CrashError):
        train_run(tiny_config, tmp_path / "run", crash)
    other = with_settings(tiny_config, "train", seed=5)
    assert isinstance(train_run(other, tmp_path / "run", lambda _: None), Finished)
    assert load_saved_config(tmp_path / "run").train.seed == 5


def test_fresh_does_not_change_a_directory_that_is_not_a_run(tiny_config, tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "README.md").write_text("mine")
    with pytest.raises(CheckpointError, match="already exists and is not an mtcli run"):
        train_run(tiny_config, tmp_path / "project", lambda _: None, FRESH)
    assert (tmp_path / "project" / "README.md").read_text() == "mine"
