"""Muon, an optimizer for the matrices of hidden layers (Jordan et al. 2024)."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from mtcli.config.sections import OrthogonalizationMethod
from mtcli.distributed import SINGLE, Processes, shard_like, unshard
from mtcli.training.workers import Transform, Workers

# Coefficients of the five Newton-Schulz steps (Jordan et al. 2024).
_N_STEPS, _A, _B, _C = 5, 3.4445, -4.7750, 2.0315


class Muon(Optimizer):
    """SGD with Nesterov momentum and orthogonalized updates (Jordan et al. 2024).

    An update moves all singular directions of a matrix by about the same amount, even those with
    small gradients. `transform` orthogonalizes matrices (default: `orthogonalize`). Matrices
    of the same shape are processed together.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        lr: float,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        transform: Transform | None = None,
        processes: Processes = SINGLE,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.transform = transform or orthogonalize
        self.processes = processes
        self.workers: Workers | None = None  # processes on this machine that share the work

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            groups = list(self._matrix_groups(group["params"]))
            # Workers get all matrices at once. Otherwise, process one group at a time: a process
            # may not have enough memory for all matrices of a sharded model.
            for chunk in [groups] if self.workers else [[matrices] for matrices in groups]:
                directions = [self._nesterov(matrices, group["momentum"]) for matrices in chunk]
                updates = self._orthogonalize(directions)
                for matrices, update in zip(chunk, updates, strict=True):
                    _apply(matrices, update, group["lr"], group["weight_decay"])

    def _matrix_groups(self, parameters: list[nn.Parameter]) -> Iterator[list[Tensor]]:
        """Yield groups of matrices of the same shape.

        A group of sharded matrices contains at most one matrix per process.
        """
        for matrices in _group_by_shape(parameters):
            size = self.processes.size if isinstance(matrices[0], DTensor) else len(matrices)
            for i in range(0, len(matrices), size):
                yield matrices[i : i + size]

    def _nesterov(self, matrices: list[Tensor], momentum: float) -> Tensor:
        """Update the momentum; return the directions of the update [n, rows, columns]."""
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        momenta = [self._momentum_buffer(matrix) for matrix in matrices]
        torch._foreach_lerp_(momenta, gradients, 1 - momentum)
        directions = torch._foreach_lerp(gradients, momenta, momentum)
        return torch.stack([unshard(direction) for direction in directions])

    def _orthogonalize(self, stacks: list[Tensor]) -> list[Tensor]:
        """Return the orthogonalized matrices; the processes share the work."""
        if self.workers:
            return self.workers.map_matrices(self.transform, stacks)
        return [self._orthogonalize_stack(stack) for stack in stacks]

    def _orthogonalize_stack(self, stack: Tensor) -> Tensor:
        """Return the orthogonalized matrices; each process computes a part of them."""
        n, size = len(stack), self.processes.size
        if size == 1:
            return self.transform(stack)
        n_each = -(-n // size)
        padded = torch.cat([stack, stack.new_zeros(n_each * size - n, *stack.shape[1:])])
        start = self.processes.rank * n_each
        local = self.transform(padded[start : start + n_each])  # [n_each, rows, columns]
        parts = [torch.empty_like(local) for _ in range(size)]
        dist.all_gather(parts, local.contiguous())
        return torch.cat(parts)[:n]

    def _momentum_buffer(self, matrix: Tensor) -> Tensor:
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        momentum: Tensor = state["momentum"]
        return momentum


def _apply(matrices: list[Tensor], update: Tensor, lr: float, weight_decay: float) -> None:
    """Subtract the update [n, rows, columns] and the weight decay from the matrices."""
    rows, columns = matrices[0].shape
    scale = max(1.0, rows / columns) ** 0.5
    torch._foreach_mul_(matrices, 1 - lr * weight_decay)
    parts = [shard_like(u, like=m) for u, m in zip(update, matrices, strict=True)]
    torch._foreach_add_(matrices, parts, alpha=-lr * scale)


def orthogonalize(
    x: Tensor, dtype: torch.dtype | None = None, method: OrthogonalizationMethod = "gram"
) -> Tensor:
    """Return the matrices `x` [n, rows, columns] with all singular values moved close to 1.

    A Newton-Schulz step replaces x by a x + b (x x^T) x + c (x x^T)^2 x. After five steps, the
    singular values are between about 0.7 and 1.2, which is accurate enough. `dtype` is the data
    type of the matrix products. bfloat16 is precise enough, but many CPUs only emulate it.
    """
    is_tall = x.size(-2) > x.size(-1)
    x = x.mT if is_tall else x  # makes `gram` smaller
    original_dtype = x.dtype
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).to(dtype or original_dtype)
    if method == "gram":
        x = x.contiguous()  # products of transposed matrices take longer
    if method == "gram" and x.dtype != torch.bfloat16 and x.size(-1) >= 2 * x.size(-2):
        x = _iterate_gram(x)
    else:
        for _ in range(_N_STEPS):
            gram = x @ x.mT
            x = _A * x + torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C) @ x
    x = x.to(original_dtype)
    return x.mT if is_tall else x


def _iterate_gram(x: Tensor) -> Tensor:
    """Return wide matrices `x` after all Newton-Schulz steps.

    Each step multiplies x by a polynomial p of its Gram matrix. This function multiplies the
    polynomials first. They are square and commute, so wide products are needed only at the start
    and at the end. The Gram matrix squares the singular values, so bfloat16 is too imprecise.
    """
    gram = x @ x.mT
    eye = torch.eye(gram.size(-1), dtype=x.dtype, device=x.device)
    product = eye.expand_as(gram)
    for step in range(_N_STEPS):
        p = torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C).add_(eye, alpha=_A)
        product = p @ product if step else p
        if step < _N_STEPS - 1:
            gram = p @ gram @ p
    return product @ x


def _group_by_shape(parameters: list[nn.Parameter]) -> list[list[Tensor]]:
    shapes: dict[torch.Size, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            shapes.setdefault(parameter.shape, []).append(parameter)
    return list(shapes.values())
