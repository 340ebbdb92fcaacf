import random
import shutil
import time

import pytest

import killing
from conftest import tiny_decoder_only, tiny_model_config, tiny_rnn_config
from mtcli.config.load import with_overrides

pytestmark = pytest.mark.cpu

# Enable all features that have state or randomness: a killed and resumed run must still
# give the same result.
STATEFUL_SETTINGS = {
    "model.dropout": 0.1,
    "data.subword_sampling": 0.2,
    "data.word_dropout": 0.1,
    "train.accumulate": 2,
    "train.steps": 16,
    "train.validate_every": 4,
    "train.patience": 2,
    "train.workers": 2,
    "train.metric": "chrf",
    "train.average": 3,
    "train.ema": 0.9,
}


def attempt(config, directory, **options) -> bool:
    """Call `killing.attempt` with the first validation as the best one.

    Otherwise, the best validation would depend on the CPU: the model is barely trained.
    """
    return killing.attempt(config, directory, **options, first_is_best=True)


@pytest.fixture
def config(tiny_config):
    return with_overrides(tiny_config, STATEFUL_SETTINGS.items())


@pytest.fixture
def uninterrupted(config, tmp_path):
    assert attempt(config, tmp_path / "uninterrupted")
    return killing.result(tmp_path / "uninterrupted")


@pytest.mark.parametrize(
    "first", [1, *(pytest.param(first, marks=pytest.mark.long) for first in (2, 3))]
)
def test_being_killed_during_writes_does_not_change_the_result(
    config, uninterrupted, tmp_path, first
):
    """Each attempt makes more writes than the previous one and is killed in a different way."""
    at_write, n_kills = first, 0
    while not attempt(config, tmp_path / "run", at_write=at_write):
        at_write += 22
        n_kills += 1
    assert n_kills > 3
    assert killing.result(tmp_path / "run") == uninterrupted


@pytest.mark.long
def test_being_killed_at_random_times_does_not_change_the_result(config, uninterrupted, tmp_path):
    start = time.monotonic()
    attempt(config, tmp_path / "timed")
    full_time = time.monotonic() - start
    generator, n_kills = random.Random(1), 0
    while n_kills < 5:
        seconds = full_time * generator.uniform(0.1, 0.5)
        if not attempt(config, tmp_path / "run", seconds=seconds):
            n_kills += 1
        else:  # the run finished before it was killed: try again with shorter times
            shutil.rmtree(tmp_path / "run")
            full_time, n_kills = full_time / 2, 0
    attempt(config, tmp_path / "run")
    assert killing.result(tmp_path / "run") == uninterrupted


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(tiny_rnn_config(dropout=0.1), id="recurrent"),
        pytest.param(
            tiny_decoder_only(source_attention="causal", loss_on="both", positions="rotary"),
            marks=pytest.mark.long,
            id="decoder-only",
        ),
        pytest.param(
            tiny_model_config(window=2, positions="relative", attention_dropout=0.1, qk_norm=True),
            marks=pytest.mark.long,
            id="local",
        ),
    ],
)
def test_being_killed_does_not_change_the_result_of_any_architecture(config, tmp_path, model):
    config = config.model_copy(update={"model": model})
    assert attempt(config, tmp_path / "uninterrupted")
    assert not attempt(config, tmp_path / "run", at_write=30)
    assert attempt(config, tmp_path / "run")
    assert killing.result(tmp_path / "run") == killing.result(tmp_path / "uninterrupted")


def test_the_uninterrupted_run_stops_early_and_averages_its_weights(uninterrupted):
    """The other tests in this file are meaningful only if both happen."""
    _, events = uninterrupted
    assert events[-1]["reason"] == "chrF did not improve in 2 validations"
    assert events[-1]["step"] == 12
    assert any(event.get("text", "").startswith("the mean of steps") for event in events)
