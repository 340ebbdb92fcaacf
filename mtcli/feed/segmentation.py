"""Other segmentations of the same words, drawn by chance (subword regularisation).

SentencePiece can draw them, too, but since 0.2.2 it draws differently in every process, whatever
its seed; then a run could not be repeated. Both algorithms work word by word, for no piece reaches
over the space that begins a word.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from mtcli.tokenizer import Tokenizer

SPACE = "▁"  # SentencePiece's sign for it
_MOST_CACHED, _LONGEST_CACHED = 20_000, 24  # words, and characters of a word

Draw = Callable[[], float]  # a number between 0 and 1
Edge = tuple[int, int, float]  # where a piece begins, its id, and the sum of chances up to it


class BpeDropout:
    """Byte pair encoding that leaves every merge out with some probability (Provilkov 2020)."""

    def __init__(self, tokenizer: Tokenizer, dropout: float) -> None:
        self._dropout = dropout
        self._ids = _plain_pieces(tokenizer)
        # A piece that is learned early has a high score, and is merged first.
        self._scores = {piece: tokenizer.score(i) for piece, i in self._ids.items()}

    def segment(self, word: str, draw: Draw) -> list[int] | None:
        """The pieces of `word`, or None if it has a character that is none."""
        symbols = list(word)
        while len(symbols) > 1:
            best, at = -math.inf, -1
            for i in range(len(symbols) - 1):
                score = self._scores.get(symbols[i] + symbols[i + 1])
                if score is not None and score > best and draw() >= self._dropout:
                    best, at = score, i
            if at < 0:
                break
            symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
        ids = [self._ids.get(symbol) for symbol in symbols]
        return None if None in ids else ids  # type: ignore[return-value]


class UnigramSampling:
    """A segmentation with probability proportional to its own, to some power (Kudo 2018).

    Sums over all segmentations of each beginning of a word go forward; then pieces are drawn
    from the end of the word backward, each with its share of the sum.
    """

    def __init__(self, tokenizer: Tokenizer, power: float) -> None:
        self._power = power
        self._ids = _plain_pieces(tokenizer)
        self._scores = {piece: tokenizer.score(i) for piece, i in self._ids.items()}
        self._longest = max(map(len, self._ids), default=1)
        self._lattices: dict[str, list[list[Edge]]] = {}

    def segment(self, word: str, draw: Draw) -> list[int] | None:
        """The pieces of `word`, or None if it has a character that is none."""
        lattice = self._lattices.get(word)
        if lattice is None:
            lattice = self._lattice(word)
            if len(self._lattices) < _MOST_CACHED and len(word) <= _LONGEST_CACHED:
                self._lattices[word] = lattice  # frequent words come early
        ids: list[int] = []
        end = len(word)
        while end:
            edges = lattice[end]
            if not edges:
                return None
            chosen = bisect_left(edges, draw() * edges[-1][2], key=lambda edge: edge[2])
            end, piece, _ = edges[chosen]
            ids.append(piece)
        return ids[::-1]

    def _lattice(self, word: str) -> list[list[Edge]]:
        """For each position the pieces that may end there, with their chances added up."""
        sums = [0.0] + [-math.inf] * len(word)  # logarithms
        edges: list[list[Edge]] = [[]]
        for end in range(1, len(word) + 1):
            starts = [
                start
                for start in range(max(0, end - self._longest), end)
                if word[start:end] in self._ids and sums[start] > -math.inf
            ]
            logs = [sums[s] + self._power * self._scores[word[s:end]] for s in starts]
            highest = max(logs, default=0.0)
            chances = list(accumulate(math.exp(log - highest) for log in logs))
            if chances:
                sums[end] = highest + math.log(chances[-1])
            ids = [self._ids[word[start:end]] for start in starts]
            edges.append(list(zip(starts, ids, chances, strict=True)))
        return edges


class Segmenter:
    """Segments rows of ids anew; the tokenizer's kind decides how."""

    def __init__(self, tokenizer: Tokenizer, strength: float) -> None:
        self._pieces = tokenizer.vocabulary
        self._is_plain = [tokenizer.is_plain(i) for i in range(len(tokenizer))]
        sampler = BpeDropout if tokenizer.is_bpe else UnigramSampling
        self._sampler: BpeDropout | UnigramSampling = sampler(tokenizer, strength)

    def segment(self, rows: Sequence[Sequence[int]], seed: int | list[int]) -> list[list[int]]:
        """The same texts in other pieces; `seed` alone decides in which."""
        draw = _draws(np.random.default_rng(seed)).__next__
        return [self._segment_row(row, draw) for row in rows]

    def _segment_row(self, row: Sequence[int], draw: Draw) -> list[int]:
        new: list[int] = []
        for word in self._words(row):
            if all(self._is_plain[i] for i in word):
                text = "".join(self._pieces[i] for i in word)
                word = self._sampler.segment(text, draw) or word
            new += word  # what is spelt in bytes stays as it is
        return new

    def _words(self, row: Sequence[int]) -> Iterator[list[int]]:
        """The pieces of each word."""
        word: list[int] = []
        for i in row:
            if word and self._pieces[i].startswith(SPACE):
                yield word
                word = []
            word.append(i)
        if word:
            yield word


def _plain_pieces(tokenizer: Tokenizer) -> dict[str, int]:
    """The pieces that stand for the characters they consist of."""
    return {p: i for i, p in enumerate(tokenizer.vocabulary) if tokenizer.is_plain(i)}


def _draws(random: np.random.Generator) -> Iterator[float]:
    """Numbers between 0 and 1, drawn many at a time."""
    while True:
        yield from random.random(4096).tolist()
