"""Training directly from a corpus, without counting or storing it.

Pairs are shuffled within blocks of consecutive pairs. Each block covers a fixed number of corpus
rows, so a resumed run can skip to its position.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

from mtcli.config.filters import FilterConfig
from mtcli.data.corpus import Corpus
from mtcli.data.encoding import EncodedCorpus, encode_fitting, join_blocks
from mtcli.data.filtering import drop_by_filters
from mtcli.data.formats import is_read_once, open_corpora
from mtcli.data.formats.base import Languages, Row
from mtcli.data.near_copies import NearCopyIndex
from mtcli.errors import DataError
from mtcli.tokenizer import MAX_PIECE_LENGTH, Tokenizers, replace_surrogates

if TYPE_CHECKING:
    from mtcli.config.base import CorpusSource

BLOCK_PAIRS = 100_000


def open_rows(source: "CorpusSource", languages: Languages) -> Iterator[Row]:
    """Return an iterator over the rows of all corpora in `source`."""
    if any(is_read_once(names) for names in source.corpora):
        raise DataError(
            f"cannot stream {source}: it can be read only once, but each epoch must read it",
            hint="save it to a file, or omit data.streaming",
        )
    opened = list(open_corpora(source.corpora, languages))
    return chain.from_iterable(corpus.rows for corpus in opened)


def read_head(
    source: "CorpusSource", languages: Languages, n_pairs: int, max_length: int
) -> Corpus:
    """Return the usable pairs among the first `n_pairs`, in memory."""
    head = _usable(list(islice(open_rows(source, languages), n_pairs)), max_length)
    if not len(head):
        raise DataError(
            f"none of the first {n_pairs:,} pairs of {source} is usable: all are blank or too long",
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
                f"no pair of {self.source} can be used for training",
                hint="check the corpus, its languages, data.max_length and filters",
            )

    def _encode(self, rows: list[Row]) -> EncodedCorpus:
        corpus = _usable(rows, self.max_length)
        excluded = [row for row, line in enumerate(corpus.source) if line in self.dev_sources]
        corpus = drop_by_filters(corpus.exclude(excluded), self.filters, self.near_copies)
        blocks = encode_fitting(corpus, self.tokenizers, self.max_length)
        return join_blocks((block for block, _ in blocks), self.tokenizers)


def _usable(rows: list[Row], max_length: int) -> Corpus:
    """Return the pairs with text on both sides that can fit into `max_length` pieces."""
    limit = MAX_PIECE_LENGTH * max_length
    kept = [row for row in rows if _is_usable(row[0], limit) and _is_usable(row[1], limit)]
    return Corpus(*([replace_surrogates(row[side]) for row in kept] for side in (0, 1)))


def _is_usable(line: str, limit: int) -> bool:
    return len(line) <= limit and bool(line.strip())
