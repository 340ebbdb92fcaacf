"""Parallel corpora: read, filter, hold out dev pairs, encode to token ids."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mtcli.data.lines import read_aligned
from mtcli.errors import DataError
from mtcli.tokenizer import (
    DEFAULT_SPECIAL_IDS,
    MAX_PIECE_LENGTH,
    SpecialIds,
    Tokenizer,
    Tokenizers,
    normalizer,
)

if TYPE_CHECKING:
    from mtcli.config.base import CorpusSource

Notify = Callable[[str], None]
IdArray = NDArray[np.int32]

# Lines and characters per encoded chunk. Small chunks limit the memory for lists of ids and the
# delay of signals, which are handled between chunks.
_CHUNK, _CHUNK_CHARACTERS = 10_000, 1_000_000
_SLICE = 1 << 16  # characters of a long line to normalize at a time
_SLICE_MARGIN = 8  # characters that slicing a line can add to the normalized text
_SPLIT_SEED = 1


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs. No sentence is blank."""

    source: Sequence[str]
    target: Sequence[str]

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def digest(self) -> str:
        """Hash of the pairs, independent of their file names."""
        sha = hashlib.sha256()
        for lines in (self.source, self.target):
            for line in lines:
                sha.update(line.encode() + b"\n")
            sha.update(b"\n")
        return sha.hexdigest()


