"""What resuming needs: weights, optimizers and progress, in one file per step.

No state of a random generator is among it: every batch brings a seed of its own.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.optim import Optimizer

from mtcli.checkpoint.directory import CHECKPOINTS, PAUSE, checkpoint_paths
from mtcli.checkpoint.integrity import checksum
from mtcli.checkpoint.weights import as_array, save_tensors
from mtcli.distributed import placed
from mtcli.errors import CheckpointError
from mtcli.feed import Position
from mtcli.models import parameters_of

Tensors = Mapping[str, Tensor]
DAMAGE = (OSError, SafetensorError, KeyError, TypeError, ValueError)  # what it shows by


@dataclass(frozen=True)
class Progress:
    """How far a run has come, apart from its tensors."""

    data: str  # fingerprint of the pairs it learns from
    step: int = 0
    position: Position = Position()
    best_step: int = 0
    best_score: float | None = None  # in the metric of the run, the higher the better
    best_loss: float = 0.0  # which decides between equal scores
    best_bleu: float = 0.0
    signature: str = ""  # of that BLEU
    n_stale: int = 0  # validations since the best one
    kept: tuple[tuple[int, float], ...] = ()  # steps and scores of the weights to be averaged
    log_size: int = 0  # bytes of log.jsonl that tell of it
    loss: float | None = None  # smoothed over the last steps
    lowest_loss: float | None = None  # that it has been
    factor: float = 1.0  # of the learning rates; halved when training has diverged
    n_rollbacks: int = 0
    most_positions: int | None = None  # of a batch that fits into memory, if larger ones did not
    scaler: Mapping[str, Any] = field(default_factory=dict)  # of float16 gradients

    def to_json(self) -> str:
        """The progress as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Progress":
        """The progress that `to_json` wrote."""
        facts = json.loads(text)
        kept = tuple((step, score) for step, score in facts.pop("kept"))
        return Progress(**{**facts, "position": Position(**facts["position"]), "kept": kept})


@dataclass(frozen=True)
class Checkpoint:
    """One file of `checkpoints/`, as it was read."""

    path: Path
    progress: Progress
    tensors: Tensors  # of several processes the first one has them

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors of the `model`, of its `optimizer`, or of the moving `average`."""
        return _without(name, self.tensors)


def snapshot(
    model: nn.Module, optimizers: list[Optimizer], average: Tensors | None
) -> dict[str, Tensor]:
    """Every tensor that resuming needs, or what this process holds of it."""
    return {
        **_prefixed("model", parameters_of(model)),
        **_prefixed("optimizer", _optimizer_tensors(model, optimizers)),
        **_prefixed("average", average or {}),
    }


def validated_weights(tensors: Tensors) -> dict[str, Tensor]:
    """Of a snapshot the weights that are validated and kept: the moving average if there is one."""
    return _without("average", tensors) or _without("model", tensors)


def save_checkpoint(directory: Path, tensors: Tensors, progress: Progress, *, keep: int) -> None:
    """Write the checkpoint of a validation; when it is safe, remove all but the last `keep`."""
    path = directory / CHECKPOINTS / f"step-{progress.step:08d}.safetensors"
    save_checked(path, tensors, progress.to_json())
    paths = checkpoint_paths(directory)
    at = paths.index(path)
    # What stands for a later step was damaged, or the run has been taken back from there.
    remove_files([*paths[: max(0, at + 1 - keep)], *paths[at + 1 :], directory / PAUSE])


def save_pause(directory: Path, tensors: Tensors, progress: Progress) -> None:
    """Write a checkpoint between validations, in the place of the last one of this kind.

    When training diverges it does not go back to these: they come when a clock or a user wants.
    """
    save_checked(directory / PAUSE, tensors, progress.to_json())


def load_checkpoint(
    directory: Path, notify: Callable[[str], None], *, validated: bool = False
) -> Checkpoint | None:
    """The latest checkpoint that is whole, or None; a damaged one is named and passed over.

    `validated` ones only, if asked for.
    """
    paths = checkpoint_paths(directory)
    if not validated and (directory / PAUSE).exists():
        paths.append(directory / PAUSE)  # newer than all others, for these remove it
    for path in reversed(paths):
        try:
            text, tensors = load_checked(path)
            return Checkpoint(path, Progress.from_json(text), tensors)
        except DAMAGE as error:
            then = "; going back to the one before it" if path != paths[0] else ""
            notify(f"{path} is damaged ({error}){then}")
    return None


def save_checked(path: Path, tensors: Tensors, text: str) -> None:
    """Write tensors and a text, with a checksum of all."""
    save_tensors(path, tensors, {"text": text, "checksum": _checksum(text, tensors)})


def load_checked(path: Path) -> tuple[str, dict[str, Tensor]]:
    """What `save_checked` has written; one of `DAMAGE` is raised if it is no longer that."""
    with safe_open(path, framework="pt") as file:
        facts = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if _checksum(facts["text"], tensors) != facts["checksum"]:
        raise ValueError("its checksum is wrong")
    return facts["text"], tensors


def restore_optimizers(
    model: nn.Module, optimizers: list[Optimizer], tensors: Iterable[tuple[str, Tensor]]
) -> None:
    """Let the optimizers remember `tensors`, and nothing else."""
    parameters = dict(model.named_parameters())
    owners = {
        parameter: optimizer
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for optimizer in optimizers:
        optimizer.state.clear()
    for name, value in tensors:
        key, _, parameter_name = name.partition("/")
        if parameter_name not in parameters:
            raise CheckpointError(f"the optimizer remembers {parameter_name}, which is not there")
        parameter = parameters[parameter_name]
        memory = value.to(parameter.device)
        if memory.shape == parameter.shape:  # the number of steps is a single number
            memory = placed(memory, like=parameter.detach())
        owners[parameter].state[parameter][key] = memory


def weights_path(directory: Path, step: int) -> Path:
    """Where the validated weights of `step` are kept until they are averaged."""
    return directory / CHECKPOINTS / f"weights-{step:08d}.safetensors"


def unneeded_weights(directory: Path) -> list[Path]:
    """Validated weights that no checkpoint counts among those to be averaged."""
    needed = {
        weights_path(directory, step)
        for path in (*checkpoint_paths(directory), directory / PAUSE)
        for step in kept_steps(path)
    }
    paths = (directory / CHECKPOINTS).glob("weights-*.safetensors")
    return [path for path in paths if path not in needed]


def kept_steps(path: Path) -> list[int]:
    """The steps whose weights the checkpoint in `path` counts among those to be averaged."""
    try:
        with safe_open(path, framework="pt") as file:
            kept = Progress.from_json((file.metadata() or {})["text"]).kept
    except DAMAGE:
        return []  # it is damaged, and nobody will go on from it
    return [step for step, _ in kept]


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files that are no longer needed."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot remove {path}: {error.strerror}") from error


def _checksum(text: str, tensors: Tensors) -> str:
    """Return the checksum of everything in a checkpoint."""
    return checksum(text, {name: as_array(tensor) for name, tensor in tensors.items()})


def _optimizer_tensors(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Tensor]:
    """Everything the optimizers remember, under "quantity/parameter"."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{key}/{names[parameter]}": value
        for optimizer in optimizers
        for parameter, memory in optimizer.state.items()
        for key, value in memory.items()
    }


def _prefixed(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _without(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    start = f"{prefix}/"
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
