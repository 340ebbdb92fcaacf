"""Training loop: steps, validations, checkpoints and rollbacks."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from torch import Tensor

from mtcli.counts import format_count
from mtcli.data.batches import DataPosition, Group
from mtcli.errors import ConfigError
from mtcli.model_dir.checkpoints import (
    Progress,
    inference_weights,
    remove_files,
    save_checkpoint,
    save_interim_checkpoint,
    save_with_checksum,
    snapshot,
    unreferenced_weights,
    weights_path,
)
from mtcli.reporting.events import Activity, Notice, RolledBack, StepDone, Stopped, Validated
from mtcli.reporting.messages import metric_label
from mtcli.training.budget_check import BudgetCheck
from mtcli.training.resume import find_checkpoint, restart_run, resume
from mtcli.training.run_state import BestScores, Run, write_report
from mtcli.training.step import TrainStep
from mtcli.training.stop_request import StopRequest

_SMOOTHING = 0.1  # weight of a step's loss in the moving average of the loss
_MAX_LOSS_RATIO, _MAX_LOSS_INCREASE = 1.5, 1.0  # diverged if loss > ratio * lowest + increase


@dataclass(frozen=True)
class Step:
    """One update of the weights."""

    number: int
    loss: float  # nats per target token
    learning_rate: float  # learning rate of Muon, or of AdamW if Muon is not used
    n_target_tokens: int
    n_tokens: int
    n_positions: int
    seconds: float
    position: DataPosition  # data position of the next step


class DivergedError(Exception):
    """Training diverged at `step`; the message gives the reason."""

    def __init__(self, step: int, message: str) -> None:
        super().__init__(message)
        self.step = step


def divergence_error(error: DivergedError) -> ConfigError:
    """Return the error to show to the user if training diverges and cannot continue."""
    return ConfigError(
        f"training diverged at step {error.step}: {error}",
        hint="start over (--fresh) with a lower train.learning_rate or "
        "train.matrix_learning_rate, or with a lower train.max_norm",
    )


def fit(
    train_step: TrainStep, groups: Iterable[Group], *, start: int = 0, factor: float = 1.0
) -> Iterator[Step]:
    """Update the model once per group of batches and yield each step.

    The caller logs, validates, saves and decides when to stop. `factor` multiplies all learning
    rates.
    """
    step_start = time.perf_counter()
    for number, group in enumerate(groups, start=start + 1):
        result = train_step.backward(group)
        if not math.isfinite(result.loss + result.gradient_norm):
            train_step.zero_grad()
            raise DivergedError(number, "the loss or the gradient norm is NaN or infinite")
        train_step.update(number, factor)
        now = time.perf_counter()
        yield Step(
            number=number,
            loss=result.loss,
            learning_rate=train_step.optimizers[0].param_groups[0]["lr"],
            n_target_tokens=result.n_target_tokens,
            n_tokens=result.n_tokens,
            n_positions=result.n_positions,
            seconds=now - step_start,
            position=group.after,
        )
        step_start = time.perf_counter()  # exclude time spent in the caller, such as validation


def train(run: Run, progress: Progress, request: StopRequest) -> Progress | Stopped:
    """Train until the run is complete or a stop is requested; roll back if training diverges.

    Return the final progress, or `Stopped` if a stop was requested.
    """
    initial = progress
    while True:
        try:
            return _train_until_stop(run, progress, request)
        except DivergedError as error:
            progress = _roll_back(run, initial, progress, error)


def stop_reason(run: Run, progress: Progress) -> str | None:
    """Return why training is complete, or None if it is not."""
    options = run.config.train
    if progress.step >= options.steps:
        return "all steps done"
    if options.patience and progress.n_stale >= options.patience:
        label = metric_label(options.metric)
        return f"{label} did not improve in {format_count(progress.n_stale, 'validation')}"
    return None


def _train_until_stop(run: Run, progress: Progress, request: StopRequest) -> Progress | Stopped:
    options = run.config.train
    saved_at = time.monotonic()
    budget = BudgetCheck(options)
    with closing(run.groups_from(progress.position)) as groups:
        steps = fit(run.train_step, groups, start=progress.step, factor=progress.factor)
        while not stop_reason(run, progress):
            step = next(steps)
            progress = _advance(progress, step)
            if run.average:
                run.average.update(run.model, step.number)
            run.report(_step_done(run, step))
            if notice := budget.add(step.seconds):
                run.context.listener(Notice(notice))  # not logged: it depends on the machine
            progress = _record_memory_limit(run, progress)
            is_due = step.number % options.validate_every == 0 or step.number == options.steps
            if is_due:
                progress = _validate(run, progress)
            is_late = time.monotonic() - saved_at > options.save_minutes * 60
            must_stop, must_save = _any_process(run, request.is_set(), is_late)
            if is_due or must_stop or must_save:
                progress = save(run, progress, is_validated=is_due)
                saved_at = time.monotonic()
            if must_stop:
                # Do not log the stop: the log must not depend on where a run was interrupted.
                return Stopped(progress.step, max(run.processes.gather(request.signal or 0)))
    return progress


def _any_process(run: Run, *flags: bool) -> list[bool]:
    """Return, for each flag, whether it is true in any process.

    All processes get the same result, so that they save and stop at the same step.
    """
    counts = run.processes.all_reduce_sum([float(flag) for flag in flags], run.train_step.device)
    return [count > 0 for count in counts]


def _advance(progress: Progress, step: Step) -> Progress:
    """Return the progress after `step`; raise `DivergedError` if the loss has exploded."""
    previous = step.loss if progress.loss is None else progress.loss
    loss = previous + _SMOOTHING * (step.loss - previous)
    lowest = loss if progress.lowest_loss is None else min(loss, progress.lowest_loss)
    if loss > _MAX_LOSS_RATIO * lowest + _MAX_LOSS_INCREASE:
        raise DivergedError(step.number, f"the loss rose from {lowest:.2f} to {loss:.2f}")
    return replace(
        progress, step=step.number, position=step.position, loss=loss, lowest_loss=lowest
    )


def _record_memory_limit(run: Run, progress: Progress) -> Progress:
    """Return the progress with the current batch size limit; if it is new, report it."""
    limit = run.train_step.max_positions
    if limit == progress.most_positions:
        return progress
    run.report(Notice(f"out of memory: splitting batches into parts of up to {limit:,} positions"))
    return replace(progress, most_positions=limit)


def _step_done(run: Run, step: Step) -> StepDone:
    return StepDone(
        step=step.number,
        steps=run.config.train.steps,
        epoch=step.position.epoch,
        loss=step.loss,
        learning_rate=step.learning_rate,
        n_words=step.n_target_tokens,
        n_tokens=step.n_tokens,
        n_positions=step.n_positions,
        seconds=step.seconds,
        memory=run.train_step.peak_memory(),
    )


def _validate(run: Run, progress: Progress) -> Progress:
    """Score the weights on the dev set; return the progress with the best scores so far."""
    options = run.config.train
    run.context.listener(Activity("validating", is_routine=True))
    measured = run.measure()
    if not math.isfinite(measured.loss):
        raise DivergedError(progress.step, "the dev loss is NaN or infinite")
    score = measured.score(options.metric)
    is_best = is_better(score, measured.loss, progress)
    run.report(
        Validated(
            step=progress.step,
            loss=measured.loss,
            scores=measured.scores,
            is_best=is_best,
            seconds=measured.seconds,
            samples=measured.samples,
            sets=measured.sets,
        )
    )
    if options.average > 1:
        kept = [*progress.kept, (progress.step, score)]
        if options.average_of == "best":
            kept.sort(key=lambda step_and_score: -step_and_score[1])
            kept = sorted(kept[: options.average])
        progress = replace(progress, kept=tuple(kept[-options.average :]))
    if not is_best:
        return replace(progress, n_stale=progress.n_stale + 1)
    return replace(
        progress,
        best_step=progress.step,
        best_score=score,
        best_loss=measured.loss,
        best_bleu=measured.bleu.value,
        signature=measured.bleu.signature,
        best_sets=measured.bleu_of_sets,
        n_stale=0,
    )


def is_better(score: float, loss: float, progress: Progress) -> bool:
    """Return whether the score is better than the best one so far; the loss breaks ties.

    Ties are common early in training, when BLEU is 0.
    """
    if progress.best_score is None:
        return True
    return (score, -loss) > (progress.best_score, -progress.best_loss)


def save(run: Run, progress: Progress, *, is_validated: bool) -> Progress:
    """Write a checkpoint and return the saved progress.

    After a validation, also write the report and, if they are the best so far, the weights.
    """
    average = run.average.weights if run.average else None
    tensors = run.processes.gather_to_first(snapshot(run.model, run.train_step.optimizers, average))
    progress = replace(progress, scaler=run.train_step.scaler.state_dict())
    if not run.processes.is_first:
        return progress
    progress = replace(progress, log_size=run.log.size())
    weights = inference_weights(tensors)
    if not is_validated:
        save_interim_checkpoint(run.directory, tensors, progress)
        return progress
    if progress.step in dict(progress.kept):
        save_with_checksum(weights_path(run.directory, progress.step), weights, "")
    save_checkpoint(run.directory, tensors, progress, keep=run.config.train.keep_checkpoints)
    save_if_best(run, progress, weights)
    remove_files(unreferenced_weights(run.directory))
    write_report(run)
    return progress


def save_if_best(run: Run, progress: Progress, weights: Mapping[str, Tensor]) -> None:
    """Save `weights` as the model's weights if the current step is the best so far."""
    step = progress.step
    if step and step == progress.best_step:
        scores = BestScores(progress.best_bleu, progress.signature, progress.best_sets)
        run.save_best_weights(weights, step=step, scores=scores)


def _roll_back(run: Run, initial: Progress, progress: Progress, error: DivergedError) -> Progress:
    """Restore the last validated checkpoint or the initial state, and halve the learning rate.

    Return the restored progress; raise `ConfigError` after `train.max_rollbacks` rollbacks.
    """
    if progress.n_rollbacks >= run.config.train.max_rollbacks:
        raise divergence_error(error)
    checkpoint = find_checkpoint(run.context, validated=True)
    restored = resume(run, checkpoint) if checkpoint else restart_run(run, initial)
    factor, n_rollbacks = progress.factor / 2, progress.n_rollbacks + 1
    run.report(RolledBack(error.step, restored.step, str(error), factor))
    return replace(restored, factor=factor, n_rollbacks=n_rollbacks)
