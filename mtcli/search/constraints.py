"""What a translation may not say, or has to: as CTranslate2 defines it, so that engines agree."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mtcli.options import SearchOptions


def constrained(logits: Tensor, said: Tensor, options: SearchOptions) -> Tensor:
    """The logits [B, V] of what comes after `said` [B, t], with less repetition, or none."""
    if options.repetition_penalty != 1 and said.size(1):
        before = logits.gather(1, said)  # [B, t]
        factor = options.repetition_penalty
        logits = logits.scatter(1, said, torch.where(before < 0, before * factor, before / factor))
    if options.no_repeat_ngram and said.size(1) >= options.no_repeat_ngram:
        logits = _without_repeated(logits, said, options.no_repeat_ngram)
    return logits


def _without_repeated(logits: Tensor, said: Tensor, n: int) -> Tensor:
    """Forbid what would make the last n-1 pieces and the next one an n-gram that was there."""
    grams = said.unfold(1, n, 1)  # [B, t-n+1, n]
    context = said[:, said.size(1) - n + 1 :]  # [B, n-1]
    is_same = (grams[:, :, :-1] == context[:, None]).all(dim=-1)  # [B, t-n+1]
    n_times = torch.zeros_like(logits).scatter_add(1, grams[:, :, -1], is_same.to(logits.dtype))
    return logits.masked_fill(n_times > 0, -torch.inf)


@dataclass(frozen=True)
class Prefix:
    """How each translation of a batch has to begin."""

    ids: Tensor  # [B, P], padded on the right
    lengths: Tensor  # [B]

    def select(self, sentences: Tensor) -> "Prefix":
        """The prefixes of the sentences that are left."""
        return Prefix(self.ids[sentences], self.lengths[sentences])

    def is_forced(self, step: int) -> Tensor:
        """Which sentences [B] have no choice at this step (counted from 0)."""
        return self.lengths > step

    def token(self, step: int) -> Tensor:
        """What they have to say [B]; anything for the others."""
        return self.ids[:, min(step, self.ids.size(1) - 1)]

    def is_first_choice(self, step: int) -> Tensor:
        """Which sentences [B] are free for the first time at this step."""
        return self.lengths.eq(step)
