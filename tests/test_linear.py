"""Linear layer in bfloat16 on CPUs: padded rows change neither results nor gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mtcli.models.linear import Linear, _padded, product_rows

pytestmark = pytest.mark.cpu

SHAPES = [(1, 5), (7, 5), (3, 11, 5), (0, 5)]


def pair(*, bias: bool) -> tuple[Linear, nn.Linear]:
    """Return mtcli's layer and torch's layer, with the same weights."""
    torch.manual_seed(0)
    layer, reference = Linear(5, 6, bias=bias), nn.Linear(5, 6, bias=bias)
    reference.load_state_dict(layer.state_dict())
    return layer, reference


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_without_autocast_the_layer_equals_torch(shape, bias):
    layer, reference = pair(bias=bias)
    x = torch.randn(shape)
    assert torch.equal(layer(x), reference(x))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_in_bfloat16_output_and_gradients_are_close_to_float32(shape, bias):
    layer, reference = pair(bias=bias)
    x = torch.randn(shape, requires_grad=True)
    expected_x = x.detach().clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    expected = reference(expected_x)
    assert (y.dtype, y.shape) == (torch.bfloat16, expected.shape)
    torch.testing.assert_close(y.float(), expected, rtol=0.02, atol=0.05)
    gradient = torch.randn(expected.shape)
    y.backward(gradient.bfloat16())
    expected.backward(gradient)
    found = [x.grad, *(parameter.grad for parameter in layer.parameters())]
    wanted = [expected_x.grad, *(parameter.grad for parameter in reference.parameters())]
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=0.02, atol=0.15)


def test_the_output_in_bfloat16_can_be_modified_in_place():
    layer, _ = pair(bias=True)
    x = torch.randn(7, 5)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
        z = layer(x).relu_()
    assert torch.equal(z, y.relu())
    z.float().sum().backward()
    torch.testing.assert_close(layer.bias.grad, (y > 0).float().sum(dim=0))


def test_frozen_weights_get_no_gradient():
    layer, _ = pair(bias=True)
    layer.requires_grad_(False)
    x = torch.randn(7, 5, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        layer(x).float().sum().backward()
    assert layer.weight.grad is None
    assert x.grad is not None


def test_product_rows_appends_zero_rows_only_to_16_bit_types():
    x = torch.randn(37, 3)
    rows = product_rows(x, torch.bfloat16)
    assert len(rows) == _padded(37) > 37
    assert torch.equal(rows[:37], x.bfloat16())
    assert not rows[37:].any()
    assert product_rows(x, torch.float32) is x


@given(st.integers(0, 10**6))
def test_padding_is_monotonic_and_adds_few_rows(n):
    assert n <= _padded(n) <= _padded(n + 1)
    assert _padded(n) - n < max(16, n / 8)


@given(st.integers(1, 10**5))
def test_there_are_few_padded_numbers_between_a_number_and_its_double(n):
    numbers = {_padded(k) for k in range(n, 2 * n, max(1, n // 1000))}
    assert len(numbers) <= 9
