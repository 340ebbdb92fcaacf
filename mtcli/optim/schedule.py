"""How the learning rate rises and falls.

A schedule is a factor between 0 and 1; each group of parameters has a highest rate of its own.
"""

import math
from collections.abc import Callable
from functools import partial

from torch.optim import Optimizer

from mtcli.config import TrainConfig

Schedule = Callable[[int], float]


def build_schedule(options: TrainConfig) -> Schedule:
    """The share of the highest learning rate that is used at step 1, 2, ..."""
    schedules = {"trapezoid": trapezoid, "cosine": cosine, "inverse_sqrt": inverse_sqrt}
    return partial(schedules[options.schedule], options)


def trapezoid(options: TrainConfig, step: int) -> float:
    """Up in `warmup` steps, level, and down to `final_rate` at the last step."""
    return min(_rise(step, _n_rising(options)), _fall(options, step, usual=0.6))


def cosine(options: TrainConfig, step: int) -> float:
    """Up in `warmup` steps, then down to `final_rate` as half a cosine does."""
    n_rising = _n_rising(options)
    done = max(0, step - n_rising) / max(1, options.steps - n_rising)
    return min(
        _rise(step, n_rising), _between(options.final_rate, (1 + math.cos(math.pi * done)) / 2)
    )


def inverse_sqrt(options: TrainConfig, step: int) -> float:
    """Section 5.3 of the paper, in units of its highest value (d_model * warmup) ** -0.5.

    It has no end of its own; with a `decay_share` it falls to one.
    """
    paper = min(_rise(step, options.warmup), math.sqrt(max(1, options.warmup) / step))
    return paper * _fall(options, step, usual=0.0)


def set_learning_rate(optimizers: list[Optimizer], factor: float) -> None:
    """Use `factor` of each group's highest learning rate from now on."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor


def _n_rising(options: TrainConfig) -> int:
    return min(options.warmup, options.steps // 10)


def _fall(options: TrainConfig, step: int, usual: float) -> float:
    """From 1 to `final_rate` over the last part of the steps."""
    share = usual if options.decay_share is None else options.decay_share
    n_falling = share * options.steps
    left = (options.steps - step) / n_falling if n_falling else 1.0
    return _between(options.final_rate, min(left, 1.0))


def _rise(step: int, n_rising: int) -> float:
    return step / n_rising if n_rising else 1.0


def _between(low: float, share: float) -> float:
    """`low` at share 0, 1 at share 1."""
    return low + (1 - low) * max(0.0, share)
