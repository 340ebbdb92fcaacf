"""Load a configuration from a file and the command line; report the origin of each problem."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from mtcli.config.filters import FilterConfig
from mtcli.config.problems import Problem, explain_errors, explain_unknown_key, find_problems
from mtcli.config.sections import Config
from mtcli.config.yaml_errors import YAML_ERRORS, describe_yaml_error
from mtcli.errors import ConfigError, UsageError

Setting = tuple[str, Any]  # a dotted key and its value
METADATA_KEYS = ("format", "mtcli")  # only in the config.yaml of a model


class CommandLineSetting(tuple[str, Any]):
    """Setting from the command line, with its option for error messages."""

    option: str  # such as "--set train.steps=5"

    def __new__(cls, key: str, value: Any, option: str) -> "CommandLineSetting":
        """Create the setting."""
        setting = super().__new__(cls, (key, value))
        setting.option = option
        return setting


def load_config(path: Path | None, settings: Iterable[Setting] = ()) -> Config:
    """Return the configuration in `path` (None: defaults only) with `settings` applied in order."""
    tree = read_sections(path) if path else {}
    return _validate_with(tree, list(settings), origin=str(path) if path else None)


def read_sections(path: Path) -> dict[str, Any]:
    """Return the sections of a configuration file, without validation."""
    tree = _read(path)
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} is not a configuration: expected sections, got {tree!r}")
    is_saved = tree.keys() >= set(METADATA_KEYS)  # the config.yaml of a model
    tree = {key: value for key, value in tree.items() if key not in METADATA_KEYS}
    if not tree:
        raise ConfigError(
            f"{path} has no settings",
            hint="add settings, or omit --config to let mtcli choose them",
        )
    return with_saved_defaults(tree) if is_saved else tree


def with_saved_defaults(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return `tree` with the settings that a model's config.yaml lacks in formats 1 to 4.

    Runs in formats 1 and 2 had no filters and used the BLEU tokenizer 13a for all languages. Runs
    in formats 1 to 4 had no workers.
    """
    saved = {"filters": FilterConfig.none().model_dump(mode="json"), **tree}
    if isinstance(train := saved.get("train"), dict):
        saved["train"] = {
            "bleu_tokenizer": "13a",
            "workers": 1,
            "orthogonalization": "plain",
            **train,
        }
    return saved


def with_overrides(config: Config, settings: Iterable[Setting]) -> Config:
    """Return `config` with `settings` applied."""
    return _validate_with(config.model_dump(mode="json"), list(settings), origin=None)


def check_values(settings: Iterable[Setting]) -> None:
    """Raise `ConfigError` if a setting is invalid on its own."""
    settings = list(settings)
    problems = find_problems(_apply(settings, {}))
    single = [problem for problem in problems if not problem.is_about_several_keys]
    if single:
        raise _to_error(single, [_find_cause(problem, {}, settings) for problem in single], None)


