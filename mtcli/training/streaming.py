"""Preparation of a run that streams its corpus. Only the first pairs are read in advance."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from mtcli.config.filters import FilterConfig
from mtcli.counts import format_count
from mtcli.data.corpus import Corpus
from mtcli.data.encoding import encode
from mtcli.data.entries import open_entries
from mtcli.data.filtering import drop_unwanted, near_copy_index
from mtcli.data.held_out import too_few_pairs
from mtcli.data.near_copies import NearCopyIndex
from mtcli.data.quality.quick import quick_warnings
from mtcli.data.streaming import BLOCK_PAIRS, StreamedCorpus, read_head
from mtcli.model_dir.word_counts import word_counts_file
from mtcli.signals import run_interruptibly
from mtcli.tokenizer import Tokenizers, train_tokenizers
from mtcli.training.preparation import (
    Notify,
    Preparation,
    SplitSummary,
    describe_vocabulary,
    read_dev,
)

if TYPE_CHECKING:
    from mtcli.training.dataset import Dataset


@dataclass(frozen=True)
class _Head:
    """First pairs of a stream, after filtering, and the dev pairs."""

    train: Corpus
    dev: Corpus
    near_copies: NearCopyIndex | None  # finds near-copies of dev pairs, which the stream drops
    notices: tuple[str, ...]


class StreamPreparation(Preparation):
    """Prepares a streaming run from the first pairs of its corpus, without a cache."""

    @cached_property
    def summary(self) -> SplitSummary:
        """Digest of the first pairs, languages, dev pairs and notices."""
        notices: list[str] = []
        head, dev = self._head.train, self._head.dev
        data = self._config.data
        opened = open_entries(data.train, self._languages)
        notices += [f"training: {text}" for entry in opened for text in entry.corpus.descriptions]
        origin = "from the dev files" if data.dev else "from the start of the corpus"
        notices.append(
            f"data: streaming {data.train}; {format_count(len(dev), 'dev pair')}, {origin}"
        )
        notices.append(
            f"  shuffling within blocks of {BLOCK_PAIRS:,} pairs; the order of the blocks is fixed"
        )
        notices += self._head.notices
        if self._config.filters != FilterConfig.none():
            notices.append(
                "  filters apply to the entire stream; counts cover the first pairs only"
            )
        notices += quick_warnings(head)
        digest = hashlib.sha256(f"stream {head.digest} {dev.digest}".encode()).hexdigest()
        return SplitSummary(digest, self._languages, dev, tuple(notices))

    def train_vocabulary(self, notify: Notify) -> Tokenizers:
        """Train the tokenizers on the first pairs."""
        sample = self._head.train.sample(self._n_sample_pairs)
        tokenizers = run_interruptibly(
            lambda: train_tokenizers(
                sample.source, sample.target, self._config.tokenizer, self._config.data.symbols
            )
        )
        for text in describe_vocabulary(tokenizers, self._config.tokenizer.vocab_size):
            notify(text)
        return tokenizers

    def word_counts(self) -> bytes:
        """Count the words in the first pairs; return the contents of word_counts.safetensors."""
        head = self._head.train
        return word_counts_file(head.blocks(), len(head), is_complete=False)

    def encode(self, tokenizers: Tokenizers) -> None:
        """Do nothing, because pairs are encoded during training."""

    def has_ids(self, tokenizers: Tokenizers, digest: str) -> bool:
        """Return True, because there is nothing to encode."""
        del tokenizers, digest
        return True

    def open(self, tokenizers: Tokenizers, summary: SplitSummary, notify: Notify) -> "Dataset":
        """Return the dataset; its training pairs are read during training."""
        from mtcli.training.dataset import Dataset, split_dev_sets  # imports torch

        data = self._config.data
        dev = summary.dev
        encoded = encode(dev, tokenizers, data.max_length, lambda text: notify(f"dev: {text}"))
        return Dataset(
            tokenizers,
            encode(self._head.train, tokenizers, data.max_length, lambda _: None),
            split_dev_sets(encoded, dev, self._config.train.validate_pairs),
            stream=StreamedCorpus(
                data.train,
                self._languages,
                tokenizers,
                data.max_length,
                frozenset(dev.source),
                self._config.filters,
                self._head.near_copies,
            ),
        )

    @cached_property
    def _head(self) -> _Head:
        """The first training pairs, and the dev pairs."""
        data, filters = self._config.data, self._config.filters
        n_dev = 0 if data.dev else data.dev_pairs
        n_pairs = max(self._n_sample_pairs, n_dev)
        first = read_head(data.train, self._languages, n_dev + n_pairs, data.max_length)
        notices: list[str] = []
        is_held_out = data.dev is None
        dev = first.take(range(min(n_dev, len(first) // 10)))
        if data.dev:
            dev = read_dev(self._config, _ignore, self._reader)
        if not len(dev):
            raise too_few_pairs(len(first))
        near_copies = near_copy_index(first, dev, filters) if is_held_out else None
        train = drop_unwanted(
            first,
            dev,
            filters,
            lambda text: notices.append(
                f"training, first {format_count(len(first), 'pair')}: {text}"
            ),
            is_held_out=is_held_out,
        )
        return _Head(train, dev, near_copies, tuple(notices))


def _ignore(_: str) -> None:
    """Ignore a notice."""
