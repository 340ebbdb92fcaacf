"""Models larger than a device: every process holds its share of each part (FSDP2)."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from mtcli.models import TrainableModel

# Methods besides `forward` by which parts of layers, and models, are used.
_ENTRANCES = ("key_values", "encode", "read")


def shard(model: TrainableModel[Any]) -> None:
    """Share out the parts of all layers, and then what is left; they come together when used."""
    # Torch is afraid of outputs that are changed in place; ours are not.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    for stack in model.children():
        if isinstance(stack, nn.ModuleList):
            for layer in stack:
                for part in layer.children():
                    if any(isinstance(module, nn.Linear) for module in part.modules()):
                        _shard(part)  # norms are small
    # What is left has the output's matrix, which is needed beyond the model: in the loss.
    _shard(model, reshard_after_forward=False)


def is_sharded(model: nn.Module) -> bool:
    """Whether processes share the parts of `model`."""
    return isinstance(model, FSDPModule)


@contextmanager
def gathered_in_use(model: nn.Module) -> Iterator[None]:
    """Within, what has come together may stay so; afterwards each process has its share again."""
    try:
        yield
    finally:
        if isinstance(model, FSDPModule):
            model.reshard()


def _shard(module: nn.Module, *, reshard_after_forward: bool = True) -> None:
    fully_shard(module, reshard_after_forward=reshard_after_forward)
    for name in _ENTRANCES:
        if hasattr(module, name):
            register_fsdp_forward_method(module, name)
