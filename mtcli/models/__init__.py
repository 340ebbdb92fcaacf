"""The architectures there are; the only place that lists them."""

from collections.abc import Callable
from typing import Any

from mtcli.config import ModelConfig
from mtcli.models.base import State, TrainableModel, TranslationModel, parameters_of
from mtcli.models.decoder_only import DecoderOnly
from mtcli.models.rnn import Rnn
from mtcli.models.transformer import Transformer

__all__ = [
    "ARCHITECTURES",
    "State",
    "TrainableModel",
    "TranslationModel",
    "build_model",
    "parameters_of",
]

ARCHITECTURES: dict[str, Callable[[Any, int, int], TrainableModel[Any]]] = {
    "transformer": Transformer,
    "decoder_only": DecoderOnly,
    "rnn": Rnn,
}


def build_model(config: ModelConfig, source_size: int, target_size: int) -> TrainableModel[Any]:
    """A new model of the architecture that `config` names, for vocabularies of these sizes."""
    return ARCHITECTURES[config.arch](config, source_size, target_size)
