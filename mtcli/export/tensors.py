"""The weights of a model by name, and such as compute the same with fewer kinds of parts.

CTranslate2 has no residuals that are weighed, and copies keys that serve several heads of queries.
Both can be written as weights of a model that has neither.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mtcli.config import TransformerConfig
from mtcli.errors import CheckpointError

Array = NDArray[np.float32]

_READERS = (  # the maps that read the sum of the residuals
    "self_attention.to_queries",
    "self_attention.to_keys",
    "self_attention.to_values",
    "cross_attention.to_queries",  # its keys and values are those of the encoder's output
    "feed_forward.to_inner",
    "feed_forward.to_gate",
)
_NORMS = tuple(
    f"{part}_residual.norm.{kind}"
    for part in ("self", "cross", "feed_forward")
    for kind in ("weight", "bias")
)


@dataclass(frozen=True)
class Tensors:
    """The weights under a common prefix; what nobody asks for does not belong to the model."""

    weights: Mapping[str, Array]
    prefix: str = ""
    used: set[str] = field(default_factory=set)  # shared by all parts

    def part(self, name: str) -> "Tensors":
        """Those of a layer."""
        return Tensors(self.weights, f"{self.prefix}{name}.", self.used)

    def get(self, name: str) -> Array | None:
        """One of them, if it is there."""
        self.used.add(self.prefix + name)
        return self.weights.get(self.prefix + name)

    def __getitem__(self, name: str) -> Array:
        tensor = self.get(name)
        if tensor is None:
            raise CheckpointError(f"the weights lack {self.prefix + name}, which config.yaml needs")
        return tensor

    def check_all_used(self) -> None:
        """Refuse weights that the model of config.yaml does not have."""
        if others := sorted(self.weights.keys() - self.used):
            names = "".join(f"\n  {name}" for name in others)
            raise CheckpointError(f"the weights do not fit the model of config.yaml:{names}")


def residual_scales(config: TransformerConfig) -> tuple[float, float]:
    """How much the sum so far counts in the residuals of encoder and decoder (DeepNorm)."""
    if not config.deep_norm:
        return 1.0, 1.0
    n, m = config.n_encoder_layers, config.n_decoder_layers
    return 0.81 * (n**4 * m) ** (1 / 16), (3 * m) ** 0.25


def with_plain_residuals(
    weights: Mapping[str, Array], config: TransformerConfig
) -> Mapping[str, Array]:
    """The weights of a model that adds residuals as they are, if its embeddings are scaled.

    A norm gives the scaled sum at once, and the maps that read it divide by the scale again. Only
    the last norm of a stack stays as it is.
    """
    if not config.deep_norm:
        return weights
    factors: dict[str, float] = {}
    stacks = ("encoder", config.n_encoder_layers), ("decoder", config.n_decoder_layers)
    for (stack, n_layers), scale in zip(stacks, residual_scales(config), strict=True):
        for layer in (f"{stack}.{i}" for i in range(n_layers)):
            factors |= {f"{layer}.{name}.weight": 1 / scale for name in _READERS}
            factors |= {f"{layer}.{name}": scale for name in _NORMS}
        for name in _NORMS[-2:]:
            del factors[f"{stack}.{n_layers - 1}.{name}"]
    return {
        name: weight * np.float32(factors[name]) if name in factors else weight
        for name, weight in weights.items()
    }


def with_as_many_keys(
    weights: Mapping[str, Array], config: TransformerConfig
) -> Mapping[str, Array]:
    """The weights of a model in which each head of queries has keys and values of its own."""
    n_served = config.d_model // config.d_keys
    maps = tuple(f"to_{what}.{kind}" for what in ("keys", "values") for kind in ("weight", "bias"))

    def repeated(weight: Array) -> Array:
        if len(weight) != config.d_keys:
            raise CheckpointError(
                f"the weights do not fit the model of config.yaml: keys and values are "
                f"{len(weight)} wide, not {config.d_keys}"
            )
        heads = weight.reshape(-1, config.d_head, *weight.shape[1:])
        return heads.repeat(n_served, axis=0).reshape(-1, *weight.shape[1:])

    return {
        name: repeated(weight) if name.endswith(maps) else weight
        for name, weight in weights.items()
    }
