"""Pairs of like length share a batch; the seed fixes which and when.

A *word* is what counts in the loss: a target piece or the end symbol, never padding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mtcli.data.corpus import EncodedCorpus, IdArray
from mtcli.tokenizer import BOS_ID, PAD_ID

IGNORED = -100  # F.cross_entropy leaves out positions with this label

Rows = NDArray[np.int64]  # numbers of pairs


@dataclass(frozen=True)
class Batch:
    """The pairs of one forward pass, padded on the right."""

    source: Tensor  # [B, S]: words, eos, padding
    target_in: Tensor  # [B, T]: bos, words, padding; what the decoder reads
    labels: Tensor  # [B, T]: words, eos, IGNORED; what it should say next
    n_words: int  # labels that count
    n_tokens: int  # source and target positions that are not padding

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return replace(
            self,
            source=self.source.to(device, non_blocking=True),
            target_in=self.target_in.to(device, non_blocking=True),
            labels=self.labels.to(device, non_blocking=True),
        )


@dataclass(frozen=True)
class Position:
    """Where reading goes on: the next batch of an epoch."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Group:
    """The batches of one step, and where reading goes on after them."""

    batches: list[Batch]
    after: Position


def groups(
    corpus: EncodedCorpus, budget: int, seed: int, *, size: int = 1, start: Position
) -> Iterator[Group]:
    """Groups of `size` batches without end, epoch after epoch, each in an order of its own."""
    batches: list[Batch] = []
    epoch, skipped = start.epoch, start.batch
    while True:
        plan = epoch_plan(corpus, budget, np.random.default_rng([seed, epoch]))
        for number in range(skipped, len(plan)):
            batches.append(collate(corpus, plan[number]))
            if len(batches) == size:
                yield Group(batches, Position(epoch, number + 1))
                batches = []
        epoch, skipped = epoch + 1, 0


def epoch_plan(corpus: EncodedCorpus, budget: int, random: np.random.Generator) -> list[Rows]:
    """Which pairs stand together in each batch of an epoch; every pair stands in exactly one."""
    plan = _cut(corpus, _by_length(corpus, random.permutation(len(corpus))), budget)
    return [plan[i] for i in random.permutation(len(plan))]


def batches_in_order(corpus: EncodedCorpus, budget: int) -> Iterator[Batch]:
    """Every pair once, the same way each time; what validation reads."""
    for rows in _cut(corpus, _by_length(corpus, np.arange(len(corpus))), budget):
        yield collate(corpus, rows)


def collate(corpus: EncodedCorpus, rows: Rows) -> Batch:
    """One batch of the given pairs."""
    sources = [corpus.source[row] for row in rows]
    targets = [corpus.target[row] for row in rows]
    n_words = sum(len(target) for target in targets)
    bos = np.array([BOS_ID], dtype=np.int32)
    return Batch(
        source=pad(sources, PAD_ID),
        target_in=pad([np.concatenate([bos, target[:-1]]) for target in targets], PAD_ID),
        labels=pad(targets, IGNORED),
        n_words=n_words,
        n_tokens=n_words + sum(len(source) for source in sources),
    )


def pad(rows: Sequence[IdArray | Sequence[int]], filler: int) -> Tensor:
    """Rows of any lengths as one tensor [B, S], filled up on the right."""
    padded = np.full((len(rows), max(map(len, rows))), filler, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded)


def _by_length(corpus: EncodedCorpus, order: Rows) -> Rows:
    """`order`, sorted so that neighbours are of like length on both sides."""
    source, target = corpus.source.lengths()[order], corpus.target.lengths()[order]
    # Up and down in turn: where the target grows by one, the source does not jump.
    snake = np.where(target % 2 == 0, source, -source)
    return order[np.lexsort((snake, target))]


def _cut(corpus: EncodedCorpus, order: Rows, budget: int) -> list[Rows]:
    """Cut `order` where the next pair would make the padded batch larger than `budget`."""
    plan, start, longest_source, longest_target = [], 0, 0, 0
    sources = corpus.source.lengths()[order].tolist()
    targets = corpus.target.lengths()[order].tolist()
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        longest_source, longest_target = max(longest_source, source), max(longest_target, target)
        if i > start and (i + 1 - start) * (longest_source + longest_target) > budget:
            plan.append(order[start:i])
            start, longest_source, longest_target = i, source, target
    plan.append(order[start:])
    return plan
