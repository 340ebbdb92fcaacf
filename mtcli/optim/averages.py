"""A moving average of the weights of a run."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mtcli.distributed import placed
from mtcli.models import parameters_of

Weights = Iterable[tuple[str, Tensor]]


class MovingAverage:
    """An exponential moving average of all parameters; young ones forget faster.

    In step n at most (1 + n) / (10 + n) of the average stays, so that the weights that training
    began with are soon gone.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: value.clone() for name, value in parameters_of(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take the weights after `step` into account."""
        kept = min(self.decay, (1 + step) / (10 + step))
        current = parameters_of(model)
        torch._foreach_lerp_(
            list(self.weights.values()), [current[name] for name in self.weights], 1 - kept
        )

    def load(self, weights: Weights) -> None:
        """Go on from an average that was saved."""
        for name, weight in weights:
            self.weights[name].copy_(placed(weight, like=self.weights[name]))


@contextmanager
def exchanged(model: nn.Module, weights: Weights) -> Iterator[None]:
    """Within, `model` has other weights; afterwards its own again."""
    own = {name: value.clone() for name, value in parameters_of(model).items()}
    _copy(weights, model)
    try:
        yield
    finally:
        _copy(own.items(), model)


@torch.no_grad()
def _copy(weights: Weights, model: nn.Module) -> None:
    parameters = parameters_of(model)
    for name, weight in weights:
        parameters[name].copy_(placed(weight, like=parameters[name]))
