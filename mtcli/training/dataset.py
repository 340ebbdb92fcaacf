"""Dataset of a run: reading and encoding the corpus, and scoring a model on the dev set."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mtcli.config.base import CorpusSource
from mtcli.config.search import SearchOptions
from mtcli.config.sections import Config
from mtcli.data.batches import batches_in_order
from mtcli.data.corpus import (
    Corpus,
    CorpusReader,
    EncodedCorpus,
    drop_overlong,
    encode,
    hold_out,
)
from mtcli.distributed import Processes
from mtcli.evaluation.scores import compute_scores
from mtcli.models.base import TrainableModel
from mtcli.reporting.events import MAIN_METRIC, Sample, Score, Scores
from mtcli.signals import run_interruptibly
from mtcli.tokenizer import Tokenizers, train_tokenizers
from mtcli.training.loss import total_loss
from mtcli.translation.engines import LoadedEngine
from mtcli.translation.engines.pytorch import TorchEngine
from mtcli.translation.line_translator import LineTranslator, Request

Notify = Callable[[str], None]

_FEW_PAIRS = 1_000  # fewer training pairs cause a warning
_N_SAMPLES = 2  # translations to display


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
class DevScores:
    """Scores of a model on the dev set."""

    loss: float  # nats per target token
    scores: Scores
    seconds: float
    samples: tuple[Sample, ...]

    def score(self, metric: str) -> float:
        """Return the score for model selection; higher is better."""
        return -self.loss if metric == "loss" else self.scores[metric].value

    @property
    def bleu(self) -> Score:
        """The score that checkpoints and model metadata store."""
        return self.scores[MAIN_METRIC]


@dataclass(frozen=True)
class DevSet:
    """Dev set: all pairs encoded, for the loss; the first pairs as text, for BLEU and chrF."""

    encoded: EncodedCorpus
    scored_pairs: Corpus  # translated for BLEU, chrF and samples

    def measure(
        self,
        model: TrainableModel[Any],
        tokenizers: Tokenizers,
        config: Config,
        processes: Processes,
        max_length: int | None = None,
    ) -> DevScores:
        """Score `model` with greedy search, in parallel across all processes.

        Translations are truncated after `max_length` pieces. This leaves the model in
        evaluation mode.
        """
        began = time.perf_counter()
        batches = list(batches_in_order(self.encoded, config.data.batch_tokens))
        sums = processes.gather(total_loss(model, processes.local_slice(batches)))
        # Sum in rank order, so that all processes get exactly the same loss.
        loss = sum(part[0] for part in sums) / sum(part[1] for part in sums)
        # Early in training, models rarely output EOS: stop at twice the longest reference.
        max_length = max_length or 2 * int(self.encoded.target.lengths().max())
        greedy = SearchOptions(
            beam_size=1, max_length=min(config.search.max_length, max_length), with_scores=False
        )
        engine = TorchEngine(model, tokenizers)
        loaded = LoadedEngine(engine, tokenizers, config.data.max_length, greedy)
        requests = [Request(line) for line in processes.local_slice(self.scored_pairs.source)]
        found = [best[0].text for best in LineTranslator(loaded).translate_all(requests, greedy)]
        translations = processes.merge_slices(found)
        sources, references = self.scored_pairs.source, self.scored_pairs.target
        samples = zip(sources, references, translations, strict=True)
        return DevScores(
            loss=loss,
            scores=compute_scores(translations, [references]),
            seconds=time.perf_counter() - began,
            samples=tuple(Sample(*sample) for sample in list(samples)[:_N_SAMPLES]),
        )

    def mean_length(self) -> int:
        """Return the mean target length in tokens, rounded up."""
        return int(self.encoded.target.lengths().mean()) + 1


@dataclass(frozen=True)
class Dataset:
    """Encoded training set, dev set and tokenizers of a run."""

    tokenizers: Tokenizers
    train_set: EncodedCorpus
    dev_set: DevSet


def read_split(config: Config, notify: Notify, reader: CorpusReader | None = None) -> CorpusSplit:
    """Read the training and dev pairs of `config`; hold out dev pairs if there are no dev files."""
    reader = reader or CorpusReader()
    corpus = _read(reader, config.data.train, config, _prefixed("training", notify))
    if config.data.dev:
        train, dev = corpus, _read(reader, config.data.dev, config, _prefixed("dev", notify))
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


def digest_by_seed(config: Config, reader: CorpusReader) -> str:
    """Return the digest of the mtcli 0.1.0 split, whose dev pairs depend on `train.seed`."""
    corpus = _read(reader, config.data.train, config, lambda _: None)
    return CorpusSplit(*hold_out(corpus, config.data.dev_pairs, config.train.seed)).digest


def _read(reader: CorpusReader, source: CorpusSource, config: Config, notify: Notify) -> Corpus:
    """Read the pairs of a corpus; drop those that are certainly too long."""
    corpus = reader.read(source, notify)
    return drop_overlong(corpus, config.data.max_length, config.tokenizer.normalization, notify)


def train_vocabulary(pairs: CorpusSplit, config: Config, notify: Notify) -> Tokenizers:
    """Train the tokenizers of a new run."""
    train = pairs.train
    tokenizers = run_interruptibly(
        lambda: train_tokenizers(train.source, train.target, config.tokenizer)
    )
    source, target = len(tokenizers.source), len(tokenizers.target)
    sizes = f"{source:,} shared" if tokenizers.is_shared else f"{source:,} and {target:,}"
    notify(f"vocabulary: {sizes} pieces")
    requested = config.tokenizer.vocab_size
    if min(source, target) < requested:
        notify(f"  the corpus is too small for tokenizer.vocab_size={requested}")
    return tokenizers


def prepare(pairs: CorpusSplit, tokenizers: Tokenizers, config: Config, notify: Notify) -> Dataset:
    """Encode all pairs that are not longer than `data.max_length`."""
    max_length, n_scored = config.data.max_length, config.train.validate_pairs
    dev = pairs.dev
    return Dataset(
        tokenizers,
        encode(pairs.train, tokenizers, max_length, _prefixed("training", notify)),
        DevSet(
            encode(dev, tokenizers, max_length, _prefixed("dev", notify)),
            scored_pairs=Corpus(dev.source[:n_scored], dev.target[:n_scored]),
        ),
    )


def _prefixed(prefix: str, notify: Notify) -> Notify:
    """Return a function that passes each text to `notify` with `prefix` in front."""
    return lambda text: notify(f"{prefix}: {text}")
