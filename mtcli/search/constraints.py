"""Repetition constraints and forced prefixes. Both engines use CTranslate2's definitions."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mtcli.config.search import SearchOptions


def apply_constraints(logits: Tensor, tokens: Tensor, options: SearchOptions) -> Tensor:
    """Return the logits [B, V] after `tokens` [B, t], with repetitions penalized or blocked."""
    if options.repetition_penalty != 1 and tokens.size(1):
        used = logits.gather(1, tokens)  # [B, t]
        penalty = options.repetition_penalty
        logits = logits.scatter(1, tokens, torch.where(used < 0, used * penalty, used / penalty))
    if options.no_repeat_ngram and tokens.size(1) >= options.no_repeat_ngram:
        logits = _block_repeated_ngrams(logits, tokens, options.no_repeat_ngram)
    return logits


def _block_repeated_ngrams(logits: Tensor, tokens: Tensor, n: int) -> Tensor:
    """Return the logits with -inf for each token that would repeat an n-gram in `tokens`."""
    ngrams = tokens.unfold(1, n, 1)  # [B, t-n+1, n]
    context = tokens[:, tokens.size(1) - n + 1 :]  # [B, n-1]
    is_match = (ngrams[:, :, :-1] == context[:, None]).all(dim=-1)  # [B, t-n+1]
    counts = torch.zeros_like(logits).scatter_add(1, ngrams[:, :, -1], is_match.to(logits.dtype))
    return logits.masked_fill(counts > 0, -torch.inf)


@dataclass(frozen=True)
class Prefix:
    """Forced first tokens of each translation in a batch."""

    tokens: Tensor  # [B, P], padded on the right
    lengths: Tensor  # [B]

    def select(self, sentences: Tensor) -> "Prefix":
        """Return the prefixes of the given sentences."""
        return Prefix(self.tokens[sentences], self.lengths[sentences])

    def is_forced(self, step: int) -> Tensor:
        """Return a mask [B] of the sentences that have a forced token at `step` (from 0)."""
        return self.lengths > step

    def token(self, step: int) -> Tensor:
        """Return the forced tokens [B] at `step`; arbitrary tokens for sentences without one."""
        return self.tokens[:, min(step, self.tokens.size(1) - 1)]

    def is_first_choice(self, step: int) -> Tensor:
        """Return a mask [B] of the sentences whose prefix ends just before `step`."""
        return self.lengths.eq(step)
