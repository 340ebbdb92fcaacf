"""Linear layer and matrix products in the data type of autocast.

oneDNN, which multiplies bfloat16 matrices on CPUs, compiles a kernel for every new shape. Batches
have many different numbers of rows, so the rows are padded to one of a few numbers.
"""

from typing import Any

import torch
from torch import Tensor, nn

_MIN_MULTIPLE = 16


class Linear(nn.Linear):
    """Linear layer that pads its rows under CPU autocast."""

    def forward(self, x: Tensor) -> Tensor:
        """Project `x` [..., in_features] to [..., out_features]."""
        if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        rows = x.flatten(0, -2)
        dtype = torch.get_autocast_dtype("cpu")
        y: Tensor = _PaddedLinear.apply(rows, self.weight, self.bias, dtype)  # type: ignore[no-untyped-call]
        return y if x.ndim == 2 else y.view(*x.shape[:-1], -1)


class _PaddedLinear(torch.autograd.Function):
    """Linear function that computes its products in a 16-bit type, with padded rows."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
    ) -> Tensor:
        rows, w = product_rows(x, dtype), weight.to(dtype)
        ctx.save_for_backward(rows, w)
        ctx.dtypes = x.dtype, weight.dtype
        y = rows @ w.T if bias is None else torch.addmm(bias.to(dtype), rows, w.T)
        # Unlike a slice, a resized tensor is not a view, so the caller may modify it in place.
        return y.resize_(len(x), len(w))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        [gradient] = gradients
        rows, w = ctx.saved_tensors
        x_dtype, weight_dtype = ctx.dtypes
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        g = product_rows(gradient, w.dtype)
        x_gradient = (g @ w)[: len(gradient)].to(x_dtype) if needs_x else None
        weight_gradient = (g.T @ rows).to(weight_dtype) if needs_weight else None
        bias_gradient = gradient.sum(dim=0, dtype=weight_dtype) if needs_bias else None
        return x_gradient, weight_gradient, bias_gradient, None


def product_dtype(tensor: Tensor) -> torch.dtype:
    """Return the data type in which torch's autocast would compute a product of `tensor`."""
    device = tensor.device.type
    is_autocast = torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if is_autocast else tensor.dtype


def product_rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `x` [N, D] in `dtype`. If this is a 16-bit type on a CPU, append zero rows."""
    n = len(x)
    n_padded = _padded(n) if x.device.type == "cpu" and dtype.itemsize == 2 else n
    if n_padded == n:
        return x.to(dtype)
    rows = x.new_empty(n_padded, x.size(1), dtype=dtype)
    rows[:n] = x
    rows[n:] = 0
    return rows


def _padded(n: int) -> int:
    """Round up `n`, so that there are at most 9 results between any number and its double."""
    multiple = max(_MIN_MULTIPLE, (1 << n.bit_length()) >> 4)
    return -(-n // multiple) * multiple
