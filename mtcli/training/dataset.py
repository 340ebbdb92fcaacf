"""Training set and dev sets of a run, and the scores of a model on the dev sets."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mtcli.config.metrics import DEFAULT_METRICS, MetricOptions
from mtcli.config.search import SearchOptions
from mtcli.config.sections import Config, TrainConfig
from mtcli.config.tags import ModelTags
from mtcli.data.batches import batches_in_order
from mtcli.data.corpus import Corpus
from mtcli.data.encoding import EncodedCorpus
from mtcli.data.entries import EntryInfo
from mtcli.data.streaming import StreamedCorpus
from mtcli.distributed import Processes
from mtcli.errors import DataError
from mtcli.evaluation.scores import LOWER_IS_BETTER, compute_scores
from mtcli.models.base import TrainableModel
from mtcli.reporting.events import MAIN_METRIC, Sample, Score, Scores, SetScores
from mtcli.tokenizer import Tokenizers
from mtcli.training.loss import total_loss
from mtcli.translation.engines import LoadedEngine
from mtcli.translation.engines.pytorch import TorchEngine
from mtcli.translation.line_translator import LineTranslator, Request

_N_SAMPLES = 2  # sample translations per dev set
UNNAMED = "dev"  # name given to an unnamed dev set if there are several dev sets


@dataclass(frozen=True)
class DevScores:
    """Scores of a model on one dev set, or on several sets combined by `train.dev_rule`."""

    loss: float  # nats per target token
    scores: Scores
    seconds: float
    samples: tuple[Sample, ...]
    sets: tuple[SetScores, ...] = ()  # scores per dev set; empty if there is only one

    def score(self, metric: str) -> float:
        """Return the score that model selection maximizes: `metric`, negated if lower is better."""
        if metric == "loss":
            return -self.loss
        value = self.scores[metric].value
        return -value if metric in LOWER_IS_BETTER else value

    @property
    def bleu(self) -> Score:
        """BLEU, the score that is stored in checkpoints and model metadata."""
        return self.scores[MAIN_METRIC]

    @property
    def bleu_of_sets(self) -> dict[str, float]:
        """BLEU on each dev set, by name; empty if there is only one dev set."""
        return {scored.name: scored.scores[MAIN_METRIC].value for scored in self.sets}


def combine(measured: Mapping[str, DevScores], rule: str) -> DevScores:
    """Return the scores on several dev sets, combined by `rule`: mean, worst or first."""
    each = list(measured.values())
    if len(each) == 1:
        return each[0]

    def reduce(values: Sequence[float], *, lower_is_worse: bool = True) -> float:
        match rule:
            case "first":
                return values[0]
            case "worst":
                return min(values) if lower_is_worse else max(values)
        return sum(values) / len(values)

    return DevScores(
        loss=reduce([part.loss for part in each], lower_is_worse=False),
        scores={
            name: replace(
                score,
                value=reduce(
                    [part.scores[name].value for part in each],
                    lower_is_worse=name not in LOWER_IS_BETTER,
                ),
            )
            for name, score in each[0].scores.items()
        },
        seconds=sum(part.seconds for part in each),
        samples=tuple(sample for part in each for sample in part.samples),
        sets=tuple(SetScores(name, part.loss, part.scores) for name, part in measured.items()),
    )


def validation_metrics(options: TrainConfig) -> MetricOptions:
    """Return the metrics for validation: BLEU, chrF and the metric that selects the weights."""
    selecting = [options.metric] if options.metric != "loss" else []
    return MetricOptions(
        metrics=tuple(dict.fromkeys([*DEFAULT_METRICS, *selecting])),
        tokenize=options.bleu_tokenizer,
        resamples=0,
    )


@dataclass(frozen=True)
class DevSet:
    """Dev pairs. The loss uses all of them as token ids; the scores use the first ones as text."""

    encoded: EncodedCorpus
    scored_pairs: Corpus  # the first pairs, which are translated for scores and samples
    name: str = ""

    def measure(
        self,
        model: TrainableModel[Any],
        tokenizers: Tokenizers,
        config: Config,
        processes: Processes,
        max_length: int | None = None,
    ) -> DevScores:
        """Return the scores of `model` with greedy search; the processes share the work.

        Translations are truncated after `max_length` pieces, by default twice the length of the
        longest reference. Afterward, the model is in evaluation mode.
        """
        began = time.perf_counter()
        batches = list(batches_in_order(self.encoded, config.data.batch_tokens))
        sums = processes.gather(total_loss(model, processes.local_slice(batches)))
        # Sum in rank order, so that all processes get exactly the same loss.
        loss = sum(part[0] for part in sums) / sum(part[1] for part in sums)
        # Early in training, models rarely output EOS, so stop at twice the longest reference.
        max_length = max_length or 2 * int(self.encoded.target.lengths().max())
        greedy = SearchOptions(
            beam_size=1, max_length=min(config.search.max_length, max_length), with_scores=False
        )
        engine = TorchEngine(model, tokenizers)
        tags = ModelTags.from_symbols(tokenizers.source.tags)
        loaded = LoadedEngine(engine, tokenizers, config.data.max_length, greedy, tags=tags)
        requests = processes.local_slice(to_requests(self.scored_pairs))
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
        """Return a typical target length in tokens: the mean, rounded down, plus one."""
        return int(self.encoded.target.lengths().mean()) + 1


def to_requests(corpus: Corpus) -> list[Request]:
    """Return a translation request for each source line, with its target language and tag."""
    infos = corpus.entries or (EntryInfo(),)
    origins = [0] * len(corpus) if corpus.origins is None else corpus.origins.tolist()
    return [
        Request(line, to=infos[i].to, tag=infos[i].tag)
        for line, i in zip(corpus.source, origins, strict=True)
    ]


def split_dev_sets(encoded: EncodedCorpus, dev: Corpus, n_scored: int) -> tuple[DevSet, ...]:
    """Split the dev pairs into named sets; validation translates the first `n_scored` of each."""
    names = list(dict.fromkeys(info.set_name for info in dev.entries))
    if dev.origins is None or encoded.origins is None or len(names) < 2:
        return (DevSet(encoded, dev.take(range(min(n_scored, len(dev))))),)
    numbers = np.array([names.index(info.set_name) for info in dev.entries])
    sets = []
    for number, name in enumerate(names):
        rows = np.flatnonzero(numbers[encoded.origins] == number)
        text_rows = np.flatnonzero(numbers[dev.origins] == number)
        if not len(text_rows):
            continue  # no pairs were held out from this corpus
        if not len(rows):
            raise DataError(
                f"all pairs in the dev set {name or UNNAMED} are longer than data.max_length",
                hint="raise data.max_length, or remove this dev set",
            )
        scored = dev.take(text_rows[:n_scored])
        sets.append(DevSet(encoded.select(rows), scored, name or UNNAMED))
    return tuple(sets)


@dataclass(frozen=True)
class Dataset:
    """Encoded training set, dev sets and tokenizers of a run."""

    tokenizers: Tokenizers
    train_set: EncodedCorpus  # only the first pairs if the corpus is streamed
    dev_sets: tuple[DevSet, ...]
    stream: StreamedCorpus | None = None

    @property
    def n_pairs(self) -> int:
        """Number of training pairs; 0 for a streamed corpus, whose pairs are not counted."""
        return 0 if self.stream else len(self.train_set)

    @property
    def scored_pairs(self) -> Corpus:
        """The pairs that validation translates, from all dev sets."""
        each = [dev_set.scored_pairs for dev_set in self.dev_sets]
        if len(each) == 1:
            return each[0]
        origins = [part.origins for part in each if part.origins is not None]
        return Corpus(
            [line for part in each for line in part.source],
            [line for part in each for line in part.target],
            np.concatenate(origins),
            each[0].entries,
        )
