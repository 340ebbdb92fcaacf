"""Training step: parts of a batch per process, randomness, precision, out-of-memory handling."""

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector

from conftest import tiny_model_config
from mtcli.config.sections import TrainConfig
from mtcli.data.batches import BatchStream, DataPosition, Group, Shard, collate
from mtcli.data.encoding import encode
from mtcli.errors import ConfigError
from mtcli.models import build_model
from mtcli.models.layers import Dropout
from mtcli.training import step
from mtcli.training.step import LossModule, TrainStep

pytestmark = pytest.mark.cpu


@pytest.fixture
def encoded(corpus, tokenizers):
    return encode(corpus, tokenizers, 128, lambda _: None)


def new_train_step(dropout: float = 0.0, **settings) -> TrainStep:
    torch.manual_seed(0)
    model = build_model(tiny_model_config(dropout=dropout), 340, 340)
    options = TrainConfig(warmup=0, **settings)
    optimizer = torch.optim.SGD([{"params": model.parameters(), "peak": 0.1}])
    return TrainStep(LossModule(model, 0.1), [optimizer], options)


def group_of(*batches) -> Group:
    return Group(list(batches), DataPosition())


def gradients(train_step: TrainStep, group: Group) -> torch.Tensor:
    train_step.zero_grad()
    train_step.backward(group)
    return parameters_to_vector([p.grad for p in train_step.model.parameters()])


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("accumulate", [1, 2, 6])
def test_gradients_of_all_processes_sum_to_those_of_one_process(encoded, size, accumulate):
    full = next(BatchStream(encoded, 90, 1, accumulate).groups())
    parts = [
        next(BatchStream(encoded, 90, 1, accumulate, Shard(r, size)).groups()) for r in range(size)
    ]
    train_step = new_train_step(max_norm=None)
    expected = gradients(train_step, full)
    counts = np.array([part.counts() for part in parts])
    n_target_tokens = counts[:, 0]
    weighted = [
        gradients(train_step, part) * n for part, n in zip(parts, n_target_tokens, strict=True) if n
    ]  # a part without target tokens has no gradient
    total = sum(weighted) / n_target_tokens.sum()
    torch.testing.assert_close(total, expected, rtol=1e-3, atol=1e-5)
    assert tuple(counts.sum(axis=0)[:2]) == full.counts()[:2]
    assert {part.after for part in parts} == {full.after}


@pytest.mark.parametrize("size", [2, 3])
def test_processes_get_similar_numbers_of_tokens(encoded, size):
    parts = [next(BatchStream(encoded, 600, 1, 1, Shard(r, size)).groups()) for r in range(size)]
    tokens = [sum(batch.n_tokens for batch in part.batches) for part in parts]
    assert max(tokens) < 1.2 * min(tokens)


def test_dropout_depends_only_on_the_batch_seed(encoded):
    batch = collate(encoded, np.arange(6), 5)
    train_step = new_train_step(dropout=0.3)
    first = gradients(train_step, group_of(batch))
    torch.rand(17)
    assert torch.equal(gradients(train_step, group_of(batch)), first)
    other = collate(encoded, np.arange(6), 6)
    assert not torch.equal(gradients(train_step, group_of(other)), first)


class SmallMemory:
    """A loss that runs out of memory on more than `max_positions` positions."""

    def __init__(self, max_positions: int, error: Exception) -> None:
        self.max_positions = max_positions
        self.error = error
        self.sizes: list[int] = []
        self.compute = step.summed_loss

    def __call__(self, hidden, weight, labels, smoothing):
        self.sizes.append(labels.numel())
        if labels.numel() > self.max_positions:
            raise self.error
        return self.compute(hidden, weight, labels, smoothing)


CPU_ERROR = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate ...")


@pytest.mark.parametrize("error", [CPU_ERROR, torch.OutOfMemoryError("CUDA out of memory")])
def test_splitting_a_batch_that_does_not_fit_keeps_the_gradients(encoded, monkeypatch, error):
    batches = [collate(encoded, np.arange(16)), collate(encoded, np.arange(16, 40))]
    train_step = new_train_step(max_norm=None)
    expected = gradients(train_step, group_of(*batches))
    memory = SmallMemory(60, error)
    monkeypatch.setattr(step, "summed_loss", memory)
    torch.testing.assert_close(gradients(train_step, group_of(*batches)), expected)
    n_before = len(memory.sizes)
    torch.testing.assert_close(gradients(train_step, group_of(*batches)), expected)
    assert max(memory.sizes[n_before:]) <= 60  # sizes that did not fit are not tried again


def test_gradients_before_an_out_of_memory_error_are_not_counted_twice(encoded, monkeypatch):
    small, large = collate(encoded, np.arange(2)), collate(encoded, np.arange(16, 40))
    train_step = new_train_step(max_norm=None)
    expected = gradients(train_step, group_of(small, large))
    memory = SmallMemory(small.labels.numel(), CPU_ERROR)
    monkeypatch.setattr(step, "summed_loss", memory)
    torch.testing.assert_close(gradients(train_step, group_of(small, large)), expected)
    assert memory.sizes[:2] == [small.labels.numel(), large.labels.numel()]


def test_a_single_pair_that_does_not_fit_raises_a_user_error(encoded, monkeypatch):
    monkeypatch.setattr(step, "summed_loss", SmallMemory(1, CPU_ERROR))
    with pytest.raises(ConfigError, match="out of memory, even with a single pair"):
        new_train_step().backward(group_of(collate(encoded, np.arange(4))))


def test_other_errors_are_not_treated_as_out_of_memory(encoded, monkeypatch):
    monkeypatch.setattr(step, "summed_loss", SmallMemory(1, RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        new_train_step().backward(group_of(collate(encoded, np.arange(4))))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_low_precision_yields_similar_gradients(encoded, precision):
    group = group_of(collate(encoded, np.arange(8)))
    expected = gradients(new_train_step(max_norm=None), group)
    found = gradients(new_train_step(max_norm=None, precision=precision), group)
    assert found.dtype == torch.float32
    similarity = torch.cosine_similarity(found, expected, dim=0)
    assert similarity > 0.99
    assert not torch.equal(found, expected)


def test_dropout_zeroes_a_fraction_p_and_keeps_the_mean():
    torch.manual_seed(0)
    x = torch.ones(400, 401)
    y = Dropout(0.3)(x)
    assert (y == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert y.mean().item() == pytest.approx(1.0, abs=0.01)
    assert len(y.unique()) == 2


def test_dropout_close_to_one_gives_finite_values():
    assert Dropout(0.9999999)(torch.ones(1000)).isfinite().all()


def test_dropout_is_the_identity_in_evaluation_mode_and_with_p_zero():
    x = torch.ones(3, 5)
    assert torch.equal(Dropout(0.3).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
