"""Translating with torch: every architecture, every device; the reference for other engines."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mtcli.engines.base import Engine, Found, Scored, Source
from mtcli.errors import EngineError
from mtcli.feed import pad
from mtcli.models import TranslationModel
from mtcli.options import SearchOptions
from mtcli.search import Hypothesis, Prefix, beam_search, sample
from mtcli.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizers


class TorchEngine(Engine):
    """Searches with our own beam search, on the device the model is on."""

    def __init__(
        self, model: TranslationModel[Any], tokenizers: Tokenizers, *, seed: int | None = None
    ) -> None:
        self.model = model
        self.tokenizers = tokenizers
        self.n_positions = model.n_positions
        self.device = next(model.parameters()).device
        self._generator = torch.Generator(self.device)
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)

    def search(self, sources: list[Source], options: SearchOptions, limit: int) -> Found:
        """For each source its n_best targets of at most `limit` pieces, best first.

        Where memory is short, one half after the other.
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

    def _search(self, sources: list[Source], options: SearchOptions, limit: int) -> Found:
        rows = [[*self.tokenizers.source.ids(source.pieces), EOS_ID] for source in sources]
        source = pad(rows, PAD_ID).to(self.device)
        prefix = self._prefix(sources)
        if options.sampling:
            found = sample(self.model, source, options, self._generator, limit=limit, prefix=prefix)
        else:
            found = beam_search(self.model, source, options, limit=limit, prefix=prefix)
        attentions = self._attentions(source, rows, found) if options.with_alignment else None
        return [
            [
                Scored(
                    self.tokenizers.target.pieces_of(h.ids),
                    h.score,
                    h.is_cut,
                    attentions[i][rank] if attentions else None,
                )
                for rank, h in enumerate(best)
            ]
            for i, best in enumerate(found)
        ]

    def _prefix(self, sources: list[Source]) -> Prefix | None:
        ids = [self.tokenizers.target.ids(source.prefix) for source in sources]
        if not any(ids):
            return None
        lengths = torch.tensor([len(row) for row in ids], device=self.device)
        return Prefix(pad(ids, PAD_ID).to(self.device), lengths)

    @torch.inference_mode()
    def _attentions(
        self, source: Tensor, rows: list[list[int]], found: list[list[Hypothesis]]
    ) -> list[list[Sequence[Sequence[float]]]]:
        """What each hypothesis looked at: teacher forcing with what was found."""
        flat = [(i, hypothesis) for i, best in enumerate(found) for hypothesis in best]
        # A position looks at the source before it says its piece.
        target = pad([[BOS_ID, *h.ids[:-1]] for _, h in flat], PAD_ID).to(self.device)
        owners = torch.tensor([i for i, _ in flat], device=self.device)
        weights = self.model.alignment(source[owners], target)  # [B*n, T, S]
        if weights is None:
            raise EngineError(
                "the model looks at nothing but its own memory (model.attention=none)",
                hint="leave out --alignment; the recipe rnn has attention",
            )
        result: list[list[Sequence[Sequence[float]]]] = [[] for _ in found]
        for k, (i, hypothesis) in enumerate(flat):
            n_target, n_source = len(hypothesis.ids), len(rows[i]) - 1
            result[i].append(weights[k, :n_target, :n_source].tolist())
        return result


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch has asked for more memory than there is."""
    is_cpu = "can't allocate memory" in str(error)  # for which torch has no class of its own
    return isinstance(error, torch.OutOfMemoryError) or is_cpu


def choose_device(name: str) -> torch.device:
    """The device of that name; `auto` is a GPU if there is one."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        torch.zeros(1, device=name).cpu()  # a name alone does not say that it works
        return torch.device(name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise EngineError(
            f"torch cannot use {name!r} here", hint="use cpu, or auto to let mtcli choose"
        ) from error
