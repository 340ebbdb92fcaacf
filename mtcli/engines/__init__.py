"""The engines there are; the only place that lists them."""

from pathlib import Path

from mtcli.config import Config
from mtcli.engines.base import Translation, Translator

__all__ = ["Translation", "Translator", "open_translator"]


def open_translator(directory: Path, *, device: str = "auto") -> tuple[Translator, Config]:
    """The translator of a model directory, and the configuration it was trained with."""
    from mtcli.checkpoint.weights import load_model
    from mtcli.engines.pytorch import TorchTranslator, choose_device

    loaded = load_model(directory, choose_device(device))
    max_pieces = loaded.config.data.max_length
    return TorchTranslator(loaded.model, loaded.tokenizers, max_pieces=max_pieces), loaded.config
