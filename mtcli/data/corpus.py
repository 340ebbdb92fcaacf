"""Parallel corpora: reading, filtering, and holding out dev pairs."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mtcli.data.entries import REVERSED, EntryInfo, open_entries
from mtcli.data.formats import open_corpus
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

if TYPE_CHECKING:
    from mtcli.config.corpora import CorpusSource

Notify = Callable[[str], None]
OnProgress = Callable[[int, float | None], None]  # number of pairs; completed fraction, if known

_SPLIT_SEED, _SAMPLE_SEED = 1, 2


Origins = NDArray[np.uint8]


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs, in memory or on disk. No sentence is blank."""

    source: Sequence[str]
    target: Sequence[str]
    origins: Origins | None = None  # index of the entry that each pair is from; None: all from one
    entries: tuple[EntryInfo, ...] = ()  # by index; empty: unknown

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
        origins = None if self.origins is None else self.origins[np.asarray(rows, np.int64)]
        source, target = take_lines(self.source, rows), take_lines(self.target, rows)
        return Corpus(source, target, origins, self.entries)

    def exclude(self, rows: Sequence[int] | NDArray[np.int64]) -> "Corpus":
        """Return the corpus without the given rows, which must be sorted."""
        excluded = np.asarray(rows, dtype=np.int64)
        origins = None if self.origins is None else np.delete(self.origins, excluded)
        source, target = (exclude_lines(x, excluded) for x in (self.source, self.target))
        return Corpus(source, target, origins, self.entries)

    def sample(self, n_pairs: int) -> "Corpus":
        """Return a reproducible random sample in corpus order, or all pairs if there are fewer."""
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
        """Whether the pairs have more than one direction."""
        return len({(entry.to, entry.is_reversed) for entry in self.entries}) > 1

    @property
    def origins_digest(self) -> str:
        """Hash of the entry that each pair is from."""
        return hashlib.sha256(b"" if self.origins is None else self.origins.tobytes()).hexdigest()


@dataclass(frozen=True)
class LoadedCorpus:
    """A corpus in memory or on disk, its languages, and notices about it."""

    corpus: Corpus
    languages: Languages
    notices: tuple[str, ...]


_CorpusKey = tuple["CorpusSource", Languages, tuple[str, ...]]


class CorpusReader:
    """Corpus reader that reads each corpus once, so that planning and training share it.

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
        """Return the pairs of a corpus; pass on its notices, even if it was read before.

        `targets` are the target languages of the model (`open_entries`).
        """
        found = self._find((source, languages, targets))
        for notice in found.notices:
            notify(notice)
        return found.corpus

    def languages(self, source: "CorpusSource", languages: Languages) -> Languages:
        """Return the language codes of a corpus; an unknown code is None."""
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
            for block in aligned_blocks(entry.corpus.rows):
                if kept := _drop_blank(*block, counts):
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
            part.done = 0  # opening a corpus may read its start
        return lambda: self.on_progress(
            counts.n_pairs, completed_share(progress) if is_known else None
        )


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
    if len(opened.descriptions) != 1:
        return False
    return opened.descriptions[0].removesuffix(REVERSED).endswith(": two text files")


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


def read_references(name: str, languages: Languages, notify: Notify) -> list[list[str]]:
    """Return the source lines of a test set in any format, then each list of references.

    Drop rows with a blank source or reference.
    """
    opened = open_corpus([name], languages)
    for text in opened.descriptions:
        notify(text)
    rows = list(opened.rows)
    kept = [row for row in rows if all(map(str.strip, row))]
    if len(kept) < len(rows):
        n_dropped = len(rows) - len(kept)
        notify(f"dropped {n_dropped:,} of {len(rows):,} pairs with a blank source or target")
    if not kept:
        raise DataError(
            f"{name} has no complete sentence pairs",
            hint="check the file, --source-lang and --target-lang",
        )
    return [list(side) for side in zip(*kept, strict=True)]


def too_few_pairs(n_pairs: int) -> DataError:
    """Return the error for a corpus that is too small to hold out dev pairs."""
    return DataError(
        f"{n_pairs} pairs are too few to hold out dev pairs",
        hint="use at least 10 pairs, or a separate dev set with --dev SOURCE TARGET",
    )


def hold_out(corpus: Corpus, n_pairs: int, seed: int = _SPLIT_SEED) -> tuple[Corpus, Corpus]:
    """Split `corpus` into training and dev pairs that share no source sentence.

    If there are several directions, the reverse of a dev pair does not stay in training either.
    """
    dev = choose_dev(corpus, n_pairs, seed)
    shared = shared_rows(corpus, dev.source)
    if len(shared) == len(corpus):
        raise no_training_pairs()
    return corpus.exclude(shared), dev


def choose_dev(corpus: Corpus, n_pairs: int, seed: int = _SPLIT_SEED) -> Corpus:
    """Return the dev pairs to hold out from `corpus`.

    Pairs with a tag, such as back-translations, are held out only if all pairs have one. The choice
    depends only on the corpus, so that no model is trained on the dev pairs of another model. Seeds
    other than the default reproduce the choices of earlier mtcli versions.
    """
    rows = _untagged(corpus, np.random.default_rng(seed).permutation(len(corpus)))
    n_dev = min(n_pairs, len(rows) // 10)
    if n_dev == 0:
        raise too_few_pairs(len(rows))
    return corpus.take(rows[:n_dev])


def no_training_pairs() -> DataError:
    """Return the error for a corpus in which all pairs have the source of a held-out dev pair."""
    return DataError(
        "no training pairs remain: every source sentence also occurs in the held-out dev pairs",
        hint="use a corpus with more distinct sentences, or --dev SOURCE TARGET",
    )


def _untagged(corpus: Corpus, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows whose pairs have no tag; all rows if every corpus has a tag."""
    is_tagged = np.array([entry.tag is not None for entry in corpus.entries], dtype=bool)
    if corpus.origins is None or is_tagged.all() or not is_tagged.any():
        return rows
    untagged: NDArray[np.int64] = rows[~is_tagged[corpus.origins[rows]]]
    return untagged


def shared_rows(corpus: Corpus, dev_sources: Iterable[str]) -> list[int]:
    """Return the rows to exclude from training: those with the source of a dev pair.

    If there are several directions, the target must not be the source of a dev pair either.
    """
    wanted = {line.encode() for line in dev_sources}
    rows = _rows_with(corpus.source, wanted)
    if corpus.has_directions:
        rows = sorted({*rows, *_rows_with(corpus.target, wanted)})
    return rows


def _rows_with(lines: Sequence[str], wanted: set[bytes]) -> list[int]:
    """Return the numbers of the rows whose encoded line is in `wanted`."""
    rows: list[int] = []
    start = 0
    for data in encoded_blocks_of(lines):
        block = data.split(b"\n")[:-1]
        if not wanted.isdisjoint(block):
            rows += [start + i for i, line in enumerate(block) if line in wanted]
        start += len(block)
    return rows
