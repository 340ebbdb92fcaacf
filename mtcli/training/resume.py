"""Restore a run from its last checkpoint, or reset it to its initial state."""

from functools import partial

import torch

from mtcli.errors import CheckpointError
from mtcli.files import remove_partial
from mtcli.model_dir.checkpoints import Checkpoint, Progress, load_checkpoint, restore_optimizers
from mtcli.model_dir.layout import CHECKPOINTS
from mtcli.model_dir.weights import load_into
from mtcli.reporting.events import Notice
from mtcli.training.run_state import Run, RunContext, build_run


def find_checkpoint(context: RunContext, *, validated: bool = False) -> Checkpoint | None:
    """Return the last intact checkpoint, or None; only rank 0 gets its tensors.

    With `validated`, consider only the checkpoints of validated steps.
    """
    processes, directory = context.processes, context.directory
    checkpoint = None
    if processes.is_first:
        remove_partial(directory)
        remove_partial(directory / CHECKPOINTS)
        checkpoint = load_checkpoint(
            directory, lambda text: context.listener(Notice(text)), validated=validated
        )
    progress = processes.broadcast(checkpoint.progress if checkpoint else None)
    if progress is None:
        return None
    return checkpoint or Checkpoint(directory / CHECKPOINTS, progress, {})


def resume(run: Run, checkpoint: Checkpoint) -> Progress:
    """Load `checkpoint` into `run`, truncate the log to match, and return the saved progress."""
    broadcast = partial(run.processes.broadcast_tensors, device=run.train_step.device)
    load_into(run.model, broadcast(checkpoint.group("model")), origin=checkpoint.path)
    optimizer_tensors = broadcast(checkpoint.group("optimizer"))
    restore_optimizers(run.model, run.train_step.optimizers, optimizer_tensors)
    if run.average:
        run.average.load(broadcast(checkpoint.group("average")))
    if checkpoint.progress.scaler:
        run.train_step.scaler.load_state_dict(dict(checkpoint.progress.scaler))
    run.train_step.max_positions = checkpoint.progress.most_positions
    if run.processes.is_first:
        run.log.truncate(checkpoint.progress.log_size)
    return checkpoint.progress


@torch.no_grad()
def restart_run(run: Run, initial: Progress) -> Progress:
    """Reset `run` to its initial state; raise `CheckpointError` if the run was resumed."""
    if initial.step:
        raise CheckpointError(
            f"{run.directory} has no checkpoint to roll back to",
            hint="start over with --fresh",
        )
    new = build_run(run.config, run.context, run.data)
    for parameter, new_parameter in zip(
        run.model.parameters(), new.model.parameters(), strict=True
    ):
        parameter.copy_(new_parameter)
    run.train_step.restart()
    if run.average and new.average:
        run.average.weights = new.average.weights
    if run.processes.is_first:
        run.log.truncate(initial.log_size)
    return initial
