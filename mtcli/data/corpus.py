"""Parallel corpora: reading, filtering, and holding out dev pairs."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mtcli.data.formats import open_corpora
from mtcli.data.formats.base import (
    UNKNOWN_LANGUAGES,
    Languages,
    OpenedCorpus,
    completed_share,
)
from mtcli.data.line_store import (
    Lines,
    LineStore,
    aligned_blocks,
    encoded_blocks_of,
    exclude_lines,
    longest_line,
    take_lines,
)
from mtcli.errors import DataError
from mtcli.tokenizer import MAX_PIECE_LENGTH, normalizer

if TYPE_CHECKING:
    from mtcli.config.base import CorpusSource

Notify = Callable[[str], None]
OnProgress = Callable[[int, float | None], None]  # number of pairs; completed fraction, if known

_SLICE = 1 << 16  # characters of a long line to normalize at a time
_SLICE_MARGIN = 8  # characters that slicing a line can add to the normalized text
_SPLIT_SEED, _SAMPLE_SEED = 1, 2


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs, in memory or on disk. No sentence is blank."""

    source: Sequence[str]
    target: Sequence[str]

    def __len__(self) -> int:
        return len(self.source)

    def blocks(self) -> Iterator[tuple[list[str], list[str]]]:
        """Yield source and target lines in order, in blocks of limited size."""
        if isinstance(self.source, Lines) and isinstance(self.target, Lines):
            # The blocks of both sides were written together, so they have the same rows.
            return zip(self.source.blocks(), self.target.blocks(), strict=True)
        return aligned_blocks(zip(self.source, self.target, strict=True))

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> "Corpus":
        """Return the pairs with the given row numbers, in memory."""
        return Corpus(take_lines(self.source, rows), take_lines(self.target, rows))

    def exclude(self, rows: Sequence[int]) -> "Corpus":
        """Return the corpus without the given rows, which must be sorted."""
        excluded = np.asarray(rows, dtype=np.int64)
        return Corpus(exclude_lines(self.source, excluded), exclude_lines(self.target, excluded))

    def sample(self, n_pairs: int) -> "Corpus":
        """Return a reproducible random sample in corpus order, or all pairs if there are fewer."""
        if len(self) <= n_pairs:
            return self
        random = np.random.default_rng(_SAMPLE_SEED)
        return self.take(np.sort(random.choice(len(self), n_pairs, replace=False, shuffle=False)))

    @cached_property
    def digest(self) -> str:
        """Hash of the pairs, independent of file names."""
        sha = hashlib.sha256()
        for lines in (self.source, self.target):
            for data in encoded_blocks_of(lines):
                sha.update(data)
            sha.update(b"\n")
        return sha.hexdigest()


@dataclass(frozen=True)
class LoadedCorpus:
    """A corpus in memory or on disk, its languages, and notices about it."""

    corpus: Corpus
    languages: Languages
    notices: tuple[str, ...]


class CorpusReader:
    """Corpus reader that reads each corpus once, so that planning and training share it.

    The text is kept in unnamed temporary files in `directory`.
    """

    def __init__(
        self, directory: Path | None = None, on_progress: OnProgress = lambda *_: None
    ) -> None:
        self.directory = directory
        self.on_progress = on_progress
        self._corpora: dict[tuple[CorpusSource, Languages], LoadedCorpus] = {}

    def read(
        self, source: "CorpusSource", notify: Notify, languages: Languages = UNKNOWN_LANGUAGES
    ) -> Corpus:
        """Return the pairs of a corpus; pass on its notices, even if it was read before."""
        found = self._find(source, languages)
        for notice in found.notices:
            notify(notice)
        return found.corpus

    def languages(self, source: "CorpusSource", languages: Languages) -> Languages:
        """Return the language codes of a corpus; an unknown code is None."""
        return self._find(source, languages).languages

    def clear(self) -> None:
        """Release the text of all corpora."""
        self._corpora.clear()

    def _find(self, source: "CorpusSource", languages: Languages) -> LoadedCorpus:
        key = source, languages
        if key not in self._corpora:
            self._corpora[key] = self._read(source, languages)
        return self._corpora[key]

    def _read(self, source: "CorpusSource", languages: Languages) -> LoadedCorpus:
        sources, targets = LineStore(self.directory), LineStore(self.directory)
        counts = _Counts()
        notices: list[str] = []
        opened_corpora = list(open_corpora(source.corpora, languages))
        progress = [part for opened in opened_corpora for part in opened.progress]
        is_known = all(opened.progress for opened in opened_corpora)
        for part in progress:
            part.done = 0  # opening a corpus may read its start
        for names, opened in zip(source.corpora, opened_corpora, strict=True):
            if len(names) == 1 or not _is_plain(opened):
                notices += opened.descriptions
            languages = opened.languages
            for block in aligned_blocks(opened.rows):
                if kept := _drop_blank(*block, counts):
                    sources.append(kept[0])
                    targets.append(kept[1])
                self.on_progress(counts.n_pairs, completed_share(progress) if is_known else None)
        notices += counts.notices()
        if not len(sources):
            raise DataError(
                f"every pair of {source} has a blank source or target",
                hint="check the corpus and its languages; line N of one text file must be the "
                "translation of line N of the other",
            )
        return LoadedCorpus(Corpus(sources, targets), languages, tuple(notices))


