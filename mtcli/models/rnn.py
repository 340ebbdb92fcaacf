"""Recurrent encoder-decoder with attention (Bahdanau et al. 2015, Luong et al. 2015)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's convention)
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from mtcli.config.rnn import RnnConfig
from mtcli.models.base import State
from mtcli.models.layers import EmbeddedModel, module_list
from mtcli.models.recording import AttentionWeights
from mtcli.models.rnn_cells import CELLS, CellState, DeferredMatrix, initialize_cells


@dataclass(frozen=True)
class SourceMemory(State):
    """Keys and values of the encoded source, with its mask."""

    keys: Tensor  # [B, S, D]
    values: Tensor  # [B, S, D]
    mask: Tensor  # [B, 1, S], False for padding


@dataclass(frozen=True)
class RnnState(State):
    """Encoded source and decoder state."""

    memory: SourceMemory | None  # None without attention
    cells: tuple[CellState, ...]  # per decoder layer, [B, D]
    attention_vector: Tensor  # [B, D], output of the last step and input to the next

    def reorder(self, rows: Tensor) -> "RnnState":
        """Return the state, reordered except for `memory`, which all rows of a sentence share."""
        return replace(replace(self, memory=None).select(rows), memory=self.memory)


class LuongAttention(nn.Module):
    """Luong's global attention.

    The attention vector is tanh(W [context; h]). The part of W that multiplies the context is
    applied to the source once per sentence, instead of to the context at every step.
    """

    def __init__(self, width: int, score: str) -> None:
        super().__init__()
        self.scale = width**-0.5 if score == "scaled_dot" else 1.0
        has_keys = score in ("bilinear", "additive")
        self.to_keys = nn.Linear(width, width, bias=False) if has_keys else nn.Identity()
        self.to_values = nn.Linear(width, width, bias=False)
        self.to_output = nn.Linear(width, width, bias=False)
        self.additive = AdditiveScore(width) if score == "additive" else None

    def project(self, encoded: Tensor, mask: Tensor) -> SourceMemory:
        """Return the keys and values of the encoded source [B, S, D] with its mask [B, 1, S]."""
        return SourceMemory(self.to_keys(encoded) * self.scale, self.to_values(encoded), mask)

    def bind(self, memory: SourceMemory) -> "BoundAttention":
        """Return a function that attends to `memory`, for use in any number of steps."""
        additive_mask = torch.zeros_like(memory.mask, dtype=memory.keys.dtype)
        additive_mask = additive_mask.masked_fill(~memory.mask, -torch.inf)  # [B, 1, S]
        score = self.additive.bind(memory.keys) if self.additive else DeferredMatrix(memory.keys)
        values, to_output = DeferredMatrix(memory.values.mT), DeferredMatrix(self.to_output.weight)
        return BoundAttention(score, additive_mask, values, to_output)


class AdditiveScore(nn.Module):
    """Bahdanau's score v tanh(W h + U m) of a hidden state h and a source vector m.

    The keys are U m.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_queries = nn.Linear(width, width)
        self.to_score = nn.Parameter(torch.empty(width))
        nn.init.uniform_(self.to_score, -(width**-0.5), width**-0.5)

    def bind(self, keys: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """Return a function from hidden states [B, T, D] and an additive mask to scores [B, T, S].

        `keys` has shape [B, S, D].
        """
        to_queries = DeferredMatrix(self.to_queries.weight)

        def score(hidden: Tensor, additive_mask: Tensor) -> Tensor:
            queries = to_queries(hidden.flatten(0, 1), self.to_queries.bias)  # [B*T, D]
            queries = queries.view(hidden.shape)[:, :, None]  # [B, T, 1, D]
            return (queries + keys[:, None]).tanh() @ self.to_score + additive_mask

        return score


@dataclass(frozen=True)
class BoundAttention:
    """Attention to the encoded sentences of one batch."""

    score: Callable[[Tensor, Tensor], Tensor]
    additive_mask: Tensor  # [B, 1, S], 0 for tokens and minus infinity for padding
    values: DeferredMatrix
    to_output: DeferredMatrix

    def weights(self, hidden: Tensor) -> Tensor:
        """Return the attention weights [B, T, S] of hidden states [B, T, D]."""
        return self.score(hidden, self.additive_mask).softmax(dim=-1)

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return the attention vectors [B, T, D] of hidden states [B, T, D]."""
        from_hidden = self.to_output(hidden.flatten(0, 1)).view(hidden.shape)
        return self.values(self.weights(hidden), from_hidden).tanh()


class Rnn(EmbeddedModel[RnnState]):
    """Bidirectional encoder, and a decoder that starts from the encoder's last state."""

    def __init__(self, config: RnnConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        width, cell = config.d_model, CELLS[config.cell]
        self.encoder = module_list(
            cell(width, width // 2, batch_first=True, bidirectional=True)
            for _ in range(config.n_encoder_layers)
        )
        self.decoder = module_list(
            cell(width, width, batch_first=True) for _ in range(config.n_decoder_layers)
        )
        self.to_start = nn.ModuleList(
            nn.Linear(width, config.n_decoder_layers * width) for _ in range(cell.n_states)
        )
        has_attention = config.attention != "none"
        self.attention = LuongAttention(width, config.attention) if has_attention else None
        self.to_gates = (  # input feeding
            nn.Linear(width, config.n_gates * width, bias=False)
            if config.has_input_feeding
            else None
        )
        self._build_output(config, target_size)
        initialize_cells([*self.encoder, *self.decoder])

    # torch.compile does not support packed sequences or loops of variable length.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def encode(self, source: Tensor) -> RnnState:
        """Encode padded source ids [B, S]; return the state before the first target token."""
        is_token = source != self.special.pad
        lengths = is_token.sum(dim=1).cpu()
        ids = pack_padded_sequence(source, lengths, batch_first=True, enforce_sorted=False)
        x = ids._replace(data=self.source_embedding(ids.data))
        for layer in self.encoder:
            x = x._replace(data=self.dropout(x.data))
            x, last = layer.run(x)
        return RnnState(self._source_memory(x, is_token), *self._start(last))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def decode_hidden(self, target: Tensor, state: RnnState) -> tuple[Tensor, RnnState]:
        """Decode the next target ids [B, T]; return hidden states [B, T, D] and the new state."""
        _, outputs, state = self._decode_steps(target, state)
        return self.dropout(outputs), state

    def alignment(self, source: Tensor, target: Tensor) -> Tensor | None:
        """Return the attention weights [B, T, S] from target positions to source positions.

        Return None if the model has no attention.
        """
        state = self.encode(source)
        if self.attention is None or state.memory is None:
            return None
        hidden, _, _ = self._decode_steps(target, state)
        return self.attention.bind(state.memory).weights(hidden)

    def attention_weights(self, source: Tensor, target: Tensor) -> AttentionWeights | None:
        """Return the teacher-forced attention weights: one layer with one head."""
        weights = self.alignment(source, target)
        return None if weights is None else AttentionWeights(cross=weights[:, None, None])

    def _decode_steps(self, target: Tensor, state: RnnState) -> tuple[Tensor, Tensor, RnnState]:
        """Return hidden states and attention vectors, both [B, T, D], and the new state.

        Without attention, the attention vectors are the hidden states.
        """
        if self.attention is None or state.memory is None:
            hidden, cells = self._run_layers(target, state.cells)
            return hidden, hidden, replace(state, cells=cells)
        attend = self.attention.bind(state.memory)
        if self.to_gates is not None:
            to_gates = DeferredMatrix(self.to_gates.weight)
            return self._decode_with_feeding(target, state, attend, to_gates)
        hidden, cells = self._run_layers(target, state.cells)
        return hidden, attend(hidden), replace(state, cells=cells)

    def _run_layers(
        self, target: Tensor, cells: tuple[CellState, ...]
    ) -> tuple[Tensor, tuple[CellState, ...]]:
        """Run each layer over all positions at once; return hidden states and new cell states."""
        x, new_cells = self.target_embedding(target), []
        for layer, cell in zip(self.decoder, cells, strict=True):
            x, last = layer.run(self.dropout(x), tuple(state[None] for state in cell))
            new_cells.append(tuple(state[0] for state in last))
        return x, tuple(new_cells)

    def _decode_with_feeding(
        self, target: Tensor, state: RnnState, attend: BoundAttention, to_gates: DeferredMatrix
    ) -> tuple[Tensor, Tensor, RnnState]:
        """Decode step by step, feeding each attention vector to the next step.

        The embeddings' contribution to the gates of the first layer does not depend on the
        attention vectors, so it is computed for all positions at once.
        """
        embedded = self.dropout(self.target_embedding(target.mT))  # [T, B, D]
        projections = [layer.input_projection() for layer in self.decoder]
        first_gates = F.linear(embedded, *projections[0])  # [T, B, n_gates*D]
        input_weights = [DeferredMatrix(weight) for weight, _ in projections]
        recurrent_weights = [DeferredMatrix(layer.weight_hh_l0) for layer in self.decoder]
        cells, attention_vector = list(state.cells), state.attention_vector
        hidden, attention_vectors = [], []
        for gates in first_gates.unbind():
            gates = to_gates(attention_vector, gates)
            for i, layer in enumerate(self.decoder):
                if i > 0:
                    gates = input_weights[i](self.dropout(cells[i - 1][0]), projections[i][1])
                cells[i] = layer.step(gates, recurrent_weights[i], cells[i])
            hidden.append(cells[-1][0])
            attention_vector = attend(hidden[-1][:, None])[:, 0]
            attention_vectors.append(attention_vector)
        new_state = RnnState(state.memory, tuple(cells), attention_vector)
        return torch.stack(hidden, dim=1), torch.stack(attention_vectors, dim=1), new_state

    def _source_memory(self, x: PackedSequence, is_token: Tensor) -> SourceMemory | None:
        if self.attention is None:
            return None
        encoded, _ = pad_packed_sequence(x, batch_first=True, total_length=is_token.size(1))
        return self.attention.project(encoded, is_token[:, None])

    def _start(self, last: CellState) -> tuple[tuple[CellState, ...], Tensor]:
        """Return the decoder's initial cell states, and a zero attention vector [B, D].

        `last` contains the final states [2, B, D/2] of both directions of the last encoder layer.
        """
        pairs = zip(self.to_start, last, strict=True)
        starts = [to_start(ends.transpose(0, 1).flatten(1)).tanh() for to_start, ends in pairs]
        by_layer = zip(*(start.chunk(len(self.decoder), dim=-1) for start in starts), strict=True)
        cells = tuple(by_layer)  # per layer, [B, D]
        return cells, torch.zeros_like(cells[0][0])
