"""Preparation of the training data: read, split, train the vocabulary, encode.

Each stage stores its result in the cache, so that a resumed run, or another run with the same data
and vocabulary, need not repeat it.
"""

import hashlib
import mmap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mtcli.config.base import CorpusSource
from mtcli.config.sections import Config
from mtcli.data.cache import CacheEntry, DataCache, cache_key
from mtcli.data.corpus import Corpus, CorpusReader, drop_overlong, hold_out
from mtcli.data.encoding import EncodedBlock, EncodedCorpus, RaggedArray, encode_blocks
from mtcli.data.fingerprint import fingerprint
from mtcli.data.formats import find_languages
from mtcli.data.formats.base import Languages
from mtcli.data.quality.quick import quick_warnings
from mtcli.signals import run_interruptibly
from mtcli.tokenizer import Tokenizers, tokenizers_from_files, train_tokenizers
from mtcli.training.dataset import Dataset, DevSet

Notify = Callable[[str], None]
OnProgress = Callable[[str, int, float | None], None]  # activity, pairs done, completed fraction

_FEW_PAIRS = 1_000  # fewer training pairs cause a warning
_SIDES = ("source", "target")


def _ignore(*_: object) -> None:
    """Ignore a notice or a progress report."""


@dataclass(frozen=True)
class CorpusSplit:
    """Training and dev pairs."""

    train: Corpus
    dev: Corpus

    @property
    def digest(self) -> str:
        """Hash of all pairs."""
        return f"{self.train.digest}-{self.dev.digest}"


@dataclass(frozen=True)
class SplitSummary:
    """Facts about the training and dev pairs that can be loaded without the training text."""

    digest: str
    languages: Languages
    dev: Corpus
    notices: tuple[str, ...]


