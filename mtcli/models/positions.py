"""Where a piece stands, as a vector that is added to its embedding."""

import torch
from torch import Tensor, nn

from mtcli.config import AttentionConfig


class SinusoidalPositions(nn.Module):
    """Sines and cosines of falling frequency (section 3.5), in two halves; nothing is learned."""

    frequencies: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        exponents = torch.arange(0, d_model, 2) / d_model
        self.register_buffer("frequencies", 10_000.0**-exponents, persistent=False)  # [D/2]

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        """`x` [B, T, D] with the vectors of its `places` [T] or [B, T] added."""
        angles = places[..., None] * self.frequencies  # [.., T, D/2]
        return x + torch.cat([angles.sin(), angles.cos()], dim=-1)


class LearnedPositions(nn.Module):
    """One learned vector for each position, up to a limit."""

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(max_positions, d_model)
        nn.init.normal_(self.vectors.weight, std=0.02)

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        """`x` [B, T, D] with the vectors of its `places` [T] or [B, T] added."""
        # Padding in front of a sentence stands nowhere, before the first place.
        vectors: Tensor = self.vectors(places.clamp(min=0))
        return x + vectors


class NoPositions(nn.Module):
    """Nothing is added: attention itself knows where positions stand, or nobody does."""

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        """`x` as it is."""
        del places
        return x


def added_positions(config: AttentionConfig) -> nn.Module:
    """What is added to the embeddings."""
    match config.positions:
        case "sinusoidal":
            return SinusoidalPositions(config.d_model)
        case "learned":
            return LearnedPositions(config.d_model, config.max_positions)
        case _:
            return NoPositions()
