import json
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.utils import parameters_to_vector

from conftest import tiny_model_config
from mtcli.checkpoint.directory import load_saved_config
from mtcli.config import Config, TrainConfig, overlaid
from mtcli.data import encode
from mtcli.engines import Opened
from mtcli.engines.pytorch import TorchEngine
from mtcli.errors import CheckpointError, ConfigError, DataError, MtcliError
from mtcli.feed import Batch, Group, Position, batches_in_order
from mtcli.feed.batches import collate
from mtcli.loss import summed_loss
from mtcli.models import build_model
from mtcli.optim import build_optimizers
from mtcli.options import SearchOptions
from mtcli.report import Finished, Notice, Resumed, StepDone, Stopped, Validated
from mtcli.training import RunOptions, train_run
from mtcli.training.learner import Learner, Objective
from mtcli.training.loop import fit, total_loss
from mtcli.training.preparation import read_pairs
from mtcli.translation import LineTranslator, Request

pytestmark = pytest.mark.cpu

FRESH = RunOptions(fresh=True)


@pytest.fixture
def encoded(corpus, tokenizers):
    return encode(corpus, tokenizers, 128, lambda _: None)


def group_of(batches: list[Batch]) -> Group:
    """The batches of one step."""
    return Group(batches, Position())


def weights_after(groups: list[list[Batch]], **settings) -> torch.Tensor:
    torch.manual_seed(0)
    model = build_model(tiny_model_config(dropout=0.0), 340, 340)
    options = TrainConfig(steps=100, warmup=0, **settings)
    # Plain descent: it shows the gradients as they are, and what is zero stays zero.
    optimizer = torch.optim.SGD([{"params": model.parameters(), "peak": 0.1}])
    for _ in fit(
        Learner(Objective(model, options.label_smoothing), [optimizer], options),
        [group_of(g) for g in groups],
    ):
        pass
    return parameters_to_vector(model.parameters()).detach()


def test_accumulating_small_batches_equals_one_large_batch(encoded):
    rows = np.arange(6)
    together = [[collate(encoded, rows)]]
    one_by_one = [[collate(encoded, rows[i : i + 1]) for i in range(6)]]
    unequal = [[collate(encoded, rows[:1]), collate(encoded, rows[1:])]]
    torch.testing.assert_close(weights_after(one_by_one), weights_after(together))
    torch.testing.assert_close(weights_after(unequal), weights_after(together))


def test_the_loss_is_the_label_smoothed_cross_entropy_of_the_words(encoded):
    model = build_model(tiny_model_config(), 340, 340).eval()
    [batch] = batches_in_order(encoded, 10**6)
    log_probs = model(batch.source, batch.target_in).detach().log_softmax(dim=-1)
    total = 0.0
    for row, labels in zip(log_probs, batch.labels.tolist(), strict=True):
        for scores, label in zip(row, labels, strict=True):
            if label >= 0:
                total += 0.9 * -float(scores[label]) + 0.1 * -float(scores.mean())
    vectors, _ = model.read(batch.target_in, model.encode(batch.source))
    loss = summed_loss(vectors, model.output_weight, batch.labels, 0.1)
    assert loss.item() == pytest.approx(total, rel=1e-4)


def test_the_mean_loss_does_not_depend_on_the_batches(encoded):
    model = build_model(tiny_model_config(dropout=0.3), 340, 340)
    found = [total_loss(model, batches_in_order(encoded, budget)) for budget in (60, 300, 9000)]
    losses, n_words = zip(*found, strict=True)
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
    assert n_words == (encoded.target.lengths().sum(),) * 3


def test_a_gradient_longer_than_max_norm_is_scaled_down(encoded):
    group = [[collate(encoded, np.arange(4))]] * 3
    free, clipped, wide = (weights_after(group, max_norm=norm) for norm in (None, 1e-4, 1e6))
    assert torch.equal(free, wide)
    assert not torch.allclose(free, clipped)


