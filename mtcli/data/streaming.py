"""Train directly from a corpus, without counting or storing its pairs.

Pairs are shuffled within blocks of consecutive pairs. Each block covers a fixed number of corpus
rows, so a resumed run can skip to its position.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING

import numpy as np

from mtcli.config.filters import FilterConfig
from mtcli.counts import format_count
from mtcli.data.corpus import Corpus
from mtcli.data.encoding import EncodedCorpus, encode_fitting, join_blocks
from mtcli.data.entries import EntryInfo, open_entries
from mtcli.data.filtering import drop_by_filters
from mtcli.data.formats import is_read_once
from mtcli.data.formats.base import Languages, Row
from mtcli.data.held_out import shared_rows
from mtcli.data.near_copies import NearCopyIndex
from mtcli.errors import DataError
from mtcli.tokenizer import MAX_PIECE_LENGTH, Tokenizers, replace_surrogates

if TYPE_CHECKING:
    from mtcli.config.corpora import CorpusSource

BLOCK_PAIRS = 100_000


OriginRow = tuple[int, Row]  # index of a corpus, and one of its rows


def open_rows(source: "CorpusSource", languages: Languages) -> Iterator[OriginRow]:
    """Return an iterator over the rows of all corpora in `source`, with the index of each corpus.

    Normally, the corpora are read one after the other. If a corpus has a tag or a direction, one
    row is taken from each corpus in turn, so that each block contains pairs from all corpora.
    """
    if any(is_read_once(names) for names in source.corpora):
        raise DataError(
            f"cannot stream {source}: it can be read only once, but every epoch reads it again",
            hint="save it to a file, or omit data.streaming",
        )
    opened = list(open_entries(source, languages))
    rows = [zip(repeat(i), entry.corpus.rows) for i, entry in enumerate(opened)]
    is_tagged = any(entry.info.symbols or entry.info.is_reversed for entry in opened)
    return _in_turn(rows) if is_tagged else chain.from_iterable(rows)


def _in_turn(iterators: Iterable[Iterator[OriginRow]]) -> Iterator[OriginRow]:
    """Yield one item of each iterator in turn until all are exhausted."""
    remaining = list(iterators)
    while remaining:
        for iterator in list(remaining):
            try:
                yield next(iterator)
            except StopIteration:
                remaining.remove(iterator)


def read_head(
    source: "CorpusSource", languages: Languages, n_pairs: int, max_length: int
) -> Corpus:
    """Return the usable pairs among the first `n_pairs`, in memory."""
    rows = list(islice(open_rows(source, languages), n_pairs))
    head = _usable(rows, max_length, entry_infos(source, languages))
    if not len(head):
        raise DataError(
            f"none of the first {format_count(n_pairs, 'pair')} of {source} is usable: "
            "all are blank or too long",
            hint="check the format and the languages of the corpus, and data.max_length",
        )
    return head


@dataclass(frozen=True)
class StreamedCorpus:
    """Training pairs that are read and encoded again in each epoch."""

    source: "CorpusSource"
    languages: Languages
    tokenizers: Tokenizers
    max_length: int
    dev_sources: frozenset[str]  # source sentences to exclude from training
    filters: FilterConfig = FilterConfig.none()
    near_copies: NearCopyIndex | None = None  # dev pairs whose near-copies are excluded

    @cached_property
    def _infos(self) -> tuple[EntryInfo, ...]:
        return entry_infos(self.source, self.languages)

    def blocks(self, start: int = 0) -> Iterator[EncodedCorpus]:
        """Yield the blocks of an epoch, starting with block `start`."""
        rows = open_rows(self.source, self.languages)
        is_empty = start == 0
        next(islice(rows, start * BLOCK_PAIRS, start * BLOCK_PAIRS), None)  # skip earlier blocks
        while block := list(islice(rows, BLOCK_PAIRS)):
            encoded = self._encode(block)
            is_empty = is_empty and not len(encoded)
            yield encoded
        if is_empty:
            raise DataError(
                f"no pairs of {self.source} can be used for training",
                hint="check the corpus, its languages, data.max_length and filters",
            )

    def _encode(self, rows: list[OriginRow]) -> EncodedCorpus:
        corpus = _usable(rows, self.max_length, self._infos)
        corpus = corpus.exclude(shared_rows(corpus, self.dev_sources))
        corpus = drop_by_filters(corpus, self.filters, self.near_copies)
        blocks = encode_fitting(corpus, self.tokenizers, self.max_length)
        return join_blocks((block for block, _ in blocks), self.tokenizers)


def entry_infos(source: "CorpusSource", languages: Languages) -> tuple[EntryInfo, ...]:
    """Return the options of the corpora in `source`."""
    return tuple(entry.info for entry in open_entries(source, languages))


def _usable(rows: list[OriginRow], max_length: int, infos: tuple[EntryInfo, ...]) -> Corpus:
    """Return the pairs in which both sides have text and can fit into `max_length` pieces."""
    limit = MAX_PIECE_LENGTH * max_length
    kept = [(i, row) for i, row in rows if _is_usable(row[0], limit) and _is_usable(row[1], limit)]
    source, target = ([replace_surrogates(row[side]) for _, row in kept] for side in (0, 1))
    origins = np.array([i for i, _ in kept], np.uint8) if len(infos) > 1 else None
    return Corpus(source, target, origins, infos)


def _is_usable(line: str, limit: int) -> bool:
    return len(line) <= limit and bool(line.strip())
