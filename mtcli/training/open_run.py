"""Open a run: prepare its data, then build it or restore it from its last checkpoint."""

from contextlib import suppress
from functools import partial
from pathlib import Path

from mtcli.config.sections import Config
from mtcli.config.tags import ModelTags
from mtcli.counts import format_count
from mtcli.data.corpus import Corpus
from mtcli.data.formats.base import Languages
from mtcli.errors import CheckpointError, ConfigError, DataError, MtcliError
from mtcli.files import write_file
from mtcli.model_dir.checkpoints import Checkpoint, Progress, inference_weights
from mtcli.model_dir.directory import (
    check_is_run,
    has_saved_weights,
    mtcli_version,
    remove_run,
    save_config,
    saved_plan,
)
from mtcli.model_dir.layout import WORD_COUNTS
from mtcli.model_dir.lock import RunLock
from mtcli.reporting.events import Notice, Resumed
from mtcli.reporting.messages import metric_label
from mtcli.reporting.progress import PreparationProgress
from mtcli.tokenizer import (
    Tokenizers,
    load_tokenizers,
    load_trained_tokenizer,
    tokenizers_from_files,
)
from mtcli.training.dataset import Dataset
from mtcli.training.loop import save_if_best
from mtcli.training.preparation import (
    Notify,
    Preparation,
    SplitSummary,
    digest_by_seed,
    read_split,
)
from mtcli.training.resume import find_checkpoint, resume
from mtcli.training.run_settings import (
    resolve_bleu_tokenizer,
    resolve_precision,
    resolve_steps,
    resolve_workers,
    with_train_settings,
)
from mtcli.training.run_state import Run, RunContext, RunOptions, build_run
from mtcli.training.shares import planned_shares
from mtcli.training.streaming import StreamPreparation


def open_run(
    config: Config, context: RunContext, options: RunOptions, lock: RunLock
) -> tuple[Run, Progress]:
    """Return a new run, or a run restored from its last checkpoint, with its progress.

    Errors in the data or the settings are raised before a new run is written to disk.
    """
    preparation = _new_preparation(config, context)
    is_new = not context.directory.exists()
    try:
        return _build_or_restore(config, context, options, lock, preparation)
    except MtcliError:
        preparation.undo()
        if is_new:
            with suppress(OSError):  # the directory is not empty, or was never created
                context.directory.rmdir()
        raise


def _new_preparation(config: Config, context: RunContext) -> Preparation:
    progress = PreparationProgress(context.listener)
    context.reader.on_progress = partial(progress, "reading")
    kind = StreamPreparation if config.data.streaming else Preparation
    return kind(config, context.cache, context.reader, progress)


def check_data(config: Config, context: RunContext, digest: str) -> None:
    """Raise `CheckpointError` if the pairs do not match `digest`, the digest of a completed run."""
    if config.data.streaming:
        is_same = _new_preparation(config, context).summary.digest == digest
    else:
        is_same = read_split(config, _ignore, context.reader).digest == digest
    if not is_same and not _is_split_by_seed(config, context, digest):
        raise _data_mismatch(context)


def _ignore(_: object) -> None:
    """Ignore a notice."""


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
    check_tags(config, summary.dev, tokenizers)
    data = _prepare_data(preparation, summary, tokenizers, context, notify)
    counts = b"" if checkpoint else context.processes.run_on_first(preparation.word_counts)
    context.reader.clear()  # free the text, because training needs only token ids
    config = _with_languages(config, summary.languages)
    is_resumed = checkpoint is not None
    config = resolve_bleu_tokenizer(config, context, notify, is_resumed=is_resumed)
    config = resolve_precision(config, context, is_resumed=is_resumed)
    config = resolve_workers(config, context, tokenizers, is_resumed=is_resumed)
    config = resolve_steps(config, context, data, options, notify)
    if checkpoint:  # it contains weights, and the model that the run started from may be gone
        config = with_train_settings(config, start_from=None)
    run = build_run(config, context, data)
    _notify_summary(run, notify)
    if checkpoint:
        return run, _resume_run(run, checkpoint)
    log_size = 0
    if context.processes.is_first:
        _lock_new_run(context.directory, lock)
        remove_run(context.directory)
        save_config(context.directory, config, plan)
        for name, content in {**tokenizers.files(), WORD_COUNTS: counts}.items():
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
    """Encode the corpus, once per file system, and return the dataset for this process."""

    def encode_elsewhere() -> None:
        if preparation.has_ids(tokenizers, summary.digest):
            return  # the machines share a file system
        if preparation.summary.digest != summary.digest:
            raise DataError(
                "the corpus is not the same on all machines",
                hint="copy the same corpus files to all machines",
            )
        preparation.encode(tokenizers)

    context.processes.run_on_first(lambda: preparation.encode(tokenizers))
    context.processes.run_on_each_machine(encode_elsewhere)
    return preparation.open(tokenizers, summary, notify)


def _with_languages(config: Config, languages: Languages) -> Config:
    """Return `config` with the languages of the corpus, or unchanged if the corpora set `to`."""
    if config.data.train.targets:
        return config
    codes = {"source_lang": languages.source, "target_lang": languages.target}
    return config.model_copy(update={"data": config.data.model_copy(update=codes)})


