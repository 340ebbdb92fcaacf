"""The recurrent encoder-decoder with attention (Bahdanau et al. 2015, Luong et al. 2015)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own name for it)
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from mtcli.config import RnnConfig
from mtcli.models.base import State
from mtcli.models.layers import PieceModel, stack
from mtcli.models.recurrence import CELLS, Shared, States, initialise_cells
from mtcli.tokenizer import PAD_ID


@dataclass(frozen=True)
class Seen(State):
    """What attention looks at."""

    keys: Tensor  # [B, S, D]
    values: Tensor  # [B, S, D]
    mask: Tensor  # [B, 1, S]


@dataclass(frozen=True)
class RnnState(State):
    """The encoded source, and what the decoder remembers of the target."""

    seen: Seen | None  # None: the decoder does not look back
    states: tuple[States, ...]  # of each layer, [B, D]
    vector: Tensor  # [B, D]: what the last step has made of all that

    def reorder(self, rows: Tensor) -> "RnnState":
        """Only the target differs between the rows of a sentence; the source stays where it is."""
        return replace(replace(self, seen=None).select(rows), seen=self.seen)


class Attention(nn.Module):
    """Luong's attention: look at the source, and make one vector of what is seen and remembered.

    The vector is tanh(W [context; h]); the part of W that reads the context is applied to the
    source once, and not to every mixture of it.
    """

    def __init__(self, width: int, score: str) -> None:
        super().__init__()
        self.scale = width**-0.5 if score == "scaled_dot" else 1.0
        has_keys = score in ("bilinear", "additive")
        self.to_keys = nn.Linear(width, width, bias=False) if has_keys else nn.Identity()
        self.to_values = nn.Linear(width, width, bias=False)
        self.to_output = nn.Linear(width, width, bias=False)
        self.additive = Additive(width) if score == "additive" else None

    def seen(self, memory: Tensor, mask: Tensor) -> Seen:
        """What the source [B, S, D] offers to whoever looks at it."""
        return Seen(self.to_keys(memory) * self.scale, self.to_values(memory), mask)

    def look(self, seen: Seen) -> "Look":
        """What can be asked many times, for one position or for many."""
        penalty = torch.zeros_like(seen.mask, dtype=seen.keys.dtype)
        penalty = penalty.masked_fill(~seen.mask, -torch.inf)  # [B, 1, S]
        score = self.additive.score(seen.keys) if self.additive else Shared(seen.keys)
        return Look(score, penalty, Shared(seen.values.mT), Shared(self.to_output.weight))


class Additive(nn.Module):
    """Bahdanau's score v tanh(W h + U m), where the keys are U m."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_queries = nn.Linear(width, width)
        self.to_score = nn.Parameter(torch.empty(width))
        nn.init.uniform_(self.to_score, -(width**-0.5), width**-0.5)

    def score(self, keys: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """A function of what looks [B, T, D] and of a penalty; it returns scores [B, T, S]."""
        to_queries = Shared(self.to_queries.weight)

        def score(h: Tensor, penalty: Tensor) -> Tensor:
            queries = to_queries(h.flatten(0, 1), self.to_queries.bias).view(h.shape)[
                :, :, None
            ]  # [B, T, 1, D]
            return (queries + keys[:, None]).tanh() @ self.to_score + penalty

        return score


@dataclass(frozen=True)
class Look:
    """Attention to sentences that are known already."""

    score: Callable[[Tensor, Tensor], Tensor]
    penalty: Tensor  # [B, 1, S]: nothing for words, infinite for padding
    values: Shared
    to_output: Shared

    def weights(self, h: Tensor) -> Tensor:
        """How much `h` [B, T, D] looks at each position of the source: [B, T, S]."""
        return self.score(h, self.penalty).softmax(dim=-1)

    def __call__(self, h: Tensor) -> Tensor:
        """The vectors [B, T, D] that `h` [B, T, D] and what it sees are made into."""
        remembered = self.to_output(h.flatten(0, 1)).view(h.shape)
        return self.values(self.weights(h), remembered).tanh()


class Rnn(PieceModel[RnnState]):
    """A bidirectional encoder, and a decoder that looks back at it, or begins where it ends."""

    def __init__(self, config: RnnConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        width, cell = config.d_model, CELLS[config.cell]
        self.encoder = stack(
            cell(width, width // 2, batch_first=True, bidirectional=True)
            for _ in range(config.n_encoder_layers)
        )
        self.decoder = stack(
            cell(width, width, batch_first=True) for _ in range(config.n_decoder_layers)
        )
        self.to_start = nn.ModuleList(
            nn.Linear(width, config.n_decoder_layers * width) for _ in range(cell.n_states)
        )
        self.attention = None if config.attention == "none" else Attention(width, config.attention)
        self.to_gates = (  # input feeding
            nn.Linear(width, config.n_gates * width, bias=False) if config.is_fed else None
        )
        self._finish(config, target_size)
        initialise_cells([*self.encoder, *self.decoder])

    # Packed sequences and loops of any length are not for torch.compile.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def encode(self, source: Tensor) -> RnnState:
        """Read padded source ids [B, S]."""
        is_word = source != PAD_ID
        lengths = is_word.sum(dim=1).cpu()
        ids = pack_padded_sequence(source, lengths, batch_first=True, enforce_sorted=False)
        x = ids._replace(data=self.source_embedding(ids.data))
        for layer in self.encoder:
            x = x._replace(data=self.dropout(x.data))
            x, last = layer.along(x)
        return RnnState(self._seen(x, is_word), *self._start(last))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def read(self, target: Tensor, state: RnnState) -> tuple[Tensor, RnnState]:
        """Read the next target ids [B, T]."""
        _, vectors, state = self._walk(target, state)
        return self.dropout(vectors), state

    def alignment(self, source: Tensor, target: Tensor) -> Tensor | None:
        """How much each position of `target` [B, T] looks at each of `source` [B, S]: [B, T, S]."""
        state = self.encode(source)
        if self.attention is None or state.seen is None:
            return None
        shown, _, _ = self._walk(target, state)
        return self.attention.look(state.seen).weights(shown)

    def _walk(self, target: Tensor, state: RnnState) -> tuple[Tensor, Tensor, RnnState]:
        """What the last layer shows at each position of `target`, what is made of it, the state."""
        if self.attention is None or state.seen is None:
            shown, states = self._run(target, state.states)
            return shown, shown, replace(state, states=states)
        look = self.attention.look(state.seen)
        if self.to_gates is not None:
            return self._step_by_step(target, state, look, Shared(self.to_gates.weight))
        shown, states = self._run(target, state.states)
        return shown, look(shown), replace(state, states=states)

    def _run(self, target: Tensor, states: tuple[States, ...]) -> tuple[Tensor, tuple[States, ...]]:
        """Layer after layer, each for all positions at once; return what is shown, and states."""
        x, after = self.target_embedding(target), []
        for layer, before in zip(self.decoder, states, strict=True):
            x, last = layer.along(self.dropout(x), tuple(state[None] for state in before))
            after.append(tuple(state[0] for state in last))
        return x, tuple(after)

    def _step_by_step(
        self, target: Tensor, state: RnnState, look: Look, fed: Shared
    ) -> tuple[Tensor, Tensor, RnnState]:
        """Position after position, each of which is fed what the one before has made.

        What does not depend on the one before is made for all positions at once.
        """
        words = self.dropout(self.target_embedding(target.mT))  # [T, B, D]
        maps = [layer.input_map() for layer in self.decoder]
        inputs = F.linear(words, *maps[0])  # [T, B, gates]
        read = [Shared(matrix) for matrix, _ in maps]
        recurrent = [Shared(layer.weight_hh_l0) for layer in self.decoder]
        states, vector = list(state.states), state.vector
        shown, vectors = [], []
        for gates in inputs.unbind():
            gates = fed(vector, gates)
            for i, layer in enumerate(self.decoder):
                if i > 0:
                    gates = read[i](self.dropout(states[i - 1][0]), maps[i][1])
                states[i] = layer.step(gates, recurrent[i], states[i])
            shown.append(states[-1][0])
            vector = look(shown[-1][:, None])[:, 0]
            vectors.append(vector)
        after = RnnState(state.seen, tuple(states), vector)
        return torch.stack(shown, dim=1), torch.stack(vectors, dim=1), after

    def _seen(self, x: PackedSequence, is_word: Tensor) -> Seen | None:
        if self.attention is None:
            return None
        memory, _ = pad_packed_sequence(x, batch_first=True, total_length=is_word.size(1))
        return self.attention.seen(memory, is_word[:, None])

    def _start(self, last: States) -> tuple[tuple[States, ...], Tensor]:
        """The states of all layers of the decoder before its first step, and nothing to feed."""
        maps = zip(self.to_start, last, strict=True)
        each = [to_start(ends.transpose(0, 1).flatten(1)).tanh() for to_start, ends in maps]
        by_layer = zip(*(states.chunk(len(self.decoder), dim=-1) for states in each), strict=True)
        states = tuple(by_layer)  # of each layer, [B, D]
        return states, torch.zeros_like(states[0][0])
