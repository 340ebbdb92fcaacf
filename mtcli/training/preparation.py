"""Prepare the training data: read and split it, train the vocabulary, and encode the pairs.

Each stage stores its result in the cache, so that a resumed run, or another run with the same data
and vocabulary, can reuse it.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mtcli.config.corpora import CorpusSource
from mtcli.config.filters import FilterConfig
from mtcli.config.sections import Config
from mtcli.counts import format_count
from mtcli.data.cache import CacheEntry, DataCache, cache_key
from mtcli.data.corpus import Corpus, CorpusReader
from mtcli.data.encoding import encode_blocks
from mtcli.data.entries import EntryInfo, find_languages
from mtcli.data.filtering import drop_unwanted
from mtcli.data.fingerprint import fingerprint
from mtcli.data.formats.base import Languages
from mtcli.data.held_out import choose_dev, hold_out
from mtcli.data.id_files import SIDES, open_ids, write_ids
from mtcli.data.overlong import drop_overlong
from mtcli.data.quality.quick import quick_warnings
from mtcli.model_dir.layout import WORD_COUNTS
from mtcli.model_dir.word_counts import word_counts_file
from mtcli.signals import run_interruptibly
from mtcli.tokenizer import Tokenizers, tokenizers_from_files, train_tokenizers

if TYPE_CHECKING:
    from mtcli.training.dataset import Dataset

Notify = Callable[[str], None]
OnProgress = Callable[[str, int, float | None], None]  # activity, pairs done, completed fraction

_FEW_PAIRS = 1_000  # with fewer training pairs, the user gets a warning


def _ignore(*_: object) -> None:
    """Ignore a notice or a progress report."""


@dataclass(frozen=True)
class CorpusSplit:
    """Training and dev pairs."""

    train: Corpus
    dev: Corpus
    is_mixed: bool = False  # training depends on which corpus each pair comes from

    @property
    def digest(self) -> str:
        """Hash of all pairs and, for a mixture of corpora, of their origins."""
        mixed = f"-{self.train.origins_digest}" if self.is_mixed else ""
        return f"{self.train.digest}-{self.dev.digest}{mixed}"


@dataclass(frozen=True)
class SplitSummary:
    """Summary of a `CorpusSplit` that can be loaded without the training text."""

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
        self._new_keys: list[str] = []  # keys of the entries that this object has added

    @cached_property
    def _languages(self) -> Languages:
        """Languages from the settings, or from the training corpus if they are not set."""
        return find_languages(self._config.data.train, configured_languages(self._config))

    @cached_property
    def summary(self) -> SplitSummary:
        """Digest, languages, dev pairs and notices, from the cache or from the corpus."""
        key = self._split_key()
        if key is None:
            return self._read_summary()
        entry = self._find_or_build(key, self._write_summary)
        source, target = (_read_lines(entry.path / f"dev.{side}") for side in SIDES)
        values = entry.values
        origins = None if values.get("origins") is None else np.array(values["origins"], np.uint8)
        infos = tuple(EntryInfo(*info) for info in values.get("entries", ()))
        return SplitSummary(
            values["digest"],
            Languages(*values["languages"]),
            Corpus(source, target, origins, infos),
            tuple(values["notices"]),
        )

    @cached_property
    def split(self) -> CorpusSplit:
        """The training and dev pairs as text."""
        return read_split(self._config, _ignore, self._reader)

    def train_vocabulary(self, notify: Notify) -> Tokenizers:
        """Train the tokenizers of a new run, or load them from the cache."""
        options = self._config.tokenizer
        tags = self._config.data.symbols
        parts = [self.summary.digest, options.model_dump(mode="json"), *([tags] if tags else [])]
        key = cache_key("vocabulary", *parts)

        def write(directory: Path) -> dict[str, Any]:
            self._on_progress("training the vocabulary", 0, None)
            sample = self.split.train.sample(self._n_sample_pairs)
            tokenizers = run_interruptibly(
                lambda: train_tokenizers(sample.source, sample.target, options, tags)
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

    def word_counts(self) -> bytes:
        """Count the words in the training text; return the contents of word_counts.safetensors."""

        def write(directory: Path) -> dict[str, Any]:
            train = self.split.train
            content = word_counts_file(train.lazy_blocks(), len(train))
            (directory / WORD_COUNTS).write_bytes(content)
            return {}

        entry = self._find_or_build(cache_key("words", self.summary.digest), write)
        return (entry.path / WORD_COUNTS).read_bytes()

    def dataset(self, notify: Notify) -> "Dataset":
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

    def open(self, tokenizers: Tokenizers, summary: SplitSummary, notify: Notify) -> "Dataset":
        """Return the dataset that `encode` wrote to the cache of this machine."""
        from mtcli.training.dataset import Dataset, split_dev_sets  # imports torch

        entry = self._cache.open(self._ids_key(tokenizers, summary.digest))
        for notice in entry.values["notices"]:
            notify(notice)
        dev = open_ids(entry.path, "dev", tokenizers)
        n_scored = self._config.train.validate_pairs
        return Dataset(
            tokenizers,
            open_ids(entry.path, "train", tokenizers),
            split_dev_sets(dev, summary.dev, n_scored),
        )

    @property
    def _n_sample_pairs(self) -> int:
        """Number of pairs to train the vocabulary on."""
        options = self._config.tokenizer
        return max(1, options.sample_lines // 2) if options.is_shared else options.sample_lines

    def undo(self) -> None:
        """Remove the cache entries that this object has added."""
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
            parts.append(fingerprint(data.dev, self._languages, data.train.targets))
        if None in parts:
            return None
        filters = data.max_length, self._config.tokenizer.normalization, data.dev_pairs
        # Without filters, use the same key as version 0.2.0, so that its entries can be reused.
        if self._config.filters != FilterConfig.none():
            parts.append(json.dumps(self._config.filters.model_dump(mode="json")))
        is_new_model = self._config.train.start_from is None  # affects the warning about few pairs
        return cache_key("split", parts, filters, is_new_model)

    def _read_summary(self) -> SplitSummary:
        notices: list[str] = []
        self.split = split = read_split(self._config, notices.append, self._reader)
        with ThreadPoolExecutor(1) as pool:
            digest = pool.submit(lambda: split.digest)  # hashing releases the interpreter lock
            notices += quick_warnings(split.train)
        configured = configured_languages(self._config)
        languages = self._reader.languages(self._config.data.train, configured)
        return SplitSummary(digest.result(), languages, split.dev, tuple(notices))

    def _write_summary(self, directory: Path) -> dict[str, Any]:
        summary = self._read_summary()
        for side in SIDES:
            lines = getattr(summary.dev, side)
            (directory / f"dev.{side}").write_bytes("".join(f"{x}\n" for x in lines).encode())
        dev = summary.dev
        return {
            "digest": summary.digest,
            "languages": [summary.languages.source, summary.languages.target],
            "notices": summary.notices,
            "origins": None if dev.origins is None else dev.origins.tolist(),
            "entries": dev.entries,
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
            write_ids(directory, name, blocks, tokenizers)
        return {"notices": notices}


def read_split(config: Config, notify: Notify, reader: CorpusReader | None = None) -> CorpusSplit:
    """Read and filter the training pairs of `config`; read or hold out the dev pairs.

    The filters do not apply to the dev set, so that it is the same for runs with different filters.
    """
    reader = reader or CorpusReader()
    corpus = _read(reader, config.data.train, config, _prefixed("training", notify))
    if config.data.dev:
        dev = read_dev(config, notify, reader)
        origin = "from the dev files"
    else:
        dev = choose_dev(corpus, config.data.dev_pairs)
        origin = "held out from the corpus; use --dev SOURCE TARGET to avoid this"
    train = drop_unwanted(
        corpus,
        dev,
        config.filters,
        _prefixed("training", notify),
        is_held_out=config.data.dev is None,
        directory=reader.directory,
    )
    sizes = f"{format_count(len(train), 'training pair')}; {format_count(len(dev), 'dev pair')}"
    notify(f"data: {sizes}, {origin}")
    if not config.data.dev and len(dev) < config.data.dev_pairs:
        requested = config.data.dev_pairs
        notify(f"  data.dev_pairs={requested} exceeds 10% of the corpus; using {len(dev)}")
    if len(train) < _FEW_PAIRS and not config.train.start_from:
        notify(
            f"warning: too few training pairs for useful translations: {len(train):,}; "
            "use tens of thousands of pairs, or fine-tune a model with --from"
        )
    return CorpusSplit(train, dev, config.data.is_mixed)


def read_dev(config: Config, notify: Notify, reader: CorpusReader) -> Corpus:
    """Read the dev set named in `config`."""
    assert config.data.dev
    languages = find_languages(config.data.train, configured_languages(config))
    corpus = reader.read(
        config.data.dev, _prefixed("dev", notify), languages, config.data.train.targets
    )
    return _drop_overlong(corpus, config, _prefixed("dev", notify))


def configured_languages(config: Config) -> Languages:
    """Return the languages that `config` specifies."""
    return Languages(config.data.source_lang, config.data.target_lang)


def digest_by_seed(config: Config, reader: CorpusReader) -> str:
    """Return the digest of the split by mtcli 0.1.0, which depended on `train.seed`."""
    corpus = _read(reader, config.data.train, config, _ignore)
    train, dev = hold_out(corpus, config.data.dev_pairs, config.train.seed)
    return CorpusSplit(train, dev, config.data.is_mixed).digest


def _read(reader: CorpusReader, source: CorpusSource, config: Config, notify: Notify) -> Corpus:
    """Read the training corpus and drop pairs that are too long for any vocabulary."""
    corpus = reader.read(source, notify, configured_languages(config))
    return _drop_overlong(corpus, config, notify)


def _drop_overlong(corpus: Corpus, config: Config, notify: Notify) -> Corpus:
    return drop_overlong(corpus, config.data.max_length, config.tokenizer.normalization, notify)


def describe_vocabulary(tokenizers: Tokenizers, requested: int) -> Iterator[str]:
    """Yield lines that report the size of a new vocabulary."""
    source, target = len(tokenizers.source), len(tokenizers.target)
    sizes = f"{source:,} shared" if tokenizers.is_shared else f"{source:,} and {target:,}"
    yield f"vocabulary: {sizes} pieces"
    if min(source, target) < requested:
        yield f"  the corpus is too small for tokenizer.vocab_size={requested}"


def _prefixed(prefix: str, notify: Notify) -> Notify:
    """Return a function that adds `prefix` to a text and passes it to `notify`."""
    return lambda text: notify(f"{prefix}: {text}")


def _read_lines(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1]
