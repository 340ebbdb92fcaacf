"""One step: from the batches of a group to an update of the weights."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from mtcli.config import TrainConfig
from mtcli.distributed import ALONE, Processes, whole
from mtcli.engines.pytorch import is_out_of_memory
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
        self.lessons = model.lessons

    def forward(self, source: Tensor, target_in: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy summed over all words: of all lessons, and of the first one alone."""
        lessons = self.lessons(source, target_in, labels)
        weight, smoothing = self.model.output_weight, self.label_smoothing
        losses = torch.stack(
            [summed_loss(vectors, weight, wanted, smoothing) for vectors, wanted in lessons]
        )
        return torch.stack([losses.sum(), losses[0].detach()])

    def compile_model(self) -> None:
        """Let torch.compile fuse what it can; the loss, which is cut by hand, stays as it is."""
        self.lessons = torch.compile(self.lessons, dynamic=True)


@dataclass(frozen=True)
class Outcome:
    """What a step has shown before it changed anything."""

    loss: float  # nats per word, over all processes, as are the counts
    gradient_norm: float
    n_words: int
    n_tokens: int
    n_positions: int


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
        self.objective = self._distributed(objective)
        self.restart()

    def restart(self) -> None:
        """Reset everything that steps change, except the weights."""
        for optimizer in self.optimizers:
            optimizer.state.clear()
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=self.dtype == torch.float16
        )  # float16 alone has too small a range for gradients
        self.most_positions: int | None = None  # of a batch, if larger ones did not fit
        self._is_settled = not isinstance(self.objective, DistributedDataParallel)
        self._has_overflown = False

    def settle(self, largest: Callable[[], Batch]) -> None:
        """Let processes find out, before their first step, how large a batch may be for all.

        In a step they wait for each other's gradients, which one without memory would never send.
        Also, torch arranges the exchange of gradients by what it sees in the first one: here, for
        a run that goes on is to add them up in the order of one that was never interrupted.
        """
        if self._is_settled:
            return
        self._is_settled = True
        self.model.train()
        batch = largest()
        while any(self.processes.gather(not self._fits(batch))):
            self._halve(self._fitting(batch))
        self._backward(batch.part(0, len(batch.source)), scale=0.0)
        self.forget()

    def learn(self, group: Group) -> Outcome:
        """Leave the gradients of `group` in the model."""
        self.model.train()
        counts = self.processes.total(group.counts(), self.device)
        n_words, n_tokens, n_positions = map(int, counts)
        while True:
            batches = [part for batch in group.batches for part in self._fitting(batch)]
            try:
                loss = self._add_gradients(batches, n_words)
                break
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if self.processes.size > 1:  # the others wait, and cannot be told
                    raise _too_large("out of memory") from error
                self.forget()
                self._halve(batches)
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        longest = self.options.max_norm or math.inf
        norm = whole(nn.utils.clip_grad_norm_(self.model.parameters(), longest)).item()
        # float16 overflows now and then: such a step is left out, and the next ones scaled down.
        self._has_overflown = self.scaler.is_enabled() and not math.isfinite(norm)
        norm = 0.0 if self._has_overflown else norm
        return Outcome(loss / n_words, norm, n_words, n_tokens, n_positions)

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
            with self._synchronised(is_last=i == len(batches) - 1):
                total += self._backward(batch, scale)
        [loss_of_all] = self.processes.total([total.item()], self.device)
        return loss_of_all

    def _backward(self, batch: Batch, scale: float) -> Tensor:
        """The target's summed loss in `batch`; `scale` times all gradients are added up."""
        torch.manual_seed(batch.seed)
        batch = batch.to(self.device)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            total, of_target = self.objective(batch.source, batch.target_in, batch.labels)
        self.scaler.scale(total * scale).backward()
        return of_target.detach()  # type: ignore[no-any-return]

    def _fits(self, batch: Batch) -> bool:
        """Whether this process has memory for `batch` and for what its optimizers will remember."""
        try:
            memory = [
                torch.empty_like(parameter)
                for parameter in self.model.parameters()
                for _ in range(0 if self.optimizers[0].state else 2)
            ]
            with self._synchronised(is_last=False):
                for part in self._fitting(batch):
                    self._backward(part, scale=0.0)
            del memory
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return False
        finally:
            self.forget()
        return True

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
            return DistributedDataParallel(
                objective, forward_sync_buffers=False, gradient_as_bucket_view=True
            )
        return objective

    def _fitting(self, batch: Batch) -> list[Batch]:
        """`batch` in parts that have fitted into memory so far."""
        if self.most_positions is None or batch.n_positions <= self.most_positions:
            return [batch]
        n_parts = min(len(batch.source), math.ceil(batch.n_positions / self.most_positions))
        return [batch.part(i, n_parts) for i in range(n_parts)]

    def _halve(self, batches: list[Batch]) -> None:
        """Make batches half as large from now on, in all processes, if that can help."""
        if max(self.processes.gather(max(len(batch.source) for batch in batches))) == 1:
            raise _too_large("out of memory, even with a single pair")
        largest = max(batch.n_positions for batch in batches)
        self.most_positions = min(self.processes.gather(largest // 2))


def _too_large(message: str) -> ConfigError:
    hint = "lower data.batch_tokens, data.max_length or model.d_model"
    return ConfigError(message, hint=hint)
