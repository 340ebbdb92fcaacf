"""torch engine: runs every architecture on every device and is the reference for other engines."""

from collections.abc import Sequence
from typing import Any

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
from mtcli.translation.engines.base import Engine, NBest, ScoredPieces, Source


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

        If memory runs out, the batch is split in half and searched again.
        """
        try:
            return self._search(sources, options, limit)
        except RuntimeError as error:
            if len(sources) == 1 or not is_out_of_memory(error):
                raise
        half = len(sources) // 2
        return [
            *self.search(sources[:half], options, limit),
            *self.search(sources[half:], options, limit),
        ]

    def _search(self, sources: list[Source], options: SearchOptions, limit: int) -> NBest:
        rows = [
            [*self.tokenizers.source.pieces_to_ids(source.pieces), self.special.eos]
            for source in sources
        ]
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
                hint="omit --alignment, or use a model with attention, such as the recipe rnn",
            )
        result: list[list[Sequence[Sequence[float]]]] = [[] for _ in n_best]
        for k, (i, hypothesis) in enumerate(pairs):
            n_target, n_source = len(hypothesis.tokens), len(rows[i]) - 1
            result[i].append(weights[k, :n_target, :n_source].tolist())
        return result
