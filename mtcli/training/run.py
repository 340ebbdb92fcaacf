"""What `mtcli train` does, from a configuration to a complete model directory."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from mtcli.checkpoint.directory import (
    LOG,
    WeightsInfo,
    clear,
    is_run,
    load_saved_config,
    portable,
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
from mtcli.config import Config, differences
from mtcli.data import groups
from mtcli.engines.pytorch import choose_device
from mtcli.errors import CheckpointError
from mtcli.models import TranslationModel, build_model
from mtcli.optim import build_optimizers
from mtcli.report import Event, EventLog, Finished, Notice, StepDone, Stopped
from mtcli.training.card import write_card
from mtcli.training.interrupt import StopRequest, stop_on_signals
from mtcli.training.loop import fit
from mtcli.training.preparation import Prepared, prepare

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


def train_run(
    config: Config, directory: Path, show: Show, *, fresh: bool = False
) -> Finished | Stopped:
    """Train until done or asked to stop; a directory that holds a part of this run goes on."""
    device = choose_device(config.train.device)
    if fresh:
        clear(directory)
    _claim(directory, config)
    log = EventLog(directory / LOG)
    finished = log.finished()
    if finished:
        show(Notice(f"{directory} is already complete; --fresh would start over"))
        show(finished)
        return finished
    checkpoint = load_checkpoint(directory, lambda text: show(Notice(text)))
    run = _open(config, directory, checkpoint, log, show, device)
    progress = checkpoint.progress if checkpoint else Progress(run.data.fingerprint)
    with stop_on_signals() as request:
        return _train(run, progress, request)


def _claim(directory: Path, config: Config) -> None:
    """Make `directory` that of this run; refuse it if it holds anything else."""
    if is_run(directory):
        _check_settings(directory, config)
        return
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise CheckpointError(
            f"{directory} already exists and is not a run of mtcli",
            hint="choose another --out; nothing in it was touched",
        )
    save_config(directory, config)


def _check_settings(directory: Path, config: Config) -> None:
    changed = [
        line
        for line in differences(load_saved_config(directory), portable(config))
        if not line.startswith(("data.train:", "data.dev:"))  # the pairs count, not their names
    ]
    if changed:
        lines = "".join(f"\n  {line}" for line in changed)
        raise CheckpointError(
            f"{directory} holds a run with other settings:{lines}",
            hint="choose another --out, take the settings back, or start over with --fresh",
        )


def _open(
    config: Config,
    directory: Path,
    checkpoint: Checkpoint | None,
    log: EventLog,
    show: Show,
    device: torch.device,
) -> Run:
    """Everything in memory, as it was when `checkpoint` was written or new if there is none."""
    log.cut(checkpoint.progress.log_size if checkpoint else 0)

    def notify(text: str) -> None:
        if checkpoint is None:
            log(Notice(text))  # after resuming, the log has it already
        show(Notice(text))

    data = prepare(config, directory, notify, is_new=checkpoint is None)
    torch.manual_seed(config.train.seed)
    sizes = len(data.tokenizers.source), len(data.tokenizers.target)
    model = build_model(config.model, *sizes).to(device)
    optimizers = build_optimizers(model, config.train)
    notify(f"model: {config.model.arch}, {_n_parameters(model):,} parameters")
    notify(
        f"training: {config.train.steps:,} steps of up to {config.train.accumulate} x "
        f"{config.data.batch_tokens:,} tokens, {config.train.optimizer}, on {device}"
    )
    if checkpoint:
        if checkpoint.progress.data != data.fingerprint:
            raise CheckpointError(
                f"{directory} was trained on other sentence pairs than these",
                hint="give it the files it began with, or start over with --fresh",
            )
        restore(checkpoint, model, optimizers)
        show(Notice(f"going on after step {checkpoint.progress.step:,}"))
    return Run(config, directory, data, model, optimizers, log, show)


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
            progress = replace(progress, log_size=run.log.size())
            keep = options.keep_checkpoints
            save_checkpoint(run.directory, run.model, run.optimizers, progress, keep=keep)
        if request.signal:
            stopped = Stopped(step.number, request.signal)
            run.show(stopped)
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
    info = WeightsInfo(_n_parameters(run.model), result.step, result.bleu, result.signature)
    save_weights(run.directory, run.model, info)
    return replace(progress, best_step=result.step, best_bleu=result.bleu, n_stale=0)


def _finish(run: Run, progress: Progress) -> Finished:
    info = weights_info(run.directory)
    write_card(run.directory, run.config, info, n_pairs=len(run.data.train_set))
    reason = _reason_to_end(progress, run.config) or ""
    finished = Finished(progress.step, info.step, info.bleu, info.signature, reason)
    run.report(finished)
    return finished


def _n_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
