"""Models larger than a device: every process holds its share of each part (FSDP2)."""

from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from mtcli.training.learner import Objective

_OTHER_ENTRANCES = ("key_values",)  # methods besides `forward` by which parts of layers are used


def shard(objective: Objective) -> None:
    """Share out the parts of all layers, and then what is left; they come together when used."""
    for stack in objective.model.children():
        if isinstance(stack, nn.ModuleList):
            for layer in stack:
                for part in layer.children():
                    _shard_part(part)
    fully_shard(objective)


def is_sharded(model: nn.Module) -> bool:
    """Whether processes share the parts of `model`."""
    return any(isinstance(module, FSDPModule) for module in model.modules())


def _shard_part(part: nn.Module) -> None:
    if not any(isinstance(module, nn.Linear) for module in part.modules()):
        return  # norms are small
    fully_shard(part)
    for name in _OTHER_ENTRANCES:
        if hasattr(part, name):
            register_fsdp_forward_method(part, name)
