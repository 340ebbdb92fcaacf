"""Registry of architectures. `ModelSection` in config/sections.py lists their settings."""

from collections.abc import Callable
from typing import Any

from mtcli.config.base import ModelConfig
from mtcli.models.base import TrainableModel
from mtcli.models.decoder_only import DecoderOnly
from mtcli.models.rnn import Rnn
from mtcli.models.transformer import Transformer
from mtcli.tokenizer import DEFAULT_SPECIAL_IDS, SpecialIds

MODELS: dict[str, Callable[[Any, int, int], TrainableModel[Any]]] = {
    "transformer": Transformer,
    "decoder_only": DecoderOnly,
    "rnn": Rnn,
}


def build_model(
    config: ModelConfig,
    source_size: int,
    target_size: int,
    special: SpecialIds = DEFAULT_SPECIAL_IDS,
) -> TrainableModel[Any]:
    """Return a new model of architecture `config.arch` with vocabularies of the given sizes."""
    model = MODELS[config.arch](config, source_size, target_size)
    model.special = special
    return model
