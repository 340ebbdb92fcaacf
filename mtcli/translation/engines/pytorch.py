"""torch engine: runs any architecture on any device and is the reference for other engines."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from mtcli.config.search import SearchOptions
from mtcli.data.batches import pad
from mtcli.errors import EngineError
from mtcli.hardware import is_out_of_memory
from mtcli.models.base import TranslationModel
from mtcli.search.beam import Hypothesis, beam_search
from mtcli.search.constraints import Prefix
from mtcli.search.sampling import sample
from mtcli.tokenizer import Tokenizers
from mtcli.translation.engines.base import (
    Engine,
    NBest,
    PiecePair,
    ScoredPieces,
    Source,
    TokenScores,
)

_MAX_LOGITS = 1 << 25  # per step of forced decoding; 128 MB in float32
_In = TypeVar("_In")
_Out = TypeVar("_Out")


class TorchEngine(Engine):
    """Beam search and sampling from `mtcli.search`, on the model's device."""

    name = "torch"

    def __init__(
        self, model: TranslationModel[Any], tokenizers: Tokenizers, *, seed: int | None = None
    ) -> None:
        self.model = model
        self.tokenizers = tokenizers
        self.special = tokenizers.special
        self.n_positions = model.n_positions
        self.n_bytes = sum(parameter.nbytes for parameter in model.parameters())
        self.device = next(model.parameters()).device
        self._generator = torch.Generator(self.device)
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)

    def search(self, sources: list[Source], options: SearchOptions, limit: int) -> NBest:
        """Return the n-best list of each source, with at most `limit` pieces per target.

        If memory runs out, the batch is searched in two halves.
        """
        return _split_if_out_of_memory(lambda part: self._search(part, options, limit), sources)

    def score(self, pairs: list[PiecePair]) -> TokenScores:
        """Return the log-probabilities of the pieces and of EOS for each translation.

        If memory runs out, the batch is scored in two halves.
        """
        return _split_if_out_of_memory(self._score, pairs)

    @torch.inference_mode()
    def _score(self, pairs: list[PiecePair]) -> TokenScores:
        special, target = self.special, self.tokenizers.target
        rows = [[*target.pieces_to_ids(pieces), special.eos] for _, pieces in pairs]
        labels = pad(rows, special.pad).to(self.device)  # [B, T]
        inputs = pad([[special.bos, *row[:-1]] for row in rows], special.pad).to(self.device)
        sources = self._encode_sources([source for source, _ in pairs])
        state = self.model.encode(pad(sources, special.pad).to(self.device))
        n_positions = max(1, _MAX_LOGITS // (len(pairs) * len(target)))
        parts = []
        for start in range(0, labels.size(1), n_positions):
            columns = slice(start, start + n_positions)
            logits, state = self.model.decode(inputs[:, columns], state)  # [B, n_positions, V]
            chosen = logits.gather(2, labels[:, columns, None]).squeeze(2)
            parts.append(chosen - logits.logsumexp(dim=-1))
        log_probs: list[list[float]] = torch.cat(parts, dim=1).tolist()
        return [scores[: len(row)] for scores, row in zip(log_probs, rows, strict=True)]

    def _encode_sources(self, sources: list[Source]) -> list[list[int]]:
        tokenizer = self.tokenizers.source
        return [[*tokenizer.pieces_to_ids(source.pieces), self.special.eos] for source in sources]

    def _search(self, sources: list[Source], options: SearchOptions, limit: int) -> NBest:
        rows = self._encode_sources(sources)
        source = pad(rows, self.special.pad).to(self.device)  # [B, S]
        prefix = self._encode_prefixes(sources)
        if options.sampling:
            n_best = sample(
                self.model, source, options, self._generator, limit=limit, prefix=prefix
            )
        else:
            n_best = beam_search(self.model, source, options, limit=limit, prefix=prefix)
        attention = (
            self._compute_attention(source, rows, n_best) if options.with_alignment else None
        )
        return [
            [
                ScoredPieces(
                    self.tokenizers.target.ids_to_pieces(h.tokens),
                    h.score,
                    h.is_truncated,
                    attention[i][rank] if attention else None,
                )
                for rank, h in enumerate(best)
            ]
            for i, best in enumerate(n_best)
        ]

    def _encode_prefixes(self, sources: list[Source]) -> Prefix | None:
        ids = [self.tokenizers.target.pieces_to_ids(source.prefix) for source in sources]
        if not any(ids):
            return None
        lengths = torch.tensor([len(row) for row in ids], device=self.device)
        return Prefix(pad(ids, self.special.pad).to(self.device), lengths)

    @torch.inference_mode()
    def _compute_attention(
        self, source: Tensor, rows: list[list[int]], n_best: list[list[Hypothesis]]
    ) -> list[list[Sequence[Sequence[float]]]]:
        """Return the attention [T][S] of each hypothesis, computed with teacher forcing."""
        pairs = [(i, hypothesis) for i, best in enumerate(n_best) for hypothesis in best]
        # The input at position t is token t-1, so the last token is never an input.
        inputs = [[self.special.bos, *h.tokens[:-1]] for _, h in pairs]
        target = pad(inputs, self.special.pad).to(self.device)
        source_rows = torch.tensor([i for i, _ in pairs], device=self.device)
        weights = self.model.alignment(source[source_rows], target)  # [B*n_best, T, S]
        if weights is None:
            raise EngineError(
                "the model has no attention (model.attention=none)",
                hint="use a model with attention, such as one trained with the recipe rnn",
            )
        result: list[list[Sequence[Sequence[float]]]] = [[] for _ in n_best]
        for k, (i, hypothesis) in enumerate(pairs):
            n_target, n_source = len(hypothesis.tokens), len(rows[i]) - 1
            result[i].append(weights[k, :n_target, :n_source].tolist())
        return result


def _split_if_out_of_memory(run: Callable[[list[_In]], list[_Out]], batch: list[_In]) -> list[_Out]:
    """Return the results of `run` for `batch`; if memory runs out, process the batch in halves."""
    try:
        return run(batch)
    except RuntimeError as error:
        if len(batch) == 1 or not is_out_of_memory(error):
            raise
    half = len(batch) // 2
    return [
        *_split_if_out_of_memory(run, batch[:half]),
        *_split_if_out_of_memory(run, batch[half:]),
    ]
