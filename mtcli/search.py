"""Beam search over any `TranslationModel`. Knows token ids and states, never architectures."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mtcli.config import SearchConfig
from mtcli.models import TranslationModel


@dataclass(frozen=True, order=True)
class Hypothesis:
    """A finished translation; the better one is the greater one."""

    score: float
    ids: tuple[int, ...]  # without begin and end symbols
    is_cut: bool = False  # reached options.max_length without coming to an end


@torch.inference_mode()
def beam_search(
    model: TranslationModel[Any], source: Tensor, options: SearchConfig, *, bos_id: int, eos_id: int
) -> list[list[Hypothesis]]:
    """Translate source ids [B, S]; for each sentence return its n_best hypotheses, best first."""
    width = options.beam_size
    sentences = torch.arange(source.size(0), device=source.device)  # [B]: those still open
    finished: list[list[Hypothesis]] = [[] for _ in sentences]
    state = model.encode(source).select(sentences.repeat_interleave(width))
    prefixes = source.new_full((source.size(0) * width, 1), bos_id)  # [B*W, 1+t]
    log_probs = torch.full((source.size(0), width), -torch.inf, device=source.device)
    log_probs[:, 0] = 0.0  # all beams of a sentence start equal, so only one may live
    led_to_end = torch.zeros_like(sentences, dtype=torch.bool)  # [B]: a best candidate has ended

    for length in range(1, options.max_length + 1):
        logits, state = model.decode(prefixes[:, -1:], state)
        totals = log_probs.view(-1, 1) + logits[:, -1].log_softmax(dim=-1)  # [B*W, V]
        log_probs, tokens, rows = _candidates(totals, width)  # each [B, 2W]

        ended = torch.full_like(tokens, length == options.max_length, dtype=torch.bool)
        ended |= tokens == eos_id
        ripe = ended[:, :width] & log_probs[:, :width].isfinite()  # [B, W]
        for b, c in ripe.nonzero().tolist():
            ids = [*prefixes[rows[b, c], 1:].tolist(), int(tokens[b, c])]
            finished[sentences[b]].append(_close(ids, float(log_probs[b, c]), eos_id, options))
        led_to_end |= ripe[:, 0]

        n_found = torch.tensor([len(finished[i]) for i in sentences.tolist()]).to(source.device)
        is_open = ~_is_done(n_found, led_to_end, options)
        if not is_open.any():
            break
        # A finished sentence leaves the batch: nobody computes for it any more.
        sentences, led_to_end = sentences[is_open], led_to_end[is_open]
        alive = log_probs[is_open].masked_fill(ended[is_open], -torch.inf)
        log_probs, keep = alive.topk(width, dim=-1)  # [B, W]
        rows = rows[is_open].gather(1, keep).flatten()  # [B*W]
        prefixes = torch.cat([prefixes[rows], tokens[is_open].gather(1, keep).view(-1, 1)], dim=1)
        if rows.tolist() != list(range(len(totals))):  # greedy search mostly stays where it is
            state = state.select(rows)

    return [sorted(found, reverse=True)[: options.n_best] for found in finished]


def _candidates(totals: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best 2W continuations of each sentence: log-probability, token, and row, each [B, 2W].

    2W, because even if W of them end here, W remain to go on with.
    """
    vocab_size = totals.size(-1)
    log_probs, flat = totals.view(-1, width * vocab_size).topk(2 * width, dim=-1)  # [B, 2W]
    first_rows = torch.arange(len(flat), device=flat.device)[:, None] * width
    return log_probs, flat % vocab_size, first_rows + flat // vocab_size


def _is_done(n_found: Tensor, led_to_end: Tensor, options: SearchConfig) -> Tensor:
    """Which sentences [B] need no further search: CTranslate2's rule at min_decoding_length=0."""
    if options.length_penalty == 0:
        # Log-probabilities only fall: nothing alive can overtake a best candidate that ended.
        return led_to_end & (n_found >= options.n_best)
    return n_found >= options.beam_size


def _close(ids: list[int], log_prob: float, eos_id: int, options: SearchConfig) -> Hypothesis:
    score = log_prob / len(ids) ** options.length_penalty  # eos counts, as in CTranslate2
    is_cut = ids[-1] != eos_id
    return Hypothesis(score, tuple(ids if is_cut else ids[:-1]), is_cut)
