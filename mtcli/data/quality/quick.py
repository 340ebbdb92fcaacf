"""Quick check of a training corpus, based on a sample of passages."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mtcli.data.corpus import Corpus
from mtcli.data.quality.analysis import Analysis, analyze
from mtcli.data.quality.findings import KINDS
from mtcli.data.quality.stored_pairs import StoredPairs

MIN_PAIRS = 1_000  # smaller corpora are not checked; training warns about their size
_SAMPLE_PAIRS = 4_000
_PASSAGE = 100  # pairs per passage; they are consecutive, so that shifts can be found
_MIN_SHARE = 0.01  # share of the sampled pairs; only `mtcli check` reports rarer problems


def quick_warnings(corpus: Corpus) -> Iterator[str]:
    """Yield warnings about frequent problems in a sample of the corpus."""
    if len(corpus) < MIN_PAIRS:
        return
    rows = _sample_rows(len(corpus))
    sample = corpus.take(rows)
    pairs = StoredPairs.of(zip(sample.source, sample.target, strict=True))
    analysis = analyze(pairs, None, lambda *_: None)
    warnings = list(_warnings(analysis, rows))
    yield from warnings
    if warnings:
        yield "for details, run mtcli check on the corpus; with --fix, it writes a cleaned copy"


def _sample_rows(n_pairs: int) -> NDArray[np.int64]:
    """Return all rows of a small corpus, or the rows of evenly spaced passages.

    Any `n_pairs / 40 + 100` consecutive rows contain a complete passage.
    """
    if n_pairs <= _SAMPLE_PAIRS:
        return np.arange(n_pairs)
    n_passages = _SAMPLE_PAIRS // _PASSAGE
    starts = (2 * np.arange(n_passages) + 1) * n_pairs // (2 * n_passages) - _PASSAGE // 2
    return (starts[:, None] + np.arange(_PASSAGE)).ravel()


def _warnings(analysis: Analysis, rows: NDArray[np.int64]) -> Iterator[str]:
    if analysis.misaligned:
        place = int(rows[analysis.misaligned[0].start]) + 1
        yield f"warning: the two sides are probably misaligned near pair {place:,}"
    for kind in KINDS.values():
        n_found = len(analysis.rows.get(kind.name, ()))
        if kind.is_problem and n_found >= _MIN_SHARE * analysis.n_pairs:
            share = n_found / analysis.n_pairs
            yield f"warning: about {share:.0%} of the corpus consists of {kind.unit}s {kind.title}"
