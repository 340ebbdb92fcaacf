"""Finished model from version 0.1.0 that translates the tiny corpus without errors."""

import shutil
from pathlib import Path

import torch

from conftest import tiny_pairs
from mtcli import Translator
from mtcli.config.search import EngineOptions
from mtcli.model_dir.directory import weights_info
from mtcli.model_dir.weights import load_model, save_weights
from mtcli.models.base import parameters_of

OLD_MODEL = Path(__file__).parent / "data" / "version-0.1.0"
TORCH = EngineOptions(engine="torch", device="cpu")
# Use float32 because int8 rounding differs between CPUs.
CT2 = EngineOptions(engine="ctranslate2", device="cpu", quantization="float32")
LINES, TRANSLATIONS = zip(*tiny_pairs()[::7], strict=True)


def old_model(directory: Path) -> Path:
    """Copy the model, including the modification times of its files."""
    return shutil.copytree(OLD_MODEL, directory)


def new_model(directory: Path) -> Path:
    """Copy the model, save it with the current version and remove its export."""
    old_model(directory)
    shutil.rmtree(directory / "ctranslate2")
    weights = parameters_of(load_model(directory, torch.device("cpu")).model)
    save_weights(directory, weights, weights_info(directory))
    return directory


def translates(model: Path, engine: EngineOptions = CT2) -> bool:
    """Return whether the model translates all lines correctly."""
    return Translator(model, engine=engine).translate(LINES) == list(TRANSLATIONS)
