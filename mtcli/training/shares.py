"""Planned and actual share of each corpus in the training data."""

from collections.abc import Iterator

import numpy as np

from mtcli.counts import format_count
from mtcli.data.batches import DataPosition
from mtcli.data.mixing import Share, to_shares
from mtcli.training.run_state import Run


def planned_shares(run: Run) -> list[str]:
    """Return lines with each corpus's share of an epoch; [] for a single or streamed corpus."""
    if not _has_shares(run):
        return []
    sizes, tokens = run.parts.sizes, run.parts.n_tokens
    counts = run.mixture.counts if run.mixture else sizes
    # With a fractional weight, the pairs differ between epochs, so use the mean tokens per pair.
    expected = [
        round(n * count / max(1, size))
        for n, count, size in zip(tokens, counts, sizes, strict=True)
    ]
    head = f"mix: {format_count(sum(counts), 'pair')} per epoch from {len(sizes)} corpora"
    return [head, *_lines(run, to_shares(counts, expected))]


def used_shares(run: Run, position: DataPosition) -> list[str]:
    """Return lines with each corpus's share of the pairs used in training up to `position`.

    Return [] for a single or streamed corpus.
    """
    if not _has_shares(run):
        return []
    pairs, tokens = run.parts.count(run.batch_stream().rows_in_epoch(position))
    sizes, all_tokens = np.array(run.parts.sizes), np.array(run.parts.n_tokens)
    if run.mixture is None:
        pairs, tokens = pairs + position.epoch * sizes, tokens + position.epoch * all_tokens
    else:
        for corpus in range(len(sizes)):
            n_complete, rows = run.mixture.rows_before(position.epoch, corpus)
            more_pairs, more_tokens = run.parts.count(rows)
            pairs, tokens = pairs + more_pairs, tokens + more_tokens
            pairs[corpus] += n_complete * sizes[corpus]
            tokens[corpus] += n_complete * all_tokens[corpus]
    head = f"mix: {format_count(int(pairs.sum()), 'pair')} used in training"
    return [head, *_lines(run, to_shares(pairs.tolist(), tokens.tolist()))]


def _has_shares(run: Run) -> bool:
    return run.data.stream is None and run.data.train_set.origins is not None


def _lines(run: Run, shares: list[Share]) -> Iterator[str]:
    # Do not log directory names: the user may share the model and its log.
    entries = run.config.data.train.strip_absolute_paths().entries
    for entry, share in zip(entries, shares, strict=True):
        yield f"  {entry.label}: {share}"
