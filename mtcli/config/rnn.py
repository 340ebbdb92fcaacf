"""The settings of recurrent encoder-decoders."""

from typing import Literal

from pydantic import Field

from mtcli.config.model import Maps, ModelConfig
from mtcli.config.section import Whole


class RnnConfig(ModelConfig):
    """A recurrent encoder-decoder (Bahdanau et al. 2015, Luong et al. 2015)."""

    arch: Literal["rnn"]
    """Architecture; the other keys of this section depend on it."""
    cell: Literal["lstm", "gru"] = "lstm"
    """What remembers: long short-term memory, or gated recurrent units."""
    n_encoder_layers: Whole = Field(2, gt=0)
    """Layers that read the source, in both directions."""
    n_decoder_layers: Whole = Field(2, gt=0)
    """Layers that write the target."""
    attention: Literal["none", "dot", "scaled_dot", "bilinear", "additive"] = "bilinear"
    """How the decoder looks back at the source; none: all it gets is the encoder's last state.
    bilinear is Luong's "general" score, additive is Bahdanau's."""
    input_feeding: bool = True
    """Show the decoder what it has looked at in the step before; without it training is faster."""

    @property
    def n_gates(self) -> int:
        """Maps of each kind that a cell has."""
        return 4 if self.cell == "lstm" else 3

    @property
    def is_fed(self) -> bool:
        """Whether steps are shown what the one before them has looked at."""
        return self.input_feeding and self.attention != "none"

    def summary(self) -> str:
        """The architecture in a few words."""
        layers = f"{self.n_encoder_layers}+{self.n_decoder_layers} layers"
        fed = ", input feeding" if self.is_fed else ""
        attention = f"attention {self.attention}{fed}"
        return f"{self.arch}, {self.cell}, {layers}, width {self.d_model}, {attention}"

    def maps(self) -> list[Maps]:
        """Cells, the way from encoder to decoder, and attention."""
        width, gates = self.d_model, self.n_gates
        half = width // 2  # for each direction
        n_states = 2 if self.cell == "lstm" else 1
        found = [
            Maps(gates * half, width, ("source",), 2 * self.n_encoder_layers),
            Maps(gates * half, half, ("source",), 2 * self.n_encoder_layers),
            Maps(gates * width, width, ("target",), 2 * self.n_decoder_layers),
            Maps(self.n_decoder_layers * width, width, (), n_states),
        ]
        if self.is_fed:
            found.append(Maps(gates * width, width, ("target",), n_biases=0))
        if self.attention != "none":
            found.append(Maps(width, width, ("source",), n_biases=0))
            found.append(Maps(width, width, ("target",), n_biases=0))
        if self.attention in ("bilinear", "additive"):
            found.append(Maps(width, width, ("source",), n_biases=0))
        if self.attention == "additive":
            found.append(Maps(width, width, ("target",)))
        return found

    def n_other_parameters(self) -> int:
        """Of the additive score."""
        return self.d_model if self.attention == "additive" else 0

    @staticmethod
    def of_size(width: int, n_encoder_layers: int, n_decoder_layers: int) -> dict[str, int]:
        """The settings of a model of about this size: recurrent layers are the larger ones."""
        deep, shallow = -(-n_encoder_layers // 2), -(-n_decoder_layers // 2)
        return {"d_model": width, "n_encoder_layers": deep, "n_decoder_layers": shallow}
