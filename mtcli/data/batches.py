"""Batches of pairs with similar lengths. The data and the seed determine their content and order.

Target tokens are the labels that count toward the loss: target pieces and EOS, without padding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from mtcli.data.augmentation import Augmentation
from mtcli.data.encoding import EncodedCorpus, IdArray
from mtcli.data.mixing import Mixture, Rows
from mtcli.tokenizer import DEFAULT_SPECIAL_IDS, IGNORE_INDEX

PlannedBatch = tuple[EncodedCorpus, Rows, int]  # corpus, pairs and seed of a batch


@dataclass(frozen=True)
class Batch:
    """The pairs of one forward pass, padded on the right."""

    source: Tensor  # [B, S]: pieces, EOS, padding
    target_in: Tensor  # [B, T]: BOS, pieces, padding; input of the decoder
    labels: Tensor  # [B, T]: pieces, EOS, IGNORE_INDEX; expected output of the decoder
    n_target_tokens: int  # labels that count toward the loss
    n_tokens: int  # source and target positions without padding
    seed: int = 0  # random seed for the dropout of this batch
    pad_id: int = DEFAULT_SPECIAL_IDS.pad

    @property
    def n_positions(self) -> int:
        """Number of source and target positions, including padding."""
        return self.source.numel() + self.target_in.numel()

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on `device`."""
        return self._with_tensors(*(t.to(device, non_blocking=True) for t in self._tensors()))

    def pin_memory(self) -> "Batch":
        """Return the batch in page-locked memory, which can be copied to a GPU asynchronously."""
        return self._with_tensors(*(tensor.pin_memory() for tensor in self._tensors()))

    def contiguous(self) -> "Batch":
        """Return the batch with tensors that do not share memory with a larger batch."""
        return self._with_tensors(*(tensor.contiguous() for tensor in self._tensors()))

    def micro_batch(self, index: int, n: int) -> "Batch":
        """Return a batch with every n-th pair, starting at `index`.

        The gradients of all n parts add up to the gradient of the batch.
        """
        rows = slice(index, None, n)
        source, target_in, labels = self.source[rows], self.target_in[rows], self.labels[rows]
        n_target_tokens = int((labels != IGNORE_INDEX).sum())
        n_tokens = n_target_tokens + int((source != self.pad_id).sum())
        seed = _mix_seed(self.seed, index, n)
        return Batch(source, target_in, labels, n_target_tokens, n_tokens, seed, self.pad_id)

    def with_ignored_labels(self) -> "Batch":
        """Return the same pairs with all labels excluded from the loss."""
        labels = torch.full_like(self.labels, IGNORE_INDEX)
        return replace(self, labels=labels, n_target_tokens=0, n_tokens=0)

    def _tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.source, self.target_in, self.labels

    def _with_tensors(self, source: Tensor, target_in: Tensor, labels: Tensor) -> "Batch":
        return replace(self, source=source, target_in=target_in, labels=labels)


@dataclass(frozen=True)
class DataPosition:
    """Position in the training data: epoch, block in the epoch, and next batch in the block."""

    epoch: int = 0
    batch: int = 0
    block: int = 0  # always 0 unless the corpus is streamed


START = DataPosition()


@dataclass(frozen=True)
class Group:
    """The batches that this process computes in one step, and the data position after them."""

    batches: list[Batch]
    after: DataPosition

    def counts(self) -> tuple[int, int, int]:
        """Return three counts: target tokens, all tokens, and positions."""
        return (
            sum(batch.n_target_tokens for batch in self.batches),
            sum(batch.n_tokens for batch in self.batches),
            sum(batch.n_positions for batch in self.batches),
        )


@dataclass(frozen=True)
class Shard:
    """Part of each step that this process computes: part `rank` (from 0) of `size` parts."""

    rank: int = 0
    size: int = 1


