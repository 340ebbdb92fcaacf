"""Examine a corpus block by block. A large corpus is examined in several processes."""

import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtcli.data.duplicates import hash_texts
from mtcli.data.filters import Mask, PairBlock
from mtcli.data.quality.alignment import (
    MAX_OFFSET,
    AlignmentModel,
    Passage,
    learn_alignment,
)
from mtcli.data.quality.association import Floats
from mtcli.data.quality.languages import SideLanguage, SideSample, Trigrams, learn_languages
from mtcli.data.quality.overlap import OverlapIndex
from mtcli.data.quality.pair_rules import Side, examine_pairs, find_scripts
from mtcli.data.quality.stored_pairs import StoredPairs
from mtcli.data.quality.tokens import Array, TextBlock, tokenize
from mtcli.hardware import usable_cores

_SAMPLE_PAIRS = 40_000  # pairs to learn from
_MIN_CHUNK, _MAX_CHUNK = 32, 512  # lines; chunks alternate between the two folds
_N_CHUNKS = 16  # chunks in a small corpus
_PARALLEL_PAIRS = 30_000  # smaller corpora are examined in this process


@dataclass(frozen=True)
class Knowledge:
    """Scripts, languages and alignment model learned from a sample of the corpus."""

    chunk: int  # lines per chunk
    scripts: tuple[tuple[str, ...], tuple[str, ...]]
    languages: tuple[SideLanguage, SideLanguage]
    alignment: AlignmentModel | None

    def folds(self, start: int, end: int) -> Array:
        """Return the fold of each row from `start` to `end`."""
        return fold_of(np.arange(start, end), self.chunk)


