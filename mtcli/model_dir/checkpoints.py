"""Checkpoints: weights, optimizer state and progress of a run, one file per saved step.

A checkpoint does not contain the state of a random number generator, because each batch has its own
seed.

The format has no version number. If a file cannot be read, training treats it as damaged and falls
back to the previous checkpoint. Later versions of mtcli can read a checkpoint as long as the fields
of `Progress` keep their names and new fields have defaults. Earlier versions can read it only if
they know all of its fields.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.optim import Optimizer

from mtcli.data.batches import DataPosition
from mtcli.distributed import shard_like
from mtcli.errors import CheckpointError
from mtcli.model_dir.directory import checkpoint_paths
from mtcli.model_dir.integrity import checksum
from mtcli.model_dir.layout import CHECKPOINTS, INTERIM_CHECKPOINT
from mtcli.model_dir.weights import as_array, save_tensors
from mtcli.models.base import parameters_of

Tensors = Mapping[str, Tensor]
# Errors raised when reading a missing, damaged or incompatible file.
READ_ERRORS = (OSError, SafetensorError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class Progress:
    """Training progress without tensors. Field names are part of the checkpoint format."""

    data: str  # digest of the training pairs
    step: int = 0
    position: DataPosition = DataPosition()
    best_step: int = 0
    best_score: float | None = None  # by `train.metric`, negated if lower is better
    best_loss: float = 0.0  # breaks ties between equal scores
    best_bleu: float = 0.0
    signature: str = ""  # signature of best_bleu
    best_sets: Mapping[str, float] = field(default_factory=dict)  # BLEU per dev set, if several
    n_stale: int = 0  # number of validations since the best one
    kept: tuple[tuple[int, float], ...] = ()  # steps and scores of the weights to average
    log_size: int = 0  # size of log.jsonl at this step, in bytes
    loss: float | None = None  # moving average over the last steps
    lowest_loss: float | None = None  # minimum of `loss` so far
    factor: float = 1.0  # multiplies the learning rates; halved at each rollback
    n_rollbacks: int = 0
    most_positions: int | None = None  # maximum batch size that fits in memory; None: no limit
    scaler: Mapping[str, Any] = field(default_factory=dict)  # state of the float16 gradient scaler

    def to_json(self) -> str:
        """Return the progress as JSON."""
        values = asdict(self)
        if not self.best_sets:
            del values["best_sets"]
        return json.dumps(values)

    @staticmethod
    def from_json(text: str) -> "Progress":
        """Parse the output of `to_json`."""
        values = json.loads(text)
        kept = tuple((step, score) for step, score in values.pop("kept"))
        return Progress(**{**values, "position": DataPosition(**values["position"]), "kept": kept})


@dataclass(frozen=True)
class Checkpoint:
    """Contents of a checkpoint file."""

    path: Path
    progress: Progress
    tensors: Tensors  # empty except on rank 0

    def group(self, name: str) -> dict[str, Tensor]:
        """Return the tensors in group `name`: model, optimizer or average (moving average)."""
        return _select_prefix(name, self.tensors)


def snapshot(
    model: nn.Module, optimizers: list[Optimizer], average: Tensors | None
) -> dict[str, Tensor]:
    """Return all tensors needed to resume; with sharding, only this process's shards."""
    return {
        **_add_prefix("model", parameters_of(model)),
        **_add_prefix("optimizer", _optimizer_tensors(model, optimizers)),
        **_add_prefix("average", average or {}),
    }


def inference_weights(tensors: Tensors) -> dict[str, Tensor]:
    """Return the weights in a snapshot that validation and translation use.

    These are the moving average or, if there is none, the model weights.
    """
    return _select_prefix("average", tensors) or _select_prefix("model", tensors)


def save_checkpoint(directory: Path, tensors: Tensors, progress: Progress, *, keep: int) -> None:
    """Write a checkpoint after a validation; remove the interim one and all but the last `keep`."""
    path = directory / CHECKPOINTS / f"step-{progress.step:08d}.safetensors"
    save_with_checksum(path, tensors, progress.to_json())
    paths = checkpoint_paths(directory)
    i = paths.index(path)
    # Checkpoints from later steps exist only if they are damaged or the run was rolled back.
    outdated = [*paths[: max(0, i + 1 - keep)], *paths[i + 1 :]]
    remove_files([*outdated, directory / INTERIM_CHECKPOINT])


