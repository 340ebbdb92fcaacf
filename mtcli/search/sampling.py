"""Random sampling of translations, with temperature, top-k and top-p."""

from typing import Any

import torch
from torch import Tensor

from mtcli.config.search import Sampling, SearchOptions
from mtcli.models.base import TranslationModel
from mtcli.search.beam import Hypothesis, finish_hypothesis
from mtcli.search.constraints import Prefix, apply_constraints


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
    """Return `options.n_best` samples for each row of source ids [B, S], best first."""
    sampling, n_samples = options.sampling or Sampling(), options.n_best
    sentences = torch.arange(len(source), device=source.device).repeat_interleave(n_samples)
    row_ids = list(range(len(sentences)))  # original indices of the active rows
    state = model.encode(source).select(sentences)
    prefix = prefix.select(sentences) if prefix else None
    tokens = source.new_full((len(sentences), 1), model.special.bos)  # [B*N, 1+t]
    log_probs = torch.zeros(len(sentences), device=source.device)  # [B*N]
    finished: list[list[Hypothesis]] = [[] for _ in source]
    for step in range(limit):
        logits, state = model.decode(tokens[:, -1:], state)
        logits = apply_constraints(logits[:, -1], tokens[:, 1:], options)  # [B*N, V]
        next_tokens = _draw(logits, sampling, generator)  # [B*N]
        step_log_probs = logits.log_softmax(dim=-1).gather(1, next_tokens[:, None])[:, 0]
        if prefix:
            is_forced = prefix.is_forced(step)
            next_tokens = torch.where(is_forced, prefix.token(step), next_tokens)
            step_log_probs = step_log_probs.masked_fill(is_forced, 0.0)
        log_probs = log_probs + step_log_probs
        tokens = torch.cat([tokens, next_tokens[:, None]], dim=1)
        has_ended = (next_tokens == model.special.eos) | (step == limit - 1)
        for row in has_ended.nonzero()[:, 0].tolist():
            hypothesis = finish_hypothesis(
                tokens[row, 1:].tolist(),
                float(log_probs[row]),
                options.length_penalty,
                model.special.eos,
            )
            finished[row_ids[row] // n_samples].append(hypothesis)
        active = (~has_ended).nonzero()[:, 0]
        if not len(active):
            break
        if len(active) < len(tokens):
            state, tokens, log_probs = state.select(active), tokens[active], log_probs[active]
            prefix = prefix.select(active) if prefix else None
            row_ids = [row_ids[row] for row in active.tolist()]
    return [sorted(hypotheses, reverse=True) for hypotheses in finished]


def _draw(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """Return one random token for each row of `logits` [B, V], in a tensor [B]."""
    ranked, tokens = (logits / sampling.temperature).sort(dim=-1, descending=True)
    if sampling.top_k:
        ranked, tokens = ranked[:, : sampling.top_k], tokens[:, : sampling.top_k]
    probs = ranked.softmax(dim=-1)  # [B, top_k or V]
    # Top-p keeps a token if the tokens ranked above it have a total probability below `top_p`.
    probs_above = probs.cumsum(dim=-1) - probs
    kept = probs.masked_fill(probs_above >= sampling.top_p, 0.0)
    choices = torch.multinomial(kept, 1, generator=generator)  # [B, 1]
    return tokens.gather(1, choices)[:, 0]
