"""The processes that train one model together, started by torchrun: one, or many.

All of them read the same data and take the same decisions; they divide the work of a step and of a
validation between them. Only the first one writes and speaks.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]  # but it is there
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

T = TypeVar("T")

_TIMEOUT = timedelta(minutes=30)  # a process that is silent for so long is taken for dead


@dataclass(frozen=True)
class Processes:
    """Who works together, and which of them this process is."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def total(self, numbers: Sequence[float], device: torch.device) -> list[float]:
        """The sums of everyone's `numbers`."""
        if self.size == 1:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64, device=device)
        dist.all_reduce(sums)
        totals: list[float] = sums.tolist()
        return totals

    def gather(self, value: T) -> list[T]:
        """Everyone's value, in the order of their ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def from_first(self, value: T) -> T:
        """What the first process has; the others' values are ignored."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def at_first(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All of each tensor, in the first process's own memory; the others get nothing.

        They must ask, too: where each of them holds a part, it is gathered, tensor by tensor.
        """
        gathered = ((name, whole(tensor)) for name, tensor in tensors.items())
        return {name: tensor.cpu() for name, tensor in gathered if self.is_first}

    def streamed(
        self, tensors: Mapping[str, Tensor], device: torch.device
    ) -> Iterator[tuple[str, Tensor]]:
        """The first process's tensors, one after the other: no other need have room for all."""
        if self.size == 1:
            yield from tensors.items()
            return
        facts = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        for name, (shape, dtype) in self.from_first(facts).items():
            buffer = torch.empty(shape, dtype=dtype, device=device)
            if self.is_first:
                buffer.copy_(tensors[name])
            dist.broadcast(buffer, src=0)
            yield name, buffer

    def dealt(self, items: Sequence[T]) -> Sequence[T]:
        """This process's part of some work."""
        return items[self.rank :: self.size]

    def joined(self, parts: Sequence[T]) -> list[T]:
        """All the work again, in its order, from what each process has made of its part."""
        everyone = self.gather(list(parts))
        n_items = sum(map(len, everyone))
        return [everyone[i % self.size][i // self.size] for i in range(n_items)]


ALONE = Processes()


# When the last reference to a process group is dropped, torch 2.13 waits for a thread of the group
# while it holds the GIL, and that thread may be waiting for the GIL. So groups are never freed, and
# the models that refer to one can be freed at any time.
_GROUPS: list[object] = []


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor of which each process may hold a part (FSDP); all of them must ask.

    torch's own `full_tensor` crashes now and then with gloo (2.13), in its wait for the others.
    """
    if not isinstance(tensor, DTensor):
        return tensor
    if tensor.placements != (Shard(0),):
        return tensor.full_tensor()
    mesh, own = tensor.device_mesh, tensor.to_local().detach()
    n_rows, *rest = tensor.shape
    most = -(-n_rows // mesh.size())  # rows of a part; the last parts may have fewer, or none
    padded = own.new_zeros(most, *rest)
    padded[: len(own)] = own
    parts = [torch.empty_like(padded) for _ in range(mesh.size())]
    dist.all_gather(parts, padded, group=mesh.get_group())
    return torch.cat(parts)[:n_rows]


def placed(tensor: Tensor, *, like: Tensor) -> Tensor:
    """`tensor`, or the part of it that this process holds of `like`."""
    if not isinstance(like, DTensor) or isinstance(tensor, DTensor):
        return tensor
    return distribute_tensor(tensor, like.device_mesh, like.placements)


def is_distributed() -> bool:
    """Whether this process is one of several, which torchrun or `--processes` has started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def is_first_process() -> bool:
    """Whether this is the process that writes and speaks."""
    return os.environ.get("RANK", "0") == "0"


def local_rank() -> int:
    """Which of the processes on this machine this is."""
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def processes(device: torch.device) -> Iterator[Processes]:
    """All that torchrun has started, in touch with each other; or this process alone."""
    if not is_distributed():
        yield ALONE
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    store, rank, size = next(rendezvous("env://", timeout=_TIMEOUT))
    # torchrun keeps one store for all its attempts; what an earlier one has left there, addresses
    # of processes that are dead, must not be found.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group(
        backend,
        store=PrefixStore(f"attempt {attempt}", store),
        rank=rank,
        world_size=size,
        timeout=_TIMEOUT,
    )
    _GROUPS.append(dist.group.WORLD)
    yield Processes(rank, size)
    dist.destroy_process_group()  # unless something went wrong: then the others may not answer