def _lock_new_run(directory: Path, lock: RunLock) -> None:
    """Lock the directory of a new run, unless this process has already locked it.

    Raise `CheckpointError` if another process has started a run there in the meantime.
    """
    if lock.is_held:
        return
    lock.acquire()
    check_is_run(directory)
    if has_saved_weights(directory):
        raise CheckpointError(
            f"another process has just started a run in {directory}",
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
    """Return the last checkpoint, or None; raise `CheckpointError` if the run cannot be resumed."""
    checkpoint = find_checkpoint(context)
    if checkpoint is None and context.processes.is_first and has_saved_weights(context.directory):
        raise CheckpointError(
            f"{context.directory} has weights, but no checkpoint to resume from",
            hint="choose another --out to keep these weights, or start over with --fresh",
        )
    if checkpoint is None or checkpoint.progress.data == digest:
        return checkpoint
    if _is_split_by_seed(config, context, checkpoint.progress.data):
        raise CheckpointError(
            f"the run in {context.directory} was started by an earlier version of mtcli "
            f"({mtcli_version(context.directory)}), which held out different dev pairs for "
            f"train.seed={config.train.seed}",
            hint="finish the run with that version, or start over with --fresh",
        )
    raise _data_mismatch(context)


def _is_split_by_seed(config: Config, context: RunContext, digest: str) -> bool:
    """Return whether an earlier version of mtcli would compute `digest` for the same corpus."""
    if config.data.dev or config.data.streaming:
        return False
    return digest == digest_by_seed(config, context.reader)


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
    """Load the tokenizers from the run, `train.start_from` or `tokenizer.model`, or train them."""

    def get() -> Tokenizers:
        if checkpoint:
            return load_tokenizers(context.directory)
        if config.train.start_from:
            notify(f"vocabulary: copied from {config.train.start_from.name}")
            return load_tokenizers(config.train.start_from)
        if config.tokenizer.model:
            tokenizers = load_trained_tokenizer(config.tokenizer.model)
            notify(
                f"vocabulary: {len(tokenizers.source):,} pieces from {config.tokenizer.model.name}"
            )
            return tokenizers
        return preparation.train_vocabulary(notify)

    return tokenizers_from_files(context.processes.run_on_first(lambda: get().files()))


def check_tags(config: Config, dev: Corpus, tokenizers: Tokenizers) -> None:
    """Raise `ConfigError` if the vocabulary lacks a tag, or if the corpora lack a required `to`."""
    known = tokenizers.source.tags
    used = {*config.data.symbols, *(symbol for info in dev.entries for symbol in info.symbols)}
    missing = sorted(used.difference(known))
    parent = config.train.start_from or config.tokenizer.model
    name = parent.name if parent else "the run"
    if missing:
        has = f"it has {', '.join(known)}" if known else "it has no tags"
        raise ConfigError(
            f"the vocabulary of {name} lacks the tags {', '.join(missing)}; {has}",
            hint="remove or replace these tags, or train a new vocabulary",
        )
    languages = ModelTags.from_symbols(known).languages
    if languages and config.train.start_from and not config.data.train.targets:
        raise ConfigError(
            f"{name} has the target languages {', '.join(languages)}: the corpora need `to`",
            hint=f"add it, for example '{{corpus: {config.data.train}, to: {languages[0]}}}'",
        )


def _notify_summary(run: Run, notify: Notify) -> None:
    """Report the model size, initial weights, corpus shares, dev sets and training settings."""
    options, device, size = run.config.train, run.train_step.device, run.processes.size
    n_frozen = sum(p.numel() for p in run.model.parameters() if not p.requires_grad)
    frozen = f", {n_frozen:,} of them frozen" if n_frozen else ""
    notify(f"model: {run.config.model.summary()}, {run.n_parameters:,} parameters{frozen}")
    if options.start_from:
        notify(f"weights: initialized from {options.start_from.name}")
    for line in (*planned_shares(run), *_describe_dev_sets(run)):
        notify(line)
    in_processes = f", {size} processes" if size > 1 else ""
    workers = f" with {options.workers} workers" if (options.workers or 1) > 1 else ""
    where = f"on {device}{in_processes}{workers}, in {options.precision}"
    notify(f"training: {options.summary(run.config.data.batch_tokens)}, {where}")


def _describe_dev_sets(run: Run) -> list[str]:
    """Return lines about the dev sets and the rule that combines them; [] for a single set."""
    sets, rule = run.data.dev_sets, run.config.train.dev_rule
    if len(sets) == 1:
        return []
    sizes = ", ".join(f"{one.name} ({format_count(len(one.encoded), 'pair')})" for one in sets)
    metric = metric_label(run.config.train.metric)
    scores = {"mean": "mean of all sets", "worst": "worst set", "first": "first set"}[rule]
    selection = f"  weights are selected by the {scores} ({metric}, train.dev_rule={rule})"
    return [f"dev sets: {sizes}", selection]
