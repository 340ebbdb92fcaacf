"""What `mtcli train` does, from a configuration to a complete model directory."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mtcli.checkpoint.directory import (
    LOG,
    TENSORBOARD,
    check_is_run,
    check_settings,
    clear,
    fixed_steps,
    has_begun,
    is_run,
    made_by,
    save_config,
    saved_plan,
)
from mtcli.checkpoint.files import write_file
from mtcli.checkpoint.lock import RunLock
from mtcli.checkpoint.state import Checkpoint, Progress, validated_weights
from mtcli.config import Config
from mtcli.distributed import Processes, is_distributed, is_first_process, local_rank, processes
from mtcli.engines.pytorch import choose_device
from mtcli.errors import CheckpointError, ConfigError, DataError, Interrupted
from mtcli.report import Event, EventLog, Finished, Notice, Resumed, Stopped
from mtcli.tokenizer import Tokenizers, load_tokenizers, tokenizers_of
from mtcli.training.course import diverged, reason_to_end, save_best, train
from mtcli.training.final import finish
from mtcli.training.interrupt import StopRequest, stop_on_signals
from mtcli.training.loop import DivergedError
from mtcli.training.machine import cheap_steps
from mtcli.training.preparation import (
    Notify,
    Pairs,
    Prepared,
    digest_by_seed,
    learn_pieces,
    prepare,
    read_pairs,
)
from mtcli.training.rehearsal import steps_that_fit
from mtcli.training.resumption import find_checkpoint, resume
from mtcli.training.setup import Place, Run, Show, build_run
from mtcli.training.tensorboard import TensorBoard


@dataclass(frozen=True)
class RunOptions:
    """How this start of a run goes; what the run becomes does not depend on it."""

    fresh: bool = False  # begin anew, whatever there is
    stop_after: float | None = None  # minutes
    tensorboard: bool = False  # event files, too
    plan: tuple[str, ...] = ()  # what was chosen for a new run, in words
    names_files: bool = True  # else a run that is complete does not ask for what it learned from


USUAL = RunOptions()


def train_run(
    config: Config, directory: Path, show: Show, options: RunOptions = USUAL
) -> Finished | Stopped:
    """Train until done or asked to stop; resume the run that `directory` holds."""
    request = StopRequest(options.stop_after)
    try:
        return _train_run(config, directory, show, options, request)
    except Interrupted as error:
        if request.is_unsaved:
            raise
        stopped = Stopped(request.step, error.signal)
        if is_first_process():
            show(stopped)
        return stopped


def _train_run(
    config: Config, directory: Path, show: Show, options: RunOptions, request: StopRequest
) -> Finished | Stopped:
    device = _device(config.train.device)
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")):
        options = replace(options, fresh=False)  # torchrun has begun anew already, and goes on
    with (
        cheap_steps(),
        processes(device) as everyone,
        _audience(show, directory, everyone, options) as shown,
        stop_on_signals(request, shown),
        closing(RunLock(directory)) as lock,
    ):
        config = everyone.from_first(config)
        place = Place(directory, device, everyone, shown)
        if everyone.is_first and is_run(directory):
            lock.acquire()  # before anything is read
        if finished := everyone.from_first(_finished(config, place, options)):
            return finished
        run, progress = _open(config, place, options, lock)
        request.step = progress.step
        with request.during_steps():
            result = train(run, progress, request)
        request.step = result.step
        if isinstance(result, Stopped):
            shown(result)
            return result
        request.raise_pending()
        return finish(run, result, reason_to_end(run, result) or "")


@contextmanager
def _audience(
    show: Show, directory: Path, everyone: Processes, options: RunOptions
) -> Iterator[Show]:
    """Whoever watches; of several processes one speaks for all."""
    if not everyone.is_first:
        yield _say_nothing
        return
    if not options.tensorboard:
        yield show
        return
    with closing(TensorBoard(directory / TENSORBOARD)) as board:

        def both(event: Event) -> None:
            board(event)
            show(event)

        yield both


def _say_nothing(_: object) -> None:
    """Somebody else speaks."""


def _finished(config: Config, place: Place, options: RunOptions) -> Finished | None:
    """How the run has ended, if it has; another run in its place is an error."""
    if not place.processes.is_first:
        return None
    check_is_run(place.directory)
    if options.fresh:
        return None
    check_settings(place.directory, config)
    finished = EventLog(place.directory / LOG).finished()
    if finished:
        if options.names_files and finished.data:
            digest = read_pairs(config, _say_nothing).digest()
            if finished.data != digest and not _is_split_by_seed(config, finished.data):
                raise _other_pairs(place)
        place.show(Notice(f"{place.directory} is already complete; --fresh would start over"))
        place.show(finished)
    return finished


def _open(config: Config, place: Place, options: RunOptions, lock: RunLock) -> tuple[Run, Progress]:
    """A run in memory, new or as its last checkpoint left it.

    Whatever may be wrong with data and settings comes to light before anything is written.
    """
    notices: list[Notice] = []

    def notify(text: str) -> None:
        notices.append(Notice(text))
        place.show(notices[-1])

    plan = options.plan or ([] if options.fresh else saved_plan(place.directory))
    if options.fresh or not has_begun(place.directory):
        for line in plan:
            notify(line)
    pairs = read_pairs(config, notify)
    if len(set(place.processes.gather(pairs.digest()))) > 1:
        raise DataError("the processes do not read the same sentence pairs")
    checkpoint = None if options.fresh else _last_checkpoint(config, place, pairs.digest())
    tokenizers = _tokenizers(config, place, pairs, checkpoint, notify)
    data = prepare(pairs, tokenizers, config, notify)
    config = _with_steps(config, place, data, options, notify)
    if checkpoint:  # it has all that the parent gave, which may be gone by now
        config = _replaced(config, start_from=None)
    run = build_run(config, place, data)
    _describe(run, notify)
    if checkpoint:
        return run, _go_on(run, checkpoint)
    log_size = 0
    if place.processes.is_first:
        _claim(place.directory, lock)
        clear(place.directory)
        save_config(place.directory, config, plan)
        for name, content in tokenizers.files().items():
            write_file(place.directory / name, content)
        for notice in notices:
            run.log(notice)
        log_size = run.log.size()
    return run, Progress(pairs.digest(), log_size=log_size)


def _claim(directory: Path, lock: RunLock) -> None:
    """Lock a directory that held no run at the start, unless another process was faster."""
    if lock.is_held:
        return
    lock.acquire()
    check_is_run(directory)
    if has_begun(directory):
        raise CheckpointError(
            f"another process has trained in {directory} in the meantime",
            hint="run the same command again to resume that run, or choose another --out",
        )


def _go_on(run: Run, checkpoint: Checkpoint) -> Progress:
    progress = resume(run, checkpoint)
    if run.processes.is_first:  # a kill may have come between checkpoint and weights
        save_best(run, progress, validated_weights(checkpoint.tensors))
        run.place.show(Resumed(progress.step, run.log.past()))
    return progress


def _last_checkpoint(config: Config, place: Place, digest: str) -> Checkpoint | None:
    checkpoint = find_checkpoint(place)
    if checkpoint is None and place.processes.is_first and has_begun(place.directory):
        raise CheckpointError(
            f"{place.directory} has weights, but no checkpoint to go on from",
            hint="keep it and choose another --out, or start over with --fresh",
        )
    if checkpoint is None or checkpoint.progress.data == digest:
        return checkpoint
    if _is_split_by_seed(config, checkpoint.progress.data):
        raise CheckpointError(
            f"{place.directory} was started by an earlier version of mtcli "
            f"({made_by(place.directory)}), which held out other dev pairs for "
            f"train.seed={config.train.seed}",
            hint="finish it with that version, or start over with --fresh",
        )
    raise _other_pairs(place)


def _is_split_by_seed(config: Config, digest: str) -> bool:
    """Return whether `digest` is that of the same corpus in an earlier version of mtcli."""
    return config.data.dev is None and digest == digest_by_seed(config)


def _other_pairs(place: Place) -> CheckpointError:
    return CheckpointError(
        f"{place.directory} was trained on other sentence pairs than these",
        hint="give it the files it began with, or start over with --fresh",
    )


def _tokenizers(
    config: Config, place: Place, pairs: Pairs, checkpoint: Checkpoint | None, notify: Notify
) -> Tokenizers:
    """The run's vocabulary: its own if it has begun, its parent's, or a new one."""
    files: dict[str, bytes] = {}
    if place.processes.is_first:
        if checkpoint:
            files = load_tokenizers(place.directory).files()
        elif config.train.start_from:
            files = load_tokenizers(config.train.start_from).files()
            notify(f"vocabulary: that of {config.train.start_from.name}")
        else:
            files = learn_pieces(pairs, config, notify).files()
    return tokenizers_of(place.processes.from_first(files))


def _with_steps(
    config: Config, place: Place, data: Prepared, options: RunOptions, notify: Notify
) -> Config:
    """`config` with the number of steps that fit into its minutes, if it is given in minutes."""
    minutes = config.train.minutes
    if minutes is None:
        return config
    steps = None
    if place.processes.is_first and not options.fresh:
        steps = fixed_steps(place.directory, config)
    steps = place.processes.from_first(steps)
    if steps is None:
        place.show(Notice("trying out how many steps fit into the time"))
        try:
            steps = steps_that_fit(config, place, data)
        except DivergedError as error:
            raise diverged(error) from error
    notify(f"time: {minutes:g} minutes are enough for {steps:,} steps")
    return _replaced(config, steps=steps)


def _replaced(config: Config, **settings: Any) -> Config:
    return config.model_copy(update={"train": config.train.model_copy(update=settings)})


def _describe(run: Run, notify: Notify) -> None:
    """Say what is about to happen."""
    options, device, size = run.config.train, run.learner.device, run.processes.size
    frozen = sum(p.numel() for p in run.model.parameters() if not p.requires_grad)
    still = f", {frozen:,} of them frozen" if frozen else ""
    notify(f"model: {run.config.model.summary()}, {run.n_parameters:,} parameters{still}")
    if options.start_from:
        notify(f"weights: those of {options.start_from.name} to begin with")
    team = f", {size} processes" if size > 1 else ""
    notify(f"training: {options.summary(run.config.data.batch_tokens)}, on {device}{team}")


def _device(name: str) -> torch.device:
    """The device of this process: each of several on a machine has a GPU of its own."""
    device = choose_device(name)
    if not is_distributed() or device.type == "cpu":
        return device
    if device.type != "cuda":
        return torch.device("cpu")  # gloo works on CPUs only
    n_gpus = torch.cuda.device_count()
    if local_rank() >= n_gpus:
        raise ConfigError(
            f"there are more processes on this machine than GPUs, which are {n_gpus}",
            hint="start as many processes as there are GPUs, or set train.device=cpu",
        )
    device = torch.device("cuda", local_rank())
    torch.cuda.set_device(device)
    return device
