"""Parallel corpora: read sentence pairs, and select or sample them."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mtcli.counts import format_count
from mtcli.data.encoded_lines import EncodedLines
from mtcli.data.entries import REVERSED, EntryInfo, open_entries
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
    take_lines,
)
from mtcli.errors import DataError
from mtcli.reporting.messages import example_text

if TYPE_CHECKING:
    from mtcli.config.corpora import CorpusSource

Notify = Callable[[str], None]
OnProgress = Callable[[int, float | None], None]  # number of pairs; completed fraction, if known

_SAMPLE_SEED = 2


Origins = NDArray[np.uint8]


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs, in memory or on disk. No sentence is blank."""

    source: Sequence[str]
    target: Sequence[str]
    origins: Origins | None = None  # index of each pair's entry; None if there is only one
    entries: tuple[EntryInfo, ...] = ()  # by index; empty if unknown

    def __len__(self) -> int:
        return len(self.source)

    def blocks(self) -> Iterator[tuple[list[str], list[str]]]:
        """Yield source and target lines in order, in blocks of limited size."""
        if isinstance(self.source, Lines) and isinstance(self.target, Lines):
            # The blocks of both sides were written together, so they have the same rows.
            return zip(self.source.blocks(), self.target.blocks(), strict=True)
        return aligned_blocks(zip(self.source, self.target, strict=True))

    def lazy_blocks(self) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Yield the same blocks as `blocks`; text on disk is decoded only when it is needed."""
        if isinstance(self.source, Lines) and isinstance(self.target, Lines):
            sides = self.source.encoded_blocks(), self.target.encoded_blocks()
            return zip(*(map(EncodedLines, side) for side in sides), strict=True)
        return self.blocks()

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> "Corpus":
        """Return the pairs with the given row numbers, in memory."""
        origins = None if self.origins is None else self.origins[np.asarray(rows, np.int64)]
        source, target = take_lines(self.source, rows), take_lines(self.target, rows)
        return Corpus(source, target, origins, self.entries)

    def exclude(self, rows: Sequence[int] | NDArray[np.int64]) -> "Corpus":
        """Return the corpus without the given rows, which must be sorted."""
        excluded = np.asarray(rows, dtype=np.int64)
        origins = None if self.origins is None else np.delete(self.origins, excluded)
        source, target = (exclude_lines(x, excluded) for x in (self.source, self.target))
        return Corpus(source, target, origins, self.entries)

    def pair(self, row: int) -> tuple[str, str]:
        """Return the pair with the given row number."""
        found = self.take([row])
        return found.source[0], found.target[0]

    def sample(self, n_pairs: int) -> "Corpus":
        """Return a reproducible random sample in corpus order, or all pairs of a smaller corpus."""
        if len(self) <= n_pairs:
            return self
        random = np.random.default_rng(_SAMPLE_SEED)
        return self.take(np.sort(random.choice(len(self), n_pairs, replace=False, shuffle=False)))

    @cached_property
    def digest(self) -> str:
        """Hash of the pairs and their tags, independent of file names."""
        sha = hashlib.sha256()
        for lines in (self.source, self.target):
            for data in encoded_blocks_of(lines):
                sha.update(data)
            sha.update(b"\n")
        if any(entry.symbols for entry in self.entries):
            sha.update(repr([entry.symbols for entry in self.entries]).encode())
            sha.update(self.origins_digest.encode())
        return sha.hexdigest()

    @property
    def has_directions(self) -> bool:
        """Whether the pairs have more than one translation direction."""
        return len({(entry.to, entry.is_reversed) for entry in self.entries}) > 1

    @property
    def origins_digest(self) -> str:
        """Hash of `origins`."""
        return hashlib.sha256(b"" if self.origins is None else self.origins.tobytes()).hexdigest()


@dataclass(frozen=True)
class LoadedCorpus:
    """A corpus, its languages, and notices about it."""

    corpus: Corpus
    languages: Languages
    notices: tuple[str, ...]


_CorpusKey = tuple["CorpusSource", Languages, tuple[str, ...]]


class CorpusReader:
    """Reads each corpus once and keeps it, so that planning and training can share it.

    The text is kept in unnamed temporary files in `directory`.
    """

    def __init__(
        self, directory: Path | None = None, on_progress: OnProgress = lambda *_: None
    ) -> None:
        self.directory = directory
        self.on_progress = on_progress
        self._corpora: dict[_CorpusKey, LoadedCorpus] = {}

    def read(
        self,
        source: "CorpusSource",
        notify: Notify,
        languages: Languages = UNKNOWN_LANGUAGES,
        targets: tuple[str, ...] = (),
    ) -> Corpus:
        """Return the pairs of a corpus, and pass its notices to `notify`.

        The notices are repeated if the corpus was read before. `targets` lists the target languages
        of the model (see `open_entries`).
        """
        found = self._find((source, languages, targets))
        for notice in found.notices:
            notify(notice)
        return found.corpus

    def languages(self, source: "CorpusSource", languages: Languages) -> Languages:
        """Return the language codes of a corpus. Unknown codes are None."""
        return self._find((source, languages, ())).languages

    def clear(self) -> None:
        """Release the text of all corpora."""
        self._corpora.clear()

    def _find(self, key: "_CorpusKey") -> LoadedCorpus:
        if key not in self._corpora:
            self._corpora[key] = self._read(*key)
        return self._corpora[key]

    def _read(
        self, source: "CorpusSource", languages: Languages, targets: tuple[str, ...]
    ) -> LoadedCorpus:
        stores = LineStore(self.directory), LineStore(self.directory)
        counts = _Counts()
        notices: list[str] = []
        sizes: list[int] = []
        entries = list(open_entries(source, languages, targets))
        on_read = self._progress_of([entry.corpus for entry in entries], counts)
        for entry in entries:
            if len(entry.entry.corpus) == 1 or not _is_plain(entry.corpus):
                notices += entry.corpus.descriptions
            languages = languages if source.targets else entry.corpus.languages
            for block in entry.corpus.blocks or aligned_blocks(entry.corpus.rows):
                kept = _drop_blank(EncodedLines.of(block[0]), EncodedLines.of(block[1]), counts)
                if len(kept[0]):
                    stores[0].append(kept[0])
                    stores[1].append(kept[1])
                on_read()
            sizes.append(len(stores[0]) - sum(sizes))
        notices += counts.notices()
        if not len(stores[0]):
            raise DataError(
                f"every pair of {source} has a blank source or target",
                hint="check the corpus and its languages; line N of one text file must be the "
                "translation of line N of the other",
            )
        origins = np.repeat(np.arange(len(sizes), dtype=np.uint8), sizes)
        infos = tuple(entry.info for entry in entries)
        corpus = Corpus(*stores, origins if len(sizes) > 1 else None, infos)
        return LoadedCorpus(corpus, languages, tuple(notices))

    def _progress_of(
        self, corpora: Sequence[OpenedCorpus], counts: "_Counts"
    ) -> Callable[[], None]:
        """Return a function that reports the progress in reading `corpora`."""
        progress = [part for corpus in corpora for part in corpus.progress]
        is_known = all(corpus.progress for corpus in corpora)
        for part in progress:
            part.done = 0  # do not count data that was read to open the corpus
        return lambda: self.on_progress(
            counts.n_pairs, completed_share(progress) if is_known else None
        )


@dataclass
class _Counts:
    """Counts of the pairs that were read."""

    n_pairs: int = 0
    n_blank: int = 0
    blank: tuple[str, str] | None = None  # the first blank pair
    n_same: int = 0

    def notices(self) -> list[str]:
        """Return messages about blank pairs, and about identical sides if most pairs have them."""
        notices = []
        if self.n_blank:
            dropped = f"dropped {self.n_blank:,} of {format_count(self.n_pairs, 'pair')}"
            example = example_text(self.blank)
            notices.append(f"{dropped} with a blank source or target{example}")
        n_kept = self.n_pairs - self.n_blank
        if self.n_same > n_kept // 2:
            counts = f"{self.n_same:,} of {format_count(n_kept, 'pair')}"
            notices.append(
                f"{counts} have the same text on both sides; check that this is intended"
            )
        return notices


def _is_plain(opened: OpenedCorpus) -> bool:
    """Return whether a corpus consists of two uncompressed text files and needs no description."""
    if len(opened.descriptions) != 1:
        return False
    return opened.descriptions[0].removesuffix(REVERSED).endswith(": two text files")


def _drop_blank(
    sources: EncodedLines, targets: EncodedLines, counts: _Counts
) -> tuple[EncodedLines, EncodedLines]:
    """Return the pairs of a block in which neither side is blank; update `counts`."""
    counts.n_pairs += len(sources)
    if rows := sorted({*sources.blank_rows(), *targets.blank_rows()}):
        counts.n_blank += len(rows)
        counts.blank = counts.blank or (sources[rows[0]], targets[rows[0]])
        blank = np.array(rows)
        sources, targets = (EncodedLines(side.exclude(blank)) for side in (sources, targets))
    counts.n_same += sources.n_same(targets)
    return sources, targets


def read_corpus(
    source: "CorpusSource", notify: Notify, languages: Languages = UNKNOWN_LANGUAGES
) -> Corpus:
    """Return the pairs of a corpus, without pairs that have a blank source or target."""
    return CorpusReader().read(source, notify, languages)
