"""Optimizers, learning rates, and averages of weights."""

from mtcli.optim.averages import MovingAverage, exchanged
from mtcli.optim.build import build_optimizers, freeze, split_parameters
from mtcli.optim.muon import Muon, orthogonal
from mtcli.optim.schedule import build_schedule, set_learning_rate

__all__ = [
    "MovingAverage",
    "Muon",
    "build_optimizers",
    "build_schedule",
    "exchanged",
    "freeze",
    "orthogonal",
    "set_learning_rate",
    "split_parameters",
]
