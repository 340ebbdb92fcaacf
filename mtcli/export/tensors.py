"""The weights of a model by name, and such as compute the same with fewer kinds of parts.

CTranslate2 has no residuals that are weighed, and copies keys that serve several heads of queries.
Both can be written as weights of a model that has neither.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mtcli.config import AttentionConfig, DecoderOnlyConfig, TransformerConfig
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


@dataclass(frozen=True)
class Layers:
    """A stack of layers: under which names its weights are saved, and how many there are."""

    name: str
    n: int
    positions: str
    norm: str
    scale: float  # how much the sum so far counts in the residuals (DeepNorm)


def encoder_and_decoder(config: TransformerConfig) -> tuple[Layers, Layers]:
    """The two stacks of a transformer."""
    n, m = config.n_encoder_layers, config.n_decoder_layers
    encoder, decoder = config.residual_scales
    return (
        Layers("encoder", n, "source_positions", "encoder_norm", encoder),
        Layers("decoder", m, "target_positions", "decoder_norm", decoder),
    )


def only_layers(config: DecoderOnlyConfig) -> Layers:
    """The one stack of a decoder-only transformer."""
    return Layers("layers", config.n_layers, "positions", "norm", config.residual_scale)


def with_plain_residuals(
    weights: Mapping[str, Array], stacks: Iterable[Layers]
) -> Mapping[str, Array]:
    """The weights of a model that adds residuals as they are, if its embeddings are scaled.

    A norm gives the scaled sum at once, and the maps that read it divide by the scale again. Only
    the last norm of a stack stays as it is.
    """
    factors: dict[str, float] = {}
    for stack in (stack for stack in stacks if stack.scale != 1.0):
        for layer in (f"{stack.name}.{i}" for i in range(stack.n)):
            factors |= {f"{layer}.{name}.weight": 1 / stack.scale for name in _READERS}
            factors |= {f"{layer}.{name}": stack.scale for name in _NORMS}
        for name in _NORMS[-2:]:
            del factors[f"{stack.name}.{stack.n - 1}.{name}"]
    return {
        name: weight * np.float32(factors[name]) if name in factors else weight
        for name, weight in weights.items()
    }


def with_as_many_keys(weights: Mapping[str, Array], config: AttentionConfig) -> Mapping[str, Array]:
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
