"""The training loop: batches in, updates out. Logging, saving and stopping are the caller's."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own name for it)
from torch import Tensor, nn
from torch.optim import Optimizer

from mtcli.config import TrainConfig
from mtcli.data import IGNORED, Batch, Group, Position
from mtcli.optim import build_schedule, set_learning_rate


@dataclass(frozen=True)
class Step:
    """One update of the weights."""

    number: int
    loss: float  # nats per word
    learning_rate: float  # of the first optimizer: Muon's if there is Muon
    n_words: int
    n_tokens: int
    seconds: float
    after: Position  # where the data goes on


def fit(
    model: nn.Module,
    groups: Iterable[Group],
    optimizers: list[Optimizer],
    options: TrainConfig,
    *,
    start: int = 0,
) -> Iterator[Step]:
    """Update `model` once per group of batches; after each, say so. The caller decides to stop."""
    schedule = build_schedule(options)
    device = next(model.parameters()).device
    began = time.perf_counter()
    for number, group in enumerate(groups, start=start + 1):
        model.train()
        n_words = sum(batch.n_words for batch in group.batches)
        total = torch.zeros((), device=device)
        for batch in group.batches:
            loss = summed_loss(model, batch.to(device), options.label_smoothing)
            (loss / n_words).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        if options.max_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), options.max_norm)
        set_learning_rate(optimizers, schedule(number))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        n_tokens = sum(batch.n_tokens for batch in group.batches)
        loss_per_word, now = total.item() / n_words, time.perf_counter()
        learning_rate: float = optimizers[0].param_groups[0]["lr"]
        yield Step(
            number, loss_per_word, learning_rate, n_words, n_tokens, now - began, group.after
        )
        began = time.perf_counter()  # the caller's validation is not the step's time


def summed_loss(model: nn.Module, batch: Batch, label_smoothing: float) -> Tensor:
    """Cross-entropy summed over words, so that batches of any size add up fairly."""
    logits = model(batch.source, batch.target_in)  # [B, T, V]
    return F.cross_entropy(
        logits.flatten(0, 1),
        batch.labels.flatten(),
        ignore_index=IGNORED,
        label_smoothing=label_smoothing,
        reduction="sum",
    )


@torch.inference_mode()
def mean_loss(model: nn.Module, batches: Iterable[Batch]) -> float:
    """Nats per word over all `batches`, without label smoothing and without dropout."""
    device = next(model.parameters()).device
    model.eval()
    total, n_words = 0.0, 0
    for batch in batches:
        total += summed_loss(model, batch.to(device), label_smoothing=0.0).item()
        n_words += batch.n_words
    return total / n_words
