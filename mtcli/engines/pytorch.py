"""Translating with torch: every architecture, every device; the reference for other engines."""

from typing import Any

import torch

from mtcli.config import SearchConfig
from mtcli.data import pad
from mtcli.engines.base import Scored, Translator
from mtcli.errors import EngineError
from mtcli.models import TranslationModel
from mtcli.search import beam_search
from mtcli.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizers


class TorchTranslator(Translator):
    """Searches with our own beam search, on the device the model is on."""

    def __init__(
        self, model: TranslationModel[Any], tokenizers: Tokenizers, *, max_pieces: int
    ) -> None:
        super().__init__(tokenizers, max_pieces=max_pieces)
        self.model = model
        self.device = next(model.parameters()).device

    def search(self, sources: list[list[str]], options: SearchConfig) -> list[list[Scored]]:
        """For each source (as pieces) its n_best targets (as pieces), best first."""
        tokenizers = self.tokenizers
        rows = [[*tokenizers.source.ids(pieces), EOS_ID] for pieces in sources]
        source = pad(rows, PAD_ID).to(self.device)
        found = beam_search(self.model, source, options, bos_id=BOS_ID, eos_id=EOS_ID)
        return [
            [Scored(tokenizers.target.pieces_of(h.ids), h.score, h.is_cut) for h in best]
            for best in found
        ]


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
