"""Comparison of the settings of a command with those of a saved run."""

from itertools import takewhile
from pathlib import Path

from mtcli.config.load import differences
from mtcli.config.sections import Config, DataConfig
from mtcli.config.tokenizer import TokenizerConfig
from mtcli.errors import CheckpointError
from mtcli.model_dir.directory import has_saved_weights, is_run, load_saved_config
from mtcli.model_dir.layout import LOG
from mtcli.reporting.log import EventLog

_SAMPLE_LINES_0_2_0 = 2_000_000  # default of tokenizer.sample_lines in version 0.2.0


def check_settings(directory: Path, config: Config) -> None:
    """Raise `CheckpointError` if the settings of a run with saved weights differ from `config`."""
    if not has_saved_weights(directory):
        return
    if changed := _differences(directory, config):
        lines = "".join(f"\n  {line}" for line in changed)
        hint = "choose another --out, restore the settings, or start over with --fresh"
        if _differs_in_duration(directory, config) and EventLog(directory / LOG).read_finished():
            hint = (
                "this run is finished; to train its model further, start a new run from it: add "
                f"--from {directory} and another --out to the command"
            )
        raise CheckpointError(
            f"{directory} contains a run with different settings:{lines}", hint=hint
        )


def _differs_in_duration(directory: Path, config: Config) -> bool:
    """Return whether `config` differs from the saved run only in its number of steps or minutes."""
    saved = load_saved_config(directory).train
    duration = {"steps": saved.steps, "minutes": saved.minutes}
    train = config.train.model_copy(update=duration)
    return not _differences(directory, config.model_copy(update={"train": train}))


def fixed_steps(directory: Path, config: Config) -> int | None:
    """Return the number of steps of a saved run with train.minutes and these settings, or None."""
    if config.train.minutes is None or not is_run(directory) or _differences(directory, config):
        return None
    return load_saved_config(directory).train.steps


def has_same_settings(directory: Path, config: Config) -> bool:
    """Return whether the run in `directory` has the settings of `config`."""
    return not _differences(directory, config)


def _differences(directory: Path, config: Config) -> list[str]:
    """Return a line of text for each setting in which `config` differs from the saved run.

    Corpus file names are ignored, because training compares a digest of the pairs instead. The
    number of steps is ignored if train.minutes is set, because it is derived from train.minutes.
    The BLEU tokenizer, the precision and the number of workers are ignored if `config` does not
    specify them.
    """
    saved = load_saved_config(directory)
    before, now = saved.train, config.train
    ignored: dict[str, object] = {}
    if (
        before.start_from
        and now.start_from
        and _may_be_same_path(before.start_from, now.start_from)
    ):
        ignored["start_from"] = before.start_from
    if before.minutes is not None or now.minutes is not None:
        ignored["steps"] = before.steps
    if now.bleu_tokenizer is None:
        ignored["bleu_tokenizer"] = before.bleu_tokenizer
    if now.precision == "auto":
        ignored["precision"] = before.precision
    if now.workers is None:
        ignored["workers"] = before.workers
    sections = {
        "data": _with_corpora_of(saved.data, config.data),
        "tokenizer": _with_sample_of(saved.tokenizer, config.tokenizer),
        "train": now.model_copy(update=ignored),
    }
    return differences(saved, config.model_copy(update=sections))


def _with_corpora_of(saved: DataConfig, data: DataConfig) -> DataConfig:
    """Return `data` with the corpus names and, where `data` has none, the languages of `saved`."""
    return data.model_copy(
        update={
            "train": data.train.with_names_of(saved.train),
            "dev": data.dev.with_names_of(saved.dev) if data.dev and saved.dev else saved.dev,
            "source_lang": data.source_lang or saved.source_lang,
            "target_lang": data.target_lang or saved.target_lang,
        }
    )


def _with_sample_of(saved: TokenizerConfig, tokenizer: TokenizerConfig) -> TokenizerConfig:
    """Return `tokenizer` with the values of `saved` where a difference does not affect resuming."""
    update: dict[str, object] = {}
    if saved.model and tokenizer.model and _may_be_same_path(saved.model, tokenizer.model):
        update["model"] = saved.model
    if saved.sample_lines == _SAMPLE_LINES_0_2_0:
        update["sample_lines"] = saved.sample_lines
    return tokenizer.model_copy(update=update)


def _may_be_same_path(one: Path, other: Path) -> bool:
    """Return whether two paths may refer to the same file, i.e., one is a suffix of the other."""
    ends = [takewhile(lambda part: part != "..", reversed(path.parts)) for path in (one, other)]
    return all(a == b for a, b in zip(*ends, strict=False))
