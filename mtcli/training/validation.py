"""Measuring a model while it trains: loss, and BLEU of real translations."""

import time
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mtcli.config import Config
from mtcli.data import Corpus, EncodedCorpus, batches_in_order
from mtcli.engines import Opened
from mtcli.engines.pytorch import TorchEngine
from mtcli.evaluation import bleu
from mtcli.models import TranslationModel
from mtcli.options import SearchOptions
from mtcli.report import Sample, Validated
from mtcli.tokenizer import Tokenizers
from mtcli.training.loop import mean_loss
from mtcli.translation import LineTranslator, Request

_N_SAMPLES = 2  # translations to show


@dataclass(frozen=True)
class DevSet:
    """The pairs a run is validated on: all for the loss, the first ones for BLEU and samples."""

    encoded: EncodedCorpus
    shown: Corpus

    def validate(
        self,
        model: TranslationModel[Any],
        tokenizers: Tokenizers,
        config: Config,
        *,
        step: int,
        best_bleu: float,
    ) -> Validated:
        """Measure `model`, which is in evaluation mode afterwards."""
        began = time.perf_counter()
        loss = mean_loss(model, batches_in_order(self.encoded, config.data.batch_tokens))
        # A young model does not know where to end; twice the longest dev sentence is enough.
        longest = min(config.search.max_length, 2 * int(self.encoded.target.lengths().max()))
        greedy = SearchOptions(beam_size=1, max_length=longest, with_scores=False)
        opened = Opened(TorchEngine(model, tokenizers), tokenizers, config.data.max_length, greedy)
        requests = [Request(line) for line in self.shown.source]
        found = LineTranslator(opened).translate_all(requests, greedy)
        translations = [candidates[0].text for candidates in found]
        score = bleu(translations, self.shown.target)
        samples = zip(self.shown.source, self.shown.target, translations, strict=True)
        return Validated(
            step=step,
            loss=loss,
            bleu=score.value,
            signature=score.signature,
            is_best=score.value > best_bleu,
            seconds=time.perf_counter() - began,
            samples=tuple(Sample(*sample) for sample in islice(samples, _N_SAMPLES)),
        )
