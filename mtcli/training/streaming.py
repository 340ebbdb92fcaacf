"""Preparation of a run that streams its corpus: only the first pairs are read in advance."""

import hashlib
from functools import cached_property

from mtcli.data.corpus import Corpus, too_few_pairs
from mtcli.data.encoding import encode
from mtcli.data.formats import open_corpora
from mtcli.data.quality.quick import quick_warnings
from mtcli.data.streaming import BLOCK_PAIRS, StreamedCorpus, read_head
from mtcli.signals import run_interruptibly
from mtcli.tokenizer import Tokenizers, train_tokenizers
from mtcli.training.dataset import Dataset, DevSet
from mtcli.training.preparation import (
    Notify,
    Preparation,
    SplitSummary,
    describe_vocabulary,
    read_dev,
)


class StreamPreparation(Preparation):
    """Prepares a streaming run from the first pairs of its corpus, without a cache."""

    @cached_property
    def summary(self) -> SplitSummary:
        """Digest of the first pairs, languages, dev pairs and notices."""
        notices: list[str] = []
        head, dev = self._head
        data = self._config.data
        opened = open_corpora(data.train.corpora, self._languages)
        notices += [f"training: {text}" for corpus in opened for text in corpus.descriptions]
        origin = "from the dev files" if data.dev else "from the start of the corpus"
        notices.append(f"data: streaming {data.train}; {len(dev):,} dev pairs, {origin}")
        notices.append(
            f"  shuffling within blocks of {BLOCK_PAIRS:,} pairs; the order of the blocks is fixed"
        )
        notices += quick_warnings(head)
        digest = hashlib.sha256(f"stream {head.digest} {dev.digest}".encode()).hexdigest()
        return SplitSummary(digest, self._languages, dev, tuple(notices))

    def train_vocabulary(self, notify: Notify) -> Tokenizers:
        """Train the tokenizers on the first pairs."""
        head, _ = self._head
        sample = head.sample(self._n_sample_pairs)
        tokenizers = run_interruptibly(
            lambda: train_tokenizers(sample.source, sample.target, self._config.tokenizer)
        )
        for text in describe_vocabulary(tokenizers, self._config.tokenizer.vocab_size):
            notify(text)
        return tokenizers

    def encode(self, tokenizers: Tokenizers) -> None:
        """Do nothing: pairs are encoded during training."""

    def has_ids(self, tokenizers: Tokenizers, digest: str) -> bool:
        """Return True: there is nothing to encode."""
        del tokenizers, digest
        return True

    def open(self, tokenizers: Tokenizers, summary: SplitSummary, notify: Notify) -> Dataset:
        """Return the dataset; its training pairs are read during training."""
        data = self._config.data
        head, _ = self._head
        dev = summary.dev
        return Dataset(
            tokenizers,
            encode(head, tokenizers, data.max_length, lambda _: None),
            DevSet(
                encode(dev, tokenizers, data.max_length, lambda text: notify(f"dev: {text}")),
                self._scored_pairs(summary),
            ),
            stream=StreamedCorpus(
                data.train, self._languages, tokenizers, data.max_length, frozenset(dev.source)
            ),
        )

    @cached_property
    def _head(self) -> tuple[Corpus, Corpus]:
        """The first training pairs, and the dev pairs."""
        data = self._config.data
        n_dev = 0 if data.dev else data.dev_pairs
        n_pairs = max(self._n_sample_pairs, n_dev)
        head = read_head(data.train, self._languages, n_dev + n_pairs, data.max_length)
        if data.dev:
            return head, read_dev(self._config, lambda _: None, self._reader)
        dev = head.take(range(min(n_dev, len(head) // 10)))
        if not len(dev):
            raise too_few_pairs(len(head))
        sources = set(dev.source)
        return head.exclude([i for i, line in enumerate(head.source) if line in sources]), dev
