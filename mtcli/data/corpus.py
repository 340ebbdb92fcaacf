"""Sentence pairs: read from two files, checked, held out, encoded."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mtcli.errors import DataError
from mtcli.lines import read_aligned
from mtcli.tokenizer import EOS_ID, MAX_PIECE_LENGTH, Tokenizer, Tokenizers, normalizer

Notify = Callable[[str], None]
IdArray = NDArray[np.int32]

# Lines and characters that are encoded at a time: lists of ids stay small, and a signal, which is
# handled between two chunks, does not wait for long.
_CHUNK, _CHUNK_CHARACTERS = 10_000, 1_000_000
_SLICE = 1 << 16  # characters of a very long line that are normalized at a time
_SLICE_MARGIN = 8  # characters that cutting a line there can add
_SPLIT_SEED = 1


@dataclass(frozen=True)
class Corpus:
    """Line-aligned sentences of two languages; none of them is blank."""

    source: Sequence[str]
    target: Sequence[str]

    def __len__(self) -> int:
        return len(self.source)

    def digest(self) -> str:
        """A fingerprint: equal for equal pairs, wherever their files lie."""
        sha = hashlib.sha256()
        for lines in (self.source, self.target):
            for line in lines:
                sha.update(line.encode() + b"\n")
            sha.update(b"\n")
        return sha.hexdigest()


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths in one flat array: a tenth of the memory of lists of lists."""

    flat: IdArray
    starts: NDArray[np.int64]  # one more than there are rows

    def __getitem__(self, row: int) -> IdArray:
        return self.flat[self.starts[row] : self.starts[row + 1]]

    def lengths(self) -> NDArray[np.int64]:
        """How many ids each row has."""
        return np.diff(self.starts)


@dataclass(frozen=True)
class EncodedCorpus:
    """The ids of both sides, each sentence closed by the end symbol."""

    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.source.starts) - 1


def read_corpus(source: Path, target: Path, notify: Notify) -> Corpus:
    """The pairs of two line-aligned files, without those that are blank on one side."""
    sources, targets = read_aligned([source, target])
    pairs = [(s, t) for s, t in zip(sources, targets, strict=True) if s.strip() and t.strip()]
    n_blank = len(sources) - len(pairs)
    if n_blank:
        notify(f"left out {n_blank} of {len(sources)} pairs that are blank on one side")
    if not pairs:
        raise DataError(
            f"every pair of {source} and {target} is blank on one side",
            hint="a line of one file is to be translated in the same line of the other",
        )
    n_same = sum(s == t for s, t in pairs)
    if n_same > len(pairs) // 2:
        notify(f"{n_same} of {len(pairs)} pairs have the same text on both sides: is that meant?")
    return Corpus(*map(list, zip(*pairs, strict=True)))


def drop_overlong(corpus: Corpus, max_length: int, normalization: str, notify: Notify) -> Corpus:
    """Return `corpus` without pairs that have far more than `max_length` pieces.

    Learning a vocabulary from such lines and encoding them could take hours. A pair that fits is
    never dropped: no piece has more than `MAX_PIECE_LENGTH` characters of the normalized text.
    (Without tokenizer.byte_fallback, a run of unknown characters of any length is one piece.)
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

    Normalization removes spaces and control characters and composes accents, so a line can become
    shorter.
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
        f"no pair is as short as data.max_length={max_length} pieces",
        hint="raise data.max_length, or split the text into sentences, one per line",
    )


def hold_out(corpus: Corpus, n_pairs: int, seed: int = _SPLIT_SEED) -> tuple[Corpus, Corpus]:
    """Split `corpus` into training and dev; no source sentence of dev remains in training.

    The split depends on the corpus alone, so that no model has trained on the dev pairs of another
    one. Only earlier versions of mtcli used other seeds.
    """
    n_dev = min(n_pairs, len(corpus) // 10)
    if n_dev == 0:
        raise DataError(
            f"{len(corpus)} pairs are too few to hold some out for validation",
            hint="give at least 10 pairs, or a dev set of its own with --dev SOURCE TARGET",
        )
    chosen = np.random.default_rng(seed).permutation(len(corpus))[:n_dev].tolist()
    dev = Corpus([corpus.source[i] for i in chosen], [corpus.target[i] for i in chosen])
    seen = set(dev.source)
    rest = [(s, t) for s, t in zip(corpus.source, corpus.target, strict=True) if s not in seen]
    if not rest:
        raise DataError("the corpus repeats the same few sentences; nothing is left to train on")
    return Corpus(*map(list, zip(*rest, strict=True))), dev


def encode(
    corpus: Corpus, tokenizers: Tokenizers, max_length: int, notify: Notify
) -> EncodedCorpus:
    """The ids of all pairs of which neither side is longer than `max_length` pieces."""
    source = _encode_side(corpus.source, tokenizers.source)
    target = _encode_side(corpus.target, tokenizers.target)
    # The end symbol that closes every row is not a piece.
    fits = np.maximum(source.lengths(), target.lengths()) - 1 <= max_length
    if fits.all():
        return EncodedCorpus(source, target)
    notify(
        f"kept {fits.sum()} of {len(corpus)} pairs; "
        f"{(~fits).sum()} longer than data.max_length={max_length}"
    )
    if not fits.any():
        raise _all_too_long(max_length)
    return EncodedCorpus(_rows(source, fits), _rows(target, fits))


def _encode_side(lines: Sequence[str], tokenizer: Tokenizer) -> Ragged:
    flat: list[IdArray] = []
    lengths: list[int] = [0]
    for chunk in _chunks(lines):
        for ids in tokenizer.encode(chunk):
            flat.append(np.array([*ids, EOS_ID], dtype=np.int32))
            lengths.append(len(ids) + 1)
    return Ragged(np.concatenate(flat), np.cumsum(lengths))


def _chunks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield all lines in lists of limited size; a line of any length is in one of them."""
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


def _rows(ragged: Ragged, wanted: NDArray[np.bool_]) -> Ragged:
    lengths = ragged.lengths()
    starts = np.concatenate([[0], np.cumsum(lengths[wanted])])
    return Ragged(ragged.flat[np.repeat(wanted, lengths)], starts)
