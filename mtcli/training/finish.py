"""End of training: choose the final weights and export the model to CTranslate2.

The candidates for the final weights are those of the best validated step, the mean of several
validated steps, and those of the last step, without the moving average. The export includes a
vocabulary shortlist, which is enabled by default only if it makes translation faster without a
notable loss of BLEU.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from mtcli.config.metrics import MetricOptions
from mtcli.config.search import EngineOptions, SearchOptions
from mtcli.data.corpus import Corpus
from mtcli.data.encoding import EncodedCorpus
from mtcli.errors import MtcliError
from mtcli.evaluation.scores import compute_scores
from mtcli.export.directory import (
    NotExportableError,
    make_export,
    write_vocabulary_map,
)
from mtcli.export.shortlist import Candidates, SearchedBatch, build_vocabulary_map, estimate_speedup
from mtcli.model_dir.card import write_card
from mtcli.model_dir.checkpoints import READ_ERRORS, Progress, load_with_checksum, weights_path
from mtcli.model_dir.directory import load_saved_config, weights_info
from mtcli.model_dir.manifest import Shortlist
from mtcli.model_dir.weights import average_weights, load_model, save_weights
from mtcli.models.base import parameters_of
from mtcli.reporting.events import MAIN_METRIC, Activity, Finished, Notice
from mtcli.tokenizer import load_tokenizers
from mtcli.training.alignment_heads import choose_alignment_heads
from mtcli.training.dataset import to_requests
from mtcli.training.loop import is_better
from mtcli.training.run_state import BestScores, Run, write_report
from mtcli.training.shares import used_shares
from mtcli.translation.engines import open_engine
from mtcli.translation.engines.base import Engine, NBest, PiecePair, Source, TokenScores
from mtcli.translation.line_translator import LineTranslator

_MAX_BLEU_LOSS, _MIN_SPEEDUP = 0.1, 1.05  # limits for enabling a shortlist


@dataclass(frozen=True)
class WeightsCandidate:
    """Weights that may be better than those of the best validated step."""

    name: str
    weights: Mapping[str, Tensor]  # empty except on rank 0


def finish(run: Run, progress: Progress, reason: str) -> Finished:
    """Choose the final weights, write the remaining files, and log and return `Finished`."""
    _choose_weights(run, progress)
    for line in used_shares(run, progress.position):
        run.report(Notice(line))
    if not run.processes.is_first:
        run.context.remove_cache()
        return Finished(progress.step, progress.best_step, 0.0, "", reason, "")
    _choose_alignment_heads(run)
    _export(run)
    write_card(run.directory)
    info = weights_info(run.directory)
    finished = Finished(
        progress.step,
        info.step,
        info.bleu or 0.0,
        info.signature,
        reason,
        info.weights or f"step {info.step}",
        progress.data,
        info.sets,
    )
    write_report(run, finished)
    run.context.remove_cache()
    run.report(finished)  # must be last: `finished` in the log means that all files exist
    return finished


def _choose_weights(run: Run, progress: Progress) -> None:
    """Save the best candidate if it is better than the weights of the best validated step."""
    best, best_name = progress, f"step {progress.best_step}"
    for candidate in _candidates(run, progress):
        run.context.listener(Activity(f"evaluating {candidate.name}"))
        scores = run.measure(
            run.processes.broadcast_tensors(candidate.weights, run.train_step.device)
        )
        score = scores.score(run.config.train.metric)
        is_best = is_better(score, scores.loss, best)
        verdict = "better than" if is_best else "not better than"
        run.report(
            Notice(
                f"{candidate.name}: dev BLEU {scores.bleu.value:.2f}, loss {scores.loss:.3f}; "
                f"{verdict} {best_name}"
            )
        )
        if not is_best:
            continue
        best, best_name = replace(best, best_score=score, best_loss=scores.loss), candidate.name
        if run.processes.is_first:
            run.save_best_weights(
                candidate.weights,
                step=progress.step,
                scores=BestScores(scores.bleu.value, scores.bleu.signature, scores.bleu_of_sets),
                name=candidate.name,
            )


def _choose_alignment_heads(run: Run) -> None:
    """Select the alignment heads and save them with the weights."""
    run.context.listener(Activity("choosing alignment heads"))
    model = load_model(run.directory, torch.device("cpu")).model
    dev_sets = [dev_set.encoded for dev_set in run.data.dev_sets]
    choice = choose_alignment_heads(model, run.data.train_set, dev_sets)
    if choice is None:
        return
    info = replace(weights_info(run.directory), alignment=choice.heads)
    save_weights(run.directory, parameters_of(model), info)
    run.report(Notice(f"alignment: {choice.summary()}"))


def _candidates(run: Run, progress: Progress) -> list[WeightsCandidate]:
    candidates = []
    steps = [step for step, _ in progress.kept]
    if len(steps) > 1:
        mean = _average_kept(run, steps) if run.processes.is_first else {}
        if run.processes.broadcast(bool(mean)):
            candidates.append(WeightsCandidate(f"the mean of steps {_join_steps(steps)}", mean))
    if run.average:
        current = run.processes.gather_to_first(parameters_of(run.model))
        candidates.append(WeightsCandidate("the last step without the moving average", current))
    return candidates


def _average_kept(run: Run, steps: list[int]) -> dict[str, Tensor]:
    """Return the mean of the weights saved at `steps`, or {} if a file is damaged."""
    weights = []
    for path in (weights_path(run.directory, step) for step in steps):
        try:
            weights.append(load_with_checksum(path)[1])
        except READ_ERRORS as error:
            run.report(Notice(f"cannot average checkpoints: {path.name} is damaged ({error})"))
            return {}
    return average_weights(weights)


def _join_steps(steps: list[int]) -> str:
    *others, last = map(str, steps)
    return f"{', '.join(others)} and {last}"


def _export(run: Run) -> None:
    """Export the model to CTranslate2.

    Report a failure instead of raising it, because the model is complete without the export.
    """
    listener = run.context.listener
    listener(Activity("exporting to CTranslate2"))
    try:
        shortlist = export_with_shortlist(run.directory, run.data.train_set, run.data.scored_pairs)
    except NotExportableError as error:
        listener(Notice(str(error)))
        return
    except (MtcliError, OSError) as error:
        run.report(Notice("export failed; the model is complete and works with --engine torch"))
        # Do not log paths: the user may share the model and its log.
        listener(Notice(f"  {error}"))
        listener(Notice(f"  to try again, run `mtcli export {run.directory}`"))
        return
    if shortlist is not None:
        run.report(Notice(f"shortlist: {shortlist.summary()}"))


def export_with_shortlist(
    directory: Path, train_set: EncodedCorpus, dev: Corpus
) -> Shortlist | None:
    """Export the model with a shortlist; return the evaluation of the shortlist.

    Export a language model without a shortlist and return None.

    The shortlist is enabled by default if it makes translation faster without a notable loss of
    BLEU on `dev`. The speedup is estimated from operation counts instead of measured, so that the
    decision does not depend on the load of the machine.
    """
    manifest = make_export(directory)
    if manifest.is_language_model:
        return None
    text = build_vocabulary_map(train_set, load_tokenizers(directory))
    write_vocabulary_map(directory, text)
    bleu_without, batches = _translate_dev(directory, dev, shortlist=False)
    bleu_with, _ = _translate_dev(directory, dev, shortlist=True)
    model = load_saved_config(directory).model
    speedup = estimate_speedup(model, manifest.target_size, Candidates.parse(text), batches)
    shortlist = Shortlist(
        is_on=bleu_without - bleu_with < _MAX_BLEU_LOSS and speedup > _MIN_SPEEDUP,
        bleu=bleu_with,
        bleu_without=bleu_without,
        speed=speedup,
    )
    write_vocabulary_map(directory, text, shortlist)
    return shortlist


def _translate_dev(
    directory: Path, dev: Corpus, *, shortlist: bool
) -> tuple[float, list[SearchedBatch]]:
    """Translate `dev`; return the BLEU score and the translated batches."""
    options = EngineOptions(engine="ctranslate2", device="cpu", shortlist=shortlist)
    loaded = open_engine(directory, options)
    counter = CountingEngine(loaded.engine)
    translator = LineTranslator(replace(loaded, engine=counter))
    search = replace(translator.options, n_best=1, with_scores=False)
    found = translator.translate_all(to_requests(dev), search)
    texts = [candidates[0].text for candidates in found]
    metrics = MetricOptions(
        metrics=(MAIN_METRIC,),
        tokenize=load_saved_config(directory).train.bleu_tokenizer,
        resamples=0,
    )
    scores = compute_scores(texts, [dev.target], metrics)
    return scores[MAIN_METRIC].value, counter.batches


class CountingEngine(Engine):
    """Engine that delegates to `engine` and records each batch that it translates."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.batches: list[SearchedBatch] = []
        self.n_parallel = engine.n_parallel
        self.n_positions = engine.n_positions
        self.batch_tokens = engine.batch_tokens

    def search(self, sources: list[Source], options: SearchOptions, limit: int) -> NBest:
        """Return the n-best list of each source, with at most `limit` pieces per target."""
        return self.submit(sources, options, limit)()

    def score(self, pairs: list[PiecePair]) -> TokenScores:
        """Return the log-probabilities of the pieces of each translation, followed by EOS."""
        return self.engine.score(pairs)

    def submit(
        self, sources: list[Source], options: SearchOptions, limit: int
    ) -> Callable[[], NBest]:
        """Start a search; return a function that waits for its result."""
        pending = self.engine.submit(sources, options, limit)

        def result() -> NBest:
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
