"""Optimizers, learning rate schedules and Muon."""

import math

import pytest
import torch
from torch import nn

from conftest import shipped_config, tiny_model_config
from mtcli.config.sections import TrainConfig
from mtcli.models import build_model
from mtcli.training.muon import Muon, orthogonalize
from mtcli.training.optimizers import (
    build_optimizers,
    build_schedule,
    freeze,
    set_learning_rate,
    split_parameters,
)

pytestmark = pytest.mark.cpu


@pytest.mark.parametrize("name", ["base", "big"])
@pytest.mark.parametrize("step", [1, 100, 3999, 4000, 4001, 100_000])
def test_inverse_sqrt_equals_the_formula_of_the_paper(name, step):
    config = shipped_config(f"transformer-{name}")
    options, d_model = config.train, config.model.d_model
    formula = d_model**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert options.learning_rate * build_schedule(options)(step) == pytest.approx(formula, rel=1e-3)


def test_a_short_run_warms_up_for_a_tenth_of_its_steps():
    schedule = build_schedule(TrainConfig(steps=50, warmup=1000, decay_share=0.5))
    assert [schedule(step) for step in (1, 5, 20)] == [0.2, 1.0, 1.0]


@pytest.mark.parametrize("name", ["trapezoid", "cosine", "inverse_sqrt"])
@pytest.mark.parametrize("final", [0.0, 0.1])
def test_every_schedule_decays_to_its_final_rate(name, final):
    options = TrainConfig(schedule=name, steps=200, warmup=20, decay_share=0.3, final_rate=final)
    schedule = build_schedule(options)
    rates = [schedule(step) for step in range(1, 201)]
    assert max(rates) == pytest.approx(1.0)
    assert rates.index(max(rates)) <= 20
    assert rates[140:] == sorted(rates[140:], reverse=True)
    without_decay = (20 / 200) ** 0.5 if name == "inverse_sqrt" else 1.0
    assert rates[-1] == pytest.approx(final * without_decay, abs=1e-9)


def test_the_trapezoid_warms_up_stays_constant_and_decays_to_zero():
    schedule = build_schedule(TrainConfig(steps=100, warmup=10, decay_share=0.5))
    assert [schedule(step) for step in (1, 5, 10, 50)] == [0.1, 0.5, 1.0, 1.0]
    assert schedule(75) == pytest.approx(0.5)
    assert schedule(100) == 0.0
    decay = [schedule(step) for step in range(50, 101)]
    assert decay == sorted(decay, reverse=True)


@pytest.mark.parametrize("schedule", ["trapezoid", "inverse_sqrt"])
def test_without_warmup_the_rate_starts_at_its_peak(schedule):
    options = TrainConfig(steps=100, warmup=0, decay_share=0, schedule=schedule)
    assert build_schedule(options)(1) == 1.0


METHODS = ["gram", "plain"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 4, 16), (2, 16, 4)])
def test_orthogonalize_brings_singular_values_near_one(shape, method):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    result = orthogonalize(x, method=method)
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.3
    assert values.max() < 1.3
    # The result is close to the nearest orthogonal matrix, U V^T.
    u, _, vh = torch.linalg.svd(x, full_matrices=False)
    alignment = (result * (u @ vh)).sum(dim=(-2, -1)) / min(shape[1:])
    assert alignment.min() > 0.6


@pytest.mark.parametrize("shape", [(3, 8, 16), (2, 64, 16), (2, 8, 8)])
@pytest.mark.parametrize("rank", [2, 8])
def test_iterating_on_the_gram_matrix_gives_the_same_result(shape, rank):
    generator = torch.Generator().manual_seed(0)
    n, rows, columns = shape
    left, right = (n, rows, rank), (n, rank, columns)
    x = torch.randn(left, generator=generator) @ torch.randn(right, generator=generator)
    expected = orthogonalize(x.double(), method="plain").float()
    torch.testing.assert_close(orthogonalize(x), expected, rtol=1e-3, atol=1e-3)


def test_muon_updates_each_matrix_independently():
    generator = torch.Generator().manual_seed(0)
    start, gradient = torch.randn(2, 3, 4, 6, generator=generator)
    together = [nn.Parameter(matrix.clone()) for matrix in start]
    alone = [nn.Parameter(matrix.clone()) for matrix in start]
    optimizers = [Muon(together, 0.1), *(Muon([matrix], 0.1) for matrix in alone)]
    for _ in range(3):
        for parameters in (together, alone):
            for parameter, grad in zip(parameters, gradient, strict=True):
                parameter.grad = grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(torch.stack(together), torch.stack(alone))


def test_the_gradient_scale_does_not_change_a_muon_update():
    results = []
    for scale in (1.0, 1000.0):
        matrix = nn.Parameter(torch.eye(4))
        matrix.grad = scale * torch.arange(16.0).view(4, 4)
        Muon([matrix], 0.1).step()
        results.append(matrix.detach())
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize(("shape", "scale"), [((4, 4), 1), ((16, 4), 2), ((4, 16), 1)])
def test_muon_scales_the_updates_of_tall_matrices(shape, scale):
    matrix = nn.Parameter(torch.zeros(shape))
    matrix.grad = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    Muon([matrix], 0.1).step()
    torch.testing.assert_close(matrix.detach(), -0.1 * scale * orthogonalize(matrix.grad[None])[0])


def test_weight_decay_shrinks_the_weights():
    matrix = nn.Parameter(torch.eye(4))
    matrix.grad = torch.zeros(4, 4)
    Muon([matrix], 0.1, weight_decay=0.5).step()
    torch.testing.assert_close(matrix.detach(), 0.95 * torch.eye(4))


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_muon_gets_only_the_matrices_of_hidden_layers(tied):
    config = tiny_model_config(tied_embeddings=tied, positions="learned", max_positions=16)
    model = build_model(config, 12, 12)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    matrices, others = ([names[id(p)] for p in part] for part in split_parameters(model))
    assert sorted(matrices + others) == sorted(names.values())
    assert all(name.endswith("weight") and "coder." in name for name in matrices)
    assert not any("to_" in name and name.endswith("weight") for name in others
                   if not name.startswith("to_logits"))  # fmt: skip


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_every_parameter_is_updated_by_exactly_one_optimizer(kind):
    model = build_model(tiny_model_config(), 12, 12)
    optimizers = build_optimizers(model, TrainConfig(optimizer=kind))
    updated = [
        id(parameter)
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    assert sorted(updated) == sorted(id(parameter) for parameter in model.parameters())


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_no_optimizer_updates_frozen_parameters(kind):
    model = build_model(tiny_model_config(), 12, 12)
    freeze(model, ("encoder.*", "decoder.*"))
    [optimizer] = build_optimizers(model, TrainConfig(optimizer=kind, learning_rate=0.004))
    [group] = optimizer.param_groups
    assert all(parameter.requires_grad for parameter in group["params"])
    assert group["peak"] == 0.004  # the displayed rate belongs to a trained parameter


def test_the_learning_rate_of_each_group_is_its_peak_times_the_factor():
    model = build_model(tiny_model_config(), 12, 12)
    options = TrainConfig(learning_rate=0.004, matrix_learning_rate=0.02)
    optimizers = build_optimizers(model, options)
    for factor in (0.5, 1.0):
        set_learning_rate(optimizers, factor)
        rates = {group["lr"] for optimizer in optimizers for group in optimizer.param_groups}
        assert rates == {factor * 0.004, factor * 0.02}
    assert math.isclose(optimizers[0].param_groups[0]["peak"], 0.02)
