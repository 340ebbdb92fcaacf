"""From what the user has said to a complete configuration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtcli.checkpoint.directory import is_run, load_saved_config
from mtcli.config import Config, Setting, load_config, overlaid
from mtcli.data import read_corpus
from mtcli.errors import ConfigError
from mtcli.planning.plan import Plan, make_plan, review

Notify = Callable[[str], None]

# A model that has been trained already is to be changed, not to be learned anew.
_GENTLE = (("train.learning_rate", 1e-3), ("train.matrix_learning_rate", 5e-3))


@dataclass(frozen=True)
class Wish:
    """What the user has said about a run."""

    out: Path
    file: Path | None  # with settings
    settings: Sequence[Setting]  # on the command line
    parent: Path | None = None  # model to begin with
    is_fresh: bool = False


def resolve(wish: Wish) -> Config:
    """The configuration of a run that needs no plan: it has begun, or there is a file."""
    if wish.file is None and goes_on(wish):
        return overlaid(load_saved_config(wish.out), wish.settings)
    return load_config(wish.file, _settings(wish))


def goes_on(wish: Wish) -> bool:
    """Whether the run has begun; what was chosen then stays chosen."""
    return not wish.is_fresh and is_run(wish.out)


def plan_of(wish: Wish, notify: Notify) -> Plan:
    """What would be done, and what it would cost; where there is no file, choices are made."""
    if wish.file is not None or goes_on(wish):
        config = resolve(wish)
        return review(read_corpus(*config.data.train, notify), config)
    settings = _settings(wish)
    files = dict(settings).get("data.train")
    if not files:
        load_config(None, settings)  # says what is missing
        raise ConfigError("data.train: required")
    return make_plan(read_corpus(Path(files[0]), Path(files[1]), notify), settings)


def _settings(wish: Wish) -> list[Setting]:
    """All that is settled: what the parent is like, then what the user has said."""
    if wish.parent is None:
        return list(wish.settings)
    parent = load_saved_config(wish.parent)
    inherited: list[Setting] = [
        (section, getattr(parent, section).model_dump(mode="json"))
        for section in ("tokenizer", "model")
    ]
    gentle = _GENTLE if wish.file is None else ()
    start: Setting = ("train.start_from", str(wish.parent))
    return [*inherited, *gentle, start, *wish.settings]
