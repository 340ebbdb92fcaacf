"""One step: from the batches of a group to an update of the weights."""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from mtcli.config import TrainConfig
from mtcli.distributed import ALONE, Processes, never_freed, whole
from mtcli.errors import ConfigError
from mtcli.feed import Batch, Group
from mtcli.loss import summed_loss
from mtcli.models import TrainableModel
from mtcli.optim import build_schedule, set_learning_rate
from mtcli.training.machine import arithmetic


class Objective(nn.Module):
    """What training makes small: the loss of a model, as a module that torch can distribute."""

    def __init__(self, model: TrainableModel[Any], label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing

    def forward(self, source: Tensor, target_in: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy summed over all words."""
        vectors = self.vectors(source, target_in)
        return summed_loss(vectors, self.model.output_weight, labels, self.label_smoothing)

    def vectors(self, source: Tensor, target_in: Tensor) -> Tensor:
        """What the logits are made of [B, T, D]."""
        vectors, _ = self.model.read(target_in, self.model.encode(source))
        return vectors

    def compile_model(self) -> None:
        """Let torch.compile fuse what it can; the loss, which is cut by hand, stays as it is."""
        self.vectors = torch.compile(self.vectors, dynamic=True)  # type: ignore[method-assign]


@dataclass(frozen=True)
class Outcome:
    """What a step has shown before it changed anything."""

    loss: float  # nats per word, over all processes
    gradient_norm: float


class Learner:
    """A model, its optimizers, and all that is needed to make a step of a group."""

    def __init__(
        self,
        objective: Objective,
        optimizers: list[Optimizer],
        options: TrainConfig,
        processes: Processes = ALONE,
    ) -> None:
        self.model = objective.model
        self.optimizers = optimizers
        self.options = options
        self.processes = processes
        self.device = next(objective.parameters()).device
        self.dtype = arithmetic(options, self.device)
        self.schedule = build_schedule(options)
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=self.dtype == torch.float16
        )  # float16 alone has too small a range for gradients
        self.objective = self._distributed(objective)
        self.most_positions: int | None = None  # of a batch, if larger ones did not fit
        self._has_overflown = False

    def learn(self, group: Group) -> Outcome:
        """Leave the gradients of `group` in the model."""
        self.model.train()
        while True:
            batches = [part for batch in group.batches for part in self._fitting(batch)]
            try:
                loss = self._add_gradients(batches, group.n_words)
                break
            except RuntimeError as error:
                if not _is_out_of_memory(error):
                    raise
                self._halve(batches, error)
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        longest = self.options.max_norm or math.inf
        norm = whole(nn.utils.clip_grad_norm_(self.model.parameters(), longest)).item()
        # float16 overflows now and then: such a step is left out, and the next ones scaled down.
        self._has_overflown = self.scaler.is_enabled() and not math.isfinite(norm)
        return Outcome(loss / group.n_words, 0.0 if self._has_overflown else norm)

    def update(self, number: int, factor: float) -> None:
        """Change the weights in step `number`, with `factor` of the scheduled learning rate."""
        set_learning_rate(self.optimizers, self.schedule(number) * factor)
        if not self._has_overflown:
            for optimizer in self.optimizers:
                self.scaler.step(optimizer)
        self.scaler.update()
        self.forget()

    def forget(self) -> None:
        """Drop the gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def _add_gradients(self, batches: list[Batch], n_words: int) -> float:
        """The summed loss of all processes' batches, with their gradients added up."""
        scale = self.processes.size / n_words  # torch takes the mean over the processes
        total = torch.zeros((), device=self.device)
        for i, batch in enumerate(batches):
            torch.manual_seed(batch.seed)
            on_device = batch.to(self.device)
            with self._synchronised(is_last=i == len(batches) - 1):
                with torch.autocast(
                    self.device.type, self.dtype, enabled=self.dtype != torch.float32
                ):
                    loss = self.objective(on_device.source, on_device.target_in, on_device.labels)
                self.scaler.scale(loss * scale).backward()
            total += loss.detach()
        [loss_of_all] = self.processes.total([total.item()], self.device)
        return loss_of_all

    def _synchronised(self, *, is_last: bool) -> Any:
        """Processes exchange gradients once in a step: in its last backward pass."""
        if isinstance(self.objective, DistributedDataParallel) and not is_last:
            return self.objective.no_sync()
        return nullcontext()

    def _distributed(self, objective: Objective) -> nn.Module:
        if self.options.compile:
            objective.compile_model()
        if self.processes.size > 1 and self.options.sharding == "none":
            # Buffers are the same everywhere, and gradients need no copy of their own.
            return never_freed(
                DistributedDataParallel(
                    objective, broadcast_buffers=False, gradient_as_bucket_view=True
                )
            )
        return objective

    def _fitting(self, batch: Batch) -> list[Batch]:
        """`batch` in parts that have fitted into memory so far."""
        if self.most_positions is None or batch.n_positions <= self.most_positions:
            return [batch]
        n_parts = min(len(batch.source), math.ceil(batch.n_positions / self.most_positions))
        return [batch.part(i, n_parts) for i in range(n_parts)]

    def _halve(self, batches: list[Batch], error: RuntimeError) -> None:
        """Make batches half as large from now on, if that can help."""
        is_alone = all(len(batch.source) == 1 for batch in batches)
        if is_alone or self.processes.size > 1:
            raise ConfigError(
                "out of memory" + (", even with a single pair" if is_alone else ""),
                hint="lower data.batch_tokens, data.max_length or model.d_model",
            ) from error
        self.forget()
        self.most_positions = max(batch.n_positions for batch in batches) // 2


def _is_out_of_memory(error: RuntimeError) -> bool:
    is_cpu = "can't allocate memory" in str(error)  # for which torch has no class of its own
    return isinstance(error, torch.OutOfMemoryError) or is_cpu
