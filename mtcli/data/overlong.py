"""Exclude pairs that are certainly too long, before they are tokenized."""

from collections.abc import Callable

from mtcli.counts import format_count
from mtcli.data.corpus import Corpus, Notify
from mtcli.data.line_store import longest_line
from mtcli.errors import DataError
from mtcli.reporting.messages import example_text
from mtcli.tokenizer import MAX_PIECE_LENGTH, normalizer

_SLICE = 1 << 16  # characters of a long line to normalize at a time
_SLICE_MARGIN = 8  # characters that slicing a line can add to the normalized text


def drop_overlong(corpus: Corpus, max_length: int, normalization: str, notify: Notify) -> Corpus:
    """Return `corpus` without the pairs that cannot fit into `max_length` pieces per side.

    Training a tokenizer on very long lines and encoding them could take hours. A piece has at most
    `MAX_PIECE_LENGTH` characters of the normalized text, so no pair that fits is dropped, with one
    exception: without tokenizer.byte_fallback, a run of unknown characters is one piece.
    """
    limit = MAX_PIECE_LENGTH * max_length
    if max(longest_line(corpus.source), longest_line(corpus.target)) <= limit:
        return corpus
    normalize = normalizer(normalization)
    overlong: list[int] = []
    row = 0
    for pairs in corpus.blocks():
        for pair in zip(*pairs, strict=True):
            if any(_is_overlong(line, limit, normalize) for line in pair):
                overlong.append(row)
            row += 1
    if not overlong:
        return corpus
    dropped = f"dropped {len(overlong):,} of {format_count(len(corpus), 'pair')}"
    notify(
        f"{dropped} longer than {limit:,} characters "
        f"(data.max_length={max_length}){example_text(corpus.pair(overlong[0]))}"
    )
    if len(overlong) == len(corpus):
        raise all_too_long(max_length)
    return corpus.exclude(overlong)


def _is_overlong(line: str, limit: int, normalize: Callable[[str], str]) -> bool:
    """Return whether `line` has more than `limit` characters after normalization.

    Normalization can make a line shorter: it removes spaces and control characters and composes
    accents.
    """
    if len(line) <= limit:
        return False
    n_characters = 0
    for start in range(0, len(line), _SLICE):
        n_characters += len(normalize(line[start : start + _SLICE])) - _SLICE_MARGIN
        if n_characters > limit:
            return True
    return False


def all_too_long(max_length: int) -> DataError:
    """Return the error for a corpus in which no pair fits into `max_length` pieces."""
    return DataError(
        f"all pairs are longer than data.max_length={max_length} pieces",
        hint="raise data.max_length, or split the text into sentences, one per line",
    )
