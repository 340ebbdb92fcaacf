"""Process group of a distributed run, started by torchrun or `--processes`.

All processes read the same data and make the same decisions. They share the work of each step and
of each validation. Only rank 0 writes files and prints.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]  # missing in torch's stubs
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

T = TypeVar("T")

_TIMEOUT = timedelta(minutes=30)  # a process that does not respond for this long has failed
_RENDEZVOUS_TIMEOUT = timedelta(days=7)  # rank 0 may read a large corpus before it connects


@dataclass(frozen=True)
class Processes:
    """Process group, represented by the rank of this process and the group size."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes files and prints."""
        return self.rank == 0

    def all_reduce_sum(self, numbers: Sequence[float], device: torch.device) -> list[float]:
        """Return the elementwise sums of `numbers` over all processes."""
        if self.size == 1:
            return list(numbers)
        tensor = torch.tensor(numbers, dtype=torch.float64, device=device)
        dist.all_reduce(tensor)
        sums: list[float] = tensor.tolist()
        return sums

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes in rank order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: T) -> T:
        """Return the value of rank 0; the values of other ranks are ignored."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def run_on_first(self, function: Callable[[], T]) -> T:
        """Call `function` on rank 0 and return its result in all processes.

        The other processes wait without a time limit. If rank 0 fails, the launcher ends them.
        """
        if self.size == 1:
            return function()
        result = function() if self.is_first else None
        self._wait_for([0])
        return cast(T, self.broadcast(result))

    def run_on_each_machine(self, function: Callable[[], None]) -> None:
        """Call `function` in one process per machine, except on rank 0's machine.

        All processes wait without a time limit until `function` has returned on all machines.
        """
        if self.size == 1:
            return
        firsts = [rank for rank, local in enumerate(self.gather(local_rank())) if local == 0]
        if self.rank in firsts and not self.is_first:
            function()
        self._wait_for(firsts)

    def _wait_for(self, ranks: Sequence[int]) -> None:
        """Wait without a time limit until all processes in `ranks` have called this method."""
        number = next(_WAITS)  # the number of this call, which is the same in all processes
        store = _STORES[-1]
        if self.rank in ranks:
            store.set(f"wait {number} rank {self.rank}", "done")
        while not store.check([f"wait {number} rank {rank}" for rank in ranks]):
            time.sleep(_POLL_SECONDS)

    def gather_to_first(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the full tensors in CPU memory on rank 0, and an empty dict on other ranks.

        All processes must call this method, because each of them holds a part of sharded tensors.
        """
        full_tensors = ((name, unshard(tensor)) for name, tensor in tensors.items())
        return {name: tensor.cpu() for name, tensor in full_tensors if self.is_first}

    def broadcast_tensors(
        self, tensors: Mapping[str, Tensor], device: torch.device
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors of rank 0 one by one, so that other ranks never hold all of them."""
        if self.size == 1:
            yield from tensors.items()
            return
        metadata = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        for name, (shape, dtype) in self.broadcast(metadata).items():
            buffer = torch.empty(shape, dtype=dtype, device=device)
            if self.is_first:
                buffer.copy_(tensors[name])
            dist.broadcast(buffer, src=0)
            yield name, buffer

    def local_slice(self, items: Sequence[T]) -> Sequence[T]:
        """Return the items for this process: every n-th item, where n is the group size."""
        return items[self.rank :: self.size]

    def merge_slices(self, results: Sequence[T]) -> list[T]:
        """Return the results of all processes, in the order of the items before `local_slice`."""
        slices = self.gather(list(results))
        n_items = sum(map(len, slices))
        return [slices[i % self.size][i // self.size] for i in range(n_items)]


SINGLE = Processes()

_STORES: list[Any] = []  # key-value stores; the last one belongs to the current process group
_WAITS = itertools.count()
_POLL_SECONDS = 0.05


# This list keeps all process groups alive to avoid a deadlock: when torch 2.13 frees a group, it
# holds the GIL while it waits for a thread of the group, and this thread may need the GIL.
_GROUPS: list[object] = []


def unshard(tensor: Tensor) -> Tensor:
    """Return the full tensor if `tensor` is sharded (FSDP), else `tensor` itself.

    All processes must call this function. For tensors sharded in dimension 0, it avoids
    `full_tensor`, which occasionally crashes with gloo in torch 2.13 while it waits for other
    ranks.
    """
    if not isinstance(tensor, DTensor):
        return tensor
    if tensor.placements != (Shard(0),):
        return tensor.full_tensor()
    mesh, local = tensor.device_mesh, tensor.to_local().detach()
    n_rows, *rest = tensor.shape
    max_rows = -(-n_rows // mesh.size())  # per shard; the last shards may have fewer
    padded = local.new_zeros(max_rows, *rest)
    padded[: len(local)] = local
    shards = [torch.empty_like(padded) for _ in range(mesh.size())]
    dist.all_gather(shards, padded, group=mesh.get_group())
    return torch.cat(shards)[:n_rows]


def shard_like(tensor: Tensor, *, like: Tensor) -> Tensor:
    """Return this process's shard of `tensor` if `like` is sharded, else `tensor` itself."""
    if not isinstance(like, DTensor) or isinstance(tensor, DTensor):
        return tensor
    return distribute_tensor(tensor, like.device_mesh, like.placements)


def is_distributed() -> bool:
    """Return whether torchrun or `--processes` started this process as part of a group."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def is_first_process() -> bool:
    """Return whether this is rank 0, which writes files and prints."""
    return os.environ.get("RANK", "0") == "0"


def local_rank() -> int:
    """Return the rank of this process among the processes on this machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def processes(device: torch.device) -> Iterator[Processes]:
    """Run the block in the process group; without torchrun or `--processes`, it has one process."""
    if not is_distributed():
        yield SINGLE
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    store, rank, size = next(rendezvous("env://", timeout=_RENDEZVOUS_TIMEOUT))
    # torchrun uses one store for all restarts. The prefix hides entries from earlier attempts, such
    # as the addresses of dead processes.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = PrefixStore(f"attempt {attempt}", store)
    _STORES.append(store)
    group = Processes(rank, size)
    group._wait_for([0])  # rank 0 may have to read the corpus first to plan the run
    dist.init_process_group(
        backend,
        store=store,
        rank=rank,
        world_size=size,
        timeout=_TIMEOUT,
    )
    _GROUPS.append(dist.group.WORLD)
    yield group
    dist.destroy_process_group()  # skipped after an error, when other ranks may not respond