@pytest.mark.parametrize(
    ("options", "norm"),
    [({"optimizer": "muon"}, "pre"), ({"optimizer": "adamw", "learning_rate": 3e-3}, "post")],
)
def test_ten_sentences_can_be_learned_by_heart(corpus, tokenizers, encoded, options, norm):
    torch.manual_seed(1)
    rows = np.arange(0, 60, 6)
    batch = collate(encoded, rows)
    model = build_model(tiny_model_config(dropout=0.0, d_model=32, norm=norm), 340, 340)
    train = TrainConfig(steps=150, warmup=10, label_smoothing=0.0, **options)
    optimizers = build_optimizers(model, train)
    *_, last = fit(Learner(Objective(model, 0.0), optimizers, train), [group_of([batch])] * 150)
    assert last.loss < 0.05
    engine = TorchEngine(model.eval(), tokenizers)
    translator = LineTranslator(Opened(engine, tokenizers, 128, SearchOptions()))
    requests = [Request(corpus.source[row]) for row in rows]
    for beam_size in (1, 4):
        found = translator.translate_all(requests, SearchOptions(beam_size=beam_size))
        assert [best[0].text for best in found] == [corpus.target[row] for row in rows]


# Whole runs, on the tiny corpus.


def events_of(directory) -> list[dict]:
    """The log, without what a clock says."""
    lines = (directory / "log.jsonl").read_text(encoding="utf-8").splitlines()
    clocks = ("time", "seconds")
    return [{k: v for k, v in json.loads(line).items() if k not in clocks} for line in lines]


def changed(config: Config, section: str, **settings) -> Config:
    part = getattr(config, section).model_copy(update=settings)
    return config.model_copy(update={section: part})


@pytest.fixture
def undisturbed(tiny_config, tmp_path):
    train_run(tiny_config, tmp_path / "undisturbed", lambda _: None)
    return tmp_path / "undisturbed"


def test_a_finished_run_leaves_a_complete_model(tiny_config, tmp_path):
    shown = []
    finished = train_run(tiny_config, tmp_path / "run", shown.append)
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
    }
    assert [event.step for event in shown if isinstance(event, StepDone)] == list(range(1, 13))
    assert [event.step for event in shown if isinstance(event, Validated)] == [4, 8, 12]
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert f"{finished.bleu:.2f}" in card
    assert finished.signature in card


def test_a_model_directory_holds_no_absolute_path(undisturbed, tmp_path):
    for path in undisturbed.rglob("*"):
        if path.is_file():
            assert str(tmp_path).encode() not in path.read_bytes(), path
    assert [p.name for p in load_saved_config(undisturbed).data.train] == ["train.en", "train.de"]


def test_the_same_settings_give_the_same_run(tiny_config, undisturbed, tmp_path):
    train_run(tiny_config, tmp_path / "again", lambda _: None)
    assert events_of(tmp_path / "again") == events_of(undisturbed)
    assert_same_weights(tmp_path / "again", undisturbed)


def assert_same_weights(one, other):
    a, b = (load_file(run / "model.safetensors") for run in (one, other))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


class CrashError(Exception):
    """The power is gone."""


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("crash_at", [1, 4, 6, 11])
def test_a_run_that_crashed_ends_as_if_it_had_not(tiny_config, tmp_path, optimizer, crash_at):
    config = changed(tiny_config, "train", optimizer=optimizer, accumulate=2)
    train_run(config, tmp_path / "undisturbed", lambda _: None)

    def crash(event):
        if isinstance(event, StepDone) and event.step == crash_at:
            raise CrashError

    with pytest.raises(CrashError):
        train_run(config, tmp_path / "run", crash)
    train_run(config, tmp_path / "run", lambda _: None)
    assert events_of(tmp_path / "run") == events_of(tmp_path / "undisturbed")
    assert_same_weights(tmp_path / "run", tmp_path / "undisturbed")