@dataclass(frozen=True)
class BatchPlan(Sequence[Rows]):
    """Assignment of pairs to the batches of an epoch."""

    order: Rows  # all pairs of the epoch; neighbors have similar lengths
    offsets: Rows  # [batches + 1]: start of each batch in `order`
    permutation: Rows  # order of the batches

    def __len__(self) -> int:
        return len(self.permutation)

    def __getitem__(self, number: int) -> Rows:  # type: ignore[override]  # slices are not needed
        batch = self.permutation[number]
        return self.order[self.offsets[batch] : self.offsets[batch + 1]]


class TrainingCorpus(Protocol):
    """Training pairs in blocks; each block is shuffled separately in every epoch."""

    def blocks(self, start: int = 0) -> Iterator[EncodedCorpus]:
        """Yield the blocks of an epoch, starting with block `start`."""


@dataclass(frozen=True)
class BatchStream:
    """Infinite stream of training batches, shuffled in each epoch."""

    corpus: TrainingCorpus
    budget: int  # maximum positions per batch, including padding
    seed: int
    n_batches: int = 1  # batches per step, summed over all processes
    shard: Shard = Shard()
    augmentation: Augmentation | None = None
    mixture: Mixture | None = None  # None: an epoch contains every pair once

    def groups(self, start: DataPosition = START) -> Iterator[Group]:
        """Yield one group of batches per step, starting at data position `start`."""
        planned: list[PlannedBatch] = []
        position = start
        while True:
            for corpus in self.corpus.blocks(position.block):
                plan = self._plan(corpus, position)
                for number in range(position.batch, len(plan)):
                    planned.append((corpus, plan[number], self._batch_seed(position, number)))
                    if len(planned) == self.n_batches:
                        after = replace(position, batch=number + 1)
                        yield Group(self._local_batches(planned), after)
                        planned = []
                position = DataPosition(position.epoch, 0, position.block + 1)
            position = DataPosition(position.epoch + 1)

    def largest(self) -> Batch:
        """Return the largest batch in the first block, or this process's part of it."""
        corpus = next(self.corpus.blocks())
        source, target = corpus.source.lengths(), corpus.target.lengths()
        plan = self._plan(corpus, START)
        rows = max(plan, key=lambda rows: len(rows) * (source[rows].max() + target[rows].max()))
        return self._local_batches([(corpus, rows, self.seed)] * self.n_batches)[0]

    def _plan(self, corpus: EncodedCorpus, position: DataPosition) -> BatchPlan:
        # Do not add block 0 to the seed, so that runs of earlier versions, which had no blocks, can
        # be resumed.
        block = [position.block] if position.block else []
        random = np.random.default_rng([self.seed, position.epoch, *block])
        rows = self.mixture.rows(position.epoch) if self.mixture else None
        return plan_epoch(corpus, self.budget, random, rows)

    def rows_in_epoch(self, position: DataPosition) -> Rows:
        """Return the rows of all batches that precede `position` in its epoch."""
        plan = self._plan(next(self.corpus.blocks()), position)
        rows = [plan[number] for number in range(position.batch)]
        return np.concatenate([np.zeros(0, np.int64), *rows])

    def _batch_seed(self, position: DataPosition, number: int) -> int:
        block = [position.block] if position.block else []
        return _mix_seed(self.seed, position.epoch, number, *block)

    def _local_batches(self, planned: list[PlannedBatch]) -> list[Batch]:
        """Return the batches for this process: entire batches, or a part of each batch.

        If the batches can be divided equally, each process gets entire batches. Otherwise, each of
        n processes gets every n-th pair of each batch. The pairs are sorted by length, so this
        balances the work. If a batch has fewer than n pairs, some processes get a pair without
        labels, because every process must take part in the gradient all-reduce.
        """
        rank, size = self.shard.rank, self.shard.size
        if len(planned) % size == 0:
            return [
                collate(corpus, rows, seed, self.augmentation)
                for corpus, rows, seed in planned[rank::size]
            ]
        return [
            collate(corpus, rows[rank::size], _mix_seed(seed, rank, size), self.augmentation)
            if rank < len(rows)
            else collate(corpus, rows[:1], seed).with_ignored_labels()
            for corpus, rows, seed in planned
        ]


