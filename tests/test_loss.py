import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st

from mtcli.tokenizer import IGNORE_INDEX
from mtcli.training import loss
from mtcli.training.loss import summed_loss

pytestmark = pytest.mark.cpu


def example(n_rows: int, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(2, n_rows, 6, generator=random, dtype=torch.float32)
    weight = torch.randn(size, 6, generator=random)
    labels = torch.randint(0, size, (2, n_rows), generator=random)
    labels[0, : n_rows // 2] = IGNORE_INDEX
    return hidden.requires_grad_(), weight.requires_grad_(), labels


@given(
    st.integers(1, 20),
    st.integers(2, 50),
    st.sampled_from([0.0, 0.1, 0.7]),
    st.integers(1, 400),
    st.integers(0, 99),
)
def test_loss_and_gradients_equal_those_of_torch_for_any_chunk_size(
    n, size, smoothing, chunk, seed
):
    hidden, weight, labels = example(n, size, seed)
    expected = F.cross_entropy(
        (hidden @ weight.T).flatten(0, 1),
        labels.flatten(),
        ignore_index=IGNORE_INDEX,
        label_smoothing=smoothing,
        reduction="sum",
    )
    expected_gradients = torch.autograd.grad(0.5 * expected, [hidden, weight])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss, "_CHUNK", chunk)
        found = summed_loss(hidden, weight, labels, smoothing)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    gradients = torch.autograd.grad(0.5 * found, [hidden, weight])
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-4)


def test_the_loss_is_the_same_without_gradients():
    hidden, weight, labels = example(9, 30, 0)
    expected = summed_loss(hidden, weight, labels, 0.1)
    with torch.no_grad():
        found = summed_loss(hidden, weight, labels, 0.1)
    assert torch.equal(found, expected)
    assert not found.requires_grad


def test_a_batch_without_target_tokens_has_zero_loss_and_zero_gradients():
    hidden, weight, labels = example(5, 30, 0)
    found = summed_loss(hidden, weight, torch.full_like(labels, IGNORE_INDEX), 0.1)
    gradients = torch.autograd.grad(found, [hidden, weight])
    assert found == 0
    assert all((gradient == 0).all() for gradient in gradients)


def test_a_vanishing_probability_has_a_finite_loss_and_a_gradient():
    hidden = torch.tensor([[[1000.0]]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    found = summed_loss(hidden, weight, torch.tensor([[1]]), 0.0)
    assert found.isfinite()
    [gradient] = torch.autograd.grad(found, [hidden])
    assert gradient.item() == pytest.approx(2.0)


def test_low_precision_products_yield_float32_gradients_for_the_weights():
    hidden, weight, labels = example(9, 30, 0)
    expected = summed_loss(hidden, weight, labels, 0.1)
    low = hidden.detach().bfloat16().requires_grad_()
    found = summed_loss(low, weight, labels, 0.1)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.1)
    gradients = torch.autograd.grad(found, [low, weight])
    assert [gradient.dtype for gradient in gradients] == [torch.bfloat16, torch.float32]
