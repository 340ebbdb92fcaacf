"""Hold out dev pairs from the training corpus."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from mtcli.data.corpus import Corpus
from mtcli.data.line_store import encoded_blocks_of
from mtcli.errors import DataError

_SPLIT_SEED = 1


def too_few_pairs(n_pairs: int) -> DataError:
    """Return the error for a corpus that is too small to hold out dev pairs."""
    return DataError(
        f"too few pairs to hold out dev pairs: {n_pairs}",
        hint="use at least 10 pairs, or pass a separate dev set with --dev SOURCE TARGET",
    )


def hold_out(corpus: Corpus, n_pairs: int, seed: int = _SPLIT_SEED) -> tuple[Corpus, Corpus]:
    """Split `corpus` into training and dev pairs that share no source sentence.

    If the corpus has several directions, the reverse of a dev pair is also removed from training.
    """
    dev = choose_dev(corpus, n_pairs, seed)
    shared = shared_rows(corpus, dev.source)
    if len(shared) == len(corpus):
        raise no_training_pairs()
    return corpus.exclude(shared), dev


def choose_dev(corpus: Corpus, n_pairs: int, seed: int = _SPLIT_SEED) -> Corpus:
    """Return random dev pairs to hold out: `n_pairs`, but at most a tenth of the corpus.

    Pairs with a tag, such as back-translations, are held out only if all corpora have tags. With
    the default seed, all models trained on the same corpus have the same dev pairs. Other seeds
    reproduce the dev pairs of earlier mtcli versions.
    """
    rows = _untagged(corpus, np.random.default_rng(seed).permutation(len(corpus)))
    n_dev = min(n_pairs, len(rows) // 10)
    if n_dev == 0:
        raise too_few_pairs(len(rows))
    return corpus.take(rows[:n_dev])


def no_training_pairs() -> DataError:
    """Return the error for a corpus in which every source occurs in a held-out dev pair."""
    return DataError(
        "no training pairs remain: every source sentence also occurs in the held-out dev pairs",
        hint="use a corpus with more distinct sentences, or pass --dev SOURCE TARGET",
    )


def _untagged(corpus: Corpus, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of pairs without a tag, or all rows if every corpus has a tag."""
    is_tagged = np.array([entry.tag is not None for entry in corpus.entries], dtype=bool)
    if corpus.origins is None or is_tagged.all() or not is_tagged.any():
        return rows
    untagged: NDArray[np.int64] = rows[~is_tagged[corpus.origins[rows]]]
    return untagged


def shared_rows(corpus: Corpus, dev_sources: Iterable[str]) -> list[int]:
    """Return the rows to exclude from training: those with the same source as a dev pair.

    If the corpus has several directions, also return rows whose target is the source of a dev pair.
    """
    wanted = {line.encode() for line in dev_sources}
    rows = _rows_with(corpus.source, wanted)
    if corpus.has_directions:
        rows = sorted({*rows, *_rows_with(corpus.target, wanted)})
    return rows


def _rows_with(lines: Sequence[str], wanted: set[bytes]) -> list[int]:
    """Return the numbers of the rows whose UTF-8 line is in `wanted`."""
    rows: list[int] = []
    start = 0
    for data in encoded_blocks_of(lines):
        block = data.split(b"\n")[:-1]
        if not wanted.isdisjoint(block):
            rows += [start + i for i, line in enumerate(block) if line in wanted]
        start += len(block)
    return rows
