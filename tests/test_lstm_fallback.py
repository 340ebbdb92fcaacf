"""LSTMs compute in float32 if the CPU does not support the requested data type."""

import pytest
import torch

from conftest import tiny_rnn_config
from mtcli.config.load import with_overrides
from mtcli.models import build_model
from mtcli.models.rnn_cells import _has_cpu_lstm
from mtcli.reporting.events import Finished
from mtcli.training.run import train_run

pytestmark = pytest.mark.cpu

SOURCE = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 3]])
TARGET = torch.tensor([[2, 4, 5, 6], [2, 8, 9, 3]])


@pytest.fixture
def no_bfloat16_lstm(monkeypatch):
    """Make torch fail as it does on a CPU without AVX-512."""
    original = torch.lstm

    def fail(*arguments):
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("could not create a primitive descriptor for the LSTM")
        return original(*arguments)

    monkeypatch.setattr(torch, "lstm", fail)
    monkeypatch.setattr("torch._VF.lstm", fail)
    _has_cpu_lstm.cache_clear()
    yield
    _has_cpu_lstm.cache_clear()


@pytest.mark.usefixtures("no_bfloat16_lstm")
@pytest.mark.parametrize("is_fed", [False, True])
def test_an_lstm_without_bfloat16_support_computes_in_float32(is_fed):
    torch.manual_seed(0)
    model = build_model(tiny_rnn_config(dropout=0.0, input_feeding=is_fed), 12, 12)
    exact = model(SOURCE, TARGET)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(SOURCE, TARGET)
    rough.float().sum().backward()
    assert (rough.float() - exact).abs().max() < 0.1 * exact.abs().max()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.usefixtures("no_bfloat16_lstm")
def test_a_recurrent_model_trains_in_bfloat16_without_a_bfloat16_lstm(tiny_config, tmp_path):
    settings = {"model": {"arch": "rnn", "d_model": 16, "input_feeding": False}}
    settings["train.precision"] = "bfloat16"
    config = with_overrides(tiny_config, [*settings.items(), ("train.steps", 2)])
    assert isinstance(train_run(config, tmp_path / "run", lambda _: None), Finished)


def test_probing_the_cpu_does_not_advance_the_random_state():
    _has_cpu_lstm.cache_clear()
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    _has_cpu_lstm(torch.bfloat16)
    assert torch.equal(torch.rand(3), expected)


def test_probing_the_cpu_works_in_inference_mode():
    _has_cpu_lstm.cache_clear()
    expected = _has_cpu_lstm(torch.bfloat16)
    _has_cpu_lstm.cache_clear()
    with torch.inference_mode():
        assert _has_cpu_lstm(torch.bfloat16) == expected
