"""Optimizers, learning rate schedules and the moving average of the weights."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from mtcli.config.sections import TrainConfig
from mtcli.distributed import SINGLE, Processes, shard_like
from mtcli.errors import ConfigError
from mtcli.models.base import TrainableModel, parameters_of
from mtcli.training.muon import Muon, orthogonalize

Schedule = Callable[[int], float]  # step (from 1) -> multiplier for the peak learning rate
Weights = Iterable[tuple[str, Tensor]]


def freeze(model: nn.Module, patterns: tuple[str, ...]) -> None:
    """Freeze the parameters whose names match at least one of `patterns`."""
    names = [name for name, _ in model.named_parameters()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            prefixes = ", ".join(sorted({name.partition(".")[0] for name in names}))
            raise ConfigError(
                f"train.freeze: {pattern} matches no parameter of this model",
                hint=f"start the pattern with one of these names: {prefixes}",
            )
    for name, parameter in model.named_parameters():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)
    if all(not parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(
            "train.freeze leaves no parameters to train",
            hint="remove a pattern, or make it more specific",
        )


def build_optimizers(
    model: TrainableModel[Any], options: TrainConfig, processes: Processes = SINGLE
) -> list[Optimizer]:
    """Return the optimizers for all parameters that are not frozen.

    Each parameter group stores its peak learning rate under the key "peak".
    """
    matrices, others = split_parameters(model)
    adamw_groups: list[dict[str, Any]] = []
    if others:
        adamw_groups.append({"params": others, "weight_decay": 0.0})
    optimizers: list[Optimizer] = []
    if options.optimizer == "muon" and matrices:
        muon = Muon(
            matrices,
            options.matrix_learning_rate,
            weight_decay=options.weight_decay,
            transform=partial(
                orthogonalize,
                dtype=torch.bfloat16 if options.precision == "bfloat16" else torch.float32,
                method=options.orthogonalization,
            ),
            processes=processes,
        )
        optimizers.append(muon)
    elif matrices:
        adamw_groups.append({"params": matrices, "weight_decay": options.weight_decay})
    if adamw_groups:
        rate, betas = options.learning_rate, options.betas
        optimizers.append(AdamW(adamw_groups, lr=rate, betas=betas, eps=1e-9, fused=True))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def split_parameters(
    model: TrainableModel[Any],
) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return two lists of trainable parameters: matrices of hidden layers, and all others.

    The second list includes the embeddings and the output layer. Each of their rows belongs to one
    piece, and an orthogonalized update would move rare pieces as far as frequent ones. Relative
    position vectors are in the first list, because every distance occurs in every batch.
    """
    piece_matrices = {
        id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)
    }
    piece_matrices.add(id(model.output_weight))
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        is_hidden = parameter.ndim == 2 and id(parameter) not in piece_matrices
        (matrices if is_hidden else others).append(parameter)
    return matrices, others


def build_schedule(options: TrainConfig) -> Schedule:
    """Return the learning rate schedule selected by `options`."""
    schedules = {"trapezoid": trapezoid, "cosine": cosine, "inverse_sqrt": inverse_sqrt}
    return partial(schedules[options.schedule], options)


def trapezoid(options: TrainConfig, step: int) -> float:
    """Return the multiplier for linear warmup, a constant rate and linear decay to `final_rate`."""
    return min(_warmup(step, _n_warmup(options)), _decay(options, step, default_share=0.6))


def cosine(options: TrainConfig, step: int) -> float:
    """Return the multiplier for linear warmup and cosine decay to `final_rate`."""
    n_warmup = _n_warmup(options)
    done = max(0, step - n_warmup) / max(1, options.steps - n_warmup)
    decay = _interpolate(options.final_rate, (1 + math.cos(math.pi * done)) / 2)
    return min(_warmup(step, n_warmup), decay)


def inverse_sqrt(options: TrainConfig, step: int) -> float:
    """Return the learning rate of Vaswani et al. (2017, section 5.3), divided by its peak.

    The peak in the paper is (d_model * warmup) ** -0.5. With `decay_share`, the rate also decays
    linearly to `final_rate` at the end.
    """
    paper = min(_warmup(step, options.warmup), math.sqrt(max(1, options.warmup) / step))
    return paper * _decay(options, step, default_share=0.0)


def set_learning_rate(optimizers: list[Optimizer], factor: float) -> None:
    """Set each learning rate to `factor` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor


def _n_warmup(options: TrainConfig) -> int:
    return min(options.warmup, options.steps // 10)


def _warmup(step: int, n_warmup: int) -> float:
    return step / n_warmup if n_warmup else 1.0


def _decay(options: TrainConfig, step: int, default_share: float) -> float:
    """Return the decay factor at `step`: first 1, then a linear decrease to `final_rate`."""
    share = default_share if options.decay_share is None else options.decay_share
    n_decay = share * options.steps
    left = (options.steps - step) / n_decay if n_decay else 1.0
    return _interpolate(options.final_rate, min(left, 1.0))


def _interpolate(low: float, share: float) -> float:
    """Interpolate linearly between `low` (at `share` 0) and 1 (at `share` 1)."""
    return low + (1 - low) * max(0.0, share)


class MovingAverage:
    """Exponential moving average of all parameters.

    The decay at step n is at most (1 + n) / (10 + n), so that the initial weights soon lose their
    influence.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: value.clone() for name, value in parameters_of(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Update the average with the weights after `step`."""
        decay = min(self.decay, (1 + step) / (10 + step))
        current = parameters_of(model)
        torch._foreach_lerp_(
            list(self.weights.values()), [current[name] for name in self.weights], 1 - decay
        )

    def load(self, weights: Weights) -> None:
        """Load a saved average."""
        for name, weight in weights:
            self.weights[name].copy_(shard_like(weight, like=self.weights[name]))


@contextmanager
def swapped_weights(model: nn.Module, weights: Weights) -> Iterator[None]:
    """Run the block with `weights` in the model, then restore the original weights."""
    own = {name: value.clone() for name, value in parameters_of(model).items()}
    _load_weights(model, weights)
    try:
        yield
    finally:
        _load_weights(model, own.items())


@torch.no_grad()
def _load_weights(model: nn.Module, weights: Weights) -> None:
    parameters = parameters_of(model)
    for name, weight in weights:
        parameters[name].copy_(shard_like(weight, like=parameters[name]))
