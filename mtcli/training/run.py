"""Train or resume a run: from a configuration to a complete model directory."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from mtcli.config.sections import Config
from mtcli.data.corpus import CorpusReader
from mtcli.distributed import Processes, is_distributed, is_first_process, local_rank, processes
from mtcli.errors import ConfigError, Interrupted
from mtcli.hardware import choose_device, thread_limit, tuned_allocator
from mtcli.model_dir.directory import check_is_run, is_run
from mtcli.model_dir.layout import LOG, TENSORBOARD
from mtcli.model_dir.lock import RunLock
from mtcli.model_dir.settings import check_settings
from mtcli.reporting.events import Event, Finished, Notice, Stopped
from mtcli.reporting.log import EventLog
from mtcli.reporting.tensorboard import TensorBoard
from mtcli.training.finish import finish
from mtcli.training.loop import stop_reason, train
from mtcli.training.open_run import check_data, open_run
from mtcli.training.run_state import DEFAULTS, Listener, RunContext, RunOptions
from mtcli.training.stop_request import StopRequest, stop_on_signals

__all__ = ["DEFAULTS", "RunOptions", "train_run"]


def train_run(
    config: Config, directory: Path, listener: Listener, options: RunOptions = DEFAULTS
) -> Finished | Stopped:
    """Train until the run is complete or a stop is requested.

    If `directory` contains a run, resume it. Return the final event.
    """
    request = StopRequest(options.stop_after)
    try:
        return _train_run(config, directory, listener, options, request)
    except Interrupted as error:
        if request.is_unsaved:
            raise
        stopped = Stopped(request.step, error.signal)
        if is_first_process():
            listener(stopped)
        return stopped


def _train_run(
    config: Config, directory: Path, listener: Listener, options: RunOptions, request: StopRequest
) -> Finished | Stopped:
    device = _process_device(config.train.device)
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")):
        options = replace(options, fresh=False)  # torchrun restarted the workers: resume the run
    with (
        tuned_allocator(),
        thread_limit(options.threads),
        processes(device) as group,
        _listeners(listener, directory, group, options) as listeners,
        stop_on_signals(request, listeners),
        closing(RunLock(directory)) as lock,
    ):
        config = group.broadcast(config)
        reader = options.reader or CorpusReader()
        context = RunContext(
            directory, device, group, listeners, reader=reader, shared_cache=options.cache
        )
        if group.is_first and is_run(directory):
            lock.acquire()  # before reading the run
        finished = group.run_on_first(lambda: _find_finished(config, context, options))
        if finished:
            return finished
        run, progress = open_run(config, context, options, lock)
        request.step = progress.step
        with closing(run.train_step), request.during_steps():
            result = train(run, progress, request)
        request.step = result.step
        if isinstance(result, Stopped):
            listeners(result)
            return result
        request.raise_pending()
        return finish(run, result, stop_reason(run, result) or "")


@contextmanager
def _listeners(
    listener: Listener, directory: Path, group: Processes, options: RunOptions
) -> Iterator[Listener]:
    """Yield the event listener of this process; on ranks other than 0, it ignores all events."""
    if not group.is_first:
        yield _ignore
        return
    if not options.tensorboard:
        yield listener
        return
    with closing(TensorBoard(directory / TENSORBOARD)) as board:

        def both(event: Event) -> None:
            board(event)
            listener(event)

        yield both


def _ignore(_: object) -> None:
    """Ignore an event."""


def _find_finished(config: Config, context: RunContext, options: RunOptions) -> Finished | None:
    """Return the `Finished` event of a completed run, or None.

    Raise `CheckpointError` if the run has different settings or data.
    """
    check_is_run(context.directory)
    if options.fresh:
        return None
    check_settings(context.directory, config)
    finished = EventLog(context.directory / LOG).read_finished()
    if finished:
        if options.check_data and finished.data:
            check_data(config, context, finished.data)
        context.listener(
            Notice(f"{context.directory} is already complete; use --fresh to start over")
        )
        context.listener(finished)
    return finished


def _process_device(name: str) -> torch.device:
    """Return the device for this process; each process on a machine gets a separate GPU."""
    device = choose_device(name)
    if not is_distributed() or device.type == "cpu":
        return device
    if device.type != "cuda":
        return torch.device("cpu")  # the gloo backend supports only CPUs
    n_gpus = torch.cuda.device_count()
    if local_rank() >= n_gpus:
        raise ConfigError(
            f"this machine runs more processes than it has GPUs ({n_gpus})",
            hint=f"start at most {n_gpus} processes per machine, or set train.device=cpu",
        )
    device = torch.device("cuda", local_rank())
    torch.cuda.set_device(device)
    return device
