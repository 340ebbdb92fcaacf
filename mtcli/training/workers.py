"""Worker processes that share the computation of each training step on a CPU.

The threads of one process wait for each other after every operation. Small models have many short
operations, and if another program uses one of the cores, all threads wait for the slowest one.
Worker processes exchange data only twice per step: gradients, and the matrices that Muon
orthogonalizes. The data and the weights are in memory that all processes share.
"""

import gc
import mmap
import os
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import torch
from torch import Tensor, nn

from mtcli.data.batches import Batch
from mtcli.errors import EngineError
from mtcli.hardware import process_peak_memory

ComputeGradients = Callable[[Batch, float], Tensor]  # batch, scale -> summed loss
Transform = Callable[[Tensor], Tensor]  # matrices [n, rows, columns] -> new values
Place = tuple[int, tuple[int, ...]]  # offset and shape of a tensor in a flat one
Rows = tuple[int, int, int]  # index of a stack of matrices, first row, end


def can_start_workers(device: torch.device) -> bool:
    """Return whether this system supports worker processes for training on `device`.

    Worker processes are forked. Forking is unsafe on macOS, and if torch can use a GPU, its
    autograd does not work after a fork.
    """
    return sys.platform == "linux" and device.type == "cpu" and not torch.cuda.is_available()


class Workers:
    """The main process and its worker processes, which share the work of each step.

    Each process computes a part of every batch, so the results depend on the number of processes.
    `compute` must add the gradients of a batch to `parameters`.
    """

    def __init__(
        self,
        compute: ComputeGradients,
        parameters: Iterable[nn.Parameter],
        size: int,
        n_threads: int,
    ) -> None:
        self.size = size
        self.n_threads = n_threads  # of each process
        self.memory = 0  # bytes that the workers use in addition to the main process
        self._compute = compute
        self._parameters = [p for p in parameters if p.requires_grad]
        for parameter in self._parameters:
            parameter.data = _shared_memory(parameter.shape).copy_(parameter.data)
        n_numbers = sum(p.numel() for p in self._parameters if p.ndim == 2)
        self._matrices = _shared_memory((n_numbers,))
        self._workers: list[_Worker] = []
        for _ in range(1, size):
            self._workers.append(self._fork())

    def add_gradients(self, batches: Sequence[Batch], scale: float) -> float:
        """Add `scale` times the gradients of `batches` to the parameters; return the summed loss.

        An error is raised after all processes have finished, so that they are ready for another
        task.
        """
        for index, worker in enumerate(self._workers, start=1):
            worker.send(_GradientTask(_parts(batches, index, self.size), scale))
        loss = 0.0
        error: Exception | None = None
        try:
            loss = self.sum_gradients(_parts(batches, 0, self.size), scale)
        except RuntimeError as own_error:
            error = own_error
        results = [worker.receive() for worker in self._workers]
        error = error or next((result.error for result in results if result.error), None)
        if error:
            raise error
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        for worker in self._workers:
            shared = zip(self._parameters, worker.gradients, strict=True)
            torch._foreach_add_(gradients, [g for p, g in shared if p.grad is not None])
        self.memory = sum(result.memory for result in results)
        return loss + sum(result.loss for result in results)

    def map_matrices(self, transform: Transform, stacks: Sequence[Tensor]) -> list[Tensor]:
        """Return `transform` of each stack of matrices [n, rows, columns].

        Each process transforms a part of each stack. `transform` must be picklable. The next call
        overwrites the results.
        """
        sizes = [stack.numel() for stack in stacks]
        parts = torch.split(self._matrices[: sum(sizes)], sizes)
        results = [part.view(stack.shape) for part, stack in zip(parts, stacks, strict=True)]
        own, *others = _share_rows([len(stack) for stack in stacks], self.size)
        for worker, share in zip(self._workers, others, strict=True):
            places: list[Place] = []
            for i, start, end in share:
                part = results[i][start:end].copy_(stacks[i][start:end])
                places.append((int(part.storage_offset()), tuple(part.shape)))
            worker.send(_MatrixTask(transform, places))
        for i, start, end in own:
            results[i][start:end] = transform(stacks[i][start:end])
        for worker in self._workers:
            if error := worker.receive().error:
                raise error
        return results

    def close(self) -> None:
        """End the worker processes."""
        for worker in self._workers:
            worker.connection.close()
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)
        self._workers = []

    def sum_gradients(self, batches: Sequence[Batch], scale: float) -> float:
        """Add the gradients of `batches` in this process; return the summed loss."""
        return sum(self._compute(batch, scale).item() for batch in batches)

    def transform(self, transform: Transform, places: Sequence[Place]) -> None:
        """Replace the matrices at `places` in the shared memory."""
        for offset, shape in places:
            part = self._matrices[offset : offset + prod(shape)].view(shape)
            part.copy_(transform(part))

    def move_gradients(self, destination: Sequence[Tensor]) -> None:
        """Move the gradients of the parameters to `destination`."""
        for parameter, gradient in zip(self._parameters, destination, strict=True):
            if parameter.grad is None:
                gradient.zero_()
            else:
                gradient.copy_(parameter.grad)
            parameter.grad = None

    def _fork(self) -> "_Worker":
        """Start a worker process."""
        gradients = [_shared_memory(parameter.shape) for parameter in self._parameters]
        connection, own_connection = Pipe()
        with warnings.catch_warnings():
            # Python 3.12 warns that other threads may hold locks. The worker needs none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            own_connection.close()
            return _Worker(pid, connection, gradients)
        try:
            _isolate_process(own_connection.fileno())
            torch.set_num_threads(self.n_threads)
            self._serve(own_connection, gradients)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)  # skip the exit handlers of the main process

    def _serve(self, connection: Connection, gradients: list[Tensor]) -> None:
        """Execute the tasks of a worker process until the main process closes the connection."""
        initial_memory = process_peak_memory()
        while True:
            try:
                task = pickle.loads(connection.recv_bytes())
            except (EOFError, OSError):
                return
            loss, error = 0.0, None
            try:
                loss = task.run(self, gradients)
            except RuntimeError as own_error:
                error = own_error
                error.add_note(traceback.format_exc())
                for parameter in self._parameters:
                    parameter.grad = None
            memory = process_peak_memory() - initial_memory
            with suppress(OSError):  # the main process has ended
                connection.send_bytes(pickle.dumps(_Result(loss, error, memory)))


