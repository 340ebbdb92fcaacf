"""Beam search for any `TranslationModel`. It uses only token ids and decoder states."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mtcli.config.search import SearchOptions
from mtcli.models.base import State, TranslationModel
from mtcli.search.constraints import Prefix, apply_constraints


@dataclass(frozen=True, order=True)
class Hypothesis:
    """A finished translation. Better hypotheses compare as greater."""

    score: float
    tokens: tuple[int, ...]  # without BOS and EOS
    is_truncated: bool = False  # reached the length limit before EOS


@dataclass(frozen=True)
class _Beams:
    """Active sentences, with W beam rows each."""

    sentences: Tensor  # [B], positions in the input batch
    tokens: Tensor  # [B*W, 1+t], BOS first
    log_probs: Tensor  # [B, W]
    best_has_ended: Tensor  # [B], whether the best candidate ended at any step so far
    state: State


@dataclass(frozen=True)
class _Candidates:
    """The best 2W continuations of each sentence, best first; at most W of them end in EOS."""

    log_probs: Tensor  # [B, 2W]
    tokens: Tensor  # [B, 2W]
    rows: Tensor  # [B, 2W], beam rows that the candidates continue


@torch.inference_mode()
def beam_search(
    model: TranslationModel[Any],
    source: Tensor,
    options: SearchOptions,
    *,
    limit: int | None = None,
    prefix: Prefix | None = None,
) -> list[list[Hypothesis]]:
    """Translate source ids [B, S]; return the n-best list of each sentence, best first.

    `limit` is the maximum number of tokens; the default is `options.max_length`.
    """
    limit = limit or options.max_length
    finished: list[list[Hypothesis]] = [[] for _ in source]
    special = model.special
    beams = _start(model.encode(source), source, options.beam_size, special.bos)
    for step in range(limit):
        logits, state = model.decode(beams.tokens[:, -1:], beams.state)
        logits = apply_constraints(logits[:, -1], beams.tokens[:, 1:], options)  # [B*W, V]
        best = _expand(logits, beams.log_probs, options)
        has_ended = best.tokens == special.eos  # [B, 2W]
        if prefix is not None:
            best, has_ended = _force_prefix(best, has_ended, prefix.select(beams.sentences), step)
        has_ended |= step == limit - 1
        just_finished = has_ended & best.log_probs.isfinite()
        just_finished[:, options.beam_size :] = False  # the last W only replace ended candidates
        for b, c in just_finished.nonzero().tolist():
            tokens = [*beams.tokens[best.rows[b, c], 1:].tolist(), int(best.tokens[b, c])]
            hypothesis = finish_hypothesis(
                tokens, float(best.log_probs[b, c]), options.length_penalty, special.eos
            )
            finished[int(beams.sentences[b])].append(hypothesis)
        best_has_ended = beams.best_has_ended | just_finished[:, 0]
        beams = replace(beams, state=state, best_has_ended=best_has_ended)
        is_active = ~_is_done(finished, beams, options)  # [B]
        if not is_active.any():
            break
        beams = _advance(beams, best, has_ended, is_active)
    return [sorted(hypotheses, reverse=True)[: options.n_best] for hypotheses in finished]


def _start(state: State, source: Tensor, beam_size: int, bos: int) -> _Beams:
    """Return the beams before the first step."""
    sentences = torch.arange(source.size(0), device=source.device)  # [B]
    log_probs = torch.full((source.size(0), beam_size), -torch.inf, device=source.device)
    log_probs[:, 0] = 0.0  # expand only one beam, because all beams of a sentence start identical
    return _Beams(
        sentences,
        tokens=source.new_full((source.size(0) * beam_size, 1), bos),
        log_probs=log_probs,
        best_has_ended=torch.zeros_like(sentences, dtype=torch.bool),
        state=state.select(sentences.repeat_interleave(beam_size)),
    )


def _expand(logits: Tensor, log_probs: Tensor, options: SearchOptions) -> _Candidates:
    """Return each sentence's 2W best candidates, given logits [B*W, V] and `log_probs` [B, W]."""
    beam_size = log_probs.size(1)
    # The best k tokens of each row suffice, so only their logits are normalized.
    row_scores, tokens = logits.topk(min(2 * beam_size, logits.size(-1)), dim=-1)  # [B*W, k]
    if beam_size > 1 or options.with_scores:
        row_scores = row_scores - logits.logsumexp(dim=-1, keepdim=True)
    k = row_scores.size(-1)
    totals = (log_probs.view(-1, 1) + row_scores).view(-1, beam_size * k)  # [B, W*k]
    best, indices = totals.topk(2 * beam_size, dim=-1)  # [B, 2W]
    first_rows = torch.arange(len(indices), device=indices.device)[:, None] * beam_size  # [B, 1]
    tokens = tokens.view(-1, beam_size * k).gather(1, indices)  # [B, 2W]
    return _Candidates(best, tokens, first_rows + indices // k)


def _force_prefix(
    best: _Candidates, has_ended: Tensor, prefix: Prefix, step: int
) -> tuple[_Candidates, Tensor]:
    """Return the candidates and `has_ended` [B, 2W] with the prefix tokens forced at `step`.

    Forced tokens have log-probability 0 and never end a hypothesis.
    """
    is_forced = prefix.is_forced(step)[:, None]  # [B, 1]
    is_first = torch.arange(best.tokens.size(1), device=has_ended.device) == 0  # [2W]
    forced_log_probs = torch.where(is_first, 0.0, -torch.inf)  # [2W]; keeps a single hypothesis
    # At the first step after the prefix, a sentence has only one beam. If EOS were its second
    # choice, the sentence would finish too early.
    is_early_end = prefix.is_first_choice(step)[:, None] & has_ended & ~is_first  # [B, 2W]
    log_probs = best.log_probs.masked_fill(is_early_end, -torch.inf)
    return _Candidates(
        torch.where(is_forced, forced_log_probs, log_probs),
        torch.where(is_forced, prefix.token(step)[:, None], best.tokens),
        torch.where(is_forced, best.rows[:, :1], best.rows),
    ), has_ended & ~is_forced & ~is_early_end


def _is_done(finished: list[list[Hypothesis]], beams: _Beams, options: SearchOptions) -> Tensor:
    """Return a mask [B] of the sentences whose search is complete.

    This is CTranslate2's rule for min_decoding_length=0.
    """
    counts = [len(finished[i]) for i in beams.sentences.tolist()]
    n_finished = torch.tensor(counts, device=beams.sentences.device)  # [B]
    if options.length_penalty == 0:
        # Log-probabilities only decrease: no beam can beat the best candidate once it is finished.
        return beams.best_has_ended & (n_finished >= options.n_best)
    return n_finished >= options.beam_size


def _advance(beams: _Beams, best: _Candidates, has_ended: Tensor, is_active: Tensor) -> _Beams:
    """Return the active sentences with their W best candidates that have not ended."""
    beam_size = beams.log_probs.size(1)
    kept = has_ended[is_active].int().argsort(dim=1, stable=True)[:, :beam_size]  # [B, W]
    rows = best.rows[is_active].gather(1, kept).flatten()  # [B*W]
    new_tokens = best.tokens[is_active].gather(1, kept).view(-1, 1)  # [B*W, 1]
    log_probs = best.log_probs[is_active].gather(1, kept)
    kept_has_ended = has_ended[is_active].gather(1, kept)
    state = beams.state
    if not is_active.all():
        state = state.select(rows)
    elif not torch.equal(rows, torch.arange(len(rows), device=rows.device)):
        state = state.reorder(rows)  # not needed in greedy search
    return _Beams(
        beams.sentences[is_active],
        torch.cat([beams.tokens[rows], new_tokens], dim=1),
        log_probs.masked_fill(kept_has_ended, -torch.inf),
        beams.best_has_ended[is_active],
        state,
    )


def finish_hypothesis(tokens: list[int], log_prob: float, penalty: float, eos: int) -> Hypothesis:
    """Return the scored hypothesis; `tokens` ends in EOS unless it reached the length limit."""
    score = log_prob / len(tokens) ** penalty  # the length includes EOS, as in CTranslate2
    is_truncated = tokens[-1] != eos
    return Hypothesis(score, tuple(tokens if is_truncated else tokens[:-1]), is_truncated)
