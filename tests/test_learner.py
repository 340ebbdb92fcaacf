"""One step: how it is divided, what it draws, and what it does when memory ends."""

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector

from conftest import tiny_model_config
from mtcli.config import TrainConfig
from mtcli.data import encode
from mtcli.errors import ConfigError
from mtcli.feed import Feed, Group, Position, Share
from mtcli.feed.batches import collate
from mtcli.models import build_model
from mtcli.models.layers import Dropout
from mtcli.training import learner as learner_module
from mtcli.training.learner import Learner, Objective

pytestmark = pytest.mark.cpu


@pytest.fixture
def encoded(corpus, tokenizers):
    return encode(corpus, tokenizers, 128, lambda _: None)


def new_learner(dropout: float = 0.0, **settings) -> Learner:
    torch.manual_seed(0)
    model = build_model(tiny_model_config(dropout=dropout), 340, 340)
    options = TrainConfig(warmup=0, **settings)
    optimizer = torch.optim.SGD([{"params": model.parameters(), "peak": 0.1}])
    return Learner(Objective(model, 0.1), [optimizer], options)


def group_of(*batches) -> Group:
    return Group(list(batches), Position())


def gradients(learner: Learner, group: Group) -> torch.Tensor:
    learner.forget()
    learner.learn(group)
    return parameters_to_vector([p.grad for p in learner.model.parameters()])


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("accumulate", [1, 2, 6])
def test_the_shares_of_all_processes_add_up_to_the_whole_step(encoded, size, accumulate):
    whole = next(Feed(encoded, 90, 1, accumulate).groups())
    parts = [next(Feed(encoded, 90, 1, accumulate, Share(r, size)).groups()) for r in range(size)]
    learner = new_learner(max_norm=None)
    expected = gradients(learner, whole)
    counts = np.array([part.counts() for part in parts])
    n_words = counts[:, 0]
    shares = [
        gradients(learner, part) * n for part, n in zip(parts, n_words, strict=True) if n
    ]  # one of which nothing counts has no gradient
    torch.testing.assert_close(sum(shares) / n_words.sum(), expected, rtol=1e-3, atol=1e-5)
    assert tuple(counts.sum(axis=0)[:2]) == whole.counts()[:2]
    assert {part.after for part in parts} == {whole.after}


@pytest.mark.parametrize("size", [2, 3])
def test_all_processes_have_about_as_much_to_do(encoded, size):
    parts = [next(Feed(encoded, 600, 1, 1, Share(r, size)).groups()) for r in range(size)]
    tokens = [sum(batch.n_tokens for batch in part.batches) for part in parts]
    assert max(tokens) < 1.2 * min(tokens)


def test_chance_does_not_depend_on_what_came_before(encoded):
    batch = collate(encoded, np.arange(6), 5)
    learner = new_learner(dropout=0.3)
    first = gradients(learner, group_of(batch))
    torch.rand(17)
    assert torch.equal(gradients(learner, group_of(batch)), first)
    other = collate(encoded, np.arange(6), 6)
    assert not torch.equal(gradients(learner, group_of(other)), first)


class SmallMemory:
    """A loss that has no room for more than a few positions."""

    def __init__(self, most: int, error: Exception) -> None:
        self.most = most
        self.error = error
        self.seen: list[int] = []
        self.compute = learner_module.summed_loss

    def __call__(self, vectors, weight, labels, smoothing):
        self.seen.append(labels.numel())
        if labels.numel() > self.most:
            raise self.error
        return self.compute(vectors, weight, labels, smoothing)


CPU_ERROR = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate ...")


@pytest.mark.parametrize("error", [CPU_ERROR, torch.OutOfMemoryError("CUDA out of memory")])
def test_a_batch_that_does_not_fit_is_divided_and_makes_the_same_step(encoded, monkeypatch, error):
    batches = [collate(encoded, np.arange(16)), collate(encoded, np.arange(16, 40))]
    learner = new_learner(max_norm=None)
    expected = gradients(learner, group_of(*batches))
    memory = SmallMemory(60, error)
    monkeypatch.setattr(learner_module, "summed_loss", memory)
    torch.testing.assert_close(gradients(learner, group_of(*batches)), expected)
    n_before = len(memory.seen)
    torch.testing.assert_close(gradients(learner, group_of(*batches)), expected)
    assert max(memory.seen[n_before:]) <= 60  # it does not try again what did not fit


def test_what_was_learned_before_memory_ended_does_not_count_twice(encoded, monkeypatch):
    small, large = collate(encoded, np.arange(2)), collate(encoded, np.arange(16, 40))
    learner = new_learner(max_norm=None)
    expected = gradients(learner, group_of(small, large))
    memory = SmallMemory(small.labels.numel(), CPU_ERROR)
    monkeypatch.setattr(learner_module, "summed_loss", memory)
    torch.testing.assert_close(gradients(learner, group_of(small, large)), expected)
    assert memory.seen[:2] == [small.labels.numel(), large.labels.numel()]


def test_a_pair_that_does_not_fit_is_a_message(encoded, monkeypatch):
    monkeypatch.setattr(learner_module, "summed_loss", SmallMemory(1, CPU_ERROR))
    with pytest.raises(ConfigError, match="out of memory, even with a single pair"):
        new_learner().learn(group_of(collate(encoded, np.arange(4))))


def test_other_errors_are_not_taken_for_a_lack_of_memory(encoded, monkeypatch):
    monkeypatch.setattr(learner_module, "summed_loss", SmallMemory(1, RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        new_learner().learn(group_of(collate(encoded, np.arange(4))))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_low_precision_gives_nearly_the_same_gradients(encoded, precision):
    group = group_of(collate(encoded, np.arange(8)))
    expected = gradients(new_learner(max_norm=None), group)
    found = gradients(new_learner(max_norm=None, precision=precision), group)
    assert found.dtype == torch.float32
    similarity = torch.cosine_similarity(found, expected, dim=0)
    assert similarity > 0.99
    assert not torch.equal(found, expected)


def test_dropout_leaves_out_its_share_and_keeps_the_mean():
    torch.manual_seed(0)
    x = torch.ones(400, 401)
    y = Dropout(0.3)(x)
    assert (y == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert y.mean().item() == pytest.approx(1.0, abs=0.01)
    assert len(y.unique()) == 2


def test_nearly_everything_can_be_left_out():
    left = Dropout(0.9999999)(torch.ones(1000))
    assert left.isfinite().all()


def test_dropout_does_nothing_outside_of_training_or_when_it_is_zero():
    x = torch.ones(3, 5)
    assert torch.equal(Dropout(0.3).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
