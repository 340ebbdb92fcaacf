"""Settings of recurrent encoder-decoders."""

from typing import Literal

from pydantic import Field

from mtcli.config.base import Int, LinearGroup, ModelConfig


class RnnConfig(ModelConfig):
    """Recurrent encoder-decoder (Bahdanau et al. 2015, Luong et al. 2015)."""

    arch: Literal["rnn"]
    """Architecture. It determines the other keys of this section."""
    cell: Literal["lstm", "gru"] = "lstm"
    """Recurrent cell."""
    n_encoder_layers: Int = Field(2, gt=0)
    """Number of bidirectional encoder layers."""
    n_decoder_layers: Int = Field(2, gt=0)
    """Number of decoder layers."""
    attention: Literal["none", "dot", "scaled_dot", "bilinear", "additive"] = "bilinear"
    """Attention score function. bilinear: Luong's "general" score. additive: Bahdanau's score.
    none: no attention; the decoder receives only the final state of the encoder."""
    input_feeding: bool = True
    """Feed the attention output of each decoder step to the next step. This slows down training."""

    @property
    def n_gates(self) -> int:
        """Number of matrices that a cell applies to each of its inputs, one per gate."""
        return 4 if self.cell == "lstm" else 3

    @property
    def has_input_feeding(self) -> bool:
        """Whether each decoder step receives the attention output of the previous step."""
        return self.input_feeding and self.attention != "none"

    @property
    def has_cpu_bfloat16_kernels(self) -> bool:
        """False, because many CPUs have no bfloat16 kernel for LSTM and GRU layers."""
        return False

    def summary(self) -> str:
        """Return a one-line description of the architecture."""
        layers = f"{self.n_encoder_layers}+{self.n_decoder_layers} layers"
        input_feeding = ", input feeding" if self.has_input_feeding else ""
        attention = f"attention {self.attention}{input_feeding}"
        return f"{self.arch}, {self.cell}, {layers}, width {self.d_model}, {attention}"

    def linear_groups(self) -> list[LinearGroup]:
        """Return the linear layers of the cells, the decoder initialization and the attention."""
        width, gates = self.d_model, self.n_gates
        half = width // 2  # per direction
        n_states = 2 if self.cell == "lstm" else 1
        groups = [
            LinearGroup(gates * half, width, ("source",), 2 * self.n_encoder_layers),
            LinearGroup(gates * half, half, ("source",), 2 * self.n_encoder_layers),
            LinearGroup(gates * width, width, ("target",), 2 * self.n_decoder_layers),
            LinearGroup(self.n_decoder_layers * width, width, (), n_states),
        ]
        if self.has_input_feeding:
            groups.append(LinearGroup(gates * width, width, ("target",), n_biases=0))
        if self.attention != "none":
            groups.append(LinearGroup(width, width, ("source",), n_biases=0))
            groups.append(LinearGroup(width, width, ("target",), n_biases=0))
        if self.attention in ("bilinear", "additive"):
            groups.append(LinearGroup(width, width, ("source",), n_biases=0))
        if self.attention == "additive":
            groups.append(LinearGroup(width, width, ("target",)))
        return groups

    def attention_flops(self, source_length: float, target_length: float) -> float:
        """Return the FLOPs of attention, without linear layers, in the forward pass of one pair."""
        if self.attention == "none":
            return 0.0
        return 4 * source_length * target_length * self.d_model

    def n_other_parameters(self) -> int:
        """Return the number of parameters in the score vector of additive attention."""
        return self.d_model if self.attention == "additive" else 0

    @staticmethod
    def settings_for_size(
        width: int, n_encoder_layers: int, n_decoder_layers: int
    ) -> dict[str, int]:
        """Return the settings for a model of about the given size.

        The model has half of the given layers: recurrent layers are larger than transformer layers.
        """
        return {
            "d_model": width,
            "n_encoder_layers": -(-n_encoder_layers // 2),
            "n_decoder_layers": -(-n_decoder_layers // 2),
        }
