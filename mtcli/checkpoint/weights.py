"""The weights to translate with: from a model to model.safetensors and back."""

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

from mtcli.checkpoint.directory import (
    CHECKSUMS,
    METADATA,
    WEIGHTS,
    WeightsInfo,
    load_saved_config,
    weights_info,
)
from mtcli.checkpoint.files import replacing
from mtcli.checkpoint.integrity import check_integrity, checksums
from mtcli.config import Config
from mtcli.distributed import placed
from mtcli.errors import COPY_AGAIN, CheckpointError
from mtcli.models import TrainableModel, build_model, parameters_of
from mtcli.tokenizer import Tokenizers, load_tokenizers


@dataclass(frozen=True)
class LoadedModel:
    """A model directory in memory."""

    config: Config
    tokenizers: Tokenizers
    model: TrainableModel[Any]


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors and metadata as one safetensors file."""
    with replacing(path) as temporary:
        try:
            save_file({k: v.cpu().contiguous() for k, v in tensors.items()}, temporary, metadata)
        except SafetensorError as error:  # raised for a full disk, for instance
            raise OSError(str(error)) from error


def save_weights(directory: Path, weights: Mapping[str, Tensor], info: WeightsInfo) -> None:
    """Write the weights that the directory translates with from now on."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    arrays = {name: as_array(tensor) for name, tensor in tensors.items()}
    facts = info.facts()
    facts[CHECKSUMS] = checksums(directory, facts, arrays)
    save_tensors(directory / WEIGHTS, tensors, {METADATA: json.dumps(facts)})


def load_weights(directory: Path) -> dict[str, Tensor]:
    """Return the weights of a model directory; raise `CheckpointError` if they have changed."""
    weights_info(directory)  # names what is missing or damaged
    tensors: dict[str, Tensor] = load_file(directory / WEIGHTS)
    check_integrity(directory, {name: as_array(tensor) for name, tensor in tensors.items()})
    return tensors


def as_array(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor as an array, to compute its checksum."""
    return tensor.detach().cpu().contiguous().numpy()


def load_model(directory: Path, device: torch.device) -> LoadedModel:
    """Return the model of a directory, ready to translate."""
    config = load_saved_config(directory)
    tokenizers = load_tokenizers(directory)
    weights = load_weights(directory)
    model = build_model(config.model, len(tokenizers.source), len(tokenizers.target))
    load_into(model, weights.items(), origin=directory / WEIGHTS)
    if not all(parameter.isfinite().all() for parameter in model.parameters()):
        path = directory / WEIGHTS
        raise CheckpointError(
            f"{path} is damaged: not all of its weights are numbers", hint=COPY_AGAIN
        )
    return LoadedModel(config, tokenizers, model.to(device).eval())


def load_into(model: nn.Module, tensors: Iterable[tuple[str, Tensor]], *, origin: Path) -> None:
    """Copy `tensors` into `model`, one by one; all that does not match is told together."""
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
            parameter.copy_(placed(tensor, like=parameter))
    problems += [f"{name} is missing" for name in missing]
    if problems:
        lines = "".join(f"\n  {problem}" for problem in sorted(problems))
        raise CheckpointError(f"{origin} does not fit the model of its config.yaml:{lines}")


def mean_of(models: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of the same parameters of several models, summed in double precision."""
    n = len(models)
    first = models[0]
    return {
        name: (sum(weights[name].double() for weights in models) / n).to(value.dtype)  # type: ignore[union-attr]
        for name, value in first.items()
    }
