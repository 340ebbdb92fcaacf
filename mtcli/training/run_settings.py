"""Settings that are chosen when a run starts, and kept when it resumes.

They depend on the corpus and the machine: BLEU tokenizer, precision, workers and number of steps.
"""

import sys
from typing import Any

import torch

from mtcli.config.sections import Config, Precision
from mtcli.counts import format_count
from mtcli.errors import CheckpointError, ConfigError
from mtcli.evaluation.tokenizers import check_tokenizer, choose_tokenizer
from mtcli.hardware import has_cpu_bfloat16
from mtcli.model_dir.directory import load_saved_config, mtcli_version
from mtcli.model_dir.saved_tree import saved_format
from mtcli.model_dir.settings import fixed_steps
from mtcli.planning.estimate import choose_n_workers
from mtcli.reporting.events import Notice
from mtcli.tokenizer import Tokenizers
from mtcli.training.dataset import Dataset
from mtcli.training.loop import DivergedError, divergence_error
from mtcli.training.preparation import Notify
from mtcli.training.run_state import RunContext, RunOptions
from mtcli.training.time_budget import estimate_steps

_PRECISION_FORMAT = 4  # earlier formats do not contain the chosen precision


def resolve_bleu_tokenizer(
    config: Config, context: RunContext, notify: Notify, *, is_resumed: bool
) -> Config:
    """Return `config` with a BLEU tokenizer.

    A resumed run keeps its tokenizer, because another one could change which weights are best.
    """

    def choose() -> str:
        name = config.train.bleu_tokenizer
        if name is None and is_resumed:
            name = load_saved_config(context.directory).train.bleu_tokenizer
        if name is not None:
            check_tokenizer(name)
            return name
        choice = choose_tokenizer(config.data.target_lang)
        if choice.notice:
            notify(choice.notice)
        return choice.name

    name = context.processes.run_on_first(choose)
    return with_train_settings(config, bleu_tokenizer=name)


def resolve_precision(config: Config, context: RunContext, *, is_resumed: bool) -> Config:
    """Return `config` with the precision for this hardware; a resumed run keeps its precision."""
    if is_resumed:
        precision = context.processes.run_on_first(lambda: _saved_precision(context))
    else:
        precision = _choose_precision(config, context)
    return with_train_settings(config, precision=precision)


def resolve_workers(
    config: Config, context: RunContext, tokenizers: Tokenizers, *, is_resumed: bool
) -> Config:
    """Return `config` with a number of workers; a resumed run keeps its number.

    The number determines how batches are split, so another one would change the weights.
    """
    requested = config.train.workers
    obstacle = _workers_obstacle(config, context)
    if is_resumed:
        saved = context.processes.run_on_first(lambda: load_saved_config(context.directory))
        n = saved.train.workers or 1
        if obstacle and n > 1:
            context.listener(
                Notice(f"workers: 1 instead of {n}: {obstacle}; the weights will differ slightly")
            )
            n = 1
        return with_train_settings(config, workers=n)
    if obstacle and requested and requested > 1:
        raise ConfigError(
            f"train.workers={requested} is not possible: {obstacle}",
            hint="remove train.workers; mtcli then chooses the number",
        )
    if requested or obstacle:
        return with_train_settings(config, workers=requested or 1)
    sizes = len(tokenizers.source), len(tokenizers.target)
    n_parameters = config.model.n_parameters(*sizes)
    n = choose_n_workers(
        torch.get_num_threads(),
        batch_tokens=config.data.batch_tokens,
        n_parameters=n_parameters,
    )
    return with_train_settings(config, workers=n)


def can_start_workers(device: torch.device) -> bool:
    """Return whether this system supports worker processes for training on `device`.

    Worker processes are forked. Forking is unsafe on macOS, and if torch can use a GPU, its
    autograd does not work after a fork.
    """
    return sys.platform == "linux" and device.type == "cpu" and not torch.cuda.is_available()


def _workers_obstacle(config: Config, context: RunContext) -> str | None:
    """Return what prevents the use of worker processes, or None."""
    if context.processes.size > 1:
        return "the run has several processes (--processes or torchrun)"
    if config.train.compile:
        return "train.compile=true"
    if config.train.precision == "float16":
        return "train.precision=float16"
    if not can_start_workers(context.device):
        return "workers require Linux, and a machine without a GPU"
    return None


def _choose_precision(config: Config, context: RunContext) -> Precision:
    """Return the precision for a new run; the result is never `auto`.

    All processes must support it, and all get the same result.
    """
    device = context.device
    if device.type != "cuda":
        has_bfloat16 = device.type == "cpu" and has_cpu_bfloat16()
        return config.cpu_precision(has_bfloat16=all(context.processes.gather(has_bfloat16)))
    if config.train.precision != "auto":
        return config.train.precision
    has_bfloat16 = all(context.processes.gather(torch.cuda.is_bf16_supported()))
    return "bfloat16" if has_bfloat16 else "float32"


def _saved_precision(context: RunContext) -> Precision:
    """Return the precision of the run in the directory, for resuming it.

    Raise `CheckpointError` if an earlier version used a 16-bit type, because its rounding differs
    from that of this version. With `auto`, earlier versions used bfloat16 only on GPUs.
    """
    precision = load_saved_config(context.directory).train.precision
    if saved_format(context.directory) >= _PRECISION_FORMAT:
        return precision
    if precision == "auto" and context.device.type == "cuda" and torch.cuda.is_bf16_supported():
        precision = "bfloat16"
    if precision in ("auto", "float32"):
        return "float32"
    raise CheckpointError(
        f"the run in {context.directory} was started by an earlier version of mtcli "
        f"({mtcli_version(context.directory)}), which computed {precision} differently",
        hint="finish it with that version, or start over with --fresh",
    )


def resolve_steps(
    config: Config, context: RunContext, data: Dataset, options: RunOptions, notify: Notify
) -> Config:
    """Return `config`, with the number of steps that fit into `train.minutes` if it is set."""
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
    notify(f"budget: {format_count(minutes, 'minute')}, {format_count(steps, 'step')}")
    return with_train_settings(config, steps=steps)


def with_train_settings(config: Config, **settings: Any) -> Config:
    """Return `config` with other values in the section `train`."""
    return config.model_copy(update={"train": config.train.model_copy(update=settings)})
