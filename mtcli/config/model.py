"""What every architecture can be asked: its settings, and what a model of it consists of.

So its cost is known before there is one.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from mtcli.config.section import Real, Section, Whole

Side = Literal["source", "target"]


@dataclass(frozen=True)
class Maps:
    """Linear maps of one shape, and the tokens that go through them."""

    rows: int
    columns: int
    reads: tuple[Side, ...]
    n: int = 1
    n_biases: int = 1  # of each, as long as it has rows

    @property
    def n_parameters(self) -> int:
        """Of all of them together."""
        return self.n * self.rows * (self.columns + self.n_biases)


class ModelConfig(Section):
    """What every architecture has."""

    arch: str
    """Architecture; the other keys of this section depend on it."""
    d_model: Whole = Field(192, gt=0, multiple_of=2)
    """Width of every layer's input and output; even, for sines and cosines come in pairs."""
    tied_embeddings: Literal["all", "target", "none"] = "all"
    """One matrix for source, target and output; for target and output; or none shared."""
    dropout: Real = Field(0.2, ge=0, lt=1)
    """On the embeddings and on the output of every sub-layer."""

    @abstractmethod
    def summary(self) -> str:
        """The architecture in a few words."""

    @abstractmethod
    def maps(self) -> list[Maps]:
        """The matrices between embeddings and output."""

    @property
    def guesses(self) -> tuple[Side, ...]:
        """The sides whose pieces are guessed in training."""
        return ("target",)

    @abstractmethod
    def n_other_parameters(self) -> int:
        """Of all that is neither in a map nor in an embedding."""

    @staticmethod
    @abstractmethod
    def of_size(width: int, n_encoder_layers: int, n_decoder_layers: int) -> dict[str, int]:
        """The settings of a model of about this size."""

    @property
    def n_positions(self) -> int | None:
        """The longest source or target that can be represented; None: any."""
        return None

    def check_length(self, longest: int) -> None:
        """Refuse sentences that are too long to be represented."""
        del longest

    def n_parameters(self, source_size: int, target_size: int) -> int:
        """How many numbers such a model learns, for vocabularies of these sizes."""
        n_vectors = {
            "all": source_size,
            "target": source_size + target_size,
            "none": source_size + 2 * target_size,
        }[self.tied_embeddings]
        maps = sum(maps.n_parameters for maps in self.maps())
        return maps + n_vectors * self.d_model + self.n_other_parameters()