@dataclass(frozen=True)
class _GradientTask:
    """Compute the gradients of `batches`."""

    batches: list[Batch]
    scale: float

    def run(self, workers: Workers, gradients: list[Tensor]) -> float:
        """Store the gradients in `gradients`; return the summed loss."""
        loss = workers.sum_gradients(self.batches, self.scale)
        workers.move_gradients(gradients)
        return loss


@dataclass(frozen=True)
class _MatrixTask:
    """Transform the matrices at `places`."""

    transform: Transform
    places: list[Place]

    def run(self, workers: Workers, gradients: list[Tensor]) -> float:
        """Replace the matrices; return 0."""
        del gradients
        workers.transform(self.transform, self.places)
        return 0.0


@dataclass(frozen=True)
class _Result:
    """Result of a task."""

    loss: float = 0.0
    error: RuntimeError | EngineError | None = None
    memory: int = 0  # bytes by which the process has grown


@dataclass(frozen=True)
class _Worker:
    """Handle of a worker process."""

    pid: int
    connection: Connection
    gradients: list[Tensor]  # shared; one tensor per parameter

    def send(self, task: _GradientTask | _MatrixTask) -> None:
        """Start a task. If the process has ended, `receive` will return an error."""
        with suppress(OSError):
            self.connection.send_bytes(pickle.dumps(task))

    def receive(self) -> _Result:
        """Wait for the result of the last task."""
        try:
            result: _Result = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            error = EngineError(
                "a worker process was killed during training",
                hint="run the same command again (without --fresh) to resume; if the machine ran "
                "out of memory, use a smaller data.batch_tokens",
            )
            return _Result(error=error)
        return result


def _isolate_process(connection: int) -> None:
    """Ignore signals, and close all files that the main process had opened, except `connection`.

    The main process handles signals. If this process kept the lock file of the run open, the run
    could not be resumed immediately after the main process is killed.
    """
    gc.freeze()  # never finalize objects of the main process
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2 and int(name) != connection:
            with suppress(OSError):
                os.close(int(name))


def _shared_memory(shape: Sequence[int]) -> Tensor:
    """Return a float32 tensor of zeros in memory that forked processes share."""
    memory = mmap.mmap(-1, max(4, 4 * prod(shape)))
    return torch.frombuffer(memory, dtype=torch.float32)[: prod(shape)].view(*shape)


def _parts(batches: Sequence[Batch], index: int, size: int) -> list[Batch]:
    """Return part `index` of each batch, without empty parts."""
    return [batch.micro_batch(index, size) for batch in batches if index < len(batch.source)]


def _share_rows(lengths: Sequence[int], size: int) -> list[list[Rows]]:
    """Divide stacks of the given lengths among `size` processes.

    Stacks with the same remainder give their additional rows to different processes.
    """
    shares: list[list[Rows]] = [[] for _ in range(size)]
    for i, length in enumerate(lengths):
        bounds = [0, *((k * length + i % size) // size for k in range(1, size)), length]
        for share, start, end in zip(shares, bounds, bounds[1:], strict=False):
            if start < end:
                share.append((i, start, end))
    return shares