def save_interim_checkpoint(directory: Path, tensors: Tensors, progress: Progress) -> None:
    """Write a checkpoint between validations, replacing the previous interim checkpoint.

    Training can resume from it, but never rolls back to it after a divergence. An interim
    checkpoint is written every train.save_minutes minutes and when the user stops the run, and the
    result of a run must not depend on these times.
    """
    save_with_checksum(directory / INTERIM_CHECKPOINT, tensors, progress.to_json())


def load_checkpoint(
    directory: Path, notify: Callable[[str], None], *, validated: bool = False
) -> Checkpoint | None:
    """Return the latest readable checkpoint, or None; report damaged ones with `notify`.

    If `validated` is true, the interim checkpoint is ignored.
    """
    paths = checkpoint_paths(directory)
    if not validated and (directory / INTERIM_CHECKPOINT).exists():
        # The interim checkpoint is the newest: saving any other checkpoint removes it.
        paths.append(directory / INTERIM_CHECKPOINT)
    for path in reversed(paths):
        try:
            text, tensors = load_with_checksum(path)
            return Checkpoint(path, Progress.from_json(text), tensors)
        except READ_ERRORS as error:
            fallback = "; using the previous checkpoint" if path != paths[0] else ""
            notify(f"{path} is damaged ({error}){fallback}")
    return None


def save_with_checksum(path: Path, tensors: Tensors, text: str) -> None:
    """Write `tensors` and `text` to a file, with a checksum of both."""
    save_tensors(path, tensors, {"text": text, "checksum": _checksum(text, tensors)})


def load_with_checksum(path: Path) -> tuple[str, dict[str, Tensor]]:
    """Return the text and the tensors that `save_with_checksum` wrote.

    Raise one of `READ_ERRORS` if the file is damaged.
    """
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if _checksum(metadata["text"], tensors) != metadata["checksum"]:
        raise ValueError("its checksum is wrong")
    return metadata["text"], tensors


def restore_optimizers(
    model: nn.Module, optimizers: list[Optimizer], tensors: Iterable[tuple[str, Tensor]]
) -> None:
    """Replace the state of the optimizers with `tensors`."""
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
            raise CheckpointError(
                f"the checkpoint has optimizer state for {parameter_name}, "
                "which is not part of the model",
                hint="restore the settings of the run, or start over with --fresh",
            )
        parameter = parameters[parameter_name]
        state = value.to(parameter.device)
        if state.shape == parameter.shape:  # the step count is a scalar and is not sharded
            state = shard_like(state, like=parameter.detach())
        owners[parameter].state[parameter][key] = state


def weights_path(directory: Path, step: int) -> Path:
    """Return the path of the weights of `step` that are kept for averaging."""
    return directory / CHECKPOINTS / f"weights-{step:08d}.safetensors"


def unreferenced_weights(directory: Path) -> list[Path]:
    """Return the paths of kept weights that no checkpoint lists for averaging."""
    referenced = {
        weights_path(directory, step)
        for path in (*checkpoint_paths(directory), directory / INTERIM_CHECKPOINT)
        for step in steps_to_average(path)
    }
    paths = (directory / CHECKPOINTS).glob("weights-*.safetensors")
    return [path for path in paths if path not in referenced]


def steps_to_average(path: Path) -> list[int]:
    """Return the steps whose weights a checkpoint lists for averaging; [] if it is unreadable."""
    try:
        with safe_open(path, framework="pt") as file:
            kept = Progress.from_json((file.metadata() or {})["text"]).kept
    except READ_ERRORS:
        return []  # no run can resume from a damaged checkpoint
    return [step for step, _ in kept]


def remove_files(paths: Iterable[Path]) -> None:
    """Remove the files at `paths`; ignore missing files."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot remove {path}: {error.strerror}") from error


def _checksum(text: str, tensors: Tensors) -> str:
    return checksum(text, {name: as_array(tensor) for name, tensor in tensors.items()})


def _optimizer_tensors(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Tensor]:
    """Return the optimizer state by name; a name has the form "state key/parameter name"."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{key}/{names[parameter]}": value
        for optimizer in optimizers
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def _add_prefix(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _select_prefix(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    """Return the tensors whose names start with `prefix`, without the prefix."""
    start = f"{prefix}/"
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
