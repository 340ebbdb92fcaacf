"""Access to weights by name, and conversion of weights for layers that CTranslate2 supports.

CTranslate2 has no scaled residual connections, and the exported specifications do not use
grouped-query attention. For models with these features, this module computes equivalent weights
that do not need them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mtcli.config.alignment import AlignmentHeads
from mtcli.config.transformers import AttentionConfig, DecoderOnlyConfig, TransformerConfig
from mtcli.errors import COPY_AGAIN, CheckpointError

Array = NDArray[np.float32]

_RESIDUAL_READERS = (  # linear layers whose input is the residual stream
    "self_attention.to_queries",
    "self_attention.to_keys",
    "self_attention.to_values",
    "cross_attention.to_queries",  # keys and values read the encoder output instead
    "feed_forward.to_inner",
    "feed_forward.to_gate",
)
_NORMS = tuple(
    f"{sublayer}_residual.norm.{kind}"
    for sublayer in ("self", "cross", "feed_forward")
    for kind in ("weight", "bias")
)


@dataclass(frozen=True)
class Tensors:
    """Weights with a common prefix. Tracks which weights were read, to find unused ones."""

    weights: Mapping[str, Array]
    prefix: str = ""
    used: set[str] = field(default_factory=set)  # shared by all scopes

    def scope(self, name: str) -> "Tensors":
        """Return the weights of the module `name`."""
        return Tensors(self.weights, f"{self.prefix}{name}.", self.used)

    def get(self, name: str) -> Array | None:
        """Return a weight, or None if it does not exist."""
        self.used.add(self.prefix + name)
        return self.weights.get(self.prefix + name)

    def __getitem__(self, name: str) -> Array:
        tensor = self.get(name)
        if tensor is None:
            missing = f"{self.prefix}{name} is missing"
            raise CheckpointError(
                f"the weights do not match the model in config.yaml: {missing}", hint=COPY_AGAIN
            )
        return tensor

    def check_all_used(self) -> None:
        """Raise `CheckpointError` if a weight is not part of the model in config.yaml."""
        if others := sorted(self.weights.keys() - self.used):
            lines = "".join(f"\n  {name} is not part of the model" for name in others)
            raise CheckpointError(
                f"the weights do not match the model in config.yaml:{lines}", hint=COPY_AGAIN
            )


@dataclass(frozen=True)
class LayerStack:
    """A stack of layers: their number, the names of their weights, and the residual scale."""

    name: str
    n: int
    positions: str
    norm: str
    scale: float  # factor applied to the skip connections (alpha in DeepNorm)


def encoder_decoder_stacks(config: TransformerConfig) -> tuple[LayerStack, LayerStack]:
    """Return the encoder and the decoder of a transformer."""
    n, m = config.n_encoder_layers, config.n_decoder_layers
    encoder, decoder = config.residual_scales
    return (
        LayerStack("encoder", n, "source_positions", "encoder_norm", encoder),
        LayerStack("decoder", m, "target_positions", "decoder_norm", decoder),
    )


def decoder_only_stack(config: DecoderOnlyConfig) -> LayerStack:
    """Return the layer stack of a decoder-only transformer."""
    return LayerStack("layers", config.n_layers, "positions", "norm", config.residual_scale)


def fold_residual_scales(
    weights: Mapping[str, Array], stacks: Iterable[LayerStack]
) -> Mapping[str, Array]:
    """Return equivalent weights for a model without residual scales.

    Each norm outputs the scaled sum, and the linear layers that read the sum divide by the scale.
    Only the last norm of a stack stays unchanged. The caller must scale the embeddings.
    """
    factors: dict[str, float] = {}
    for stack in (stack for stack in stacks if stack.scale != 1.0):
        for layer in (f"{stack.name}.{i}" for i in range(stack.n)):
            factors |= {f"{layer}.{name}.weight": 1 / stack.scale for name in _RESIDUAL_READERS}
            factors |= {f"{layer}.{name}": stack.scale for name in _NORMS}
        for name in _NORMS[-2:]:
            del factors[f"{stack.name}.{stack.n - 1}.{name}"]
    return {
        name: weight * np.float32(factors[name]) if name in factors else weight
        for name, weight in weights.items()
    }


def repeat_key_value_heads(
    weights: Mapping[str, Array], config: AttentionConfig
) -> Mapping[str, Array]:
    """Return equivalent weights for a model with as many key-value heads as query heads."""
    n_queries_per_key = config.d_model // config.d_keys
    repeated_names = tuple(
        f"to_{kind}.{part}" for kind in ("keys", "values") for part in ("weight", "bias")
    )

    def repeat(weight: Array) -> Array:
        if len(weight) != config.d_keys:
            raise CheckpointError(
                f"the weights do not match the model in config.yaml: keys and values have width "
                f"{len(weight)}, expected {config.d_keys}",
                hint=COPY_AGAIN,
            )
        heads = weight.reshape(-1, config.d_head, *weight.shape[1:])
        return heads.repeat(n_queries_per_key, axis=0).reshape(-1, *weight.shape[1:])

    return {
        name: repeat(weight) if name.endswith(repeated_names) else weight
        for name, weight in weights.items()
    }


def move_heads_first(
    weights: Mapping[str, Array], decoder: LayerStack, alignment: AlignmentHeads, d_head: int
) -> Mapping[str, Array]:
    """Return equivalent weights whose alignment heads are the first heads of their layer.

    The order of heads does not matter, because the output layer sums over them. There must be as
    many key-value heads as query heads.
    """
    prefix = f"{decoder.name}.{alignment.layer}.cross_attention."
    projections = tuple(prefix + name for name in ("to_queries.", "to_keys.", "to_values."))

    def reorder(weight: Array, axis: int) -> Array:
        heads = np.arange(weight.shape[axis]).reshape(-1, d_head)  # one row of positions per head
        others = [head for head in range(len(heads)) if head not in alignment.heads]
        return weight.take(heads[[*alignment.heads, *others]].ravel(), axis=axis)

    moved = {name: reorder(weights[name], 0) for name in weights if name.startswith(projections)}
    output = f"{prefix}to_output.weight"
    if output in weights:  # if it is missing, a later check reports it
        moved[output] = reorder(weights[output], 1)
    return {**weights, **moved}
