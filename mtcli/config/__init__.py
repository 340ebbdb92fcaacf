"""One YAML file becomes one frozen `Config`; all its mistakes are told at once."""

from mtcli.config.load import (
    HEAD,
    Setting,
    differences,
    leaves,
    load_config,
    overlaid,
    parse_override,
    to_yaml,
    validate,
)
from mtcli.config.sections import (
    Config,
    DataConfig,
    SearchConfig,
    TokenizerConfig,
    TrainConfig,
    TransformerConfig,
)

__all__ = [
    "HEAD",
    "Config",
    "DataConfig",
    "SearchConfig",
    "Setting",
    "TokenizerConfig",
    "TrainConfig",
    "TransformerConfig",
    "differences",
    "leaves",
    "load_config",
    "overlaid",
    "parse_override",
    "to_yaml",
    "validate",
]
