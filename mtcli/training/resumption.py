"""Going back to where a run was: to its last checkpoint, or to its beginning."""

from functools import partial

import torch

from mtcli.checkpoint.directory import CHECKPOINTS
from mtcli.checkpoint.files import remove_partial
from mtcli.checkpoint.state import (
    Checkpoint,
    Progress,
    load_checkpoint,
    restore_optimizers,
)
from mtcli.checkpoint.weights import load_into
from mtcli.errors import CheckpointError
from mtcli.report import Notice
from mtcli.training.setup import Place, Run, build_run


def find_checkpoint(place: Place, *, validated: bool = False) -> Checkpoint | None:
    """The last whole checkpoint; of several processes the first one has its tensors."""
    processes, directory = place.processes, place.directory
    found = None
    if processes.is_first:
        remove_partial(directory)
        remove_partial(directory / CHECKPOINTS)
        found = load_checkpoint(
            directory, lambda text: place.show(Notice(text)), validated=validated
        )
    progress = processes.from_first(found.progress if found else None)
    if progress is None:
        return None
    return found or Checkpoint(directory / CHECKPOINTS, progress, {})


def resume(run: Run, checkpoint: Checkpoint) -> Progress:
    """Put `run` to where `checkpoint` was written."""
    stream = partial(run.processes.streamed, device=run.learner.device)
    load_into(run.model, stream(checkpoint.part("model")), origin=checkpoint.path)
    restore_optimizers(run.model, run.learner.optimizers, stream(checkpoint.part("optimizer")))
    if run.average:
        run.average.load(stream(checkpoint.part("average")))
    if checkpoint.progress.scaler:
        run.learner.scaler.load_state_dict(dict(checkpoint.progress.scaler))
    run.learner.most_positions = checkpoint.progress.most_positions
    if run.processes.is_first:
        run.log.cut(checkpoint.progress.log_size)
    return checkpoint.progress


@torch.no_grad()
def begin_again(run: Run, beginning: Progress) -> Progress:
    """Reset `run` to its beginning."""
    if beginning.step:
        raise CheckpointError(
            f"{run.directory} has no checkpoint to roll back to",
            hint="start over with --fresh",
        )
    new = build_run(run.config, run.place, run.data)
    for parameter, initial in zip(run.model.parameters(), new.model.parameters(), strict=True):
        parameter.copy_(initial)
    run.learner.restart()
    if run.average and new.average:
        run.average.weights = new.average.weights
    if run.processes.is_first:
        run.log.cut(beginning.log_size)
    return beginning