@dataclass(frozen=True)
class RaggedArray:
    """Rows of different lengths in one flat array: takes a tenth of the memory of nested lists."""

    values: IdArray
    offsets: NDArray[np.int64]  # [rows + 1]

    def __getitem__(self, row: int) -> IdArray:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def lengths(self) -> NDArray[np.int64]:
        """Return the length of each row."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class EncodedCorpus:
    """Token ids of both sides. Every sentence ends with EOS."""

    source: RaggedArray
    target: RaggedArray
    special: SpecialIds = DEFAULT_SPECIAL_IDS

    def __len__(self) -> int:
        return len(self.source.offsets) - 1


class CorpusReader:
    """Corpus reader with a cache: planning and training share each corpus."""

    def __init__(self) -> None:
        self._corpora: dict[CorpusSource, tuple[Corpus, list[str]]] = {}

    def read(self, source: "CorpusSource", notify: Notify) -> Corpus:
        """Return the pairs of a corpus; for a cached corpus, also repeat its notices."""
        if source not in self._corpora:
            notices: list[str] = []
            self._corpora[source] = read_corpus(source, notices.append), notices
        corpus, notices = self._corpora[source]
        for notice in notices:
            notify(notice)
        return corpus

    def clear(self) -> None:
        """Release the text of all corpora."""
        self._corpora.clear()


def read_corpus(source: "CorpusSource", notify: Notify) -> Corpus:
    """Read the pairs of a corpus; drop pairs that are blank on one side."""
    sources, targets = read_aligned(source.files)
    pairs = [(s, t) for s, t in zip(sources, targets, strict=True) if s.strip() and t.strip()]
    n_blank = len(sources) - len(pairs)
    if n_blank:
        notify(f"dropped {n_blank:,} of {len(sources):,} pairs with a blank side")
    if not pairs:
        raise DataError(
            f"every pair of {source} is blank on one side",
            hint="line N of one file must be the translation of line N of the other",
        )
    n_same = sum(s == t for s, t in pairs)
    if n_same > len(pairs) // 2:
        counts = f"{n_same:,} of {len(pairs):,} pairs"
        notify(f"{counts} have the same text on both sides; is this intended?")
    return Corpus(*map(list, zip(*pairs, strict=True)))


def drop_overlong(corpus: Corpus, max_length: int, normalization: str, notify: Notify) -> Corpus:
    """Return `corpus` without pairs that are too long for `max_length` pieces.

    Training a tokenizer on very long lines and encoding them could take hours. A piece has at most
    `MAX_PIECE_LENGTH` characters of the normalized text, so a pair that fits is not dropped. The
    one exception: without tokenizer.byte_fallback, a run of unknown characters is one piece.
    """
    limit = MAX_PIECE_LENGTH * max_length
    normalize = normalizer(normalization)
    pairs = [
        (source, target)
        for source, target in zip(corpus.source, corpus.target, strict=True)
        if not (_is_overlong(source, limit, normalize) or _is_overlong(target, limit, normalize))
    ]
    n_dropped = len(corpus) - len(pairs)
    if not n_dropped:
        return corpus
    notify(
        f"dropped {n_dropped:,} of {len(corpus):,} pairs longer than {limit:,} characters "
        f"(data.max_length={max_length})"
    )
    if not pairs:
        raise _all_too_long(max_length)
    return Corpus(*map(list, zip(*pairs, strict=True)))


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


def _all_too_long(max_length: int) -> DataError:
    return DataError(
        f"all pairs are longer than data.max_length={max_length} pieces",
        hint="raise data.max_length, or split the text into sentences, one per line",
    )


def hold_out(corpus: Corpus, n_pairs: int, seed: int = _SPLIT_SEED) -> tuple[Corpus, Corpus]:
    """Split `corpus` into training and dev pairs that share no source sentence.

    The split depends only on the corpus, so that no model is trained on the dev pairs of another
    model. Other seeds reproduce splits of earlier mtcli versions.
    """
    n_dev = min(n_pairs, len(corpus) // 10)
    if n_dev == 0:
        raise DataError(
            f"{len(corpus)} pairs are too few to hold out dev pairs",
            hint="use at least 10 pairs, or a separate dev set with --dev SOURCE TARGET",
        )
    dev_rows = np.random.default_rng(seed).permutation(len(corpus))[:n_dev].tolist()
    dev = Corpus([corpus.source[i] for i in dev_rows], [corpus.target[i] for i in dev_rows])
    dev_sources = set(dev.source)
    train = [
        (source, target)
        for source, target in zip(corpus.source, corpus.target, strict=True)
        if source not in dev_sources
    ]
    if not train:
        raise DataError(
            "no training pairs remain: every source sentence also occurs in the held-out dev pairs",
            hint="use a corpus with more distinct sentences, or --dev SOURCE TARGET",
        )
    return Corpus(*map(list, zip(*train, strict=True))), dev


def encode(
    corpus: Corpus, tokenizers: Tokenizers, max_length: int, notify: Notify
) -> EncodedCorpus:
    """Encode all pairs that have at most `max_length` pieces on both sides."""
    source = _encode_side(corpus.source, tokenizers.source)
    target = _encode_side(corpus.target, tokenizers.target)
    # EOS does not count toward the limit.
    fits = np.maximum(source.lengths(), target.lengths()) - 1 <= max_length
    if fits.all():
        return EncodedCorpus(source, target, tokenizers.special)
    notify(
        f"kept {fits.sum():,} of {len(corpus):,} pairs; "
        f"{(~fits).sum():,} longer than data.max_length={max_length}"
    )
    if not fits.any():
        raise _all_too_long(max_length)
    source, target = _select_rows(source, fits), _select_rows(target, fits)
    return EncodedCorpus(source, target, tokenizers.special)


def _encode_side(lines: Sequence[str], tokenizer: Tokenizer) -> RaggedArray:
    rows: list[IdArray] = []
    lengths: list[int] = [0]
    eos = tokenizer.special.eos
    for chunk in _chunks(lines):
        for ids in tokenizer.encode(chunk):
            rows.append(np.array([*ids, eos], dtype=np.int32))
            lengths.append(len(ids) + 1)
    return RaggedArray(np.concatenate(rows), np.cumsum(lengths))


def _chunks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lines in chunks of limited size; a longer line is a chunk by itself."""
    chunk: list[str] = []
    n_characters = 0
    for line in lines:
        if chunk and (len(chunk) == _CHUNK or n_characters + len(line) > _CHUNK_CHARACTERS):
            yield chunk
            chunk, n_characters = [], 0
        chunk.append(line)
        n_characters += len(line)
    if chunk:
        yield chunk


def _select_rows(array: RaggedArray, is_selected: NDArray[np.bool_]) -> RaggedArray:
    lengths = array.lengths()
    offsets = np.concatenate([[0], np.cumsum(lengths[is_selected])])
    return RaggedArray(array.values[np.repeat(is_selected, lengths)], offsets)
