"""One YAML file becomes one frozen `Config`; all its mistakes are told at once."""

from mtcli.config.architectures import (
    ARCHITECTURES,
    AttentionConfig,
    DecoderOnlyConfig,
    Maps,
    ModelConfig,
    RnnConfig,
    TransformerConfig,
)
from mtcli.config.load import (
    HEAD,
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
from mtcli.config.sections import (
    Config,
    DataConfig,
    SearchConfig,
    TokenizerConfig,
    TrainConfig,
)

__all__ = [
    "ARCHITECTURES",
    "HEAD",
    "AttentionConfig",
    "Config",
    "DataConfig",
    "DecoderOnlyConfig",
    "Maps",
    "ModelConfig",
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
