"""The course of a run: step after step, with validations, checkpoints and detours."""

import math
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from torch import Tensor

from mtcli.checkpoint.state import (
    Progress,
    remove_files,
    save_checked,
    save_checkpoint,
    save_pause,
    snapshot,
    unneeded_weights,
    validated_weights,
    weights_path,
)
from mtcli.errors import ConfigError
from mtcli.report import Activity, Notice, RolledBack, StepDone, Stopped, Validated
from mtcli.training.interrupt import StopRequest
from mtcli.training.loop import DivergedError, Step, fit
from mtcli.training.machine import peak_memory
from mtcli.training.page import write_report
from mtcli.training.resumption import begin_again, find_checkpoint, resume
from mtcli.training.setup import Run

_SMOOTHING = 0.1  # share of a step's loss in the smoothed one
_ALARM = 1.5, 1.0  # times the lowest smoothed loss, and nats more: so high means it has exploded


def train(run: Run, progress: Progress, request: StopRequest) -> Progress | Stopped:
    """Train until a reason to end, or until asked to stop; when it diverges, go back and on."""
    beginning = progress
    while True:
        try:
            return _go_on(run, progress, request)
        except DivergedError as error:
            progress = _roll_back(run, beginning, progress, error)


def reason_to_end(run: Run, progress: Progress) -> str | None:
    """Why there is nothing more to train, if so."""
    options = run.config.train
    if progress.step >= options.steps:
        return "all steps done"
    if options.patience and progress.n_stale >= options.patience:
        names = {"bleu": "BLEU", "chrf": "chrF", "loss": "dev loss"}
        return f"no better {names[options.metric]} in {progress.n_stale} validations"
    return None


def _go_on(run: Run, progress: Progress, request: StopRequest) -> Progress | Stopped:
    options = run.config.train
    saved_at = time.monotonic()
    with closing(run.steps_from(progress.position)) as groups:
        steps = fit(run.learner, groups, start=progress.step, factor=progress.factor)
        while not reason_to_end(run, progress):
            step = next(steps)
            progress = _after(progress, step)
            if run.average:
                run.average.update(run.model, step.number)
            run.report(_step_done(run, step))
            progress = _with_memory(run, progress)
            is_due = step.number % options.validate_every == 0 or step.number == options.steps
            if is_due:
                progress = _validate(run, progress)
            is_late = time.monotonic() - saved_at > options.save_minutes * 60
            must_stop, must_save = _agreed(run, request.is_made(), is_late)
            if is_due or must_stop or must_save:
                progress = save(run, progress, is_validated=is_due)
                saved_at = time.monotonic()
            if must_stop:
                # Not logged: whoever reads the log of the whole run need not know of its pauses.
                return Stopped(progress.step, max(run.processes.gather(request.signal or 0)))
    return progress


def _agreed(run: Run, *wishes: bool) -> list[bool]:
    """What any of the processes wants, all do, in the same step."""
    return [
        n > 0 for n in run.processes.total([float(wish) for wish in wishes], run.learner.device)
    ]


def _after(progress: Progress, step: Step) -> Progress:
    """The progress with one more step, unless the loss has exploded."""
    old = step.loss if progress.loss is None else progress.loss
    loss = old + _SMOOTHING * (step.loss - old)
    lowest = loss if progress.lowest_loss is None else min(loss, progress.lowest_loss)
    times, more = _ALARM
    if loss > times * lowest + more:
        raise DivergedError(step.number, f"the loss has risen from {lowest:.2f} to {loss:.2f}")
    return replace(progress, step=step.number, position=step.after, loss=loss, lowest_loss=lowest)


def _with_memory(run: Run, progress: Progress) -> Progress:
    """The progress with what has been learned about the memory; going on has to know it."""
    limit = run.learner.most_positions
    if limit == progress.most_positions:
        return progress
    run.report(
        Notice(
            f"memory is short: batches are divided from now on, into {limit:,} positions at most"
        )
    )
    return replace(progress, most_positions=limit)


