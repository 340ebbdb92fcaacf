"""Save and load the weights of a model (model.safetensors), and average weights."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mtcli.config.sections import Config
from mtcli.distributed import shard_like
from mtcli.errors import COPY_AGAIN, CheckpointError
from mtcli.files import atomic_write
from mtcli.model_dir.directory import (
    CHECKSUMS,
    METADATA,
    WeightsInfo,
    alignment_heads,
    load_saved_config,
    weights_info,
)
from mtcli.model_dir.integrity import check_integrity, checksums
from mtcli.model_dir.layout import WEIGHTS
from mtcli.models import build_model
from mtcli.models.base import TrainableModel, parameters_of
from mtcli.tokenizer import Tokenizers, load_tokenizers


@dataclass(frozen=True)
class LoadedModel:
    """A model loaded from a model directory, with its configuration and tokenizers."""

    config: Config
    tokenizers: Tokenizers
    model: TrainableModel[Any]


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write `tensors` and `metadata` to a safetensors file."""
    with atomic_write(path) as temporary:
        try:
            save_file({k: v.cpu().contiguous() for k, v in tensors.items()}, temporary, metadata)
        except SafetensorError as error:  # raised, for example, if the disk is full
            raise OSError(str(error)) from error


def save_weights(directory: Path, weights: Mapping[str, Tensor], info: WeightsInfo) -> None:
    """Write model.safetensors with metadata and checksums."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    arrays = {name: as_array(tensor) for name, tensor in tensors.items()}
    metadata = info.to_metadata()
    metadata[CHECKSUMS] = checksums(directory, metadata, arrays)
    save_tensors(directory / WEIGHTS, tensors, {METADATA: json.dumps(metadata)})


def load_weights(directory: Path) -> dict[str, Tensor]:
    """Return the weights of a model directory; raise `CheckpointError` if they are damaged."""
    weights_info(directory)  # raises an error if the file is missing or damaged
    tensors: dict[str, Tensor] = load_file(directory / WEIGHTS)
    check_integrity(directory, {name: as_array(tensor) for name, tensor in tensors.items()})
    return tensors


def as_array(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor as a contiguous array on the CPU."""
    return tensor.detach().cpu().contiguous().numpy()


def load_model(directory: Path, device: torch.device) -> LoadedModel:
    """Load the model from a directory onto `device`, in evaluation mode."""
    config = load_saved_config(directory)
    tokenizers = load_tokenizers(directory)
    weights = load_weights(directory)
    model = build_model(
        config.model, len(tokenizers.source), len(tokenizers.target), tokenizers.special
    )
    load_into(model, weights.items(), origin=directory / WEIGHTS)
    if not all(parameter.isfinite().all() for parameter in model.parameters()):
        path = directory / WEIGHTS
        raise CheckpointError(
            f"{path} is damaged: some weights are NaN or infinite", hint=COPY_AGAIN
        )
    model.alignment_heads = alignment_heads(directory, config.model)
    return LoadedModel(config, tokenizers, model.to(device).eval())


def load_into(model: nn.Module, tensors: Iterable[tuple[str, Tensor]], *, origin: Path) -> None:
    """Copy `tensors` into `model`; raise one `CheckpointError` that lists all mismatches."""
    missing = parameters_of(model)
    problems = []
    for name, tensor in tensors:
        parameter = missing.pop(name, None)
        if parameter is None:
            problems.append(f"{name} is not part of the model")
        elif parameter.shape != tensor.shape:
            shapes = f"{list(tensor.shape)}, expected {list(parameter.shape)}"
            problems.append(f"{name} has shape {shapes}")
        else:
            parameter.copy_(shard_like(tensor, like=parameter))
    problems += [f"{name} is missing" for name in missing]
    if problems:
        lines = "".join(f"\n  {problem}" for problem in sorted(problems))
        raise CheckpointError(f"{origin} does not match the model in its config.yaml:{lines}")


def average_weights(models: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each parameter over `models`, summed in double precision."""
    n = len(models)
    return {
        name: (sum(weights[name].double() for weights in models) / n).to(first.dtype)  # type: ignore[union-attr]
        for name, first in models[0].items()
    }
