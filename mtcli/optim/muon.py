"""Muon: the optimizer of the layers' matrices."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from mtcli.distributed import ALONE, Processes, placed, whole


class Muon(Optimizer):
    """Momentum whose matrices are made orthogonal before they are applied (Jordan et al. 2024).

    Every direction of a matrix moves by the same amount, however small its gradient; the effect
    is that of a much better conditioned problem. Newton-Schulz runs in the parameters' own
    precision (bfloat16 is emulated on most CPUs) and on all matrices of one shape at once.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        lr: float,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        processes: Processes = ALONE,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.processes = processes

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # without torch's rarely used closure
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            for matrices in self._portions(group["params"]):
                self._update(matrices, group["lr"], group["momentum"], group["weight_decay"])

    def _portions(self, parameters: list[nn.Parameter]) -> Iterator[list[Tensor]]:
        """Matrices of one shape: all, or one for each process where they must first be gathered."""
        for matrices in _by_shape(parameters):
            size = self.processes.size if isinstance(matrices[0], DTensor) else len(matrices)
            for i in range(0, len(matrices), size):
                yield matrices[i : i + size]

    def _update(
        self, matrices: list[Tensor], lr: float, momentum: float, weight_decay: float
    ) -> None:
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        averages = [self._momentum_of(matrix) for matrix in matrices]
        torch._foreach_lerp_(averages, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, averages, momentum)  # Nesterov: one step further
        updates = self._orthogonal([whole(matrix) for matrix in ahead])
        rows, columns = matrices[0].shape
        scale = max(1.0, rows / columns) ** 0.5
        torch._foreach_mul_(matrices, 1 - lr * weight_decay)
        parts = [placed(u, like=m) for u, m in zip(updates, matrices, strict=True)]
        torch._foreach_add_(matrices, parts, alpha=-lr * scale)

    def _orthogonal(self, matrices: list[Tensor]) -> list[Tensor]:
        """All matrices made orthogonal; several processes do a part each and exchange them."""
        n, size = len(matrices), self.processes.size
        if size == 1:
            return list(orthogonal(torch.stack(matrices)).unbind())
        n_each = -(-n // size)
        filled = matrices + [torch.zeros_like(matrices[0])] * (n_each * size - n)
        start = self.processes.rank * n_each
        mine = orthogonal(torch.stack(filled[start : start + n_each]))  # [n_each, rows, columns]
        parts = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(parts, mine.contiguous())
        return list(torch.cat(parts)[:n].unbind())

    def _momentum_of(self, matrix: Tensor) -> Tensor:
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        average: Tensor = state["momentum"]
        return average


def orthogonal(x: Tensor, n_steps: int = 5) -> Tensor:
    """Matrices [n, rows, columns] with their singular values brought near 1.

    Five Newton-Schulz steps with the coefficients of Jordan et al. (2024), which leave the
    singular values between about 0.7 and 1.2: closer is not needed and would cost more steps.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    is_tall = x.size(-2) > x.size(-1)
    x = x.mT if is_tall else x  # the products below are then of the smaller size
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(n_steps):
        gram = x @ x.mT
        x = a * x + torch.baddbmm(gram, gram, gram, beta=b, alpha=c) @ x
    return x.mT if is_tall else x


def _by_shape(parameters: list[nn.Parameter]) -> list[list[Tensor]]:
    shapes: dict[torch.Size, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            shapes.setdefault(parameter.shape, []).append(parameter)
    return list(shapes.values())