@pytest.mark.parametrize("name", ["config.yaml", "tokenizer.model", "step-", "model.", "README"])
@pytest.mark.parametrize("moment", ["before", "half-way", "after"])
def test_a_run_killed_while_it_writes_ends_as_if_it_had_not(
    tiny_config, undisturbed, tmp_path, monkeypatch, name, moment
):
    rename = Path.replace

    def killed(self, target):
        if Path(target).name.startswith(name):
            if moment == "half-way":
                self.write_bytes(self.read_bytes()[:40])
            if moment == "after":
                rename(self, target)
            raise CrashError
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(CrashError):
            train_run(tiny_config, tmp_path / "run", lambda _: None)
    assert isinstance(train_run(tiny_config, tmp_path / "run", lambda _: None), Finished)
    assert events_of(tmp_path / "run") == events_of(undisturbed)
    assert_same_weights(tmp_path / "run", undisturbed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops_and_the_same_call_goes_on(
    tiny_config, undisturbed, tmp_path, number
):
    def interrupt(event):
        if isinstance(event, StepDone) and event.step == 6:
            signal.raise_signal(number)

    stopped = train_run(tiny_config, tmp_path / "run", interrupt)
    assert stopped == Stopped(6, number)
    shown = []
    train_run(tiny_config, tmp_path / "run", shown.append)
    assert next(event.step for event in shown if isinstance(event, StepDone)) == 7
    [resumed] = [event for event in shown if isinstance(event, Resumed)]
    assert resumed.step == 6
    assert [(type(event), event.step) for event in resumed.past] == [(Validated, 4)]
    assert events_of(tmp_path / "run") == events_of(undisturbed)
    assert_same_weights(tmp_path / "run", undisturbed)


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    tiny_config, undisturbed, tmp_path
):
    def crash(event):
        if isinstance(event, StepDone) and event.step == 10:
            raise CrashError

    with pytest.raises(CrashError):
        train_run(tiny_config, tmp_path / "run", crash)
    latest = max((tmp_path / "run" / "checkpoints").iterdir())
    latest.write_bytes(latest.read_bytes()[:1000])
    shown = []
    train_run(tiny_config, tmp_path / "run", shown.append)
    assert any(f"{latest} is damaged" in e.text for e in shown if isinstance(e, Notice))
    assert [event.step for event in shown if isinstance(event, Resumed)] == [4]
    assert_same_weights(tmp_path / "run", undisturbed)


