"""The end of training: the model for CTranslate2, and what a vocabulary shortlist does to it."""

import time
from dataclasses import replace
from pathlib import Path

from mtcli.checkpoint.files import write_file
from mtcli.data import Corpus, EncodedCorpus
from mtcli.engines import open_engine
from mtcli.evaluation import bleu
from mtcli.export.directory import VOCABULARY_MAP, NotExportableError, make_export
from mtcli.export.manifest import EXPORT, Shortlist
from mtcli.export.shortlist import vocabulary_map
from mtcli.options import EngineOptions
from mtcli.tokenizer import load_tokenizers
from mtcli.translation import LineTranslator, Request

_WARM_UP = 16  # sentences that are not timed
_MOST_COST = 0.1  # BLEU that a shortlist may cost and still be used by default


def export_trained(directory: Path, train_set: EncodedCorpus, dev: Corpus) -> Shortlist | None:
    """Export the model, build its shortlist, and find out on `dev` whether it is worth using."""
    try:
        manifest = make_export(directory)
    except NotExportableError:
        return None
    tokenizers = load_tokenizers(directory)
    write_file(directory / EXPORT / VOCABULARY_MAP, vocabulary_map(train_set, tokenizers))
    bleu_without, seconds_without = _measured(directory, dev, shortlist=False)
    bleu_with, seconds_with = _measured(directory, dev, shortlist=True)
    shortlist = Shortlist(
        is_on=bleu_without - bleu_with < _MOST_COST,
        bleu=bleu_with,
        bleu_without=bleu_without,
        speed=seconds_without / seconds_with,
    )
    replace(manifest, shortlist=shortlist).write(directory / EXPORT)
    return shortlist


def _measured(directory: Path, dev: Corpus, *, shortlist: bool) -> tuple[float, float]:
    """BLEU on `dev`, and the seconds that translating it took."""
    engine = EngineOptions(engine="ctranslate2", device="cpu", shortlist=shortlist)
    opened = open_engine(directory, engine)
    options = replace(opened.search, n_best=1, with_scores=False)
    requests = [Request(line) for line in dev.source]
    translator = LineTranslator(opened)
    translator.translate_all(requests[:_WARM_UP], options)
    began = time.perf_counter()
    found = translator.translate_all(requests, options)
    seconds = time.perf_counter() - began
    return bleu([candidates[0].text for candidates in found], dev.target).value, seconds
