"""At the end of training, select the attention heads that are used for word alignment.

No gold alignments are needed. IBM Model 1, estimated on the training set, links target pieces in
the dev set to source pieces. The score of a head is the number of links for which its highest
attention weight is on the linked source piece.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's convention)
from numpy.typing import NDArray
from torch import Tensor

from mtcli.config.alignment import AlignmentHeads
from mtcli.data.batches import pad
from mtcli.data.encoding import EncodedCorpus
from mtcli.export.shortlist import Lexicon, estimate_lexicon
from mtcli.models.base import TranslationModel

_MAX_PAIRS = 200  # maximum number of dev pairs, from all dev sets
_BATCH_SIZE = 16

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class AlignmentChoice:
    """The selected heads, and how often they agree with IBM Model 1."""

    heads: AlignmentHeads
    n_agreeing: int
    n_links: int

    def summary(self) -> str:
        """Return one line with the layer, the heads and their agreement with IBM Model 1."""
        heads = ", ".join(str(head + 1) for head in self.heads.heads)
        share = self.n_agreeing / self.n_links
        return (
            f"layer {self.heads.layer + 1}, heads {heads}; agrees with IBM Model 1 on {share:.0%} "
            f"of {self.n_links:,} dev pieces"
        )


def choose_alignment_heads(
    model: TranslationModel[Any], train_set: EncodedCorpus, dev_sets: Sequence[EncodedCorpus]
) -> AlignmentChoice | None:
    """Return the heads of one layer whose mean attention agrees best with IBM Model 1.

    The candidates in each layer are its best head, the mean of its two best heads, and so on. All
    candidates within one standard error of the best one count as equally good. Among them, the
    candidate with the most heads is selected, because averaging reduces noise; ties go to the
    candidate that agrees most often. The result is None if the model has no attention or only one
    head, or if Model 1 finds no links.
    """
    pairs = _select_pairs(dev_sets)
    if not pairs:
        return None
    largest = max(int(target.max()) for _, target in pairs)
    target_size = 1 + max(int(train_set.target.values.max()), largest)
    model_1 = _Model1(estimate_lexicon(train_set, target_size, max_chunks=1), target_size)
    n_columns = max(len(source) for source, _ in pairs) - 1
    weights, expected = [], []
    for (source, target), attention in zip(pairs, _attentions(model, pairs), strict=False):
        positions, links = model_1.links(source[:-1], target[:-1])
        rows_of_links = attention[:, :, positions, : len(source) - 1]  # [L, H, n, S]
        weights.append(F.pad(rows_of_links, (0, n_columns - len(source) + 1)))
        expected.append(torch.from_numpy(links))
    if not weights or weights[0].shape[:2] == (1, 1) or not sum(map(len, expected)):
        return None
    return _best_heads(torch.cat(weights, dim=2), torch.cat(expected))


def _select_pairs(dev_sets: Sequence[EncodedCorpus]) -> list[tuple[Ints, Ints]]:
    """Return up to 200 pairs: the first pair of each dev set, the second of each, and so on."""
    rows = [
        [i for i in range(len(dev_set)) if len(dev_set.source[i]) > 1][:_MAX_PAIRS]
        for dev_set in dev_sets
    ]
    in_turn = [
        (dev_set.source[i].astype(np.int64), dev_set.target[i].astype(np.int64))
        for same_rank in zip_longest(*rows)
        for dev_set, i in zip(dev_sets, same_rank, strict=True)
        if i is not None
    ]
    return in_turn[:_MAX_PAIRS]


class _Model1:
    """IBM Model 1 (Brown et al. 1993), which links the pieces of a sentence pair."""

    def __init__(self, lexicon: Lexicon, target_size: int) -> None:
        keys = lexicon.sources * target_size + lexicon.targets
        order = np.argsort(keys, kind="stable")
        self._keys, self._probabilities = keys[order], lexicon.probabilities[order]
        self._target_size = target_size

    def links(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the linked target positions, and the source position that each is linked to.

        A source piece that occurs more than once gets no links, because Model 1 cannot distinguish
        its positions.
        """
        keys = source * self._target_size + target[:, None]  # [T, S]
        indices = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        is_known = self._keys[indices] == keys
        probabilities = np.where(is_known, self._probabilities[indices], 0.0)
        best = probabilities.argmax(axis=1)
        pieces, counts = np.unique(source, return_counts=True)
        is_linked = (probabilities.max(axis=1) > 0) & ~np.isin(source[best], pieces[counts > 1])
        return np.flatnonzero(is_linked), best[is_linked]


@torch.inference_mode()
def _attentions(
    model: TranslationModel[Any], pairs: Sequence[tuple[Ints, Ints]]
) -> Iterator[Tensor]:
    """Yield the target-to-source attention [L, H, T, S] for each pair."""
    special, device = model.special, next(model.parameters()).device
    for start in range(0, len(pairs), _BATCH_SIZE):
        batch = pairs[start : start + _BATCH_SIZE]
        source = pad([source.tolist() for source, _ in batch], special.pad).to(device)
        inputs = [[special.bos, *target[:-1].tolist()] for _, target in batch]
        weights = model.attention_weights(source, pad(inputs, special.pad).to(device))
        if weights is None:
            return
        yield from weights.to_source.cpu().unbind()


def _best_heads(weights: Tensor, expected: Tensor) -> AlignmentChoice:
    """Return the best candidate for n target pieces with the given weights and links.

    `weights` has shape [L, H, n, S]. `expected` [n] contains the linked source positions.
    """
    candidates = []
    for layer, heads in enumerate(weights):
        single = (heads.argmax(dim=-1) == expected).sum(dim=-1).tolist()  # [H]
        ranked = sorted(range(len(heads)), key=lambda head: -single[head])  # noqa: B023
        sums = heads[ranked].cumsum(dim=0)  # best head, sum of the two best heads, and so on
        counts = (sums.argmax(dim=-1) == expected).sum(dim=-1).tolist()
        candidates += [(n, k, layer, ranked[:k]) for k, n in enumerate(counts, start=1)]
    best, n = max(candidates)[0], len(expected)
    least = best - math.sqrt(best * (n - best) / n)  # one standard error of a binomial count
    _, n_agreeing, layer, chosen = max((k, c, i, h) for c, k, i, h in candidates if c >= least)
    return AlignmentChoice(AlignmentHeads(layer, tuple(sorted(chosen))), n_agreeing, n)
