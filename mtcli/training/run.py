"""What `mtcli train` does, from a configuration to a complete model directory."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from mtcli.checkpoint.directory import (
    LOG,
    WeightsInfo,
    check_is_run,
    check_settings,
    clear,
    has_begun,
    save_config,
    weights_info,
)
from mtcli.checkpoint.state import (
    Checkpoint,
    Progress,
    load_checkpoint,
    restore,
    save_checkpoint,
)
from mtcli.checkpoint.weights import save_weights
from mtcli.config import Config
from mtcli.data import groups
from mtcli.engines.pytorch import choose_device
from mtcli.errors import CheckpointError
from mtcli.models import TranslationModel, build_model
from mtcli.optim import build_optimizers
from mtcli.report import Event, EventLog, Finished, Notice, StepDone, Stopped
from mtcli.training.card import write_card
from mtcli.training.interrupt import StopRequest, stop_on_signals
from mtcli.training.loop import fit
from mtcli.training.preparation import Prepared, prepare, read_pairs

Show = Callable[[Event], None]


@dataclass(frozen=True)
class Report:
    """Tells programs and people what happens."""

    log: EventLog
    show: Show
    is_new: bool  # whether the run begins here; if it goes on, the log has its notices already

    def __call__(self, event: Event) -> None:
        """Log and show `event`."""
        self.log(event)
        self.show(event)

    def notify(self, text: str) -> None:
        """Tell something about the beginning of the run."""
        if self.is_new:
            self.log(Notice(text))
        self.show(Notice(text))


@dataclass(frozen=True)
class Run:
    """All that training works with."""

    config: Config
    directory: Path
    report: Report
    data: Prepared
    model: TranslationModel[Any]
    optimizers: list[Optimizer]

    @property
    def n_parameters(self) -> int:
        """How many numbers are learned."""
        return sum(parameter.numel() for parameter in self.model.parameters())


def train_run(
    config: Config, directory: Path, show: Show, *, fresh: bool = False
) -> Finished | Stopped:
    """Train until done or asked to stop; a directory that holds a part of this run goes on."""
    check_is_run(directory)
    if not fresh:
        check_settings(directory, config)
        if finished := EventLog(directory / LOG).finished():
            show(Notice(f"{directory} is already complete; --fresh would start over"))
            show(finished)
            return finished
    run, progress = _open(config, directory, show, fresh=fresh)
    with stop_on_signals() as request:
        return _train(run, progress, request)


def _open(config: Config, directory: Path, show: Show, *, fresh: bool) -> tuple[Run, Progress]:
    """A run in memory, new or as its last checkpoint left it."""
    device = choose_device(config.train.device)
    notices: list[str] = []
    pairs = read_pairs(config, notices.append)  # may be unusable, so nothing is written before
    progress = Progress(pairs.digest())
    checkpoint = None if fresh else _last_checkpoint(directory, progress.data, show)
    report = Report(EventLog(directory / LOG), show, is_new=checkpoint is None)
    if checkpoint:
        report.log.cut(checkpoint.progress.log_size)
    else:
        clear(directory)
        save_config(directory, config)
    for notice in notices:
        report.notify(notice)
    data = prepare(pairs, config, directory, report.notify, is_new=report.is_new)
    run = _build(config, directory, report, data, device)
    if checkpoint:
        restore(checkpoint, run.model, run.optimizers)
        progress = checkpoint.progress
        show(Notice(f"going on after step {progress.step:,}"))
    return run, progress


def _last_checkpoint(directory: Path, digest: str, show: Show) -> Checkpoint | None:
    checkpoint = load_checkpoint(directory, lambda text: show(Notice(text)))
    if checkpoint is None and has_begun(directory):
        raise CheckpointError(
            f"{directory} has weights, but no checkpoint to go on from",
            hint="keep it and choose another --out, or start over with --fresh",
        )
    if checkpoint and checkpoint.progress.data != digest:
        raise CheckpointError(
            f"{directory} was trained on other sentence pairs than these",
            hint="give it the files it began with, or start over with --fresh",
        )
    return checkpoint


def _build(
    config: Config, directory: Path, report: Report, data: Prepared, device: torch.device
) -> Run:
    """A new model for the data, with its optimizers."""
    torch.manual_seed(config.train.seed)
    sizes = len(data.tokenizers.source), len(data.tokenizers.target)
    model = build_model(config.model, *sizes).to(device)
    run = Run(config, directory, report, data, model, build_optimizers(model, config.train))
    report.notify(f"model: {config.model.summary()}, {run.n_parameters:,} parameters")
    batches = f"{config.train.accumulate} x " if config.train.accumulate > 1 else ""
    report.notify(
        f"training: {config.train.steps:,} steps of up to {batches}{config.data.batch_tokens:,} "
        f"tokens with {config.train.optimizer} on {device}"
    )
    return run


def _train(run: Run, progress: Progress, request: StopRequest) -> Finished | Stopped:
    """Step after step, with validations and checkpoints in between."""
    options = run.config.train
    stream = groups(
        run.data.train_set,
        run.config.data.batch_tokens,
        options.seed,
        size=options.accumulate,
        start=progress.position,
    )
    steps = fit(run.model, stream, run.optimizers, options, start=progress.step)
    while not _reason_to_end(progress, run.config):
        step = next(steps)
        progress = replace(progress, step=step.number, position=step.after)
        run.report(
            StepDone(
                step=step.number,
                steps=options.steps,
                epoch=step.after.epoch,
                loss=step.loss,
                rate=step.rate,
                n_words=step.n_words,
                n_tokens=step.n_tokens,
                seconds=step.seconds,
            )
        )
        is_due = step.number % options.validate_every == 0 or step.number == options.steps
        if is_due:
            progress = _validate(run, progress)
        if is_due or request.signal:
            progress = replace(progress, log_size=run.report.log.size())
            keep = options.keep_checkpoints
            save_checkpoint(run.directory, run.model, run.optimizers, progress, keep=keep)
        if request.signal:
            stopped = Stopped(step.number, request.signal)
            run.report.show(stopped)
            return stopped
    return _finish(run, progress)


def _reason_to_end(progress: Progress, config: Config) -> str | None:
    if progress.step >= config.train.steps:
        return "all steps done"
    if config.train.patience and progress.n_stale >= config.train.patience:
        return f"no better BLEU in {progress.n_stale} validations"
    return None


def _validate(run: Run, progress: Progress) -> Progress:
    """Measure the model and keep its weights if they are the best so far."""
    result = run.data.dev_set.validate(
        run.model,
        run.data.tokenizers,
        run.config,
        step=progress.step,
        best_bleu=progress.best_bleu,
    )
    run.report(result)
    if not result.is_best:
        return replace(progress, n_stale=progress.n_stale + 1)
    info = WeightsInfo(
        n_parameters=run.n_parameters,
        step=result.step,
        bleu=result.bleu,
        signature=result.signature,
        n_pairs=len(run.data.train_set),
    )
    save_weights(run.directory, run.model, info)
    return replace(progress, best_step=result.step, best_bleu=result.bleu, n_stale=0)


def _finish(run: Run, progress: Progress) -> Finished:
    """Write what is still missing, and last of all that nothing is."""
    info = weights_info(run.directory)
    write_card(run.directory)
    reason = _reason_to_end(progress, run.config) or ""
    finished = Finished(progress.step, info.step, info.bleu, info.signature, reason)
    run.report(finished)
    return finished