def parse_override(text: str) -> CommandLineSetting:
    """Parse the argument of `--set section.key=value`; the value is YAML."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise UsageError(
            f"--set {text} is not of the form section.key=value",
            hint="for example: --set train.steps=500",
        )
    try:
        parsed = parse_yaml(value, origin=f"--set {key}")
    except ConfigError as error:
        raise UsageError(str(error), hint="put the value in quotes") from error
    return CommandLineSetting(key, parsed, f"--set {text}")


def validate(tree: Any, settings: Iterable[Setting] = (), *, origin: str) -> Config:
    """Return the configuration from `tree` and `settings`, or raise one error with all problems."""
    if not isinstance(tree, dict):
        raise ConfigError(f"{origin} is not a configuration: expected sections, got {tree!r}")
    return _validate_with(tree, list(settings), origin=origin)


def _validate_with(
    tree: Mapping[str, Any], settings: Sequence[Setting], *, origin: str | None
) -> Config:
    try:
        return Config.model_validate(_apply(settings, tree))
    except ValidationError as error:
        problems = explain_errors(error)
        causes = [_find_cause(problem, tree, settings) for problem in problems]
        raise _to_error(problems, causes, origin) from error


def _find_cause(
    problem: Problem, tree: Mapping[str, Any], settings: Sequence[Setting]
) -> CommandLineSetting | None:
    """Return the command-line setting that causes `problem`, or None if there is none."""
    for setting in reversed(settings):
        if _is_inside(problem.key, setting[0]):  # the setting includes the invalid value
            return setting if isinstance(setting, CommandLineSetting) else None
    given = [setting for setting in reversed(settings) if isinstance(setting, CommandLineSetting)]
    candidates = [s for s in given if not problem.key or _is_inside(s[0], problem.key)]
    for candidate in candidates:
        if _is_caused_by(problem, [candidate[0]], tree, settings):
            return candidate
    if not candidates:
        return None
    keys = [key for key, _ in candidates]
    return candidates[0] if _is_caused_by(problem, keys, tree, settings) else None


def _is_caused_by(
    problem: Problem, keys: Sequence[str], tree: Mapping[str, Any], settings: Sequence[Setting]
) -> bool:
    """Return whether removing the settings for `keys` fixes `problem` without causing a new one.

    While a value is invalid, pydantic does not report problems that involve several keys. If a new
    problem appears, `problem` may therefore be hidden instead of fixed.
    """
    try:
        remaining = find_problems(_apply([s for s in settings if s[0] not in keys], tree))
    except ConfigError:
        return False
    before = {(p.key, p.kind) for p in find_problems(_apply(settings, tree))}
    return {(p.key, p.kind) for p in remaining} <= before - {(problem.key, problem.kind)}


def _is_inside(key: str, section: str) -> bool:
    return f"{key}.".startswith(f"{section}.")


def _to_error(
    problems: Sequence[Problem], causes: Sequence[CommandLineSetting | None], origin: str | None
) -> ConfigError:
    """Return one error that lists all problems, each with its origin: the file or an option."""
    if not any(causes):
        head = f"{origin} is not a valid configuration" if origin else "invalid configuration"
        return ConfigError("\n  ".join([f"{head}:", *map(str, problems)]))
    place = f"{origin}: " if origin else ""
    lines = [
        _option_line(problem, setting) if setting else f"{place}{problem}"
        for problem, setting in zip(problems, causes, strict=True)
    ]
    kind = UsageError if all(causes) else ConfigError
    return kind(lines[0] if len(lines) == 1 else "\n  ".join(["invalid settings:", *lines]))


def _option_line(problem: Problem, setting: CommandLineSetting) -> str:
    key = setting[0]
    if problem.key == key:
        return f"{setting.option}: {problem.text}"
    if problem.is_unknown_key and _is_inside(key, problem.key):
        return f"{setting.option}: {explain_unknown_key(key)}"
    return f"{setting.option}: {problem}"


def to_yaml(config: Config) -> str:
    """Return the configuration as YAML, with all keys, including defaults."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def differences(old: Config, new: Config) -> list[str]:
    """Return one line per setting that differs between two configurations.

    If the architectures differ, the other keys of `model` are omitted.
    """
    before, after = (dict(_dotted_settings(config.model_dump())) for config in (old, new))
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
        raise ConfigError(f"{path} is not UTF-8 text", hint="save the file as UTF-8") from error
    tree = parse_yaml(text, origin=str(path)) or {}
    if not isinstance(tree, dict):
        return tree
    # YAML reads a section whose keys are all commented out as null. Treat it as empty.
    return {key: {} if value is None else value for key, value in tree.items()}


def parse_yaml(text: str, *, origin: str) -> Any:
    """Parse YAML and return the value; raise `ConfigError`, naming `origin`, if it is invalid."""
    try:
        return yaml.safe_load(text)
    except YAML_ERRORS as error:
        raise ConfigError(f"{origin} is not valid YAML: {describe_yaml_error(error)}") from error


def _apply(settings: Iterable[Setting], tree: Any) -> Any:
    """Return a copy of `tree` with `settings` applied in order."""
    for setting in settings:
        key, value = setting
        try:
            tree = _replace_value(tree, key, value)
        except ConfigError as error:
            if isinstance(setting, CommandLineSetting):
                raise UsageError(f"{setting.option}: {error}") from error
            raise ConfigError(f"{key}: {error}") from error
    return tree


def _replace_value(tree: Any, dotted: str, value: Any) -> dict[str, Any]:
    """Return a copy of `tree` with `value` at the dotted key."""
    if not isinstance(tree, dict):
        raise ConfigError(f"cannot set {dotted} inside {tree!r}, which is not a section")
    key, _, rest = dotted.partition(".")
    return {**tree, key: _replace_value(tree.get(key) or {}, rest, value) if rest else value}


def _dotted_settings(tree: Mapping[str, Any], prefix: str = "") -> Iterator[Setting]:
    """Yield each setting of a nested tree as a dotted key and its value."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _dotted_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def flatten(settings: Iterable[Setting]) -> dict[str, Any]:
    """Return the final value of each dotted key; later settings replace earlier ones."""
    return dict(_dotted_settings(_apply(settings, {})))
