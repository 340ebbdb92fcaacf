"""Dataset of a run: training set and dev set. The dev set scores a model."""

import time
from dataclasses import dataclass
from typing import Any

from mtcli.config.metrics import DEFAULT_METRICS, MetricOptions
from mtcli.config.search import SearchOptions
from mtcli.config.sections import Config, TrainConfig
from mtcli.data.batches import batches_in_order
from mtcli.data.corpus import Corpus
from mtcli.data.encoding import EncodedCorpus
from mtcli.data.streaming import StreamedCorpus
from mtcli.distributed import Processes
from mtcli.evaluation.scores import LOWER_IS_BETTER, compute_scores
from mtcli.models.base import TrainableModel
from mtcli.reporting.events import MAIN_METRIC, Sample, Score, Scores
from mtcli.tokenizer import Tokenizers
from mtcli.training.loss import total_loss
from mtcli.translation.engines import LoadedEngine
from mtcli.translation.engines.pytorch import TorchEngine
from mtcli.translation.line_translator import LineTranslator, Request

_N_SAMPLES = 2  # number of translations to display


@dataclass(frozen=True)
class DevScores:
    """Scores of a model on the dev set."""

    loss: float  # nats per target token
    scores: Scores
    seconds: float
    samples: tuple[Sample, ...]

    def score(self, metric: str) -> float:
        """Return the score for model selection; higher is better."""
        if metric == "loss":
            return -self.loss
        value = self.scores[metric].value
        return -value if metric in LOWER_IS_BETTER else value

    @property
    def bleu(self) -> Score:
        """BLEU, the score that is stored in checkpoints and model metadata."""
        return self.scores[MAIN_METRIC]


def validation_metrics(options: TrainConfig) -> MetricOptions:
    """Return the metrics of a validation: BLEU, chrF and the one that selects the weights."""
    selecting = [options.metric] if options.metric != "loss" else []
    return MetricOptions(
        metrics=tuple(dict.fromkeys([*DEFAULT_METRICS, *selecting])),
        tokenize=options.bleu_tokenizer,
        resamples=0,
    )


@dataclass(frozen=True)
class DevSet:
    """Dev pairs: all pairs as token ids for the loss, the first ones as text for BLEU and chrF."""

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
        """Return the scores of `model` with greedy search; the processes share the work.

        Translations are truncated after `max_length` pieces. The method leaves the model in
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
            scores=compute_scores(translations, [references], validation_metrics(config.train)),
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
    train_set: EncodedCorpus  # only the first pairs if the corpus is streamed
    dev_set: DevSet
    stream: StreamedCorpus | None = None

    @property
    def n_pairs(self) -> int:
        """Number of training pairs; 0 for a streamed corpus, whose pairs are not counted."""
        return 0 if self.stream else len(self.train_set)