def plan_epoch(
    corpus: EncodedCorpus, budget: int, random: np.random.Generator, rows: Rows | None = None
) -> BatchPlan:
    """Return a plan for one epoch, with its batches in random order.

    The epoch contains the pairs in `rows`, which may contain duplicates. If `rows` is None, it
    contains every pair once.
    """
    order = _sort_by_length(corpus, random.permutation(len(corpus) if rows is None else rows))
    offsets = _split_by_budget(corpus, order, budget)
    return BatchPlan(order, offsets, random.permutation(len(offsets) - 1))


def batches_in_order(corpus: EncodedCorpus, budget: int) -> Iterator[Batch]:
    """Yield batches that contain every pair once, in a fixed order, for validation."""
    order = _sort_by_length(corpus, np.arange(len(corpus)))
    for start, end in pairwise(_split_by_budget(corpus, order, budget).tolist()):
        yield collate(corpus, order[start:end])


def collate(
    corpus: EncodedCorpus, rows: Rows, seed: int = 0, augmentation: Augmentation | None = None
) -> Batch:
    """Return a batch of the pairs in `rows`; augment it if `augmentation` is given."""
    sources = [corpus.source[row] for row in rows]
    targets = [corpus.target[row] for row in rows]
    if augmentation:
        sources, targets = augmentation.sample_subwords(sources, targets, seed)
    special = corpus.special
    bos = np.array([special.bos], dtype=np.int32)
    inputs = [np.concatenate([bos, target[:-1]]) for target in targets]
    n_target_tokens = sum(len(target) for target in targets)
    n_tokens = n_target_tokens + sum(len(source) for source in sources)
    if augmentation:
        random = np.random.default_rng([seed, 2])  # subword sampling uses 0 and 1
        sources = augmentation.drop_words(sources, random, augmentation.tags)
        inputs = augmentation.drop_words(inputs, random)
    return Batch(
        source=pad(sources, special.pad),
        target_in=pad(inputs, special.pad),
        labels=pad(targets, IGNORE_INDEX),
        n_target_tokens=n_target_tokens,
        n_tokens=n_tokens,
        seed=seed,
        pad_id=special.pad,
    )


def pad(rows: Sequence[IdArray | Sequence[int]], filler: int) -> Tensor:
    """Return `rows` as one tensor [B, S], padded on the right with `filler`."""
    padded = np.full((len(rows), max(map(len, rows))), filler, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded)


def _sort_by_length(corpus: EncodedCorpus, order: Rows) -> Rows:
    """Return `order` sorted by target length, with similar source lengths next to each other."""
    source, target = corpus.source.lengths()[order], corpus.target.lengths()[order]
    # Alternate ascending and descending source lengths, so that the source length does not jump
    # where the target length increases.
    source_key = np.where(target % 2 == 0, source, -source)
    return order[np.lexsort((source_key, target))]


def _split_by_budget(corpus: EncodedCorpus, order: Rows, budget: int) -> Rows:
    """Return the batch boundaries in `order`, which must be sorted by target length.

    A batch ends where the next pair would make the padded batch exceed `budget`.
    """
    sources, targets = corpus.source.lengths()[order], corpus.target.lengths()[order]
    starts = [0]
    while (start := starts[-1]) < len(order):
        # No more pairs fit, even if every source has only one token.
        end = start + max(1, budget // (int(targets[start]) + 1))
        longest = np.maximum.accumulate(sources[start:end]) + targets[start:end]
        sizes = longest.astype(np.int64) * np.arange(1, len(longest) + 1)
        starts.append(start + max(1, int(np.searchsorted(sizes, budget, side="right"))))
    return np.array(starts)


def _mix_seed(*numbers: int) -> int:
    """Return a seed below 2**63 that is a hash of all `numbers`."""
    state = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    return int(state[0]) >> 1
