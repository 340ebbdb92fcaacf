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
from mtcli.feed.augmentation import Augmentation
from mtcli.tokenizer import BOS_ID, PAD_ID

IGNORED = -100  # label of a position that does not count

Rows = NDArray[np.int64]  # numbers of pairs
Drawn = tuple[Rows, int]  # the pairs of a batch, and its seed


@dataclass(frozen=True)
class Batch:
    """The pairs of one forward pass, padded on the right."""

    source: Tensor  # [B, S]: words, eos, padding
    target_in: Tensor  # [B, T]: bos, words, padding; what the decoder reads
    labels: Tensor  # [B, T]: words, eos, IGNORED; what it should say next
    n_words: int  # labels that count
    n_tokens: int  # source and target positions that are not padding
    seed: int = 0  # of all chance in this pass, so that it does not depend on what came before

    @property
    def n_positions(self) -> int:
        """Source and target positions, padding included."""
        return self.source.numel() + self.target_in.numel()

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return self._with(*(part.to(device, non_blocking=True) for part in self._parts()))

    def pinned(self) -> "Batch":
        """The same batch in memory from which a GPU can copy by itself."""
        return self._with(*(part.pin_memory() for part in self._parts()))

    def part(self, number: int, n_parts: int) -> "Batch":
        """Every n-th pair: all parts together make the same step as the whole."""
        rows = slice(number, None, n_parts)
        source, target_in, labels = self.source[rows], self.target_in[rows], self.labels[rows]
        n_words = int((labels != IGNORED).sum())
        n_tokens = n_words + int((source != PAD_ID).sum())
        seed = _mixed(self.seed, number, n_parts)
        return Batch(source, target_in, labels, n_words, n_tokens, seed)

    def silent(self) -> "Batch":
        """The same pairs, of which nothing counts."""
        labels = torch.full_like(self.labels, IGNORED)
        return replace(self, labels=labels, n_words=0, n_tokens=0)

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.source, self.target_in, self.labels

    def _with(self, source: Tensor, target_in: Tensor, labels: Tensor) -> "Batch":
        return replace(self, source=source, target_in=target_in, labels=labels)


@dataclass(frozen=True)
class Position:
    """Where reading goes on: the next batch of an epoch."""

    epoch: int = 0
    batch: int = 0


BEGINNING = Position()


@dataclass(frozen=True)
class Group:
    """The batches of one step, and where reading goes on after them.

    With several processes they are those of one of them.
    """

    batches: list[Batch]
    after: Position

    def counts(self) -> tuple[int, int, int]:
        """Words, tokens and positions."""
        return (
            sum(batch.n_words for batch in self.batches),
            sum(batch.n_tokens for batch in self.batches),
            sum(batch.n_positions for batch in self.batches),
        )


@dataclass(frozen=True)
class Share:
    """Which part of every step is done here: that of the process `rank` of `size`."""

    rank: int = 0
    size: int = 1


@dataclass(frozen=True)
class Feed:
    """How pairs become steps without end, epoch after epoch, each in an order of its own."""

    corpus: EncodedCorpus
    budget: int  # positions of a batch
    seed: int
    size: int = 1  # batches of a step
    share: Share = Share()
    augmentation: Augmentation | None = None

    def groups(self, start: Position = BEGINNING) -> Iterator[Group]:
        """The steps from `start` on."""
        drawn: list[Drawn] = []
        epoch, skipped = start.epoch, start.batch
        while True:
            plan = self._plan(epoch)
            for number in range(skipped, len(plan)):
                drawn.append((plan[number], _mixed(self.seed, epoch, number)))
                if len(drawn) == self.size:
                    yield Group(self._shared(drawn), Position(epoch, number + 1))
                    drawn = []
            epoch, skipped = epoch + 1, 0

    def largest(self) -> Batch:
        """What this process gets of the largest batch of the first epoch."""
        source, target = self.corpus.source.lengths(), self.corpus.target.lengths()
        plan = self._plan(epoch=0)
        rows = max(plan, key=lambda rows: len(rows) * (source[rows].max() + target[rows].max()))
        return self._shared([(rows, self.seed)] * self.size)[0]

    def _plan(self, epoch: int) -> list[Rows]:
        return epoch_plan(self.corpus, self.budget, np.random.default_rng([self.seed, epoch]))

    def _shared(self, drawn: list[Drawn]) -> list[Batch]:
        """This process's part: some of the batches if they can be dealt out, else of each a part.

        Pairs of a batch stand in the order of their lengths, so that every n-th of them makes
        parts of like work. Where there are fewer pairs than processes, some get one that does not
        count: all must take part in the exchange of gradients.
        """
        rank, size = self.share.rank, self.share.size
        if len(drawn) % size == 0:
            return [collate(self.corpus, *one, self.augmentation) for one in drawn[rank::size]]
        return [
            collate(self.corpus, rows[rank::size], _mixed(seed, rank, size), self.augmentation)
            if rank < len(rows)
            else collate(self.corpus, rows[:1], seed).silent()
            for rows, seed in drawn
        ]


def epoch_plan(corpus: EncodedCorpus, budget: int, random: np.random.Generator) -> list[Rows]:
    """Which pairs stand together in each batch of an epoch; every pair stands in exactly one."""
    plan = _cut(corpus, _by_length(corpus, random.permutation(len(corpus))), budget)
    return [plan[i] for i in random.permutation(len(plan))]


def batches_in_order(corpus: EncodedCorpus, budget: int) -> Iterator[Batch]:
    """Every pair once, the same way each time; what validation reads."""
    for rows in _cut(corpus, _by_length(corpus, np.arange(len(corpus))), budget):
        yield collate(corpus, rows)


def collate(
    corpus: EncodedCorpus, rows: Rows, seed: int = 0, augmentation: Augmentation | None = None
) -> Batch:
    """One batch of the given pairs, as they are or as `augmentation` lets them be seen."""
    sources = [corpus.source[row] for row in rows]
    targets = [corpus.target[row] for row in rows]
    if augmentation:
        sources, targets = augmentation.segment(sources, targets, seed)
    bos = np.array([BOS_ID], dtype=np.int32)
    shifted = [np.concatenate([bos, target[:-1]]) for target in targets]
    n_words = sum(len(target) for target in targets)
    n_tokens = n_words + sum(len(source) for source in sources)
    if augmentation:
        random = np.random.default_rng([seed, 2])  # 0 and 1 draw the segmentations
        sources, shifted = augmentation.hide(sources, random), augmentation.hide(shifted, random)
    return Batch(
        source=pad(sources, PAD_ID),
        target_in=pad(shifted, PAD_ID),
        labels=pad(targets, IGNORED),
        n_words=n_words,
        n_tokens=n_tokens,
        seed=seed,
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


def _mixed(*numbers: int) -> int:
    """One number below 2**63 that depends on all of `numbers` as if by chance."""
    state = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    return int(state[0]) >> 1
