"""Read a configuration from a file and the command line, and report where its mistakes are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from mtcli.config.problems import Problem, explain_unknown_key, find_problems, problems_of
from mtcli.config.sections import Config
from mtcli.errors import ConfigError

Setting = tuple[str, Any]  # a dotted key and its value
# What PyYAML raises, also for wrong values of tags such as `!!int ""`, or a date 2020-13-01.
YAML_ERRORS = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError)
HEAD = ("format", "mtcli")  # what the config.yaml of a model has besides the configuration


class GivenSetting(tuple[str, Any]):
    """A setting of the command line, with the option that error messages name."""

    option: str  # as the user wrote it: "--set train.steps=5"

    def __new__(cls, key: str, value: Any, option: str) -> "GivenSetting":
        """Create the setting."""
        setting = super().__new__(cls, (key, value))
        setting.option = option
        return setting


def load_config(path: Path | None, settings: Iterable[Setting] = ()) -> Config:
    """Read `path` (None: nothing but defaults), apply `settings` in order, validate the result."""
    tree = _read(path) if path else {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} is not a configuration: expected sections, got {tree!r}")
    # A run can be repeated from the config.yaml of its model.
    tree = {key: value for key, value in tree.items() if key not in HEAD}
    return _validate_with(tree, list(settings), origin=str(path) if path else None)


def overlaid(config: Config, settings: Iterable[Setting]) -> Config:
    """Return `config` with some settings changed."""
    return _validate_with(config.model_dump(mode="json"), list(settings), origin=None)


def check_each(settings: Iterable[Setting]) -> None:
    """Refuse settings that are invalid in any combination with other settings."""
    given = list(settings)
    problems = find_problems(_overlaid({}, given))
    of_one = [problem for problem in problems if not problem.is_about_several_keys]
    if of_one:
        raise _invalid(of_one, [_blame(problem, {}, given) for problem in of_one], None)


def parse_override(text: str) -> GivenSetting:
    """Return the setting of `--set section.key=value`; the value is read as YAML."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise ConfigError(
            f"--set {text} is not of the form section.key=value",
            hint="for instance --set train.steps=500",
        )
    return GivenSetting(key, _parse(value, origin=f"--set {key}"), f"--set {text}")


def validate(tree: Any, *, origin: str) -> Config:
    """Return the configuration that `tree` describes, or raise one error with all problems."""
    if not isinstance(tree, dict):
        raise ConfigError(f"{origin} is not a configuration: expected sections, got {tree!r}")
    return _validate_with(tree, [], origin=origin)


def _validate_with(
    tree: Mapping[str, Any], settings: Sequence[Setting], *, origin: str | None
) -> Config:
    try:
        return Config.model_validate(_overlaid(tree, settings))
    except ValidationError as error:
        problems = problems_of(error)
        blamed = [_blame(problem, tree, settings) for problem in problems]
        raise _invalid(problems, blamed, origin) from error


def _blame(
    problem: Problem, tree: Mapping[str, Any], settings: Sequence[Setting]
) -> GivenSetting | None:
    """Return the setting of the command line that causes `problem`; None: it is in `tree`."""
    for setting in reversed(settings):
        if _is_inside(problem.key, setting[0]):  # the value is the setting's
            return setting if isinstance(setting, GivenSetting) else None
    given = [setting for setting in reversed(settings) if isinstance(setting, GivenSetting)]
    suspects = [s for s in given if not problem.key or _is_inside(s[0], problem.key)]
    for suspect in suspects:
        if _causes([suspect[0]], problem, tree, settings):
            return suspect
    together = [key for key, _ in suspects]
    return suspects[0] if suspects and _causes(together, problem, tree, settings) else None


