"""From what the user has said to a complete configuration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtcli.checkpoint.directory import (
    has_begun,
    has_settings,
    is_run,
    load_saved_config,
    saved_plan,
)
from mtcli.config import Config, Setting, check_each, flat, load_config, overlaid
from mtcli.data import Corpus, drop_overlong, read_corpus
from mtcli.errors import ConfigError
from mtcli.planning.choices import MAX_LENGTH
from mtcli.planning.plan import Plan, corpus_line, make_plan, review

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Wish:
    """What the user has said about a run."""

    out: Path
    file: Path | None  # with settings
    settings: Sequence[Setting]  # on the command line
    parent: Path | None = None  # model to begin with
    is_fresh: bool = False

    @property
    def names_files(self) -> bool:
        """Whether it says what to learn from; a run that has begun knows it."""
        keys = {key for key, _ in self.settings}
        return self.file is not None or not keys.isdisjoint(("data", "data.train", "data.dev"))


def resolve(wish: Wish) -> Config:
    """The configuration of a run that needs no plan: it has begun, or there is a file."""
    if wish.file is None and goes_on(wish):
        _check(wish)
        return _overlaid(load_saved_config(wish.out), _said(wish))
    return load_config(wish.file, _settings(wish))


def goes_on(wish: Wish) -> bool:
    """Whether the run has begun; what was chosen then stays chosen."""
    if wish.is_fresh or not is_run(wish.out):
        return False
    return has_begun(wish.out) or _is_still_planned(wish)


def _is_still_planned(wish: Wish) -> bool:
    """Whether a plan that nothing has come of yet is one for the same corpus and settings."""
    saved = load_saved_config(wish.out)
    config = _overlaid(saved, _said(wish))
    if not has_settings(wish.out, config):
        return False
    corpus = corpus_line(review(_read(config.data.train, config.data.max_length), config))
    plan = saved_plan(wish.out)
    return not plan or corpus in plan


def plan_of(wish: Wish, notify: Notify) -> Plan:
    """What would be done, and what it would cost; where there is no file, choices are made."""
    if wish.file is not None or goes_on(wish):
        config = resolve(wish)
        return review(_read(config.data.train, config.data.max_length, notify), config)
    settings = _settings(wish)
    check_each(settings)  # at once, and not after a large corpus was read
    fixed = flat(settings)
    source, target = map(Path, fixed["data.train"])
    given = fixed.get("data.max_length")
    corpus = _read((source, target), given if isinstance(given, int) else MAX_LENGTH, notify)
    return make_plan(corpus, settings)


def _read(files: tuple[Path, Path], max_length: int, notify: Notify = lambda _: None) -> Corpus:
    """Read the pairs to plan for.

    Use the longest `data.max_length` that can be chosen: the survey must be the same before and
    after the choice.
    """
    corpus = read_corpus(*files, notify)
    return drop_overlong(corpus, max(MAX_LENGTH, max_length), "nmt_nfkc", notify)


def _settings(wish: Wish) -> list[Setting]:
    """All that is settled: what the parent is like, then what the user has said."""
    _check(wish)
    if wish.parent is None:
        return _said(wish)
    parent = load_saved_config(wish.out if _outlives(wish, wish.parent) else wish.parent)
    inherited: list[Setting] = [
        (section, getattr(parent, section).model_dump(mode="json"))
        for section in ("tokenizer", "model")
    ]
    return [*inherited, *_said(wish)]


def _overlaid(saved: Config, said: list[Setting]) -> Config:
    """`saved` with what is said now; of another architecture it has nothing to keep."""
    arch = flat(said).get("model.arch", saved.model.arch)
    other = [] if arch == saved.model.arch else [("model", {"arch": arch})]
    return overlaid(saved, [*other, *said])


def _outlives(wish: Wish, parent: Path) -> bool:
    """Whether the run has begun and its parent is gone since: then the run tells what it was."""
    return not wish.is_fresh and has_begun(wish.out) and not parent.is_dir()


def _said(wish: Wish) -> list[Setting]:
    """What the user has said: with steps of one's own, no minutes from elsewhere count."""
    start = [("train.start_from", str(wish.parent))] if wish.parent else []
    keys = {key for key, _ in wish.settings}
    untimed = [("train.minutes", None)] if "train.steps" in keys else []
    return [*start, *untimed, *wish.settings]


def _check(wish: Wish) -> None:
    """Refuse what contradicts itself."""
    keys = {key for key, _ in wish.settings}
    if {"train.minutes", "train.steps"} <= keys:
        raise ConfigError("train.steps follows from the minutes", hint="give one of the two")
    if wish.parent is None:
        return
    if wish.parent.resolve() == wish.out.resolve():
        raise ConfigError("--from and --out are the same directory", hint="choose another --out")
    own = [key for key in keys if key.startswith(("tokenizer.", "model."))]
    shape = [key for key in own if not key.endswith("dropout")]
    if shape:
        raise ConfigError(
            f"{shape[0]} cannot be set: {wish.parent.name} has a shape and a vocabulary already",
            hint="leave out --from, or that setting",
        )