def _step_done(run: Run, step: Step) -> StepDone:
    return StepDone(
        step=step.number,
        steps=run.config.train.steps,
        epoch=step.after.epoch,
        loss=step.loss,
        learning_rate=step.learning_rate,
        n_words=step.n_words,
        n_tokens=step.n_tokens,
        n_positions=step.n_positions,
        seconds=step.seconds,
        memory=peak_memory(run.learner.device),
    )


def _validate(run: Run, progress: Progress) -> Progress:
    """Measure the weights, and note whether they are the best so far."""
    options = run.config.train
    run.place.show(Activity("validating", is_routine=True))
    measured = run.measure()
    if not math.isfinite(measured.loss):
        raise DivergedError(progress.step, "the dev loss is not a number any more")
    score = measured.score(options.metric)
    is_best = is_better(score, measured.loss, progress)
    run.report(
        Validated(
            step=progress.step,
            loss=measured.loss,
            bleu=measured.bleu,
            chrf=measured.chrf,
            signature=measured.signature,
            is_best=is_best,
            seconds=measured.seconds,
            samples=measured.samples,
        )
    )
    if options.average > 1:
        kept = [*progress.kept, (progress.step, score)]
        if options.average_of == "best":
            kept.sort(key=lambda one: -one[1])
            kept = sorted(kept[: options.average])
        progress = replace(progress, kept=tuple(kept[-options.average :]))
    if not is_best:
        return replace(progress, n_stale=progress.n_stale + 1)
    return replace(
        progress,
        best_step=progress.step,
        best_score=score,
        best_loss=measured.loss,
        best_bleu=measured.bleu,
        signature=measured.signature,
        n_stale=0,
    )


def is_better(score: float, loss: float, progress: Progress) -> bool:
    """Whether weights are better than the best so far: young ones all have a BLEU of 0."""
    if progress.best_score is None:
        return True
    return (score, -loss) > (progress.best_score, -progress.best_loss)


def save(run: Run, progress: Progress, *, is_validated: bool) -> Progress:
    """Write a checkpoint, and the weights to translate with if they are the best so far."""
    average = run.average.weights if run.average else None
    tensors = run.processes.at_first(snapshot(run.model, run.learner.optimizers, average))
    progress = replace(progress, scaler=run.learner.scaler.state_dict())
    if not run.processes.is_first:
        return progress
    progress = replace(progress, log_size=run.log.size())
    weights = validated_weights(tensors)
    if not is_validated:
        save_pause(run.directory, tensors, progress)
        return progress
    if progress.step in dict(progress.kept):
        save_checked(weights_path(run.directory, progress.step), weights, "")
    save_checkpoint(run.directory, tensors, progress, keep=run.config.train.keep_checkpoints)
    save_best(run, progress, weights)
    remove_files(unneeded_weights(run.directory))
    write_report(run)
    return progress


def save_best(run: Run, progress: Progress, weights: Mapping[str, Tensor]) -> None:
    """Make `weights` those to translate with, if their step is the best so far."""
    step = progress.step
    if step and step == progress.best_step:
        run.keep(weights, step=step, bleu=progress.best_bleu, signature=progress.signature)


def diverged(error: DivergedError) -> ConfigError:
    """What to say to somebody whose training leads nowhere."""
    return ConfigError(
        f"{error}: training has diverged at step {error.step}",
        hint="begin anew (--fresh) with a lower train.learning_rate or "
        "train.matrix_learning_rate, or with a smaller train.max_norm",
    )


def _roll_back(run: Run, beginning: Progress, progress: Progress, error: DivergedError) -> Progress:
    """Go back to the last checkpoint, or to the beginning, and on with smaller steps."""
    if progress.n_rollbacks >= run.config.train.max_rollbacks:
        raise diverged(error)
    checkpoint = find_checkpoint(run.place, validated=True)
    earlier = resume(run, checkpoint) if checkpoint else begin_again(run, beginning)
    factor, n_rollbacks = progress.factor / 2, progress.n_rollbacks + 1
    run.report(RolledBack(error.step, earlier.step, str(error), factor))
    return replace(earlier, factor=factor, n_rollbacks=n_rollbacks)
