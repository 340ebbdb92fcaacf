"""What `mtcli train` does, from a configuration to a complete model directory."""

import math
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
from mtcli.checkpoint.files import write_file
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
from mtcli.errors import CheckpointError, ConfigError, MtcliError
from mtcli.models import TranslationModel, build_model
from mtcli.optim import build_optimizers
from mtcli.report import Event, EventLog, Finished, Notice, StepDone, Stopped
from mtcli.tokenizer import load_tokenizers
from mtcli.training.card import write_card
from mtcli.training.export import export_trained
from mtcli.training.interrupt import StopRequest, stop_on_signals
from mtcli.training.loop import Step, fit
from mtcli.training.preparation import Prepared, learn_pieces, prepare, read_pairs

Show = Callable[[Event], None]


@dataclass(frozen=True)
class Run:
    """All that training works with."""

    config: Config
    directory: Path
    data: Prepared
    model: TranslationModel[Any]
    optimizers: list[Optimizer]
    log: EventLog
    show: Show

    def report(self, event: Event) -> None:
        """Tell programs and people."""
        self.log(event)
        self.show(event)

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
    """A run in memory, new or as its last checkpoint left it.

    Whatever may be wrong with data and settings comes to light before anything is written.
    """
    device = choose_device(config.train.device)
    notices: list[Notice] = []

    def notify(text: str) -> None:
        notices.append(Notice(text))
        show(notices[-1])

    pairs = read_pairs(config, notify)
    progress = Progress(pairs.digest())
    checkpoint = None if fresh else _last_checkpoint(directory, progress.data, show)
    tokenizers = load_tokenizers(directory) if checkpoint else learn_pieces(pairs, config, notify)
    data = prepare(pairs, tokenizers, config, notify)
    run = _build(config, directory, data, device, show)
    notify(f"model: {config.model.summary()}, {run.n_parameters:,} parameters")
    notify(f"training: {config.train.summary(config.data.batch_tokens)}, on {device}")
    if checkpoint:
        return run, _resume(run, checkpoint)
    clear(directory)
    save_config(directory, config)
    for name, content in tokenizers.files().items():
        write_file(directory / name, content)
    for notice in notices:
        run.log(notice)
    return run, progress


def _resume(run: Run, checkpoint: Checkpoint) -> Progress:
    """Put `run` to where `checkpoint` was written."""
    progress = checkpoint.progress
    restore(checkpoint, run.model, run.optimizers)
    run.log.cut(progress.log_size)
    _save_weights(run, progress)  # a kill may have come between checkpoint and weights
    run.show(Notice(f"going on after step {progress.step:,}"))
    return progress


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
    config: Config, directory: Path, data: Prepared, device: torch.device, show: Show
) -> Run:
    """A new model for the data, with its optimizers."""
    torch.manual_seed(config.train.seed)
    sizes = len(data.tokenizers.source), len(data.tokenizers.target)
    model = build_model(config.model, *sizes).to(device)
    optimizers = build_optimizers(model, config.train)
    return Run(config, directory, data, model, optimizers, EventLog(directory / LOG), show)


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
        run.report(_step_done(step, options.steps))
        is_due = step.number % options.validate_every == 0 or step.number == options.steps
        if is_due:
            progress = _validate(run, progress)
        if is_due or request.signal:
            progress = replace(progress, log_size=run.log.size())
            keep = options.keep_checkpoints
            save_checkpoint(run.directory, run.model, run.optimizers, progress, keep=keep)
            _save_weights(run, progress)
        if request.signal:
            # Not logged: whoever reads the log of the whole run need not know of its pauses.
            stopped = Stopped(step.number, request.signal)
            run.show(stopped)
            return stopped
    return _finish(run, progress)


def _step_done(step: Step, n_steps: int) -> StepDone:
    """What there is to tell of a step, unless it has led nowhere."""
    if not math.isfinite(step.loss):
        raise ConfigError(
            f"the loss is not a number any more: training has diverged at step {step.number}",
            hint="begin anew (--fresh) with a lower train.learning_rate or "
            "train.matrix_learning_rate, or with a smaller train.max_norm",
        )
    return StepDone(
        step=step.number,
        steps=n_steps,
        epoch=step.after.epoch,
        loss=step.loss,
        learning_rate=step.learning_rate,
        n_words=step.n_words,
        n_tokens=step.n_tokens,
        seconds=step.seconds,
    )


def _reason_to_end(progress: Progress, config: Config) -> str | None:
    if progress.step >= config.train.steps:
        return "all steps done"
    if config.train.patience and progress.n_stale >= config.train.patience:
        return f"no better BLEU in {progress.n_stale} validations"
    return None


def _validate(run: Run, progress: Progress) -> Progress:
    """Measure the model, and note whether it is the best so far."""
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
    return replace(
        progress,
        best_step=result.step,
        best_bleu=result.bleu,
        signature=result.signature,
        n_stale=0,
    )


def _save_weights(run: Run, progress: Progress) -> None:
    """Make the present weights those to translate with, if they are the best so far."""
    if progress.best_step != progress.step:
        return
    info = WeightsInfo(
        n_parameters=run.n_parameters,
        step=progress.best_step,
        bleu=progress.best_bleu,
        signature=progress.signature,
        n_pairs=len(run.data.train_set),
    )
    save_weights(run.directory, run.model, info)


def _finish(run: Run, progress: Progress) -> Finished:
    """Write what is still missing, and last of all that nothing is."""
    info = weights_info(run.directory)
    _export(run)
    write_card(run.directory)
    reason = _reason_to_end(progress, run.config) or ""
    finished = Finished(progress.step, info.step, info.bleu, info.signature, reason)
    run.report(finished)
    return finished


def _export(run: Run) -> None:
    """Make the model ready for CTranslate2; without it, it is complete all the same."""
    run.show(Notice("exporting to CTranslate2, and measuring a vocabulary shortlist"))
    try:
        shortlist = export_trained(run.directory, run.data.train_set, run.data.dev_set.shown)
    except (MtcliError, OSError) as error:
        run.report(Notice(f"no export: {error}; `mtcli export` would try again"))
        return
    if shortlist:
        run.report(Notice(f"shortlist: {shortlist.quality()}"))
        run.show(Notice(f"  it makes translating {shortlist.speed:.2f} times as fast"))
