"""Interface between architectures, training and search.

Shape letters, used in every file:
    B batch size            S source or key length   T target or query length
    P prefix length         t search step            N samples, or flattened batch positions
    D model width           H attention heads        K key-value heads
    E head width            V vocabulary size        W beam width
    L layers
Lower-case words in shapes are variables, as in [B, n_blocks].
Masks are boolean. True means "may be attended to".
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Self, TypeVar

import torch.nn.functional as F  # noqa: N812  (PyTorch's convention)
from torch import Tensor, nn

from mtcli.config.alignment import AlignmentHeads
from mtcli.models.recording import AttentionWeights
from mtcli.tokenizer import DEFAULT_SPECIAL_IDS, SpecialIds


@dataclass(frozen=True)
class State:
    """Decoder state. The batch is dimension 0 of every tensor."""

    def select(self, rows: Tensor) -> Self:
        """Return the state of the given rows; rows may be repeated or omitted."""
        parts = {f.name: _select(getattr(self, f.name), rows) for f in fields(self)}
        return replace(self, **parts)

    def reorder(self, rows: Tensor) -> Self:
        """Return `select(rows)`; each row must come from the same sentence as the row it replaces.

        Tensors that depend only on the source do not change, so subclasses need not copy them.
        """
        return self.select(rows)


def _select(value: Any, rows: Tensor) -> Any:
    match value:
        case Tensor():
            return value.index_select(0, rows)
        case State():
            return value.select(rows)
        case tuple():
            return tuple(_select(item, rows) for item in value)
        case _:
            return value


StateT = TypeVar("StateT", bound=State)


class TranslationModel(nn.Module, ABC, Generic[StateT]):
    """Sequence-to-sequence model that search can decode step by step."""

    special: SpecialIds = DEFAULT_SPECIAL_IDS  # from the model's tokenizers
    alignment_heads: AlignmentHeads | None = None  # saved with the weights; None: default heads

    @abstractmethod
    def encode(self, source: Tensor) -> StateT:
        """Encode padded source ids [B, S]; return the state before the first target token."""

    @abstractmethod
    def decode(self, target: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Decode the next target ids [B, T], T >= 1; return logits [B, T, V] and the new state."""

    @property
    def n_positions(self) -> int | None:
        """Maximum length of a source or target; None means unlimited."""
        return None

    def alignment(self, source: Tensor, target: Tensor) -> Tensor | None:
        """Return the attention weights [B, T, S] from target positions to source positions.

        Return None if the model has no attention.
        """
        del source, target
        return None

    def attention_weights(self, source: Tensor, target: Tensor) -> AttentionWeights | None:
        """Return the teacher-forced attention weights of all layers and heads.

        `source` [B, S] and `target` [B, T] are padded ids. Return None if the model has no
        attention.
        """
        del source, target
        return None

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return teacher-forced logits [B, T, V]."""
        logits, _ = self.decode(target, self.encode(source))
        return logits


LossTerm = tuple[Tensor, Tensor]  # hidden states [B, T, D] and their labels [B, T]


class TrainableModel(TranslationModel[StateT]):
    """Model whose logits are the product of hidden states and one output matrix.

    Training calls `decode_hidden` instead of `decode`, because the loss computes the logits itself,
    in chunks.
    """

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """Output projection [V, D] from hidden states to logits."""

    @abstractmethod
    def decode_hidden(self, target: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Decode the next target ids [B, T]; return hidden states [B, T, D] and the new state."""

    def loss_terms(self, source: Tensor, target: Tensor, labels: Tensor) -> list[LossTerm]:
        """Return the terms of the training loss, the target term first."""
        hidden, _ = self.decode_hidden(target, self.encode(source))
        return [(hidden, labels)]

    def decode(self, target: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Decode the next target ids [B, T]; return logits [B, T, V] and the new state."""
        hidden, state = self.decode_hidden(target, state)
        return F.linear(hidden, self.output_weight), state


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters by name; a tied parameter appears once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}
