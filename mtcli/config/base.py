"""Base classes and field types of the config sections."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from mtcli.config.alignment import AlignmentHeads


def _reject_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("expected a number; YAML reads no, yes, on and off as booleans")
    return value


Int = Annotated[int, BeforeValidator(_reject_boolean)]
Float = Annotated[float, BeforeValidator(_reject_boolean)]
Beta = Annotated[Float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """Base class of all config sections: immutable and typed; unknown keys are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


Side = Literal["source", "target"]


@dataclass(frozen=True)
class LinearGroup:
    """Linear layers that have the same shape and process the same tokens."""

    rows: int
    columns: int
    sides: tuple[Side, ...]  # sides whose tokens each layer processes
    n_layers: int = 1
    n_biases: int = 1  # bias vectors per layer

    @property
    def n_parameters(self) -> int:
        """Total number of parameters in all layers."""
        return self.n_layers * self.rows * (self.columns + self.n_biases)


class ModelConfig(Section):
    """Settings that all architectures share."""

    arch: str
    """Architecture. It determines the other keys of this section."""
    d_model: Int = Field(192, gt=0, multiple_of=2)
    """Width of the layer inputs and outputs. Must be even."""
    tied_embeddings: Literal["all", "target", "none"] = "all"
    """Embeddings that share one matrix: all (source, target and output), target (target and output)
    or none."""
    dropout: Float = Field(0.2, ge=0, lt=1)
    """Dropout on the embeddings and on the output of every sub-layer."""

    @abstractmethod
    def summary(self) -> str:
        """Return a one-line description of the architecture."""

    @abstractmethod
    def linear_groups(self) -> list[LinearGroup]:
        """Return the linear layers between the embeddings and the output layer."""

    @property
    def predicted_sides(self) -> tuple[Side, ...]:
        """Sides whose tokens count toward the training loss."""
        return ("target",)

    def attention_flops(self, source_length: float, target_length: float) -> float:
        """Return the FLOPs of attention, without linear layers, in the forward pass of one pair."""
        del source_length, target_length
        return 0.0

    @abstractmethod
    def n_other_parameters(self) -> int:
        """Return the number of parameters outside linear layers and embeddings."""

    @staticmethod
    @abstractmethod
    def settings_for_size(
        width: int, n_encoder_layers: int, n_decoder_layers: int
    ) -> dict[str, int]:
        """Return the settings for a model of about the given size."""

    @property
    def has_cpu_bfloat16_kernels(self) -> bool:
        """Whether all large matrix products have bfloat16 kernels on CPUs."""
        return True

    @property
    def n_positions(self) -> int | None:
        """Maximum length of a source or target; None means unlimited."""
        return None

    @property
    def default_alignment_heads(self) -> AlignmentHeads | None:
        """Heads that give the alignment by default; None if the architecture has no such heads."""
        return None

    @property
    def n_alignment_layers(self) -> int:
        """Number of layers whose attention to the source can give the alignment."""
        return 0

    def check_length(self, max_length: int) -> None:
        """Raise `ValueError` if the model has too few positions for `max_length` pieces."""
        del max_length

    def n_parameters(self, source_size: int, target_size: int) -> int:
        """Return the number of parameters, given the sizes of the vocabularies."""
        n_vectors = {
            "all": source_size,
            "target": source_size + target_size,
            "none": source_size + 2 * target_size,
        }[self.tied_embeddings]
        n_linear = sum(group.n_parameters for group in self.linear_groups())
        return n_linear + n_vectors * self.d_model + self.n_other_parameters()
