"""Data augmentation: subword regularization and word dropout.

SentencePiece can also sample segmentations. Since version 0.2.2, however, its samples differ
between processes even with the same seed, so runs would not be reproducible. This module therefore
samples the segmentations itself, word by word, because no piece extends across a word boundary.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from mtcli.config.sections import DataConfig
from mtcli.data.encoding import IdArray
from mtcli.tokenizer import WORD_START, Tokenizer, Tokenizers

_MAX_CACHED_WORDS, _MAX_CACHED_LENGTH = 20_000, 24  # length in characters

Uniform = Callable[[], float]  # returns a random number in [0, 1)
Edge = tuple[int, int, float]  # start of a piece, its id, cumulative probability


class Augmentation:
    """Augments the pairs of a batch. The result depends only on the pairs and the seed."""

    def __init__(self, tokenizers: Tokenizers, options: DataConfig) -> None:
        self.word_dropout = options.word_dropout
        self.max_length = options.max_length
        self.special = tokenizers.special
        self.tags = tokenizers.source.pieces_to_ids(tokenizers.source.tags)
        self._samplers: tuple[SubwordSampler, SubwordSampler] | None = None
        if strength := options.subword_sampling:
            source = SubwordSampler(tokenizers.source, strength)
            target = source if tokenizers.is_shared else SubwordSampler(tokenizers.target, strength)
            self._samplers = source, target

    def sample_subwords(
        self, sources: Sequence[IdArray], targets: Sequence[IdArray], seed: int
    ) -> tuple[list[IdArray], list[IdArray]]:
        """Return the pairs with sampled segmentations, or unchanged if sampling is disabled."""
        if not self._samplers:
            return list(sources), list(targets)
        source, target = self._samplers
        return (
            self._sample_side(source, sources, [seed, 0]),
            self._sample_side(target, targets, [seed, 1]),
        )

    def _sample_side(
        self, sampler: "SubwordSampler", rows: Sequence[IdArray], seed: list[int]
    ) -> list[IdArray]:
        """Return a sample of each row, or the row itself if the sample exceeds `max_length`."""
        without_eos = [row[:-1].tolist() for row in rows]
        return [
            np.array([*sample, self.special.eos], dtype=np.int32)
            if len(sample) <= self.max_length
            else row
            for row, sample in zip(rows, sampler.sample(without_eos, seed), strict=True)
        ]

    def drop_words(
        self, rows: Sequence[IdArray], random: np.random.Generator, kept: Sequence[int] = ()
    ) -> list[IdArray]:
        """Return `rows` with random pieces replaced by UNK; keep special ids and ids in `kept`."""
        if not self.word_dropout:
            return list(rows)
        special = self.special
        ids = [special.pad, special.unk, special.bos, special.eos, *kept]
        return [self._drop_words(row, random, ids) for row in rows]

    def _drop_words(
        self, row: IdArray, random: np.random.Generator, kept: Sequence[int]
    ) -> IdArray:
        is_plain = ~np.isin(row, kept)
        is_dropped = (random.random(len(row)) < self.word_dropout) & is_plain
        return np.where(is_dropped, np.int32(self.special.unk), row)


class SubwordSampler:
    """Samples segmentations with BPE-dropout or unigram sampling, depending on the tokenizer."""

    def __init__(self, tokenizer: Tokenizer, strength: float) -> None:
        self._pieces = tokenizer.vocabulary
        self._is_plain = [tokenizer.is_plain(i) for i in range(len(tokenizer))]
        sampler = BpeDropout if tokenizer.is_bpe else UnigramSampling
        self._sampler: BpeDropout | UnigramSampling = sampler(tokenizer, strength)

    def sample(self, rows: Sequence[Sequence[int]], seed: int | list[int]) -> list[list[int]]:
        """Return the ids of sampled segmentations of `rows`; the same seed gives the same ids."""
        uniform = _uniform_numbers(np.random.default_rng(seed)).__next__
        return [self._sample_row(row, uniform) for row in rows]

    def _sample_row(self, row: Sequence[int], uniform: Uniform) -> list[int]:
        sample: list[int] = []
        for word in self._words(row):
            if all(self._is_plain[i] for i in word):  # do not resample tags or byte pieces
                text = "".join(self._pieces[i] for i in word)
                word = self._sampler.segment(text, uniform) or word
            sample += word
        return sample

    def _words(self, row: Sequence[int]) -> Iterator[list[int]]:
        """Yield the piece ids of each word."""
        word: list[int] = []
        for i in row:
            if word and self._pieces[i].startswith(WORD_START):
                yield word
                word = []
            word.append(i)
        if word:
            yield word


class BpeDropout:
    """BPE that skips each merge with probability `dropout` (Provilkov et al. 2020)."""

    def __init__(self, tokenizer: Tokenizer, dropout: float) -> None:
        self._dropout = dropout
        self._ids = _plain_pieces(tokenizer)
        # Earlier merges have higher scores and are applied first.
        self._scores = {piece: tokenizer.score(i) for piece, i in self._ids.items()}

    def segment(self, word: str, uniform: Uniform) -> list[int] | None:
        """Return sampled piece ids for `word`, or None if a character is not in the vocabulary."""
        symbols = list(word)
        while len(symbols) > 1:
            best, best_index = -math.inf, -1
            for i in range(len(symbols) - 1):
                score = self._scores.get(symbols[i] + symbols[i + 1])
                if score is not None and score > best and uniform() >= self._dropout:
                    best, best_index = score, i
            if best_index < 0:
                break
            merged = symbols[best_index] + symbols[best_index + 1]
            symbols[best_index : best_index + 2] = [merged]
        ids = [self._ids.get(symbol) for symbol in symbols]
        return None if None in ids else ids  # type: ignore[return-value]


class UnigramSampling:
    """Samples segmentations with probability proportional to p(segmentation)^power (Kudo 2018).

    Forward filtering sums over all segmentations of each prefix of a word. Backward sampling then
    draws pieces from the end of the word to its start.
    """

    def __init__(self, tokenizer: Tokenizer, power: float) -> None:
        self._power = power
        self._ids = _plain_pieces(tokenizer)
        self._scores = {piece: tokenizer.score(i) for piece, i in self._ids.items()}
        self._max_piece_length = max(map(len, self._ids), default=1)
        self._lattices: dict[str, list[list[Edge]]] = {}

    def segment(self, word: str, uniform: Uniform) -> list[int] | None:
        """Return sampled piece ids for `word`, or None if a character is not in the vocabulary."""
        lattice = self._lattices.get(word)
        if lattice is None:
            lattice = self._build_lattice(word)
            # The cache never evicts words: frequent words occur early and are already in it.
            if len(self._lattices) < _MAX_CACHED_WORDS and len(word) <= _MAX_CACHED_LENGTH:
                self._lattices[word] = lattice
        ids: list[int] = []
        end = len(word)
        while end:
            edges = lattice[end]
            if not edges:
                return None
            index = bisect_left(edges, uniform() * edges[-1][2], key=lambda edge: edge[2])
            end, piece_id, _ = edges[index]
            ids.append(piece_id)
        return ids[::-1]

    def _build_lattice(self, word: str) -> list[list[Edge]]:
        """Return, for each position, the pieces that can end there."""
        log_sums = [0.0] + [-math.inf] * len(word)
        edges: list[list[Edge]] = [[]]
        for end in range(1, len(word) + 1):
            starts = [
                start
                for start in range(max(0, end - self._max_piece_length), end)
                if word[start:end] in self._ids and log_sums[start] > -math.inf
            ]
            logs = [log_sums[s] + self._power * self._scores[word[s:end]] for s in starts]
            highest = max(logs, default=0.0)
            cumulative = list(accumulate(math.exp(log - highest) for log in logs))
            if cumulative:
                log_sums[end] = highest + math.log(cumulative[-1])
            ids = [self._ids[word[start:end]] for start in starts]
            edges.append(list(zip(starts, ids, cumulative, strict=True)))
        return edges


def _plain_pieces(tokenizer: Tokenizer) -> dict[str, int]:
    """Return a mapping from piece to id, without special symbols and byte pieces."""
    return {p: i for i, p in enumerate(tokenizer.vocabulary) if tokenizer.is_plain(i)}


def _uniform_numbers(random: np.random.Generator) -> Iterator[float]:
    """Yield random numbers in [0, 1), generated in blocks for speed."""
    while True:
        yield from random.random(4096).tolist()
