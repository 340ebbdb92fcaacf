"""Optimizers, and how the learning rate rises and falls.

A schedule is a factor between 0 and 1; each group of parameters has a highest rate of its own.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from mtcli.config import TrainConfig
from mtcli.models import TranslationModel

Schedule = Callable[[int], float]


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
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # without torch's rarely used closure
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            for matrices in _by_shape(group["params"]):
                self._update(matrices, group["lr"], group["momentum"], group["weight_decay"])

    def _update(
        self, matrices: list[Tensor], lr: float, momentum: float, weight_decay: float
    ) -> None:
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        averages = [self._momentum_of(matrix) for matrix in matrices]
        torch._foreach_lerp_(averages, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, averages, momentum)  # Nesterov: one step further
        updates = orthogonal(torch.stack(list(ahead)))  # [n, rows, columns]
        rows, columns = matrices[0].shape
        scale = max(1.0, rows / columns) ** 0.5
        torch._foreach_mul_(matrices, 1 - lr * weight_decay)
        torch._foreach_add_(matrices, list(updates.unbind()), alpha=-lr * scale)

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


def build_optimizers(model: TranslationModel[Any], options: TrainConfig) -> list[Optimizer]:
    """The optimizers that together update every parameter of `model`; each group knows its peak."""
    matrices, others = split_parameters(model)
    adamw_groups: list[dict[str, Any]] = [{"params": others, "weight_decay": 0.0}]
    optimizers: list[Optimizer] = []
    if options.optimizer == "muon":
        muon = Muon(matrices, options.matrix_learning_rate, weight_decay=options.weight_decay)
        optimizers.append(muon)
    else:
        adamw_groups.append({"params": matrices, "weight_decay": options.weight_decay})
    adamw = AdamW(adamw_groups, lr=options.learning_rate, betas=options.betas, eps=1e-9, fused=True)
    optimizers.append(adamw)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def split_parameters(
    model: TranslationModel[Any],
) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The matrices between hidden layers, and all other parameters.

    Rows of an embedding or of the output belong to single pieces and get gradients of their own;
    making such a matrix orthogonal would move the rare pieces as far as the frequent ones.
    """
    of_pieces = {
        id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)
    }
    of_pieces.add(id(model.output_weight))
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in model.parameters():
        is_hidden = parameter.ndim == 2 and id(parameter) not in of_pieces
        (matrices if is_hidden else others).append(parameter)
    return matrices, others


def build_schedule(options: TrainConfig) -> Schedule:
    """The share of the highest learning rate that is used at step 1, 2, ..."""
    schedule = {"trapezoid": trapezoid, "inverse_sqrt": inverse_sqrt}[options.schedule]
    return partial(schedule, options)


def trapezoid(options: TrainConfig, step: int) -> float:
    """Up in `warmup` steps, level, and down to zero at the last step."""
    n_rising = min(options.warmup, options.steps // 10)
    n_falling = options.decay_share * options.steps
    fall = (options.steps - step) / n_falling if n_falling else 1.0
    return max(0.0, min(_rise(step, n_rising), fall, 1.0))


def inverse_sqrt(options: TrainConfig, step: int) -> float:
    """Section 5.3 of the paper, in units of its highest value (d_model * warmup) ** -0.5."""
    return min(_rise(step, options.warmup), math.sqrt(max(1, options.warmup) / step))


def _rise(step: int, n_rising: int) -> float:
    return step / n_rising if n_rising else 1.0


def set_learning_rate(optimizers: list[Optimizer], factor: float) -> None:
    """Use `factor` of each group's highest learning rate from now on."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor


def _by_shape(parameters: list[nn.Parameter]) -> list[list[Tensor]]:
    shapes: dict[torch.Size, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            shapes.setdefault(parameter.shape, []).append(parameter)
    return list(shapes.values())
