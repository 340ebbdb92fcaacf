"""One YAML file becomes one frozen `Config`; all its mistakes are told at once."""

from mtcli.config.architectures import ARCHITECTURES
from mtcli.config.load import (
    HEAD,
    YAML_ERRORS,
    GivenSetting,
    Setting,
    check_each,
    differences,
    flat,
    load_config,
    overlaid,
    parse_override,
    to_yaml,
    validate,
    yaml_mistake,
)
from mtcli.config.model import Maps, ModelConfig
from mtcli.config.rnn import RnnConfig
from mtcli.config.sections import (
    Config,
    DataConfig,
    SearchConfig,
    TokenizerConfig,
    TrainConfig,
)
from mtcli.config.transformers import (
    NORM_EPSILON,
    AttentionConfig,
    DecoderOnlyConfig,
    TransformerConfig,
)

__all__ = [
    "ARCHITECTURES",
    "HEAD",
    "YAML_ERRORS",
    "AttentionConfig",
    "Config",
    "DataConfig",
    "DecoderOnlyConfig",
    "GivenSetting",
    "Maps",
    "ModelConfig",
    "NORM_EPSILON",
    "RnnConfig",
    "SearchConfig",
    "Setting",
    "TokenizerConfig",
    "TrainConfig",
    "TransformerConfig",
    "check_each",
    "differences",
    "flat",
    "load_config",
    "overlaid",
    "parse_override",
    "to_yaml",
    "validate",
    "yaml_mistake",
]
