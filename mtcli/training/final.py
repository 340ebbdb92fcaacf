"""The end of a run: the best weights there are, exported and described."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from mtcli.checkpoint.directory import weights_info
from mtcli.checkpoint.state import DAMAGE, Progress, load_checked, weights_path
from mtcli.checkpoint.weights import mean_of
from mtcli.errors import MtcliError
from mtcli.export.directory import NotExportableError
from mtcli.models import parameters_of
from mtcli.report import Activity, Finished, Notice
from mtcli.training.card import write_card
from mtcli.training.course import is_better
from mtcli.training.export import export_trained
from mtcli.training.page import write_report
from mtcli.training.setup import Run


@dataclass(frozen=True)
class Candidate:
    """Weights that might be better than those of the best validation."""

    name: str
    weights: Mapping[str, Tensor]  # of several processes the first one has them


def finish(run: Run, progress: Progress, reason: str) -> Finished:
    """Choose the weights, write what is still missing, and last of all that nothing is."""
    _choose(run, progress)
    if not run.processes.is_first:
        return Finished(progress.step, progress.best_step, 0.0, "", reason, "")
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
    )
    write_report(run, finished)
    run.report(finished)  # when this is written, nothing is missing any more
    return finished


def _choose(run: Run, progress: Progress) -> None:
    """Keep the best of all candidates; the best validated weights are already kept."""
    best, best_name = progress, f"step {progress.best_step}"
    for candidate in _candidates(run, progress):
        run.place.show(Activity(f"evaluating {candidate.name}"))
        measured = run.measure(run.processes.streamed(candidate.weights, run.learner.device))
        score = measured.score(run.config.train.metric)
        is_best = is_better(score, measured.loss, best)
        verdict = "better than" if is_best else "not better than"
        run.report(
            Notice(
                f"{candidate.name}: dev BLEU {measured.bleu:.2f}, loss {measured.loss:.3f}; "
                f"{verdict} {best_name}"
            )
        )
        if not is_best:
            continue
        best, best_name = replace(best, best_score=score, best_loss=measured.loss), candidate.name
        if run.processes.is_first:
            run.keep(
                candidate.weights,
                step=progress.step,
                bleu=measured.bleu,
                signature=measured.signature,
                name=candidate.name,
            )


def _candidates(run: Run, progress: Progress) -> list[Candidate]:
    found = []
    steps = [step for step, _ in progress.kept]
    if len(steps) > 1:
        mean = _mean_of_kept(run, steps) if run.processes.is_first else {}
        if run.processes.from_first(bool(mean)):
            found.append(Candidate(f"the mean of steps {_listed(steps)}", mean))
    if run.average:
        own = run.processes.at_first(parameters_of(run.model))
        found.append(Candidate("the last step without moving average", own))
    return found


def _mean_of_kept(run: Run, steps: list[int]) -> dict[str, Tensor]:
    weights = []
    for path in (weights_path(run.directory, step) for step in steps):
        try:
            weights.append(load_checked(path)[1])
        except DAMAGE as error:
            run.report(Notice(f"no mean: {path.name} is damaged ({error})"))
            return {}
    return mean_of(weights)


def _listed(steps: list[int]) -> str:
    *others, last = map(str, steps)
    return f"{', '.join(others)} and {last}"


def _export(run: Run) -> None:
    """Export the model to CTranslate2; a run without an export is complete, too."""
    show = run.place.show
    show(Activity("exporting to CTranslate2"))
    try:
        shortlist = export_trained(run.directory, run.data.train_set, run.data.dev_set.shown)
    except NotExportableError as error:
        show(Notice(str(error)))
        return
    except (MtcliError, OSError) as error:
        run.report(Notice("there is no export; the model is complete without it"))
        # Do not log paths: a model can be shared.
        show(Notice(f"  {error}"))
        show(Notice(f"  `mtcli export {run.directory}` tries again"))
        return
    if shortlist is not None:
        run.report(Notice(f"shortlist: {shortlist.summary()}"))
