"""The training loop: batches in, updates out. Logging, saving and stopping are the caller's."""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from mtcli.feed import Batch, Group, Position
from mtcli.loss import summed_loss
from mtcli.models import TrainableModel
from mtcli.training.learner import Learner


@dataclass(frozen=True)
class Step:
    """One update of the weights."""

    number: int
    loss: float  # nats per word
    learning_rate: float  # of the first optimizer: Muon's if there is Muon
    n_words: int
    n_tokens: int
    n_positions: int
    seconds: float
    after: Position  # where the data goes on


class DivergedError(Exception):
    """Training leads nowhere any more; the message says how it shows."""

    def __init__(self, step: int, message: str) -> None:
        super().__init__(message)
        self.step = step


def fit(
    learner: Learner, groups: Iterable[Group], *, start: int = 0, factor: float = 1.0
) -> Iterator[Step]:
    """Update the model once per group of batches; after each, say so. The caller decides to stop.

    `factor` multiplies all learning rates.
    """
    began = time.perf_counter()
    for number, group in enumerate(groups, start=start + 1):
        outcome = learner.learn(group)
        if not math.isfinite(outcome.loss + outcome.gradient_norm):
            learner.forget()
            raise DivergedError(number, "the loss is not a number any more")
        learner.update(number, factor)
        now = time.perf_counter()
        yield Step(
            number=number,
            loss=outcome.loss,
            learning_rate=learner.optimizers[0].param_groups[0]["lr"],
            n_words=outcome.n_words,
            n_tokens=outcome.n_tokens,
            n_positions=outcome.n_positions,
            seconds=now - began,
            after=group.after,
        )
        began = time.perf_counter()  # the caller's validation is not the step's time


@torch.inference_mode()
def total_loss(model: TrainableModel[Any], batches: Iterable[Batch]) -> tuple[float, int]:
    """Nats of all words of `batches`, without label smoothing and dropout; and the words."""
    device = next(model.parameters()).device
    model.eval()
    total, n_words = 0.0, 0
    for batch in (batch.to(device) for batch in batches):
        vectors, _ = model.read(batch.target_in, model.encode(batch.source))
        total += summed_loss(vectors, model.output_weight, batch.labels, 0.0).item()
        n_words += batch.n_words
    return total, n_words
