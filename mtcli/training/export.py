"""End of training: the export to CTranslate2 and the decision about its vocabulary shortlist."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mtcli.checkpoint.directory import load_saved_config
from mtcli.data import Corpus, EncodedCorpus
from mtcli.engines import Engine, Found, Source, open_engine
from mtcli.evaluation import bleu
from mtcli.export.directory import make_export, write_shortlist, write_vocabulary_map
from mtcli.export.manifest import Shortlist
from mtcli.export.shortlist import Candidates, SearchedBatch, estimated_speedup, vocabulary_map
from mtcli.options import EngineOptions, SearchOptions
from mtcli.tokenizer import load_tokenizers
from mtcli.translation import LineTranslator, Request

_MAX_BLEU_LOSS, _MIN_SPEEDUP = 0.1, 1.05  # limits for a shortlist that is used by default


def export_trained(directory: Path, train_set: EncodedCorpus, dev: Corpus) -> Shortlist | None:
    """Export the model, write its shortlist, and decide on `dev` whether to use it by default.

    The decision counts work instead of measuring time, so it does not depend on the load of the
    machine. Language models have no shortlist.
    """
    manifest = make_export(directory)
    if manifest.is_language_model:
        return None
    text = vocabulary_map(train_set, load_tokenizers(directory))
    write_vocabulary_map(directory, text)
    bleu_without, batches = _translate_dev(directory, dev, shortlist=False)
    bleu_with, _ = _translate_dev(directory, dev, shortlist=True)
    model = load_saved_config(directory).model
    speedup = estimated_speedup(model, manifest.target_size, Candidates.of(text), batches)
    shortlist = Shortlist(
        is_on=bleu_without - bleu_with < _MAX_BLEU_LOSS and speedup > _MIN_SPEEDUP,
        bleu=bleu_with,
        bleu_without=bleu_without,
        speed=speedup,
    )
    write_shortlist(directory, text, shortlist)
    return shortlist


def _translate_dev(
    directory: Path, dev: Corpus, *, shortlist: bool
) -> tuple[float, list[SearchedBatch]]:
    """Return the BLEU on `dev` and the batches that were searched."""
    options = EngineOptions(engine="ctranslate2", device="cpu", shortlist=shortlist)
    opened = open_engine(directory, options)
    counter = CountingEngine(opened.engine)
    translator = LineTranslator(replace(opened, engine=counter))
    search = replace(translator.options, n_best=1, with_scores=False)
    found = translator.translate_all([Request(line) for line in dev.source], search)
    texts = [candidates[0].text for candidates in found]
    return bleu(texts, dev.target).value, counter.batches


class CountingEngine(Engine):
    """An engine that passes every search on to another one and records its size."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.batches: list[SearchedBatch] = []
        self.n_parallel = engine.n_parallel
        self.n_positions = engine.n_positions
        self.batch_tokens = engine.batch_tokens

    def search(self, sources: list[Source], options: SearchOptions, limit: int) -> Found:
        """Return the n_best targets of each source, best first."""
        return self.submit(sources, options, limit)()

    def submit(
        self, sources: list[Source], options: SearchOptions, limit: int
    ) -> Callable[[], Found]:
        """Start a search; the returned function waits for the result."""
        pending = self.engine.submit(sources, options, limit)

        def result() -> Found:
            found = pending()
            self.batches.append(
                SearchedBatch(
                    pieces=[source.pieces for source in sources],
                    n_target=sum(len(best[0].pieces) + 1 for best in found),
                    beam_size=options.beam_size,
                )
            )
            return found

        return result
