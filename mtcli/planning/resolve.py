"""Resolve a training request into a complete configuration."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mtcli.config.load import (
    Setting,
    check_values,
    flatten,
    load_config,
    read_sections,
    validate,
    with_overrides,
    with_saved_defaults,
)
from mtcli.config.sections import Config, DataConfig, SearchConfig
from mtcli.data.cache import DataCache, cache_key
from mtcli.data.corpus import CorpusReader
from mtcli.data.entries import check_can_open, find_languages
from mtcli.data.fingerprint import fingerprint
from mtcli.data.formats.base import Languages
from mtcli.data.overlong import drop_overlong
from mtcli.data.streaming import BLOCK_PAIRS, read_head
from mtcli.errors import ConfigError, UsageError
from mtcli.model_dir.directory import (
    has_saved_weights,
    is_run,
    load_saved_config,
    saved_plan,
)
from mtcli.model_dir.layout import CONFIG
from mtcli.model_dir.saved_tree import read_saved_tree
from mtcli.model_dir.settings import has_same_settings
from mtcli.planning.choices import MAX_LENGTH
from mtcli.planning.corpus_stats import ASSUMED_CORPUS, CorpusStats, measure_corpus
from mtcli.planning.plan import Plan, corpus_line, estimate_config, is_in_plan, make_plan
from mtcli.tokenizer import load_trained_tokenizer

Notify = Callable[[str], None]


@dataclass(frozen=True)
class TrainRequest:
    """Arguments of an `mtcli train` command."""

    out: Path
    file: Path | None  # configuration file
    settings: Sequence[Setting]  # from the command line and the recipe
    parent: Path | None = None  # model to start from
    is_fresh: bool = False
    cache: Path | None = None  # data cache shared between runs

    @cached_property
    def reader(self) -> CorpusReader:
        """Reader that keeps the corpora read during planning, so that training can reuse them."""
        return CorpusReader(_existing_parent(self.cache or self.out))

    @property
    def has_corpus(self) -> bool:
        """Whether the request specifies training or dev data; a resumed run does not need any."""
        keys = {key for key, _ in self.settings}
        return self.file is not None or not keys.isdisjoint(("data", "data.train", "data.dev"))


def _existing_parent(path: Path) -> Path:
    """Return `path` if it is a directory, otherwise its nearest parent directory that exists."""
    return next(p for p in (path, *path.absolute().parents) if p.is_dir())


def unplanned_config(request: TrainRequest) -> Config:
    """Return the configuration without reading the corpus.

    If the run must still be planned, all settings except its corpus and device are defaults.
    """
    if request.file is not None or (not request.is_fresh and has_saved_weights(request.out)):
        return resolve(request)
    fixed = flatten(_all_settings(request))
    keys = [key for key in ("data.train", "train.device") if key in fixed]
    return load_config(None, [(key, fixed[key]) for key in keys])


def resolve(request: TrainRequest) -> Config:
    """Return the configuration of a run that is resumed or that has a configuration file."""
    if request.file is None and is_resumed(request):
        _check(request)
        return _with_user_settings(load_saved_config(request.out), _user_settings(request))
    settings = _all_settings(request)
    if request.file is None:
        return load_config(None, settings)
    tree = read_sections(request.file)
    if "filters" not in tree and _has_no_filters(request):
        tree = with_saved_defaults(tree)
    if request.parent is not None:
        _check_same_arch(request.file, tree, request.parent, flatten(settings)["model.arch"])
    return validate(tree, settings, origin=str(request.file))


def _has_no_filters(request: TrainRequest) -> bool:
    """Return whether the run to resume was started by an mtcli version without filters."""
    if request.is_fresh or not has_saved_weights(request.out):
        return False
    return "filters" not in read_saved_tree(request.out / CONFIG)


def _check_same_arch(file: Path, tree: dict[str, Any], parent: Path, arch: str) -> None:
    """Raise `ConfigError` if `file` and the model of --from have different architectures."""
    model = tree.get("model")
    if not isinstance(model, dict) or all(key.endswith("dropout") for key in model):
        return
    file_arch = model.get("arch", "transformer")
    if file_arch != arch:
        raise ConfigError(
            f"{file} has model.arch={file_arch}, but {parent.name} has {arch}",
            hint="omit --from, or use a --config with the same model.arch",
        )


def is_resumed(request: TrainRequest) -> bool:
    """Return whether the command resumes an existing run, which keeps its earlier choices."""
    if request.is_fresh or not is_run(request.out):
        return False
    return has_saved_weights(request.out) or _has_current_plan(request)


def _has_current_plan(request: TrainRequest) -> bool:
    """Return whether a run without any steps was planned for the same corpus and settings."""
    saved = load_saved_config(request.out)
    config = _with_user_settings(saved, _user_settings(request))
    if not has_same_settings(request.out, config):
        return False
    line = corpus_line(estimate_config(_measure(request, config.data), config))
    plan = saved_plan(request.out)
    return not plan or is_in_plan(line, plan)


def plan_for(request: TrainRequest, notify: Notify) -> Plan:
    """Return the plan; for a new run without a configuration file, choose the missing settings."""
    if request.file is not None or is_resumed(request):
        config = resolve(request)
        return estimate_config(_measure(request, config.data, notify), config)
    settings = _all_settings(request)
    check_values(settings)  # fail before a large corpus is read
    settings = [*_vocabulary_size(settings), *settings]
    fixed = flatten(settings)
    if fixed.get("data.streaming") and not {"train.steps", "train.minutes"} & fixed.keys():
        raise ConfigError(
            "data.streaming requires train.steps or train.minutes: the corpus size is unknown",
            hint="for example: --minutes 60, or --set train.steps=100000",
        )
    with _usage_errors():
        data = _data_config(settings)
    stats = _measure(request, data, notify)
    with _usage_errors():
        return make_plan(stats, settings)


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Run the block and convert `ConfigError` to `UsageError`.

    All settings in these blocks come from the command line.
    """
    try:
        yield
    except ConfigError as error:
        raise UsageError(str(error)) from error


