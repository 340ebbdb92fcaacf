"""Training step: forward and backward passes over a group of batches, then an optimizer update."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from mtcli.config.sections import TrainConfig
from mtcli.data.batches import Batch, Group
from mtcli.distributed import SINGLE, Processes, unshard
from mtcli.errors import ConfigError
from mtcli.hardware import is_out_of_memory, peak_memory, thread_limit
from mtcli.models.base import TrainableModel
from mtcli.training.loss import summed_loss
from mtcli.training.muon import Muon
from mtcli.training.optimizers import build_schedule, set_learning_rate
from mtcli.training.workers import Workers


class LossModule(nn.Module):
    """Module that computes the training loss, so that DistributedDataParallel can wrap it."""

    def __init__(self, model: TrainableModel[Any], label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.loss_terms = model.loss_terms

    def forward(self, source: Tensor, target_in: Tensor, labels: Tensor) -> Tensor:
        """Return two summed losses [2]: of all terms, and of the first term (the target)."""
        loss_terms = self.loss_terms(source, target_in, labels)
        weight, smoothing = self.model.output_weight, self.label_smoothing
        losses = torch.stack(
            [summed_loss(hidden, weight, expected, smoothing) for hidden, expected in loss_terms]
        )
        return torch.stack([losses.sum(), losses[0].detach()])

    def compile_model(self) -> None:
        """Compile the model with torch.compile, but not the loss."""
        self.loss_terms = torch.compile(self.loss_terms, dynamic=True)


@dataclass(frozen=True)
class StepResult:
    """Loss, gradient norm and batch sizes of a step, over all processes and before the update."""

    loss: float  # nats per target token
    gradient_norm: float
    n_target_tokens: int
    n_tokens: int
    n_positions: int


class TrainStep:
    """A model with its loss, optimizers and schedule; computes and applies updates."""

    def __init__(
        self,
        loss_module: LossModule,
        optimizers: list[Optimizer],
        options: TrainConfig,
        processes: Processes = SINGLE,
    ) -> None:
        self.model = loss_module.model
        self.optimizers = optimizers
        self.options = options
        self.processes = processes
        self.device = next(loss_module.parameters()).device
        self.dtype = _product_dtype(options, self.device)
        self.schedule = build_schedule(options)
        self.loss_module = self._compile_and_wrap(loss_module)
        self.workers: Workers | None = None
        self.restart()

    def restart(self) -> None:
        """Reset all state that steps change, except the weights."""
        for optimizer in self.optimizers:
            optimizer.state.clear()
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=self.dtype == torch.float16
        )  # only float16 gradients need scaling
        self.max_positions: int | None = None  # limit per batch, if memory is too small for more
        self._is_memory_probed = not isinstance(self.loss_module, DistributedDataParallel)
        self._has_overflowed = False

    def start_workers(self) -> None:
        """Start the worker processes that `train.workers` asks for, unless they are running.

        Call this before other threads start: a forked process would inherit their locks, but not
        the threads that release them.
        """
        size = self.options.workers or 1
        if self.workers or size == 1:
            return
        n_threads = max(1, torch.get_num_threads() // size)
        parameters = self.model.parameters()
        self._set_workers(Workers(self._backward, parameters, size=size, n_threads=n_threads))

    def close(self) -> None:
        """End the worker processes."""
        if self.workers:
            self.workers.close()
            self._set_workers(None)

    def _set_workers(self, workers: Workers | None) -> None:
        self.workers = workers
        for optimizer in self.optimizers:
            if isinstance(optimizer, Muon):
                optimizer.workers = workers

    def peak_memory(self) -> int:
        """Return the peak memory use in bytes, including that of the worker processes."""
        return peak_memory(self.device) + (self.workers.memory if self.workers else 0)

    def probe_memory(self, largest: Callable[[], Batch]) -> None:
        """Lower `max_positions` until the largest batch fits in the memory of every process.

        Do nothing without DistributedDataParallel, or if the memory has already been probed. The
        probe must run before the first step, because a process that runs out of memory during a
        step would leave the others waiting for its gradients. The probe is also the first gradient
        exchange, which fixes the order of DistributedDataParallel's buckets. If this order depended
        on where a run was interrupted, a resumed run would sum gradients differently.
        """
        if self._is_memory_probed:
            return
        self._is_memory_probed = True
        self.model.train()
        batch = largest()
        while any(self.processes.gather(not self._fits(batch))):
            self._halve_batches(self._split(batch))
        self._backward(batch.micro_batch(0, len(batch.source)), scale=0.0)
        self.zero_grad()

    def backward(self, group: Group) -> StepResult:
        """Compute the unscaled, clipped gradients of `group`; return the loss, norm and sizes."""
        with self._threads():
            return self._clipped_gradients(group)

    def _clipped_gradients(self, group: Group) -> StepResult:
        self.model.train()
        counts = self.processes.all_reduce_sum(group.counts(), self.device)
        n_target_tokens, n_tokens, n_positions = map(int, counts)
        while True:
            batches = [part for batch in group.batches for part in self._split(batch)]
            try:
                loss = self._accumulate_gradients(batches, n_target_tokens)
                break
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if self.processes.size > 1:  # the other processes are waiting for gradients
                    raise _memory_error("out of memory") from error
                self.zero_grad()
                self._halve_batches(batches)
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        max_norm = self.options.max_norm or math.inf
        norm = unshard(nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)).item()
        # If float16 gradients overflow, skip the update and lower the loss scale.
        self._has_overflowed = self.scaler.is_enabled() and not math.isfinite(norm)
        norm = 0.0 if self._has_overflowed else norm
        return StepResult(loss / n_target_tokens, norm, n_target_tokens, n_tokens, n_positions)

    def update(self, number: int, factor: float) -> None:
        """Update the weights in step `number`, with `factor` times the scheduled learning rate."""
        set_learning_rate(self.optimizers, self.schedule(number) * factor)
        with self._threads():
            if not self._has_overflowed:
                for optimizer in self.optimizers:
                    self.scaler.step(optimizer)
        self.scaler.update()
        self.zero_grad()

    def zero_grad(self) -> None:
        """Reset the gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def _threads(self) -> AbstractContextManager[None]:
        """Return a context that limits torch to the main process's share of the threads."""
        return thread_limit(self.workers.n_threads) if self.workers else nullcontext()

    def _accumulate_gradients(self, batches: list[Batch], n_target_tokens: int) -> float:
        """Accumulate the gradients of `batches`; return the summed loss over all processes."""
        scale = self.processes.size / n_target_tokens  # torch averages gradients over processes
        if self.workers:
            return self.workers.add_gradients(batches, scale)
        total = torch.zeros((), device=self.device)
        for i, batch in enumerate(batches):
            with self._gradient_sync(is_last=i == len(batches) - 1):
                total += self._backward(batch, scale)
        [loss] = self.processes.all_reduce_sum([total.item()], self.device)
        return loss

    def _backward(self, batch: Batch, scale: float) -> Tensor:
        """Add `scale` times the gradients of `batch`; return its summed target loss."""
        torch.manual_seed(batch.seed)
        batch = batch.to(self.device)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            total, target_loss = self.loss_module(batch.source, batch.target_in, batch.labels)
        self.scaler.scale(total * scale).backward()
        return target_loss.detach()  # type: ignore[no-any-return]

    def _fits(self, batch: Batch) -> bool:
        """Return whether this process has memory for `batch` and for the optimizer states."""
        try:
            optimizer_states = [
                torch.empty_like(parameter)
                for parameter in self.model.parameters()
                for _ in range(0 if self.optimizers[0].state else 2)
            ]
            with self._gradient_sync(is_last=False):
                for part in self._split(batch):
                    self._backward(part, scale=0.0)
            del optimizer_states
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return False
        finally:
            self.zero_grad()
        return True

    def _gradient_sync(self, *, is_last: bool) -> Any:
        """Return a context manager that skips the gradient exchange unless `is_last` is true."""
        if isinstance(self.loss_module, DistributedDataParallel) and not is_last:
            return self.loss_module.no_sync()
        return nullcontext()

    def _compile_and_wrap(self, loss_module: LossModule) -> nn.Module:
        if self.options.compile:
            loss_module.compile_model()
        if self.processes.size > 1 and self.options.sharding == "none":
            # Buffers never differ between processes, so they need no synchronization. The
            # gradients use the memory of the buckets, so they need no copy.
            return DistributedDataParallel(
                loss_module, forward_sync_buffers=False, gradient_as_bucket_view=True
            )
        return loss_module

    def _split(self, batch: Batch) -> list[Batch]:
        """Split `batch` into parts of about `max_positions` each."""
        if self.max_positions is None or batch.n_positions <= self.max_positions:
            return [batch]
        n_parts = min(len(batch.source), math.ceil(batch.n_positions / self.max_positions))
        return [batch.micro_batch(i, n_parts) for i in range(n_parts)]

    def _halve_batches(self, batches: list[Batch]) -> None:
        """Limit batches to half of the largest; raise `ConfigError` if all are single pairs."""
        if max(self.processes.gather(max(len(batch.source) for batch in batches))) == 1:
            raise _memory_error("out of memory, even with a single pair")
        largest = max(batch.n_positions for batch in batches)
        self.max_positions = min(self.processes.gather(largest // 2))


def _product_dtype(options: TrainConfig, device: torch.device) -> torch.dtype:
    """Return the data type of matrix products; on GPUs, also enable TF32 for float32."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    dtypes = {"bfloat16": torch.bfloat16, "float16": torch.float16}
    return dtypes.get(options.precision, torch.float32)


def _memory_error(message: str) -> ConfigError:
    hint = "lower data.batch_tokens, data.max_length or model.d_model"
    return ConfigError(message, hint=hint)
