"""The end of training: the model for CTranslate2, and what a vocabulary shortlist does to it."""

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

from mtcli.data import Corpus, EncodedCorpus
from mtcli.engines import open_engine
from mtcli.evaluation import bleu
from mtcli.export.directory import make_export, write_shortlist, write_vocabulary_map
from mtcli.export.manifest import Shortlist
from mtcli.export.shortlist import vocabulary_map
from mtcli.options import EngineOptions
from mtcli.tokenizer import load_tokenizers
from mtcli.translation import LineTranslator, Request

_ROUNDS = 3
# What a shortlist may cost in BLEU and how much faster it must be to be used by default.
_MOST_COST, _LEAST_SPEED = 0.1, 1.05


def export_trained(directory: Path, train_set: EncodedCorpus, dev: Corpus) -> Shortlist | None:
    """Export the model, build its shortlist, and find out on `dev` whether it is worth using.

    Language models have none.
    """
    manifest = make_export(directory)
    if manifest.is_language_model:
        return None
    tokenizers = load_tokenizers(directory)
    text = vocabulary_map(train_set, tokenizers)
    write_vocabulary_map(directory, text)
    without, with_it = _measured(directory, dev)
    cost, speed = without.bleu - with_it.bleu, without.seconds / with_it.seconds
    shortlist = Shortlist(
        is_on=cost < _MOST_COST and speed > _LEAST_SPEED,
        bleu=with_it.bleu,
        bleu_without=without.bleu,
        speed=speed,
    )
    write_shortlist(directory, text, shortlist)
    return shortlist


@dataclass(frozen=True)
class Measured:
    """How good and how fast a way to translate the dev set is."""

    bleu: float
    seconds: float


def _measured(directory: Path, dev: Corpus) -> list[Measured]:
    """Without the shortlist and with it, in turns; the best time counts, others had company."""
    translators = [
        LineTranslator(
            open_engine(
                directory, EngineOptions(engine="ctranslate2", device="cpu", shortlist=shortlist)
            )
        )
        for shortlist in (False, True)
    ]
    options = replace(translators[0].options, n_best=1, with_scores=False)
    requests = [Request(line) for line in dev.source]
    texts: list[list[str]] = [[], []]
    seconds = [math.inf, math.inf]
    for _ in range(_ROUNDS):
        for i, translator in enumerate(translators):
            began = time.perf_counter()
            found = translator.translate_all(requests, options)
            seconds[i] = min(seconds[i], time.perf_counter() - began)
            texts[i] = [candidates[0].text for candidates in found]
    return [
        Measured(bleu(text, dev.target).value, second)
        for text, second in zip(texts, seconds, strict=True)
    ]
