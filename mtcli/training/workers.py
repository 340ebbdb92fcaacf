"""Worker processes that share the computation of each training step on a CPU.

The threads of one process wait for each other after every operation. Small models have many short
operations, and if another program uses one of the cores, all threads wait for the slowest one.
Worker processes wait for each other only twice per step: for the gradients, and for the matrices
that Muon orthogonalizes. These and the weights are in shared memory; batches go through pipes.
"""

import gc
import mmap
import os
import pickle
import signal
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Thread

import torch
from torch import Tensor, nn

from mtcli.data.batches import Batch
from mtcli.errors import EngineError
from mtcli.hardware import private_memory, share_main_arena

_IGNORED_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]

ComputeGradients = Callable[[Batch, float], Tensor]  # batch, scale -> summed loss
Transform = Callable[[Tensor], Tensor]  # matrices [n, rows, columns] -> new values


@dataclass(frozen=True)
class _Region:
    """Matrices in a flat tensor."""

    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _Part:
    """Consecutive matrices of a stack."""

    stack: int
    start: int
    end: int


class Workers:
    """The main process and its worker processes, which share the work of each step.

    Each process computes a part of every batch, so the results depend on the number of processes.
    `compute` must add the gradients of a batch to `parameters`, which are moved to shared memory.
    """

    def __init__(
        self,
        compute: ComputeGradients,
        parameters: Iterable[nn.Parameter],
        *,
        size: int,
        n_threads: int,
    ) -> None:
        self.size = size
        self.n_threads = n_threads  # of each process
        self.memory = 0  # bytes that the workers use besides the shared memory
        self._compute = compute
        self._parameters = [p for p in parameters if p.requires_grad]
        self._workers: list[_Worker] = []
        try:
            for parameter in self._parameters:
                parameter.data = _shared_memory(parameter.shape).copy_(parameter.data)
            n_numbers = sum(p.numel() for p in self._parameters if p.ndim == 2)
            self._matrices = _shared_memory((n_numbers,))
            for _ in range(1, size):
                self._workers.append(self._fork())
        except OSError as error:
            self.close()
            raise EngineError(
                f"cannot start worker processes: {error.strerror}",
                hint="start over with --fresh and --set train.workers=1",
            ) from error

    def add_gradients(self, batches: Sequence[Batch], scale: float) -> float:
        """Add `scale` times the gradients of `batches` to the parameters; return the summed loss.

        An error is raised after all processes have finished, so that they are ready for another
        task.
        """
        own, *others = [_split(batches, index, self.size) for index in range(self.size)]
        loss = 0.0
        error: Exception | None = None
        with self._close_on_interrupt():
            for worker, part in zip(self._workers, others, strict=True):
                worker.send(_GradientTask(part, scale))
            try:
                loss = self.sum_gradients(own, scale)
            except Exception as own_error:
                error = own_error
            results = [worker.receive() for worker in self._workers]
        error = error or next((result.error for result in results if result.error), None)
        if error:
            raise error
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        for worker in self._workers:
            shared = zip(self._parameters, worker.gradients, strict=True)
            torch._foreach_add_(gradients, [g for p, g in shared if p.grad is not None])
        self.memory = max(self.memory, sum(result.memory for result in results))
        return loss + sum(result.loss for result in results)

    def map_matrices(self, transform: Transform, stacks: Sequence[Tensor]) -> list[Tensor]:
        """Return `transform` of each stack of matrices [n, rows, columns].

        Each process transforms a part of each stack. `transform` must be picklable. The next call
        overwrites the results.
        """
        sizes = [stack.numel() for stack in stacks]
        parts = torch.split(self._matrices[: sum(sizes)], sizes)
        results = [part.view(stack.shape) for part, stack in zip(parts, stacks, strict=True)]
        own, *others = _share_matrices([len(stack) for stack in stacks], self.size)
        with self._close_on_interrupt():
            for worker, share in zip(self._workers, others, strict=True):
                regions = [_copy_part(part, stacks, results) for part in share]
                worker.send(_MatrixTask(transform, regions))
            for part in own:
                matrices = transform(stacks[part.stack][part.start : part.end])
                results[part.stack][part.start : part.end] = matrices
            received = [worker.receive() for worker in self._workers]
        if error := next((result.error for result in received if result.error), None):
            raise error
        return results

    def close(self) -> None:
        """End the worker processes."""
        for worker in self._workers:
            worker.connection.close()
            with suppress(ProcessLookupError, ChildProcessError):  # SIGCHLD may be ignored
                os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)
        self._workers = []

    def sum_gradients(self, batches: Sequence[Batch], scale: float) -> float:
        """Add the gradients of `batches` in this process; return the summed loss."""
        return sum(self._compute(batch, scale).item() for batch in batches)

    def transform_regions(self, transform: Transform, regions: Sequence[_Region]) -> None:
        """Replace the matrices in `regions` of the shared memory."""
        for region in regions:
            end = region.offset + prod(region.shape)
            matrices = self._matrices[region.offset : end].view(region.shape)
            matrices.copy_(transform(matrices))

    def move_gradients(self, destination: Sequence[Tensor]) -> None:
        """Move the gradients of the parameters to `destination`."""
        for parameter, gradient in zip(self._parameters, destination, strict=True):
            if parameter.grad is None:
                gradient.zero_()
            else:
                gradient.copy_(parameter.grad)
            parameter.grad = None

    @contextmanager
    def _close_on_interrupt(self) -> Iterator[None]:
        """Run the block; if it fails, end the workers, because they may still send results."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _fork(self) -> "_Worker":
        """Start a worker process."""
        gradients = [_shared_memory(parameter.shape) for parameter in self._parameters]
        connection, own_connection = Pipe()
        # A signal before `_isolate_process` would run the handlers of the main process.
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED_SIGNALS)
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns that other threads may hold locks. The worker needs none.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                self._run_worker(own_connection, gradients)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        own_connection.close()
        return _Worker(pid, connection, gradients)

    def _run_worker(self, connection: Connection, gradients: list[Tensor]) -> None:
        """Execute tasks in a forked process, then end it."""
        try:
            _isolate_process(connection.fileno())
            share_main_arena()
            # OpenMP keeps a pool of threads for each thread that uses it. The pool of this thread
            # was not forked, so using it would wait forever.
            thread = Thread(target=self._serve, args=(connection, gradients))
            thread.start()
            thread.join()
        finally:
            os._exit(0)  # skip the exit handlers of the main process

    def _serve(self, connection: Connection, gradients: list[Tensor]) -> None:
        """Execute the tasks of a worker process until the main process closes the connection."""
        torch.set_num_threads(self.n_threads)
        torch.set_flush_denormal(True)  # like the number of threads, a setting of each thread
        while True:
            try:
                task = pickle.loads(connection.recv_bytes())
            except (EOFError, OSError):
                return
            loss, error = 0.0, None
            try:
                loss = task.run(self, gradients)
            except Exception as own_error:
                error = _picklable(own_error)
                for parameter in self._parameters:
                    parameter.grad = None
            with suppress(OSError):  # the main process has ended
                connection.send_bytes(pickle.dumps(_Result(loss, error, private_memory())))


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
    """Transform the matrices in `regions`."""

    transform: Transform
    regions: list[_Region]

    def run(self, workers: Workers, gradients: list[Tensor]) -> float:
        """Replace the matrices; return 0."""
        del gradients
        workers.transform_regions(self.transform, self.regions)
        return 0.0


@dataclass(frozen=True)
class _Result:
    """Result of a task."""

    loss: float = 0.0
    error: Exception | None = None
    memory: int = 0  # private memory of the process in bytes


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
                "out of memory, close other programs first",
            )
            return _Result(error=error)
        return result


def _isolate_process(connection: int) -> None:
    """Ignore signals, and close all files that the main process had opened, except `connection`.

    The main process handles signals. If this process kept the lock file of the run open, the run
    could not be resumed immediately after the main process is killed.
    """
    gc.freeze()  # never finalize objects of the main process
    for number in _IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2 and int(name) != connection:
            with suppress(OSError):
                os.close(int(name))


def _shared_memory(shape: Sequence[int]) -> Tensor:
    """Return a float32 tensor of zeros in memory that forked processes share."""
    memory = mmap.mmap(-1, max(4, 4 * prod(shape)))
    return torch.frombuffer(memory, dtype=torch.float32)[: prod(shape)].view(*shape)


def _picklable(error: Exception) -> Exception:
    """Return `error` with its traceback as a note, or a RuntimeError if it cannot be pickled."""
    text = traceback.format_exc()
    error.add_note(text)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(text)
    return error


def _split(batches: Sequence[Batch], index: int, size: int) -> list[Batch]:
    """Return part `index` of each batch, without empty parts."""
    parts = [batch.micro_batch(index, size) for batch in batches if index < len(batch.source)]
    return [part.contiguous() for part in parts]  # pickle stores the entire storage of a view


def _copy_part(part: _Part, source: Sequence[Tensor], target: Sequence[Tensor]) -> _Region:
    """Copy a part of a stack; return its region in the storage of `target`."""
    copied = target[part.stack][part.start : part.end]
    copied.copy_(source[part.stack][part.start : part.end])
    return _Region(int(copied.storage_offset()), tuple(copied.shape))


def _share_matrices(lengths: Sequence[int], size: int) -> list[list[_Part]]:
    """Divide stacks of the given lengths among `size` processes.

    Stacks with the same remainder give their additional matrices to different processes.
    """
    shares: list[list[_Part]] = [[] for _ in range(size)]
    for i, length in enumerate(lengths):
        bounds = [0, *((k * length + i % size) // size for k in range(1, size)), length]
        for share, start, end in zip(shares, bounds, bounds[1:], strict=False):
            if start < end:
                share.append(_Part(i, start, end))
    return shares
