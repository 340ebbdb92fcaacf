"""`word_counts.safetensors`: how often each word occurs in a model's training text."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from mtcli.data.words import WordCounter, WordCounts
from mtcli.errors import CheckpointError
from mtcli.model_dir.directory import METADATA
from mtcli.model_dir.layout import WORD_COUNTS
from mtcli.model_dir.safety import check_contained, read_record

MAX_COUNTED_PAIRS = 200_000
_SIDES = ("source", "target")


@dataclass(frozen=True)
class CountedText:
    """Metadata of word_counts.safetensors. Field names are part of the file format."""

    n_pairs: int | None  # training pairs; None if unknown because the corpus is streamed
    n_counted: int  # pairs whose words were counted: all pairs or a sample


@dataclass(frozen=True)
class TrainingWords:
    """Word counts in a model's training text."""

    text: CountedText
    source: WordCounts
    target: WordCounts

    @property
    def scale(self) -> float:
        """Factor that converts sample counts to estimated counts in the entire training text."""
        n_pairs, n_counted = self.text.n_pairs, self.text.n_counted
        return n_pairs / n_counted if n_pairs and n_counted else 1.0


Blocks = Iterable[tuple[Sequence[str], Sequence[str]]]


def count_words(blocks: Blocks, n_pairs: int, *, is_complete: bool = True) -> TrainingWords:
    """Return the word counts of `n_pairs` pairs, or of a sample if there are many pairs.

    `is_complete` is False if `blocks` contains only the start of a streamed corpus.
    """
    counters = WordCounter(), WordCounter()
    n_sample = min(n_pairs, MAX_COUNTED_PAIRS)
    start = n_counted = 0
    for block in blocks:
        rows = _sampled_rows(start, len(block[0]), n_sample, n_pairs)
        for counter, lines in zip(counters, block, strict=True):
            counter.add(lines if len(rows) == len(lines) else [lines[row] for row in rows])
        n_counted += len(rows)
        start += len(block[0])
    text = CountedText(n_pairs if is_complete else None, n_counted)
    return TrainingWords(text, counters[0].result(), counters[1].result())


def _sampled_rows(start: int, n_rows: int, n_sample: int, n_total: int) -> Sequence[int]:
    """Return the rows of a block that belong to an evenly spaced sample of the corpus."""
    if n_sample == n_total:
        return range(n_rows)
    # The sample consists of the corpus rows k * n_total / n_sample, rounded down.
    first, last = (-(-row * n_sample // n_total) for row in (start, start + n_rows))
    return [k * n_total // n_sample - start for k in range(first, last)]


def word_counts_file(blocks: Blocks, n_pairs: int, *, is_complete: bool = True) -> bytes:
    """Count words with `count_words`; return the contents of word_counts.safetensors."""
    return to_bytes(count_words(blocks, n_pairs, is_complete=is_complete))


def to_bytes(words: TrainingWords) -> bytes:
    """Return `words` as the contents of word_counts.safetensors."""
    tensors: dict[str, NDArray[Any]] = {}
    for side in _SIDES:
        counts: WordCounts = getattr(words, side)
        tensors[f"{side}.hashes"] = counts.hashes
        tensors[f"{side}.counts"] = counts.counts
    text = {"n_pairs": words.text.n_pairs, "n_counted": words.text.n_counted}
    return save(tensors, {METADATA: json.dumps(text)})


def load_word_counts(model: Path) -> TrainingWords | None:
    """Return the word counts of a model directory, or None if it has none."""
    path = model / WORD_COUNTS
    check_contained(model)
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            text = read_record(CountedText, json.loads((file.metadata() or {})[METADATA]))
            sides = [
                WordCounts(file.get_tensor(f"{s}.hashes"), file.get_tensor(f"{s}.counts"))
                for s in _SIDES
            ]
        for counts in sides:
            _check(counts)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is damaged or was not written by mtcli: {error}",
            hint="copy the file again, or remove it; only `mtcli evaluate --analysis` uses it",
        ) from error
    return TrainingWords(text, *sides)


def _check(counts: WordCounts) -> None:
    hashes, numbers = counts.hashes, counts.counts
    if hashes.dtype != np.uint64 or numbers.dtype != np.uint32 or hashes.ndim != 1:
        raise ValueError("a tensor has the wrong type")
    if hashes.shape != numbers.shape or bool((hashes[1:] <= hashes[:-1]).any()):
        raise ValueError("the words are not sorted")
