"""The architectures there are, told apart by `arch`: one line for each of them."""

from typing import Annotated, Any, get_args

from pydantic import Discriminator, Tag

from mtcli.config.model import ModelConfig
from mtcli.config.rnn import RnnConfig
from mtcli.config.transformers import DecoderOnlyConfig, TransformerConfig


def _arch_of(value: Any) -> Any:
    if isinstance(value, dict):
        return str(value.get("arch", "transformer"))
    return getattr(value, "arch", None)


ModelSection = Annotated[
    Annotated[TransformerConfig, Tag("transformer")]
    | Annotated[DecoderOnlyConfig, Tag("decoder_only")]
    | Annotated[RnnConfig, Tag("rnn")],
    Discriminator(_arch_of),
]

ARCHITECTURES: dict[str, type[ModelConfig]] = {
    get_args(section)[1].tag: get_args(section)[0]
    for section in get_args(get_args(ModelSection)[0])
}
