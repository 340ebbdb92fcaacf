"""A finished model of version 0.1.0, which translates the tiny corpus without a mistake."""

import shutil
from pathlib import Path

import torch

from conftest import tiny_pairs
from mtcli import Translator
from mtcli.checkpoint.directory import weights_info
from mtcli.checkpoint.weights import load_model, save_weights
from mtcli.models import parameters_of
from mtcli.options import EngineOptions

OLD_MODEL = Path(__file__).parent / "data" / "version-0.1.0"
TORCH = EngineOptions(engine="torch", device="cpu")
# float32, because int8 is not equally exact on all CPUs.
CT2 = EngineOptions(engine="ctranslate2", device="cpu", quantization="float32")
LINES, TRANSLATIONS = zip(*tiny_pairs()[::7], strict=True)


def old_model(directory: Path) -> Path:
    """Copy the model, with the times of its files."""
    return shutil.copytree(OLD_MODEL, directory)


def new_model(directory: Path) -> Path:
    """Copy the model, saved again by this version and without an export."""
    old_model(directory)
    shutil.rmtree(directory / "ctranslate2")
    weights = parameters_of(load_model(directory, torch.device("cpu")).model)
    save_weights(directory, weights, weights_info(directory))
    return directory


def translates(model: Path, engine: EngineOptions = CT2) -> bool:
    """Return whether the model translates as it was trained to."""
    return Translator(model, engine=engine).translate(LINES) == list(TRANSLATIONS)
