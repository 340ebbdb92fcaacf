"""Which optimizer updates which parameters."""

from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.optim import AdamW, Optimizer

from mtcli.config import TrainConfig
from mtcli.distributed import ALONE, Processes
from mtcli.errors import ConfigError
from mtcli.models import TrainableModel
from mtcli.optim.muon import Muon


def freeze(model: nn.Module, patterns: tuple[str, ...]) -> None:
    """Let the parameters whose names match stay as they are."""
    names = [name for name, _ in model.named_parameters()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            parts = ", ".join(sorted({name.partition(".")[0] for name in names}))
            raise ConfigError(
                f"train.freeze: {pattern} matches no parameter of this model",
                hint=f"their names begin with {parts}",
            )
    for name, parameter in model.named_parameters():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)
    if all(not parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("train.freeze leaves nothing to learn")


def build_optimizers(
    model: TrainableModel[Any], options: TrainConfig, processes: Processes = ALONE
) -> list[Optimizer]:
    """The optimizers that together update every parameter of `model` that is not frozen.

    Each of their groups knows its highest learning rate.
    """
    matrices, others = split_parameters(model)
    adamw_groups: list[dict[str, Any]] = []
    if others:
        adamw_groups.append({"params": others, "weight_decay": 0.0})
    optimizers: list[Optimizer] = []
    if options.optimizer == "muon" and matrices:
        muon = Muon(
            matrices,
            options.matrix_learning_rate,
            weight_decay=options.weight_decay,
            processes=processes,
        )
        optimizers.append(muon)
    elif matrices:
        adamw_groups.append({"params": matrices, "weight_decay": options.weight_decay})
    if adamw_groups:
        rate, betas = options.learning_rate, options.betas
        optimizers.append(AdamW(adamw_groups, lr=rate, betas=betas, eps=1e-9, fused=True))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def split_parameters(
    model: TrainableModel[Any],
) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The matrices between hidden layers, and all other parameters; frozen ones are neither.

    Rows of an embedding or of the output belong to single pieces and get gradients of their own;
    making such a matrix orthogonal would move the rare pieces as far as the frequent ones. (Vectors
    of distances are no such rows: every distance occurs in every batch.)
    """
    of_pieces = {
        id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)
    }
    of_pieces.add(id(model.output_weight))
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        is_hidden = parameter.ndim == 2 and id(parameter) not in of_pieces
        (matrices if is_hidden else others).append(parameter)
    return matrices, others