def test_a_finished_run_says_so_and_does_nothing(tiny_config, undisturbed):
    before = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*")}
    shown = []
    result = train_run(tiny_config, undisturbed, shown.append)
    assert isinstance(result, Finished)
    assert "already complete" in shown[0].text
    assert {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*")} == before


def test_other_settings_are_refused_with_their_names(tiny_config, undisturbed):
    other = changed(changed(tiny_config, "train", seed=5), "model", dropout=0.3)
    with pytest.raises(CheckpointError) as error:
        train_run(other, undisturbed, lambda _: None)
    assert "train.seed: 1 before, 5 now" in str(error.value)
    assert "model.dropout: 0.2 before, 0.3 now" in str(error.value)
    assert "--fresh" in str(error.value)


def test_fresh_starts_over_and_leaves_other_files_alone(tiny_config, undisturbed, tmp_path):
    (undisturbed / "notes.txt").write_text("mine")
    other = changed(tiny_config, "train", seed=5)
    train_run(other, undisturbed, lambda _: None, FRESH)
    train_run(other, tmp_path / "new", lambda _: None)
    assert events_of(undisturbed) == events_of(tmp_path / "new")
    assert load_saved_config(undisturbed).train.seed == 5
    assert (undisturbed / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("section", "mistake"),
    [
        ("tokenizer", {"vocab_size": 20}),
        ("data", {"max_length": 2}),
        ("train", {"device": "cuda:9"}),
    ],
)
def test_fresh_with_a_mistake_loses_nothing(tiny_config, undisturbed, section, mistake):
    before = {path: path.read_bytes() for path in undisturbed.rglob("*") if path.is_file()}
    with pytest.raises(MtcliError):
        train_run(changed(tiny_config, section, **mistake), undisturbed, lambda _: None, FRESH)
    assert {path: path.read_bytes() for path in undisturbed.rglob("*") if path.is_file()} == before


def test_weights_without_a_checkpoint_are_not_overwritten(tiny_config, tmp_path):
    def crash(event):
        if isinstance(event, StepDone) and event.step == 6:
            raise CrashError

    with pytest.raises(CrashError):
        train_run(tiny_config, tmp_path / "run", crash)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(CheckpointError, match="has weights, but no checkpoint to go on from"):
        train_run(tiny_config, tmp_path / "run", lambda _: None)


def test_a_training_that_diverges_is_a_message(tiny_config, tmp_path):
    config = changed(tiny_config, "train", learning_rate=1e30, max_rollbacks=0)
    with pytest.raises(ConfigError, match="training has diverged at step"):
        train_run(config, tmp_path / "run", lambda _: None)
    text = (tmp_path / "run" / "log.jsonl").read_text()
    assert "NaN" not in text


def test_other_pairs_are_refused(tiny_config, corpus_files, tmp_path):
    def stop(event):
        if isinstance(event, StepDone) and event.step == 6:
            signal.raise_signal(signal.SIGINT)

    train_run(tiny_config, tmp_path / "run", stop)
    text = corpus_files[0].read_text(encoding="utf-8")
    corpus_files[0].write_text(text.replace("dog", "cat"), encoding="utf-8")
    with pytest.raises(CheckpointError, match="trained on other sentence pairs"):
        train_run(tiny_config, tmp_path / "run", lambda _: None)


def test_a_directory_with_something_else_is_refused_and_untouched(tiny_config, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"miaow")
    (tmp_path / "photos" / "config.yaml").write_text("title: somebody else's")
    for path in (tmp_path / "photos", tmp_path / "photos" / "cat.jpg"):
        with pytest.raises(CheckpointError, match="already exists and is not a run"):
            train_run(tiny_config, path, lambda _: None)
    assert {path.name for path in (tmp_path / "photos").iterdir()} == {"cat.jpg", "config.yaml"}


def test_training_stops_when_bleu_no_longer_rises(tiny_config, tmp_path):
    # Rates so small that the model stays as it is: no validation is better than the first.
    config = changed(
        tiny_config, "train", steps=40, patience=2, learning_rate=1e-30, matrix_learning_rate=1e-30
    )
    finished = train_run(config, tmp_path / "run", lambda _: None)
    assert finished.step == 12
    assert finished.best_step == 4
    assert finished.reason == "no better BLEU in 2 validations"


def test_only_the_latest_checkpoints_are_kept(tiny_config, tmp_path):
    config = changed(tiny_config, "train", keep_checkpoints=1)
    train_run(config, tmp_path / "run", lambda _: None)
    names = [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()]
    assert names == ["step-00000012.safetensors"]


@pytest.mark.parametrize(("wanted", "n_dev", "is_told"), [(5000, 6, True), (6, 6, False)])
def test_it_is_told_when_fewer_pairs_are_held_out_than_wanted(tiny_config, wanted, n_dev, is_told):
    told: list[str] = []
    pairs = read_pairs(overlaid(tiny_config, [("data.dev_pairs", wanted)]), told.append)
    assert len(pairs.dev) == n_dev
    notice = f"  data.dev_pairs={wanted} is more than a tenth; it is reduced"
    assert (notice in told) == is_told
    own = overlaid(tiny_config, [("data.dev", tiny_config.data.train), ("data.dev_pairs", wanted)])
    told.clear()
    read_pairs(own, told.append)
    assert notice not in told


def test_a_missing_corpus_leaves_nothing_behind(tiny_config, tmp_path, corpus_files):
    corpus_files[1].unlink()
    with pytest.raises(DataError, match="no such file"):
        train_run(tiny_config, tmp_path / "run", lambda _: None)
    assert not (tmp_path / "run").exists()


def test_a_run_that_has_learned_nothing_yet_may_change_its_settings(tiny_config, tmp_path):
    def crash(event):
        if isinstance(event, StepDone):
            raise CrashError

    with pytest.raises(CrashError):
        train_run(tiny_config, tmp_path / "run", crash)
    other = changed(tiny_config, "train", seed=5)
    assert isinstance(train_run(other, tmp_path / "run", lambda _: None), Finished)
    assert load_saved_config(tmp_path / "run").train.seed == 5


def test_fresh_does_not_touch_what_is_not_a_run(tiny_config, tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "README.md").write_text("mine")
    with pytest.raises(CheckpointError, match="already exists and is not a run"):
        train_run(tiny_config, tmp_path / "project", lambda _: None, FRESH)
    assert (tmp_path / "project" / "README.md").read_text() == "mine"