@dataclass
class _Counts:
    """Counts of the pairs that were read."""

    n_pairs: int = 0
    n_blank: int = 0
    n_same: int = 0

    def notices(self) -> list[str]:
        """Return messages about problems that the counts reveal."""
        notices = []
        if self.n_blank:
            notices.append(
                f"dropped {self.n_blank:,} of {self.n_pairs:,} pairs with a blank source or target"
            )
        n_kept = self.n_pairs - self.n_blank
        if self.n_same > n_kept // 2:
            counts = f"{self.n_same:,} of {n_kept:,} pairs"
            notices.append(f"{counts} have the same text on both sides; is this intended?")
        return notices


def _is_plain(opened: OpenedCorpus) -> bool:
    """Return whether a corpus is two uncompressed text files, which need no description."""
    return len(opened.descriptions) == 1 and opened.descriptions[0].endswith(": two text files")


def _drop_blank(
    sources: list[str], targets: list[str], counts: _Counts
) -> tuple[list[str], list[str]] | None:
    """Return the pairs of a block in which neither side is blank; None if there are none."""
    counts.n_pairs += len(sources)
    if not (all(map(str.strip, sources)) and all(map(str.strip, targets))):
        pairs = zip(sources, targets, strict=True)
        kept = [(source, target) for source, target in pairs if source.strip() and target.strip()]
        counts.n_blank += len(sources) - len(kept)
        if not kept:
            return None
        sources, targets = map(list, zip(*kept, strict=True))
    counts.n_same += sum(map(eq, sources, targets))
    return sources, targets


def read_corpus(
    source: "CorpusSource", notify: Notify, languages: Languages = UNKNOWN_LANGUAGES
) -> Corpus:
    """Read the pairs of a corpus; drop pairs that have a blank source or target."""
    return CorpusReader().read(source, notify, languages)


def drop_overlong(corpus: Corpus, max_length: int, normalization: str, notify: Notify) -> Corpus:
    """Return `corpus` without pairs that are too long for `max_length` pieces.

    Training a tokenizer on very long lines and encoding them could take hours. A piece has at most
    `MAX_PIECE_LENGTH` characters of the normalized text, so pairs that fit are kept, with one
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
    notify(
        f"dropped {len(overlong):,} of {len(corpus):,} pairs longer than {limit:,} characters "
        f"(data.max_length={max_length})"
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


def too_few_pairs(n_pairs: int) -> DataError:
    """Return the error for a corpus that is too small to hold out dev pairs."""
    return DataError(
        f"{n_pairs} pairs are too few to hold out dev pairs",
        hint="use at least 10 pairs, or a separate dev set with --dev SOURCE TARGET",
    )


def hold_out(corpus: Corpus, n_pairs: int, seed: int = _SPLIT_SEED) -> tuple[Corpus, Corpus]:
    """Split `corpus` into training and dev pairs that share no source sentence.

    The split depends only on the corpus, so that no model is trained on the dev pairs of another
    model. Seeds other than the default reproduce the splits of earlier mtcli versions.
    """
    n_dev = min(n_pairs, len(corpus) // 10)
    if n_dev == 0:
        raise too_few_pairs(len(corpus))
    dev = corpus.take(np.random.default_rng(seed).permutation(len(corpus))[:n_dev])
    dev_sources = {line.encode() for line in dev.source}
    shared: list[int] = []
    start = 0
    for data in encoded_blocks_of(corpus.source):
        block = data.split(b"\n")[:-1]
        if not dev_sources.isdisjoint(block):
            shared += [start + i for i, line in enumerate(block) if line in dev_sources]
        start += len(block)
    if len(shared) == len(corpus):
        raise DataError(
            "no training pairs remain: every source sentence also occurs in the held-out dev pairs",
            hint="use a corpus with more distinct sentences, or --dev SOURCE TARGET",
        )
    return corpus.exclude(shared), dev
