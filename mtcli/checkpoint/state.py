"""What resuming needs: weights, optimizers, random states and progress, in one file per step."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.optim import Optimizer

from mtcli.checkpoint.directory import CHECKPOINTS, checkpoint_paths
from mtcli.checkpoint.weights import load_into, parameters_of, save_tensors
from mtcli.data import Position
from mtcli.errors import CheckpointError


@dataclass(frozen=True)
class Progress:
    """How far a run has come, apart from its tensors."""

    data: str  # fingerprint of the pairs it learns from
    step: int = 0
    position: Position = Position()
    best_step: int = 0
    best_bleu: float = -1.0
    signature: str = ""  # of that BLEU
    n_stale: int = 0  # validations since the best one
    log_size: int = 0  # bytes of log.jsonl that tell of it

    def to_json(self) -> str:
        """The progress as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Progress":
        """The progress that `to_json` wrote."""
        facts = json.loads(text)
        return Progress(**{**facts, "position": Position(**facts["position"])})


@dataclass(frozen=True)
class Checkpoint:
    """One file of `checkpoints/`, as it was read."""

    path: Path
    progress: Progress
    tensors: dict[str, Tensor]


def save_checkpoint(
    directory: Path,
    model: nn.Module,
    optimizers: list[Optimizer],
    progress: Progress,
    *,
    keep: int,
) -> None:
    """Write a checkpoint; when it is safe, remove all but the last `keep`."""
    path = directory / CHECKPOINTS / f"step-{progress.step:08d}.safetensors"
    tensors = {
        **_prefixed("model", parameters_of(model)),
        **_prefixed("optimizer", _optimizer_tensors(model, optimizers)),
        **_prefixed("random", _random_tensors(_device_of(model))),
    }
    save_tensors(path, tensors, {"progress": progress.to_json()})
    for old in checkpoint_paths(directory)[:-keep]:
        old.unlink()


def load_checkpoint(directory: Path, notify: Callable[[str], None]) -> Checkpoint | None:
    """The latest checkpoint that can be read, or None; a damaged one is named and passed over."""
    for path in reversed(checkpoint_paths(directory)):
        try:
            with safe_open(path, framework="pt") as file:
                progress = Progress.from_json((file.metadata() or {})["progress"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            notify(f"{path} is damaged ({error}); going back to the one before it")
            continue
        return Checkpoint(path, progress, tensors)
    return None


def restore(checkpoint: Checkpoint, model: nn.Module, optimizers: list[Optimizer]) -> None:
    """Put model, optimizers and random states back to where the checkpoint was written."""
    load_into(model, _without("model", checkpoint.tensors), origin=checkpoint.path)
    _restore_optimizers(model, optimizers, _without("optimizer", checkpoint.tensors))
    _restore_random(_without("random", checkpoint.tensors), _device_of(model))


def _device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _random_tensors(device: torch.device) -> dict[str, Tensor]:
    """The states of all generators that training draws from: dropout draws on the device."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def _restore_random(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    if device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])


def _optimizer_tensors(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Tensor]:
    """Everything the optimizers remember, under "quantity/parameter"."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{key}/{names[parameter]}": value
        for optimizer in optimizers
        for parameter, memory in optimizer.state.items()
        for key, value in memory.items()
    }


def _restore_optimizers(
    model: nn.Module, optimizers: list[Optimizer], tensors: dict[str, Tensor]
) -> None:
    parameters = dict(model.named_parameters())
    owners = {
        parameter: optimizer
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for name, value in tensors.items():
        key, _, parameter_name = name.partition("/")
        if parameter_name not in parameters:
            raise CheckpointError(f"the optimizer remembers {parameter_name}, which is not there")
        parameter = parameters[parameter_name]
        owners[parameter].state[parameter][key] = value.to(parameter.device)


def _prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _without(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}/"
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
