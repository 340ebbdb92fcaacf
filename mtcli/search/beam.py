"""Beam search over any `TranslationModel`. Knows token ids and states, never architectures."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mtcli.models import State, TranslationModel
from mtcli.options import SearchOptions
from mtcli.search.constraints import Prefix, constrained
from mtcli.tokenizer import BOS_ID, EOS_ID


@dataclass(frozen=True, order=True)
class Hypothesis:
    """A finished translation; the better one is the greater one."""

    score: float
    ids: tuple[int, ...]  # without begin and end symbols
    is_cut: bool = False  # reached the limit without coming to an end


@dataclass(frozen=True)
class _Beams:
    """The sentences whose search still goes on, W rows each."""

    sentences: Tensor  # [B]: their numbers
    said: Tensor  # [B*W, 1+t], bos first
    log_probs: Tensor  # [B, W]
    led_to_end: Tensor  # [B]: a best candidate has ended
    state: State


@dataclass(frozen=True)
class _Candidates:
    """The best 2W continuations of each sentence, best first: even if W of them end, W remain."""

    log_probs: Tensor  # [B, 2W]
    tokens: Tensor  # [B, 2W]
    rows: Tensor  # [B, 2W]: what they continue


@torch.inference_mode()
def beam_search(
    model: TranslationModel[Any],
    source: Tensor,
    options: SearchOptions,
    *,
    limit: int | None = None,
    prefix: Prefix | None = None,
) -> list[list[Hypothesis]]:
    """Translate source ids [B, S]; for each sentence return its n_best hypotheses, best first."""
    limit = limit or options.max_length
    finished: list[list[Hypothesis]] = [[] for _ in source]
    beams = _begin(model.encode(source), source, options.beam_size)
    for step in range(limit):
        logits, state = model.decode(beams.said[:, -1:], beams.state)
        logits = constrained(logits[:, -1], beams.said[:, 1:], options)  # [B*W, V]
        best = _candidates(logits, beams.log_probs, options)
        ended = best.tokens == EOS_ID  # [B, 2W]
        if prefix is not None:
            best, ended = _forced(best, ended, prefix.select(beams.sentences), step)
        ended |= step == limit - 1
        ripe = ended & best.log_probs.isfinite()
        ripe[:, options.beam_size :] = False  # the others only step in for what has ended
        for b, c in ripe.nonzero().tolist():
            ids = [*beams.said[best.rows[b, c], 1:].tolist(), int(best.tokens[b, c])]
            score = float(best.log_probs[b, c])
            finished[int(beams.sentences[b])].append(closed(ids, score, options))
        beams = replace(beams, state=state, led_to_end=beams.led_to_end | ripe[:, 0])
        is_open = ~_is_done(finished, beams, options)
        if not is_open.any():
            break
        beams = _go_on(beams, best, ended, is_open)
    return [sorted(found, reverse=True)[: options.n_best] for found in finished]


def _begin(state: State, source: Tensor, width: int) -> _Beams:
    sentences = torch.arange(source.size(0), device=source.device)  # [B]
    log_probs = torch.full((source.size(0), width), -torch.inf, device=source.device)
    log_probs[:, 0] = 0.0  # all beams of a sentence start equal, so only one may live
    return _Beams(
        sentences,
        said=source.new_full((source.size(0) * width, 1), BOS_ID),
        log_probs=log_probs,
        led_to_end=torch.zeros_like(sentences, dtype=torch.bool),
        state=state.select(sentences.repeat_interleave(width)),
    )


def _candidates(logits: Tensor, log_probs: Tensor, options: SearchOptions) -> _Candidates:
    """What may come next, from the logits [B*W, V]."""
    width = log_probs.size(1)
    # Each row's best are enough, and only they are normalised: no log-softmax of everything.
    each, tokens = logits.topk(min(2 * width, logits.size(-1)), dim=-1)  # [B*W, k]
    if width > 1 or options.with_scores:
        each = each - logits.logsumexp(dim=-1, keepdim=True)
    k = each.size(-1)
    totals = (log_probs.view(-1, 1) + each).view(-1, width * k)  # [B, W*k]
    best, flat = totals.topk(2 * width, dim=-1)  # [B, 2W]
    first_rows = torch.arange(len(flat), device=flat.device)[:, None] * width  # [B, 1]
    return _Candidates(best, tokens.view(-1, width * k).gather(1, flat), first_rows + flat // k)


def _forced(
    best: _Candidates, ended: Tensor, prefix: Prefix, step: int
) -> tuple[_Candidates, Tensor]:
    """Candidates that keep to the prefix, for which nobody pays; a prefix never ends anything."""
    is_forced = prefix.is_forced(step)[:, None]  # [B, 1]
    is_first = torch.arange(best.tokens.size(1), device=ended.device) == 0  # [2W]
    free = torch.where(is_first, 0.0, -torch.inf)  # [2W]: one hypothesis is all there is
    # When the choice begins there is one beam only, and a worse candidate would end too early.
    is_early_end = prefix.is_first_choice(step)[:, None] & ended & ~is_first  # [B, 2W]
    log_probs = best.log_probs.masked_fill(is_early_end, -torch.inf)
    return _Candidates(
        torch.where(is_forced, free, log_probs),
        torch.where(is_forced, prefix.token(step)[:, None], best.tokens),
        torch.where(is_forced, best.rows[:, :1], best.rows),
    ), ended & ~is_forced & ~is_early_end


def _is_done(finished: list[list[Hypothesis]], beams: _Beams, options: SearchOptions) -> Tensor:
    """Which sentences [B] need no further search: CTranslate2's rule at min_decoding_length=0."""
    found = [len(finished[i]) for i in beams.sentences.tolist()]
    n_found = torch.tensor(found, device=beams.sentences.device)  # [B]
    if options.length_penalty == 0:
        # Log-probabilities only fall: nothing alive can overtake a best candidate that ended.
        return beams.led_to_end & (n_found >= options.n_best)
    return n_found >= options.beam_size


def _go_on(beams: _Beams, best: _Candidates, ended: Tensor, is_open: Tensor) -> _Beams:
    """The W best candidates of each open sentence that have not ended; the others leave."""
    width = beams.log_probs.size(1)
    keep = ended[is_open].int().argsort(dim=1, stable=True)[:, :width]  # [B, W]
    rows = best.rows[is_open].gather(1, keep).flatten()  # [B*W]
    tokens = best.tokens[is_open].gather(1, keep).view(-1, 1)  # [B*W, 1]
    log_probs = best.log_probs[is_open].gather(1, keep)
    has_ended = ended[is_open].gather(1, keep)
    state = beams.state
    if not is_open.all():
        state = state.select(rows)
    elif not torch.equal(rows, torch.arange(len(rows), device=rows.device)):
        state = state.reorder(rows)  # greedy search stays where it is
    return _Beams(
        beams.sentences[is_open],
        torch.cat([beams.said[rows], tokens], dim=1),
        log_probs.masked_fill(has_ended, -torch.inf),
        beams.led_to_end[is_open],
        state,
    )


def closed(ids: list[int], log_prob: float, options: SearchOptions) -> Hypothesis:
    """The hypothesis of these ids, the end symbol among them if it has come to it."""
    score = log_prob / len(ids) ** options.length_penalty  # eos counts, as in CTranslate2
    is_cut = ids[-1] != EOS_ID
    return Hypothesis(score, tuple(ids if is_cut else ids[:-1]), is_cut)
