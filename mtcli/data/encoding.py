"""Encode a corpus as token ids, in arrays that can be memory-mapped."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtcli.counts import format_count
from mtcli.data.corpus import Corpus, Notify, OnProgress, Origins
from mtcli.data.encoded_lines import EncodedLines
from mtcli.data.overlong import all_too_long
from mtcli.data.prefetch import map_in_threads
from mtcli.hardware import usable_cores
from mtcli.tokenizer import DEFAULT_SPECIAL_IDS, SpecialIds, Tokenizer, Tokenizers

IdArray = NDArray[np.int32]


@dataclass(frozen=True)
class RaggedArray:
    """Rows of different lengths in one flat array, which needs a tenth of the memory of lists."""

    values: NDArray[np.uint16] | IdArray
    offsets: NDArray[np.int64]  # [rows + 1]

    def __getitem__(self, row: int) -> IdArray:
        values = self.values[self.offsets[row] : self.offsets[row + 1]]
        return values.astype(np.int32, copy=False)

    def select(self, rows: NDArray[np.int64]) -> "RaggedArray":
        """Return a copy of the given rows in memory."""
        selected = [self[row] for row in rows.tolist()]
        return _join(selected, [np.fromiter(map(len, selected), np.int64, len(selected))])

    def lengths(self) -> IdArray:
        """Return the length of each row."""
        return np.diff(self.offsets).astype(np.int32)


@dataclass(frozen=True)
class EncodedCorpus:
    """Token ids of both sides. Every sentence ends with EOS."""

    source: RaggedArray
    target: RaggedArray
    special: SpecialIds = DEFAULT_SPECIAL_IDS
    origins: Origins | None = None  # index of each pair's entry, in ascending order

    def __len__(self) -> int:
        return len(self.source.offsets) - 1

    def select(self, rows: NDArray[np.int64]) -> "EncodedCorpus":
        """Return a copy of the pairs in `rows` in memory."""
        return EncodedCorpus(self.source.select(rows), self.target.select(rows), self.special)

    def blocks(self, start: int = 0) -> Iterator["EncodedCorpus"]:
        """Yield all pairs as block 0: unlike a stream, this corpus is shuffled as a whole."""
        if start == 0:
            yield self


@dataclass(frozen=True)
class EncodedBlock:
    """Token ids of a block of pairs: one array per side, and the length of each row."""

    source: IdArray
    source_lengths: NDArray[np.int64]
    target: IdArray
    target_lengths: NDArray[np.int64]
    origins: Origins | None = None  # index of each pair's entry


def encode(
    corpus: Corpus, tokenizers: Tokenizers, max_length: int, notify: Notify
) -> EncodedCorpus:
    """Return the encoded pairs that have at most `max_length` pieces per side, in memory."""
    return join_blocks(encode_blocks(corpus, tokenizers, max_length, notify), tokenizers)


def join_blocks(blocks: Iterable[EncodedBlock], tokenizers: Tokenizers) -> EncodedCorpus:
    """Return one corpus with the pairs of all blocks, in memory."""
    blocks = list(blocks)
    origins = [block.origins for block in blocks if block.origins is not None]
    return EncodedCorpus(
        _join([b.source for b in blocks], [b.source_lengths for b in blocks]),
        _join([b.target for b in blocks], [b.target_lengths for b in blocks]),
        tokenizers.special,
        np.concatenate(origins) if origins else None,
    )


def encode_blocks(
    corpus: Corpus,
    tokenizers: Tokenizers,
    max_length: int,
    notify: Notify,
    on_progress: OnProgress = lambda *_: None,
) -> Iterator[EncodedBlock]:
    """Yield the pairs with at most `max_length` pieces per side; report how many are longer."""
    n_done = n_kept = 0
    for block, n_pairs in encode_fitting(corpus, tokenizers, max_length):
        n_done, n_kept = n_done + n_pairs, n_kept + len(block.source_lengths)
        yield block
        on_progress(n_done, n_done / len(corpus))
    if n_kept < n_done:
        notify(
            f"kept {n_kept:,} of {format_count(n_done, 'pair')}; "
            f"{n_done - n_kept:,} are longer than data.max_length={max_length}"
        )
    if not n_kept:
        raise all_too_long(max_length)


def encode_fitting(
    corpus: Corpus, tokenizers: Tokenizers, max_length: int
) -> Iterator[tuple[EncodedBlock, int]]:
    """Yield the pairs of each block that fit `max_length`, and the size of the entire block."""
    tags = [tokenizers.source.pieces_to_ids(entry.symbols) for entry in corpus.entries]

    def encode_pairs(pairs: tuple[Sequence[str], Sequence[str], Origins | None]) -> EncodedBlock:
        sources, targets, origins = pairs
        source = _encode_lines(sources, tokenizers.source)
        if any(tags):
            indices = np.zeros(len(sources), np.uint8) if origins is None else origins
            source = insert_tags(*source, tags, indices)
        return EncodedBlock(*source, *_encode_lines(targets, tokenizers.target), origins)

    # Use one more thread than cores, because one thread often waits for the interpreter lock.
    n_threads = usable_cores() + 1
    for block in map_in_threads(encode_pairs, _blocks_with_origins(corpus), n_threads):
        # Tags count toward the limit, but EOS does not.
        fits = np.maximum(block.source_lengths, block.target_lengths) - 1 <= max_length
        yield (block if fits.all() else _select(block, fits)), len(fits)


def _blocks_with_origins(
    corpus: Corpus,
) -> Iterator[tuple[Sequence[str], Sequence[str], Origins | None]]:
    start = 0
    for sources, targets in corpus.lazy_blocks():
        end = start + len(sources)
        yield sources, targets, None if corpus.origins is None else corpus.origins[start:end]
        start = end


def insert_tags(
    ids: IdArray, lengths: NDArray[np.int64], tags: Sequence[Sequence[int]], indices: Origins
) -> tuple[IdArray, NDArray[np.int64]]:
    """Return the ids and lengths with `tags[indices[r]]` inserted at the start of each row r."""
    n_tags = np.array([len(row) for row in tags])[indices]
    starts = np.cumsum(lengths) - lengths
    width = max(map(len, tags))
    table = np.array([[*row, *[-1] * (width - len(row))] for row in tags], np.int32)
    values = table[indices].ravel()
    return np.insert(ids, np.repeat(starts, n_tags), values[values >= 0]), lengths + n_tags


def _encode_lines(lines: Sequence[str], tokenizer: Tokenizer) -> tuple[IdArray, NDArray[np.int64]]:
    """Return the ids of all lines, each with EOS, and the length of each line."""
    texts = lines.encoded if isinstance(lines, EncodedLines) else lines
    rows = tokenizer.encode_to_buffers(texts)
    sizes = np.fromiter((memoryview(row).nbytes for row in rows), np.int64, len(rows))
    return np.frombuffer(b"".join(rows), np.int32), sizes // 4


def _select(block: EncodedBlock, is_selected: NDArray[np.bool_]) -> EncodedBlock:
    return EncodedBlock(
        block.source[np.repeat(is_selected, block.source_lengths)],
        block.source_lengths[is_selected],
        block.target[np.repeat(is_selected, block.target_lengths)],
        block.target_lengths[is_selected],
        None if block.origins is None else block.origins[is_selected],
    )


def _join(values: Sequence[IdArray], lengths: Sequence[NDArray[np.int64]]) -> RaggedArray:
    # np.concatenate needs at least one array, and there may be no blocks.
    offsets = np.concatenate([np.zeros(1, np.int64), *lengths]).cumsum()
    return RaggedArray(np.concatenate([np.zeros(0, np.int32), *values]), offsets)