class Preparation:
    """Prepares the data of one run."""

    def __init__(
        self,
        config: Config,
        cache: DataCache,
        reader: CorpusReader | None = None,
        on_progress: OnProgress = _ignore,
    ) -> None:
        self._config = config
        self._cache = cache
        self._reader = reader or CorpusReader()
        self._on_progress = on_progress
        self.keys: list[str] = []  # keys of the cache entries in use
        self._new_keys: list[str] = []  # keys of the entries that were not in the cache

    @cached_property
    def _languages(self) -> Languages:
        """Languages from the settings, or from the training corpus if they are not set."""
        return find_languages(self._config.data.train.corpora, configured_languages(self._config))

    @cached_property
    def summary(self) -> SplitSummary:
        """Digest, languages, dev pairs and notices, from the cache or from the corpus."""
        key = self._split_key()
        if key is None:
            return self._read_summary()
        entry = self._find_or_build(key, self._write_summary)
        dev = [_read_lines(entry.path / f"dev.{side}") for side in _SIDES]
        values = entry.values
        languages = Languages(*values["languages"])
        return SplitSummary(values["digest"], languages, Corpus(*dev), tuple(values["notices"]))

    @cached_property
    def split(self) -> CorpusSplit:
        """The training and dev pairs as text."""
        return read_split(self._config, _ignore, self._reader)

    def train_vocabulary(self, notify: Notify) -> Tokenizers:
        """Train the tokenizers of a new run, or load them from the cache."""
        options = self._config.tokenizer
        key = cache_key("vocabulary", self.summary.digest, options.model_dump(mode="json"))

        def write(directory: Path) -> dict[str, Any]:
            self._on_progress("training the vocabulary", 0, None)
            sample = self.split.train.sample(self._n_sample_pairs)
            tokenizers = run_interruptibly(
                lambda: train_tokenizers(sample.source, sample.target, options)
            )
            for name, content in tokenizers.files().items():
                (directory / name).write_bytes(content)
            return {"names": [*tokenizers.files()]}

        entry = self._find_or_build(key, write)
        names = entry.values["names"]
        tokenizers = tokenizers_from_files({n: (entry.path / n).read_bytes() for n in names})
        for text in describe_vocabulary(tokenizers, options.vocab_size):
            notify(text)
        return tokenizers

    def dataset(self, notify: Notify) -> Dataset:
        """Train the vocabulary, encode the corpus and return the dataset of a new run."""
        for notice in self.summary.notices:
            notify(notice)
        tokenizers = self.train_vocabulary(notify)
        self.encode(tokenizers)
        return self.open(tokenizers, self.summary, notify)

    def encode(self, tokenizers: Tokenizers) -> None:
        """Encode the training and dev pairs into the cache, unless they are already there."""
        self._find_or_build(
            self._ids_key(tokenizers), lambda path: self._write_ids(path, tokenizers)
        )

    def has_ids(self, tokenizers: Tokenizers, digest: str) -> bool:
        """Return whether the cache contains the token ids of the pairs with digest `digest`."""
        return self._cache.find(self._ids_key(tokenizers, digest)) is not None

    def open(self, tokenizers: Tokenizers, summary: SplitSummary, notify: Notify) -> Dataset:
        """Return the dataset that `encode` wrote to the cache of this machine."""
        entry = self._cache.open(self._ids_key(tokenizers, summary.digest))
        for notice in entry.values["notices"]:
            notify(notice)
        return Dataset(
            tokenizers,
            _open_ids(entry, "train", tokenizers),
            DevSet(_open_ids(entry, "dev", tokenizers), self._scored_pairs(summary)),
        )

    def _scored_pairs(self, summary: SplitSummary) -> Corpus:
        """Return the dev pairs that each validation translates."""
        n_scored = min(self._config.train.validate_pairs, len(summary.dev))
        return summary.dev.take(range(n_scored))

    @property
    def _n_sample_pairs(self) -> int:
        """Number of pairs to train the vocabulary on."""
        options = self._config.tokenizer
        return max(1, options.sample_lines // 2) if options.is_shared else options.sample_lines

    def undo(self) -> None:
        """Remove the entries that this object has added to the cache."""
        self._cache.remove(self._new_keys)

    def _find_or_build(self, key: str, write: Callable[[Path], dict[str, Any]]) -> CacheEntry:
        self.keys.append(key)

        def write_new(directory: Path) -> dict[str, Any]:
            self._new_keys.append(key)
            return write(directory)

        return self._cache.find_or_build(key, write_new)

    def _split_key(self) -> str | None:
        data = self._config.data
        parts = [fingerprint(data.train, configured_languages(self._config))]
        if data.dev:
            parts.append(fingerprint(data.dev, self._languages))
        if None in parts:
            return None
        filters = data.max_length, self._config.tokenizer.normalization, data.dev_pairs
        is_new_model = self._config.train.start_from is None  # affects the warning about few pairs
        return cache_key("split", parts, filters, is_new_model)

    def _read_summary(self) -> SplitSummary:
        notices: list[str] = []
        split = read_split(self._config, notices.append, self._reader)
        notices += quick_warnings(split.train)
        self.split = split
        configured = configured_languages(self._config)
        languages = self._reader.languages(self._config.data.train, configured)
        return SplitSummary(split.digest, languages, split.dev, tuple(notices))

    def _write_summary(self, directory: Path) -> dict[str, Any]:
        summary = self._read_summary()
        for side in _SIDES:
            lines = getattr(summary.dev, side)
            (directory / f"dev.{side}").write_bytes("".join(f"{x}\n" for x in lines).encode())
        return {
            "digest": summary.digest,
            "languages": [summary.languages.source, summary.languages.target],
            "notices": summary.notices,
        }

    def _ids_key(self, tokenizers: Tokenizers, digest: str | None = None) -> str:
        models = [hashlib.sha256(m).hexdigest() for m in tokenizers.files().values()]
        max_length = self._config.data.max_length
        return cache_key("ids", digest or self.summary.digest, models, max_length)

    def _write_ids(self, directory: Path, tokenizers: Tokenizers) -> dict[str, Any]:
        notices: list[str] = []
        max_length = self._config.data.max_length
        split = self.split
        for name, corpus in (("train", split.train), ("dev", split.dev)):
            notify = _prefixed("training" if name == "train" else name, notices.append)
            on_progress = partial(self._on_progress, "encoding")
            blocks = encode_blocks(corpus, tokenizers, max_length, notify, on_progress)
            _write_blocks(directory, name, blocks, _id_type(tokenizers))
        return {"notices": notices}


def read_split(config: Config, notify: Notify, reader: CorpusReader | None = None) -> CorpusSplit:
    """Read the training and dev pairs; without a dev corpus, hold out some training pairs."""
    reader = reader or CorpusReader()
    corpus = _read(reader, config.data.train, config, _prefixed("training", notify))
    if config.data.dev:
        train, dev = corpus, read_dev(config, notify, reader)
        origin = "from the dev files"
    else:
        train, dev = hold_out(corpus, config.data.dev_pairs)
        origin = "held out from the corpus; use --dev SOURCE TARGET to avoid this"
    notify(f"data: {len(train):,} training pairs; {len(dev):,} dev pairs, {origin}")
    if not config.data.dev and len(dev) < config.data.dev_pairs:
        requested = config.data.dev_pairs
        notify(f"  data.dev_pairs={requested} exceeds 10% of the corpus; using {len(dev)}")
    if len(train) < _FEW_PAIRS and not config.train.start_from:
        notify(
            f"warning: {len(train):,} training pairs are too few for useful translations; "
            "use tens of thousands of pairs, or fine-tune a model with --from"
        )
    return CorpusSplit(train, dev)


def read_dev(config: Config, notify: Notify, reader: CorpusReader) -> Corpus:
    """Read the dev set named in `config`."""
    assert config.data.dev
    languages = find_languages(config.data.train.corpora, configured_languages(config))
    return _read(reader, config.data.dev, config, _prefixed("dev", notify), languages)


def configured_languages(config: Config) -> Languages:
    """Return the languages in the settings."""
    return Languages(config.data.source_lang, config.data.target_lang)


def digest_by_seed(config: Config, reader: CorpusReader) -> str:
    """Return the digest of the split in mtcli 0.1.0, which depends on `train.seed`."""
    corpus = _read(reader, config.data.train, config, _ignore)
    return CorpusSplit(*hold_out(corpus, config.data.dev_pairs, config.train.seed)).digest


def _read(
    reader: CorpusReader,
    source: CorpusSource,
    config: Config,
    notify: Notify,
    languages: Languages | None = None,
) -> Corpus:
    """Read the pairs of a corpus, without those that are certainly too long."""
    corpus = reader.read(source, notify, languages or configured_languages(config))
    return drop_overlong(corpus, config.data.max_length, config.tokenizer.normalization, notify)


def describe_vocabulary(tokenizers: Tokenizers, requested: int) -> Iterator[str]:
    """Yield lines that report the size of a new vocabulary."""
    source, target = len(tokenizers.source), len(tokenizers.target)
    sizes = f"{source:,} shared" if tokenizers.is_shared else f"{source:,} and {target:,}"
    yield f"vocabulary: {sizes} pieces"
    if min(source, target) < requested:
        yield f"  the corpus is too small for tokenizer.vocab_size={requested}"


def _prefixed(prefix: str, notify: Notify) -> Notify:
    """Return a function that passes each text to `notify` with `prefix` in front."""
    return lambda text: notify(f"{prefix}: {text}")


def _read_lines(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1]


def _id_type(tokenizers: Tokenizers) -> type[np.uint16] | type[np.int32]:
    """Return the smallest type that can hold all ids."""
    size = max(len(tokenizers.source), len(tokenizers.target))
    return np.uint16 if size <= 2**16 else np.int32


def _write_blocks(
    directory: Path, name: str, blocks: Iterable[EncodedBlock], id_type: DTypeLike
) -> None:
    """Write two files per side: one with the ids, and one with the offsets of the rows."""
    totals = [0, 0]
    with (
        (directory / f"{name}.source.ids").open("wb") as source_ids,
        (directory / f"{name}.source.offsets").open("wb") as source_offsets,
        (directory / f"{name}.target.ids").open("wb") as target_ids,
        (directory / f"{name}.target.offsets").open("wb") as target_offsets,
    ):
        for file in (source_offsets, target_offsets):
            file.write(np.zeros(1, np.int64).tobytes())
        for block in blocks:
            sides = (
                (block.source, block.source_lengths, source_ids, source_offsets),
                (block.target, block.target_lengths, target_ids, target_offsets),
            )
            for side, (ids, lengths, ids_file, offsets_file) in enumerate(sides):
                ids_file.write(ids.astype(id_type).tobytes())
                offsets_file.write((totals[side] + np.cumsum(lengths)).tobytes())
                totals[side] += len(ids)


def _open_ids(entry: CacheEntry, name: str, tokenizers: Tokenizers) -> EncodedCorpus:
    source, target = (
        RaggedArray(
            _map(entry.path / f"{name}.{side}.ids", _id_type(tokenizers)),
            _map(entry.path / f"{name}.{side}.offsets", np.int64),
        )
        for side in _SIDES
    )
    return EncodedCorpus(source, target, tokenizers.special)


def _map(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    """Return a plain array that maps a file into memory; slicing `np.memmap` would be slow."""
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)
