"""Fully sharded training (FSDP2) for models that do not fit in the memory of one device."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from mtcli.models.base import TrainableModel

# Methods for which FSDP2 must gather the parameters of a module, as it does for `forward`.
_FORWARD_METHODS = ("key_values", "encode", "decode_hidden")


def shard(model: TrainableModel[Any]) -> None:
    """Shard each sublayer of `model`, then its remaining parameters."""
    # FSDP2 warns that outputs must not be modified in place. mtcli does not modify them.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    for stack in model.children():
        if isinstance(stack, nn.ModuleList):
            for layer in stack:
                for sublayer in layer.children():
                    if any(isinstance(module, nn.Linear) for module in sublayer.modules()):
                        _shard_module(sublayer)  # norms are too small to shard separately
    # Keep the rest gathered, because the loss uses the output matrix after the forward pass.
    _shard_module(model, reshard_after_forward=False)


def is_sharded(model: nn.Module) -> bool:
    """Return whether the parameters of `model` are sharded across processes."""
    return isinstance(model, FSDPModule)


@contextmanager
def reshard_after(model: nn.Module) -> Iterator[None]:
    """Run the block, then free the parameters that it gathered from other processes."""
    try:
        yield
    finally:
        if isinstance(model, FSDPModule):
            model.reshard()


def _shard_module(module: nn.Module, *, reshard_after_forward: bool = True) -> None:
    fully_shard(module, reshard_after_forward=reshard_after_forward)
    for name in _FORWARD_METHODS:
        if hasattr(module, name):
            register_fsdp_forward_method(module, name)
