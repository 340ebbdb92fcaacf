"""Train or resume a run: from a configuration to a complete model directory."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mtcli.config.sections import Config
from mtcli.data.corpus import CorpusReader
from mtcli.data.formats.base import Languages
from mtcli.distributed import Processes, is_distributed, is_first_process, local_rank, processes
from mtcli.errors import CheckpointError, ConfigError, DataError, Interrupted, MtcliError
from mtcli.files import write_file
from mtcli.hardware import choose_device, tuned_allocator
from mtcli.model_dir.checkpoints import Checkpoint, Progress, inference_weights
from mtcli.model_dir.directory import (
    check_is_run,
    check_settings,
    fixed_steps,
    has_saved_weights,
    is_run,
    mtcli_version,
    remove_run,
    save_config,
    saved_plan,
)
from mtcli.model_dir.layout import LOG, TENSORBOARD
from mtcli.model_dir.lock import RunLock
from mtcli.reporting.events import Event, Finished, Notice, Resumed, Stopped
from mtcli.reporting.log import EventLog
from mtcli.reporting.progress import PreparationProgress
from mtcli.reporting.tensorboard import TensorBoard
from mtcli.tokenizer import (
    Tokenizers,
    load_tokenizers,
    load_trained_tokenizer,
    tokenizers_from_files,
)
from mtcli.training.dataset import Dataset
from mtcli.training.finish import finish
from mtcli.training.loop import (
    DivergedError,
    divergence_error,
    save_if_best,
    stop_reason,
    train,
)
from mtcli.training.preparation import (
    Notify,
    Preparation,
    SplitSummary,
    digest_by_seed,
    read_split,
)
from mtcli.training.resume import find_checkpoint, resume
from mtcli.training.run_state import Listener, Run, RunContext, build_run
from mtcli.training.stop_request import StopRequest, stop_on_signals
from mtcli.training.streaming import StreamPreparation
from mtcli.training.time_budget import estimate_steps


@dataclass(frozen=True)
class RunOptions:
    """Options of one `mtcli train` command that do not change the trained model."""

    fresh: bool = False  # start over, even if the directory holds a run
    stop_after: float | None = None  # minutes
    tensorboard: bool = False  # also write TensorBoard event files
    plan: tuple[str, ...] = ()  # lines that describe the settings chosen for a new run
    check_data: bool = True  # compare the corpus files with those of a completed run
    reader: CorpusReader | None = None  # corpora that planning has already read
    cache: Path | None = None  # data cache to share with other runs, instead of one per run


DEFAULTS = RunOptions()


def train_run(
    config: Config, directory: Path, listener: Listener, options: RunOptions = DEFAULTS
) -> Finished | Stopped:
    """Train until done or asked to stop; resume the run in `directory` if there is one."""
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
        if finished := group.broadcast(_find_finished(config, context, options)):
            return finished
        run, progress = _open_run(config, context, options, lock)
        request.step = progress.step
        with request.during_steps():
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
    """Yield the event listeners of this process; only rank 0 has any."""
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
    """Ignore an event or a notice."""


def _find_finished(config: Config, context: RunContext, options: RunOptions) -> Finished | None:
    """Return the last event of a completed run; raise if its settings or data differ."""
    if not context.processes.is_first:
        return None
    check_is_run(context.directory)
    if options.fresh:
        return None
    check_settings(context.directory, config)
    finished = EventLog(context.directory / LOG).read_finished()
    if finished:
        if options.check_data and finished.data:
            digest = read_split(config, _ignore, context.reader).digest
            if finished.data != digest and not _is_split_by_seed(config, context, finished.data):
                raise _data_mismatch(context)
        context.listener(
            Notice(f"{context.directory} is already complete; use --fresh to start over")
        )
        context.listener(finished)
    return finished


def _open_run(
    config: Config, context: RunContext, options: RunOptions, lock: RunLock
) -> tuple[Run, Progress]:
    """Build a new run, or restore one from its last checkpoint.

    Errors in data and settings are raised before a run is written.
    """
    progress = PreparationProgress(context.listener)
    context.reader.on_progress = partial(progress, "reading")
    kind = StreamPreparation if config.data.streaming else Preparation
    preparation = kind(config, context.cache, context.reader, progress)
    is_new = not context.directory.exists()
    try:
        return _build_or_restore(config, context, options, lock, preparation)
    except MtcliError:
        preparation.undo()
        if is_new:
            with suppress(OSError):  # it is not empty, or was never created
                context.directory.rmdir()
        raise


def _build_or_restore(
    config: Config,
    context: RunContext,
    options: RunOptions,
    lock: RunLock,
    preparation: Preparation,
) -> tuple[Run, Progress]:
    notices: list[Notice] = []

    def notify(text: str) -> None:
        notices.append(Notice(text))
        context.listener(notices[-1])

    plan = options.plan or ([] if options.fresh else saved_plan(context.directory))
    if options.fresh or not has_saved_weights(context.directory):
        for line in plan:
            notify(line)
    summary = context.processes.run_on_first(lambda: preparation.summary)
    for text in summary.notices:
        notify(text)
    checkpoint = None if options.fresh else _last_checkpoint(config, context, summary.digest)
    tokenizers = _get_tokenizers(config, context, preparation, checkpoint, notify)
    data = _prepare_data(preparation, summary, tokenizers, context, notify)
    context.reader.clear()  # training needs only token ids
    config = _with_languages(config, summary.languages)
    config = _resolve_steps(config, context, data, options, notify)
    if checkpoint:  # it replaces the parent's weights, and the parent may be gone
        config = _with_train_settings(config, start_from=None)
    run = build_run(config, context, data)
    _notify_summary(run, notify)
    if checkpoint:
        return run, _resume_run(run, checkpoint)
    log_size = 0
    if context.processes.is_first:
        _lock_new_run(context.directory, lock)
        remove_run(context.directory)
        save_config(context.directory, config, plan)
        for name, content in tokenizers.files().items():
            write_file(context.directory / name, content)
        for notice in notices:
            run.log(notice)
        log_size = run.log.size()
        context.remove_cache(keep=tuple(preparation.keys))
    return run, Progress(summary.digest, log_size=log_size)


def _prepare_data(
    preparation: Preparation,
    summary: SplitSummary,
    tokenizers: Tokenizers,
    context: RunContext,
    notify: Notify,
) -> Dataset:
    """Encode the corpus once per file system; return the dataset, which all processes map."""

    def encode_elsewhere() -> None:
        if preparation.has_ids(tokenizers, summary.digest):
            return  # the machines share a file system
        if preparation.summary.digest != summary.digest:
            raise DataError(
                "the machines have different sentence pairs",
                hint="give all machines the same corpus files",
            )
        preparation.encode(tokenizers)

    context.processes.run_on_first(lambda: preparation.encode(tokenizers))
    context.processes.run_on_each_machine(encode_elsewhere)
    return preparation.open(tokenizers, summary, notify)


def _with_languages(config: Config, languages: Languages) -> Config:
    """Return `config` with the language codes that the corpus has revealed."""
    codes = {"source_lang": languages.source, "target_lang": languages.target}
    return config.model_copy(update={"data": config.data.model_copy(update=codes)})


def _lock_new_run(directory: Path, lock: RunLock) -> None:
    """Lock a directory that held no run at the start; raise if it holds one now."""
    if lock.is_held:
        return
    lock.acquire()
    check_is_run(directory)
    if has_saved_weights(directory):
        raise CheckpointError(
            f"another process has started a run in {directory} in the meantime",
            hint="run the same command again to resume that run, or choose another --out",
        )


def _resume_run(run: Run, checkpoint: Checkpoint) -> Progress:
    progress = resume(run, checkpoint)
    if run.processes.is_first:
        # The run may have been killed after writing the checkpoint but before writing the weights.
        save_if_best(run, progress, inference_weights(checkpoint.tensors))
        run.context.listener(Resumed(progress.step, run.log.read_history()))
    return progress


def _last_checkpoint(config: Config, context: RunContext, digest: str) -> Checkpoint | None:
    """Return the last checkpoint, or None; raise if the run cannot be resumed with this data."""
    checkpoint = find_checkpoint(context)
    if checkpoint is None and context.processes.is_first and has_saved_weights(context.directory):
        raise CheckpointError(
            f"{context.directory} has weights, but no checkpoint to resume from",
            hint="keep it and choose another --out, or start over with --fresh",
        )
    if checkpoint is None or checkpoint.progress.data == digest:
        return checkpoint
    if _is_split_by_seed(config, context, checkpoint.progress.data):
        raise CheckpointError(
            f"the run in {context.directory} was started by an earlier version of mtcli "
            f"({mtcli_version(context.directory)}), which held out different dev pairs for "
            f"train.seed={config.train.seed}",
            hint="finish it with that version, or start over with --fresh",
        )
    raise _data_mismatch(context)


def _is_split_by_seed(config: Config, context: RunContext, digest: str) -> bool:
    """Return whether an earlier version of mtcli computed `digest` for the same corpus."""
    return config.data.dev is None and digest == digest_by_seed(config, context.reader)


def _data_mismatch(context: RunContext) -> CheckpointError:
    return CheckpointError(
        f"{context.directory} was trained on different sentence pairs",
        hint="use the original corpus files, or start over with --fresh",
    )


def _get_tokenizers(
    config: Config,
    context: RunContext,
    preparation: Preparation,
    checkpoint: Checkpoint | None,
    notify: Notify,
) -> Tokenizers:
    """Load the tokenizers of a resumed run, of the parent model or of the user, or train some."""

    def get() -> Tokenizers:
        if checkpoint:
            return load_tokenizers(context.directory)
        if config.train.start_from:
            notify(f"vocabulary: copied from {config.train.start_from.name}")
            return load_tokenizers(config.train.start_from)
        if config.tokenizer.model:
            tokenizers = load_trained_tokenizer(config.tokenizer.model)
            notify(
                f"vocabulary: {len(tokenizers.source):,} pieces of {config.tokenizer.model.name}"
            )
            return tokenizers
        return preparation.train_vocabulary(notify)

    return tokenizers_from_files(context.processes.run_on_first(lambda: get().files()))


def _resolve_steps(
    config: Config, context: RunContext, data: Dataset, options: RunOptions, notify: Notify
) -> Config:
    """Return `config` with the number of steps that fit into `train.minutes`, if it is set."""
    minutes = config.train.minutes
    if minutes is None:
        return config
    steps = None
    if context.processes.is_first and not options.fresh:
        steps = fixed_steps(context.directory, config)
    steps = context.processes.broadcast(steps)
    if steps is None:
        context.listener(Notice("measuring the training speed"))
        try:
            steps = estimate_steps(config, context, data)
        except DivergedError as error:
            raise divergence_error(error) from error
    notify(f"budget: {minutes:g} minutes, {steps:,} steps")
    return _with_train_settings(config, steps=steps)


def _with_train_settings(config: Config, **settings: Any) -> Config:
    return config.model_copy(update={"train": config.train.model_copy(update=settings)})


def _notify_summary(run: Run, notify: Notify) -> None:
    """Notify the user of model size, initial weights, training settings and device."""
    options, device, size = run.config.train, run.train_step.device, run.processes.size
    n_frozen = sum(p.numel() for p in run.model.parameters() if not p.requires_grad)
    frozen = f", {n_frozen:,} of them frozen" if n_frozen else ""
    notify(f"model: {run.config.model.summary()}, {run.n_parameters:,} parameters{frozen}")
    if options.start_from:
        notify(f"weights: initialized from {options.start_from.name}")
    in_processes = f", {size} processes" if size > 1 else ""
    notify(f"training: {options.summary(run.config.data.batch_tokens)}, on {device}{in_processes}")


def _process_device(name: str) -> torch.device:
    """Return the device of this process; each process on a machine gets a separate GPU."""
    device = choose_device(name)
    if not is_distributed() or device.type == "cpu":
        return device
    if device.type != "cuda":
        return torch.device("cpu")  # gloo supports only CPUs
    n_gpus = torch.cuda.device_count()
    if local_rank() >= n_gpus:
        raise ConfigError(
            f"more processes on this machine than GPUs ({n_gpus})",
            hint=f"start at most {n_gpus} processes per machine, or set train.device=cpu",
        )
    device = torch.device("cuda", local_rank())
    torch.cuda.set_device(device)
    return device