def plan_without_corpus(request: TrainRequest) -> Plan:
    """Return the plan for a configuration file, with an assumed corpus instead of its own."""
    return estimate_config(ASSUMED_CORPUS, resolve(request))


def _data_config(settings: Sequence[Setting]) -> DataConfig:
    """Return the data section of `settings`; other sections may not be consistent yet."""
    keys = [(key, value) for key, value in flatten(settings).items() if key.startswith("data.")]
    longest = max(int(dict(keys).get("data.max_length") or 0), SearchConfig().max_length)
    return load_config(None, [*keys, ("search.max_length", longest)]).data


def _vocabulary_size(settings: Sequence[Setting]) -> list[Setting]:
    """Return the vocabulary size of the user's SentencePiece model, if any, as a setting."""
    path = flatten(settings).get("tokenizer.model")
    return (
        [("tokenizer.vocab_size", len(load_trained_tokenizer(Path(path)).source))] if path else []
    )


def _measure(
    request: TrainRequest, data: DataConfig, notify: Notify = lambda _: None
) -> CorpusStats:
    """Return the statistics of the training corpus, from the shared cache if possible."""
    languages = Languages(data.source_lang, data.target_lang)
    if data.dev:  # fail before a large corpus is read
        check_can_open(data.dev, find_languages(data.train, languages), data.train.targets)
    # Use at least the largest `data.max_length` that can be chosen, so that the corpus statistics
    # are the same before and after the choice.
    max_length = max(MAX_LENGTH, data.max_length)

    if data.streaming:
        return measure_corpus(read_head(data.train, languages, BLOCK_PAIRS, max_length))

    def measure(notify: Notify) -> CorpusStats:
        corpus = request.reader.read(data.train, notify, languages)
        return measure_corpus(drop_overlong(corpus, max_length, "nmt_nfkc", notify))

    content = fingerprint(data.train, languages) if request.cache else None
    if request.cache is None or content is None:
        return measure(notify)

    def write(_: Path) -> dict[str, Any]:
        notices: list[str] = []
        return {"stats": asdict(measure(notices.append)), "notices": notices}

    values = DataCache(request.cache).find_or_build(cache_key("stats", content, max_length), write)
    for notice in values.values["notices"]:
        notify(notice)
    return CorpusStats.from_dict(values.values["stats"])


def _all_settings(request: TrainRequest) -> list[Setting]:
    """Return the sections inherited from the model of --from, then the user's settings."""
    _check(request)
    if request.parent is None:
        return _user_settings(request)
    # A resumed run has its own copy of these sections, so it does not need the model of --from.
    is_parent_missing = not request.parent.is_dir()
    can_resume = not request.is_fresh and has_saved_weights(request.out)
    parent = load_saved_config(request.out if can_resume and is_parent_missing else request.parent)
    inherited: list[Setting] = [
        (section, getattr(parent, section).model_dump(mode="json"))
        for section in ("tokenizer", "model")
    ]
    return [*inherited, *_user_settings(request)]


def _with_user_settings(saved: Config, settings: list[Setting]) -> Config:
    """Return `saved` with `settings`; a new architecture replaces the entire model section."""
    arch = flatten(settings).get("model.arch", saved.model.arch)
    new_model = [] if arch == saved.model.arch else [("model", {"arch": arch})]
    return with_overrides(saved, [*new_model, *settings])


def _user_settings(request: TrainRequest) -> list[Setting]:
    """Return the user's settings; `train.steps` overrides `train.minutes` from a file or run."""
    start = [("train.start_from", str(request.parent))] if request.parent else []
    keys = {key for key, _ in request.settings}
    no_budget = [("train.minutes", None)] if "train.steps" in keys else []
    return [*start, *no_budget, *request.settings]


def _check(request: TrainRequest) -> None:
    """Raise `UsageError` if settings contradict each other or the model of --from."""
    keys = {key for key, _ in request.settings}
    if {"train.minutes", "train.steps"} <= keys:
        raise UsageError(
            "--minutes and train.steps are mutually exclusive", hint="set only one of them"
        )
    if request.parent is None:
        return
    if request.parent.resolve() == request.out.resolve():
        raise UsageError("--from and --out are the same directory", hint="choose another --out")
    inherited = [key for key in keys if key.startswith(("tokenizer.", "model."))]
    fixed = [key for key in inherited if not key.endswith("dropout")]
    if fixed:
        raise UsageError(
            f"{fixed[0]} cannot be set with --from: the model {request.parent.name} determines it",
            hint="remove --from or this setting",
        )