def _causes(
    keys: Sequence[str], problem: Problem, tree: Mapping[str, Any], settings: Sequence[Setting]
) -> bool:
    """Check whether `problem` vanishes without the settings of `keys`, and no other appears.

    An invalid value hides problems of several keys, so that one vanishing proves nothing then.
    """
    try:
        others = find_problems(_overlaid(tree, [s for s in settings if s[0] not in keys]))
    except ConfigError:
        return False
    before = {(p.key, p.kind) for p in find_problems(_overlaid(tree, settings))}
    return {(p.key, p.kind) for p in others} <= before - {(problem.key, problem.kind)}


def _is_inside(key: str, section: str) -> bool:
    return f"{key}.".startswith(f"{section}.")


def _invalid(
    problems: Sequence[Problem], blamed: Sequence[GivenSetting | None], origin: str | None
) -> ConfigError:
    """Make one error of all problems, each with its origin: the file or an option."""
    if not any(blamed):
        head = f"{origin} is not a valid configuration" if origin else "invalid configuration"
        return ConfigError("\n  ".join([f"{head}:", *map(str, problems)]))
    place = f"{origin}: " if origin else ""
    lines = [
        _blaming(problem, setting) if setting else f"{place}{problem}"
        for problem, setting in zip(problems, blamed, strict=True)
    ]
    return ConfigError(lines[0] if len(lines) == 1 else "\n  ".join(["invalid settings:", *lines]))


def _blaming(problem: Problem, setting: GivenSetting) -> str:
    key = setting[0]
    if problem.key == key:
        return f"{setting.option}: {problem.text}"
    if problem.is_unknown_key and _is_inside(key, problem.key):
        return f"{setting.option}: {explain_unknown_key(key)}"
    return f"{setting.option}: {problem}"


def to_yaml(config: Config) -> str:
    """Every key with its value, defaults included, readable by `load_config`."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def differences(old: Config, new: Config) -> list[str]:
    """One line for each setting in which two configurations differ.

    What another architecture is like is told by its name.
    """
    before, after = dict(leaves(old.model_dump())), dict(leaves(new.model_dump()))
    changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    if (arch := "model.arch") in changed:
        changed = [key for key in changed if key == arch or not key.startswith("model.")]
    return [f"{key}: {before.get(key)} before, {after.get(key)} now" for key in changed]


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}",
            hint="--config takes a YAML file or a recipe; `mtcli config` lists the recipes",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text") from error
    tree = _parse(text, origin=str(path)) or {}
    if not isinstance(tree, dict):
        return tree
    # A section whose keys are all commented out is empty, not null.
    return {key: {} if value is None else value for key, value in tree.items()}


def _parse(text: str, *, origin: str) -> Any:
    """The file and --set share one grammar, so a value reads the same in both."""
    try:
        return yaml.safe_load(text)
    except YAML_ERRORS as error:
        raise ConfigError(f"{origin} is not valid YAML: {yaml_mistake(error)}") from error


def yaml_mistake(error: Exception) -> str:
    """What is wrong with a text that is not YAML, and where, in a line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())


def _overlaid(tree: Any, settings: Iterable[Setting]) -> Any:
    for setting in settings:
        key, value = setting
        try:
            tree = _replaced(tree, key, value)
        except ConfigError as error:
            option = setting.option if isinstance(setting, GivenSetting) else key
            raise ConfigError(f"{option}: {error}") from error
    return tree


def _replaced(tree: Any, dotted: str, value: Any) -> dict[str, Any]:
    """Return a copy of `tree` with another value at `dotted`."""
    if not isinstance(tree, dict):
        raise ConfigError(f"cannot set {dotted} inside {tree!r}, which is not a section")
    key, _, rest = dotted.partition(".")
    return {**tree, key: _replaced(tree.get(key) or {}, rest, value) if rest else value}


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[Setting]:
    """The settings of a tree one by one, under their dotted keys."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def flat(settings: Iterable[Setting]) -> dict[str, Any]:
    """What settings come to, key by key; a later one replaces all that it names."""
    return dict(leaves(_overlaid({}, settings)))
