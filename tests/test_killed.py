import random
import shutil
import time

import pytest

import killing
from conftest import tiny_decoder_only, tiny_model_config, tiny_rnn_config
from mtcli.config import overlaid

pytestmark = pytest.mark.cpu

# All that has a memory or draws lots: it must be the same after a kill as without one.
EVERYTHING = {
    "model.dropout": 0.1,
    "data.subword_sampling": 0.2,
    "data.word_dropout": 0.1,
    "train.accumulate": 2,
    "train.steps": 16,
    "train.validate_every": 4,
    "train.patience": 2,
    "train.metric": "chrf",
    "train.average": 3,
    "train.ema": 0.9,
}


def attempt(config, directory, **options) -> bool:
    """Whether the scores of a model that has hardly learned rise depends on the CPU: fix that."""
    return killing.attempt(config, directory, **options, first_is_best=True)


@pytest.fixture
def config(tiny_config):
    return overlaid(tiny_config, EVERYTHING.items())


@pytest.fixture
def undisturbed(config, tmp_path):
    assert attempt(config, tmp_path / "undisturbed")
    return killing.result(tmp_path / "undisturbed")


@pytest.mark.parametrize(
    "first", [1, *(pytest.param(first, marks=pytest.mark.long) for first in (2, 3))]
)
def test_killed_again_and_again_while_writing_a_run_ends_as_if_it_had_not_been(
    config, undisturbed, tmp_path, first
):
    """Each attempt lives for some writes more than the one before; each dies in another way."""
    at_write, n_kills = first, 0
    while not attempt(config, tmp_path / "run", at_write=at_write):
        at_write += 10
        n_kills += 1
    assert n_kills > 5
    assert killing.result(tmp_path / "run") == undisturbed


@pytest.mark.long
def test_killed_at_any_moment_a_run_ends_as_if_it_had_not_been(config, undisturbed, tmp_path):
    began = time.monotonic()
    attempt(config, tmp_path / "timed")
    whole = time.monotonic() - began
    lives, n_kills = random.Random(1), 0
    while n_kills < 5:
        seconds = whole * lives.uniform(0.1, 0.5)
        if not attempt(config, tmp_path / "run", seconds=seconds):
            n_kills += 1
        else:  # it came to its end before: once more, and faster
            shutil.rmtree(tmp_path / "run")
            whole, n_kills = whole / 2, 0
    attempt(config, tmp_path / "run")
    assert killing.result(tmp_path / "run") == undisturbed


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
def test_every_architecture_goes_on_as_if_nothing_had_been(config, tmp_path, model):
    config = config.model_copy(update={"model": model})
    assert attempt(config, tmp_path / "undisturbed")
    assert not attempt(config, tmp_path / "run", at_write=30)
    assert attempt(config, tmp_path / "run")
    assert killing.result(tmp_path / "run") == killing.result(tmp_path / "undisturbed")


def test_the_run_that_is_killed_stops_early_and_averages(undisturbed):
    """Or else the other tests would not show what they should."""
    _, events = undisturbed
    assert events[-1]["reason"] == "no better chrF in 2 validations"
    assert events[-1]["step"] == 12
    assert any(event.get("text", "").startswith("the mean of steps") for event in events)
