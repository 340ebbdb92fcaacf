"""Translations drawn at random, as likely as the model thinks them to be."""

from typing import Any

import torch
from torch import Tensor

from mtcli.models import TranslationModel
from mtcli.options import Sampling, SearchOptions
from mtcli.search.beam import Hypothesis, closed
from mtcli.search.constraints import Prefix, constrained
from mtcli.tokenizer import BOS_ID, EOS_ID


@torch.inference_mode()
def sample(
    model: TranslationModel[Any],
    source: Tensor,
    options: SearchOptions,
    generator: torch.Generator,
    *,
    limit: int,
    prefix: Prefix | None = None,
) -> list[list[Hypothesis]]:
    """For each sentence of source ids [B, S] n_best translations, the likeliest first."""
    sampling, n = options.sampling or Sampling(), options.n_best
    rows = torch.arange(len(source), device=source.device).repeat_interleave(n)  # [B*n]: open ones
    owner = list(range(len(rows)))  # the number of each open row
    state = model.encode(source).select(rows)
    prefix = prefix.select(rows) if prefix else None
    said = source.new_full((len(rows), 1), BOS_ID)  # [B*n, 1+t]
    totals = torch.zeros(len(rows), device=source.device)
    found: list[list[Hypothesis]] = [[] for _ in source]
    for step in range(limit):
        logits, state = model.decode(said[:, -1:], state)
        logits = constrained(logits[:, -1], said[:, 1:], options)  # [B*n, V]
        tokens = _draw(logits, sampling, generator)  # [B*n]
        gains = logits.log_softmax(dim=-1).gather(1, tokens[:, None])[:, 0]
        if prefix:
            is_forced = prefix.is_forced(step)
            tokens = torch.where(is_forced, prefix.token(step), tokens)
            gains = gains.masked_fill(is_forced, 0.0)
        totals = totals + gains
        said = torch.cat([said, tokens[:, None]], dim=1)
        has_ended = (tokens == EOS_ID) | (step == limit - 1)
        for row in has_ended.nonzero()[:, 0].tolist():
            ids = said[row, 1:].tolist()
            found[owner[row] // n].append(closed(ids, float(totals[row]), options))
        keep = (~has_ended).nonzero()[:, 0]
        if not len(keep):
            break
        if len(keep) < len(said):
            state, said, totals = state.select(keep), said[keep], totals[keep]
            prefix = prefix.select(keep) if prefix else None
            owner = [owner[row] for row in keep.tolist()]
    return [sorted(hypotheses, reverse=True) for hypotheses in found]


def _draw(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """One token [B] for each row of `logits` [B, V]."""
    ranked, tokens = (logits / sampling.temperature).sort(dim=-1, descending=True)
    if sampling.top_k:
        ranked, tokens = ranked[:, : sampling.top_k], tokens[:, : sampling.top_k]
    probabilities = ranked.softmax(dim=-1)  # [B, K]
    # A token stays as long as those before it have not yet the wanted probability together.
    before = probabilities.cumsum(dim=-1) - probabilities
    kept = probabilities.masked_fill(before >= sampling.top_p, 0.0)
    drawn = torch.multinomial(kept, 1, generator=generator)  # [B, 1]
    return tokens.gather(1, drawn)[:, 0]