def fold_of(rows: Array, chunk: int) -> Array:
    """Return the fold, 0 or 1, of each row."""
    return (rows // chunk) % 2


def learn(pairs: StoredPairs) -> Knowledge:
    """Return the scripts, languages and alignment model learned from a sample of the corpus."""
    chunk = min(_MAX_CHUNK, max(_MIN_CHUNK, len(pairs) // _N_CHUNKS))
    ranges = _sample_ranges(len(pairs), chunk)
    sides = [_SampledSide(lines, ranges) for lines in (pairs.sources, pairs.targets)]
    folds = np.concatenate([fold_of(np.arange(*span), chunk) for span in ranges])
    samples = [side.sample(folds) for side in sides]
    passages = [
        Passage(
            sides[0].tokens.slice(*sides[0].inner(number)),
            sides[1].tokens.slice(*sides[1].outer(number)),
            sides[0].lengths[slice(*sides[0].inner(number))],
            sides[1].lengths[slice(*sides[1].outer(number))],
            sides[1].inner(number)[0] - sides[1].outer(number)[0],
        )
        for number in range(len(ranges))
    ]
    return Knowledge(
        chunk,
        (sides[0].scripts, sides[1].scripts),
        learn_languages(samples[0], samples[1]),
        learn_alignment(passages),
    )


def _sample_ranges(n_pairs: int, chunk: int) -> list[tuple[int, int]]:
    """Return the start and end of each chunk to learn from; the chunks alternate between folds."""
    n_chunks = -(-n_pairs // chunk)
    n_sampled = _SAMPLE_PAIRS // chunk
    numbers = np.arange(n_chunks)
    if n_chunks > n_sampled:
        twos = np.random.default_rng(0).choice(n_chunks // 2, n_sampled // 2, replace=False)
        numbers = (2 * np.sort(twos)[:, None] + np.arange(2)).ravel()
    return [(int(i) * chunk, min((int(i) + 1) * chunk, n_pairs)) for i in numbers]


class _SampledSide:
    """Sampled lines from one side, with a margin of lines before and after each chunk."""

    def __init__(self, lines: Sequence[str], ranges: Sequence[tuple[int, int]]) -> None:
        self._ranges = ranges
        outer = [
            (max(0, start - MAX_OFFSET), min(len(lines), end + MAX_OFFSET)) for start, end in ranges
        ]
        starts = np.cumsum([0, *(end - start for start, end in outer)]).tolist()
        self._outer = list(zip(starts[:-1], starts[1:], strict=True))
        self._inner = [
            (first + start - low, first + end - low)
            for (start, end), (low, _), first in zip(ranges, outer, starts, strict=False)
        ]
        self._lines = [line for span in outer for line in lines[slice(*span)]]
        self.lengths = np.fromiter(map(len, self._lines), np.int64, len(self._lines))
        self._text = TextBlock.of(self._lines)
        self.tokens = tokenize(self._text)
        self.scripts = find_scripts(self._lines)

    def inner(self, number: int) -> tuple[int, int]:
        """Return the start and end of a chunk in the sampled lines, without its margins."""
        return self._inner[number]

    def outer(self, number: int) -> tuple[int, int]:
        """Return the start and end of a chunk in the sampled lines, including its margins."""
        return self._outer[number]

    def sample(self, folds: Array) -> SideSample:
        """Return the sample of this side for `learn_languages`; lines in the margins are masked."""
        is_first = np.zeros(len(self._lines), bool)
        all_folds = np.zeros(len(self._lines), np.int64)
        inner = np.concatenate([np.arange(*span) for span in self._inner])
        all_folds[inner] = folds
        hashes = hash_texts(self._lines[i] for i in inner.tolist())
        is_first[inner[np.unique(hashes, return_index=True)[1]]] = True
        return SideSample(Trigrams.of(self._text), self.tokens, all_folds, is_first)


@dataclass(frozen=True)
class BlockResult:
    """Results for one block of rows."""

    start: int  # first row
    found: dict[str, Mask]  # by kind of finding
    hashes: tuple[NDArray[np.uint64], NDArray[np.uint64]]  # hashes of pairs, hashes of sources
    lengths: tuple[Array, Array]  # characters per source and target line; 0 if blank
    scores: Floats | None  # alignment scores [rows, offsets]


@dataclass(frozen=True)
class Examiner:
    """Examines the blocks of a corpus."""

    pairs: StoredPairs
    knowledge: Knowledge
    overlap: OverlapIndex | None = None

    def examine(self, block: tuple[int, int]) -> BlockResult:
        """Return the results for a block, given its start and end row."""
        start, end = block
        low, high = max(0, start - MAX_OFFSET), min(len(self.pairs), end + MAX_OFFSET)
        source_lines, margin_lines = self.pairs.sources[start:end], self.pairs.targets[low:high]
        target_lines = margin_lines[start - low : end - low]
        source = _side(source_lines, self.knowledge.scripts[0])
        target = _side(target_lines, self.knowledge.scripts[1])
        found = examine_pairs(source, target)
        found["wrong_language"] = self._wrong_language(source, target, start) & ~(
            found["copies"] | found["wrong_script"] | found["one_sided"]
        )
        if self.overlap:
            rows = PairBlock(source_lines, target_lines)
            overlap = self.overlap.find(rows, source.tokens, target.tokens)
            found |= {"test_exact": overlap.exact, "test_near": overlap.near}
        texts = zip(source_lines, target_lines, strict=True)
        return BlockResult(
            start,
            found,
            (hash_texts(f"{s}\n{t}" for s, t in texts), hash_texts(source_lines)),
            (_lengths(source_lines), _lengths(target_lines)),
            self._scores(source, margin_lines, start, low),
        )

    def _wrong_language(self, source: Side, target: Side, start: int) -> Mask:
        folds = self.knowledge.folds(start, start + len(source.lines))
        is_wrong = np.zeros(len(folds), bool)
        for side, language in zip((source, target), self.knowledge.languages, strict=True):
            is_wrong |= language.find_wrong(Trigrams.of(side.text), side.tokens, folds)
        return is_wrong

    def _scores(
        self, source: Side, margin_lines: Sequence[str], start: int, low: int
    ) -> Floats | None:
        """Return the alignment scores [rows, offsets], or None without an alignment model."""
        model = self.knowledge.alignment
        if model is None:
            return None
        passage = Passage(
            source.tokens,
            tokenize(TextBlock.of(margin_lines)),
            np.fromiter(map(len, source.lines), np.int64, len(source.lines)),
            np.fromiter(map(len, margin_lines), np.int64, len(margin_lines)),
            start - low,
        )
        folds = self.knowledge.folds(start, start + len(source.lines))
        bounds = [0, *(np.flatnonzero(np.diff(folds)) + 1).tolist(), len(folds)]
        parts = [
            model.score(passage.slice(first, last), int(folds[first]))
            for first, last in zip(bounds[:-1], bounds[1:], strict=True)
        ]
        return np.concatenate(parts)


def _side(lines: Sequence[str], scripts: tuple[str, ...]) -> Side:
    text = TextBlock.of(lines)
    return Side(lines, text, tokenize(text), scripts)


def _lengths(lines: Sequence[str]) -> Array:
    return np.fromiter((len(line) if line.strip() else 0 for line in lines), np.int64, len(lines))


def examine_blocks(examiner: Examiner) -> Iterator[BlockResult]:
    """Yield the results of all blocks, in order."""
    ranges = examiner.pairs.ranges
    n_processes = min(usable_cores(), len(ranges))
    if len(examiner.pairs) < _PARALLEL_PAIRS or n_processes < 2 or sys.platform != "linux":
        yield from map(examiner.examine, ranges)
        return
    # Forked processes share the temporary files and the models, so nothing is copied.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(
        n_processes, context, initializer=_EXAMINERS.append, initargs=(examiner,)
    ) as pool:
        yield from pool.map(_examine_in_process, ranges)


_EXAMINERS: list[Examiner] = []  # each child process has one


def _examine_in_process(block: tuple[int, int]) -> BlockResult:
    return _EXAMINERS[0].examine(block)
