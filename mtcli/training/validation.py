"""Measuring a model while it trains: loss, and BLEU and chrF of real translations."""

import time
from dataclasses import dataclass
from typing import Any

from mtcli.config import Config
from mtcli.data import Corpus, EncodedCorpus
from mtcli.distributed import Processes
from mtcli.engines import Opened
from mtcli.engines.pytorch import TorchEngine
from mtcli.evaluation import bleu, chrf
from mtcli.feed import batches_in_order
from mtcli.models import TrainableModel
from mtcli.options import SearchOptions
from mtcli.report import Sample
from mtcli.tokenizer import Tokenizers
from mtcli.training.loop import total_loss
from mtcli.translation import LineTranslator, Request

_N_SAMPLES = 2  # translations to show


@dataclass(frozen=True)
class Measured:
    """How good a model is on the dev set."""

    loss: float  # nats per word
    bleu: float
    chrf: float
    signature: str  # of the BLEU
    seconds: float
    samples: tuple[Sample, ...]

    def score(self, metric: str) -> float:
        """The number that says which of two models is better: the higher one."""
        return {"bleu": self.bleu, "chrf": self.chrf, "loss": -self.loss}[metric]


@dataclass(frozen=True)
class DevSet:
    """The pairs a run is validated on: all for the loss, the first ones for BLEU and samples."""

    encoded: EncodedCorpus
    shown: Corpus

    def measure(
        self,
        model: TrainableModel[Any],
        tokenizers: Tokenizers,
        config: Config,
        processes: Processes,
        longest: int | None = None,
    ) -> Measured:
        """Measure `model`, which is in evaluation mode afterwards; all processes do a part.

        Translations are cut off after `longest` pieces.
        """
        began = time.perf_counter()
        batches = list(batches_in_order(self.encoded, config.data.batch_tokens))
        parts = processes.gather(total_loss(model, processes.dealt(batches)))
        # Added up in the order of the ranks, so that all of them get the same sum.
        loss = sum(part[0] for part in parts) / sum(part[1] for part in parts)
        # A young model does not know where to end; twice the longest dev sentence is enough.
        longest = longest or 2 * int(self.encoded.target.lengths().max())
        greedy = SearchOptions(
            beam_size=1, max_length=min(config.search.max_length, longest), with_scores=False
        )
        opened = Opened(TorchEngine(model, tokenizers), tokenizers, config.data.max_length, greedy)
        requests = [Request(line) for line in processes.dealt(self.shown.source)]
        found = [best[0].text for best in LineTranslator(opened).translate_all(requests, greedy)]
        translations = processes.joined(found)
        score = bleu(translations, self.shown.target)
        samples = zip(self.shown.source, self.shown.target, translations, strict=True)
        return Measured(
            loss=loss,
            bleu=score.value,
            chrf=chrf(translations, self.shown.target).value,
            signature=score.signature,
            seconds=time.perf_counter() - began,
            samples=tuple(Sample(*sample) for sample in list(samples)[:_N_SAMPLES]),
        )

    def usual_length(self) -> int:
        """Pieces of a translation as long as it should be."""
        return int(self.encoded.target.lengths().mean()) + 1
