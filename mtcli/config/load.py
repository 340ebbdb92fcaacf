"""Reading a configuration, and telling what is wrong with it."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError

from mtcli.config.architectures import ARCHITECTURES
from mtcli.config.section import Section
from mtcli.config.sections import Config
from mtcli.errors import ConfigError

Setting = tuple[str, Any]  # a dotted key and its value


_COMMAND_LINE = "the command line"
HEAD = ("format", "mtcli")  # what the config.yaml of a model has besides the configuration


def load_config(path: Path | None, settings: Iterable[Setting] = ()) -> Config:
    """Read `path` (None: nothing but defaults), apply `settings` in order, validate the result."""
    tree = _read(path) if path else {}
    if isinstance(tree, dict):  # a run can be repeated from the config.yaml of its model
        tree = {key: value for key, value in tree.items() if key not in HEAD}
    return validate(_overlaid(tree, settings), origin=str(path or _COMMAND_LINE))


def overlaid(config: Config, settings: Iterable[Setting]) -> Config:
    """`config` with some settings changed."""
    return validate(_overlaid(config.model_dump(mode="json"), settings), origin=_COMMAND_LINE)


def check_each(settings: Iterable[Setting]) -> None:
    """Refuse settings that are wrong whatever else is chosen: that some do not fit together may
    change with it.
    """
    try:
        Config.model_validate(_overlaid({}, settings))
    except ValidationError as error:
        of_one = [p for p in error.errors() if p["type"] != "value_error" or len(_location(p)) > 1]
        if of_one:
            raise _invalid(_COMMAND_LINE, of_one) from error


def parse_override(text: str) -> Setting:
    """The setting that `--set section.key=value` means; the value is read as YAML."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise ConfigError(
            f"--set {text} is not of the form section.key=value",
            hint="for instance --set train.steps=500",
        )
    return key, _parse(value, origin=f"--set {key}")


def validate(tree: Any, *, origin: str) -> Config:
    """The configuration that `tree` describes, or one error that lists all its mistakes."""
    if not isinstance(tree, dict):
        raise ConfigError(f"{origin} is not a configuration: expected sections, got {tree!r}")
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise _invalid(origin, error.errors()) from error


def _invalid(origin: str, problems: Iterable[Mapping[str, Any]]) -> ConfigError:
    lines = "".join(f"\n  {_explain(problem)}" for problem in problems)
    return ConfigError(f"{origin} is not a valid configuration:{lines}")


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
            hint="--config wants a YAML file; without it, settings are chosen",
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
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{origin} is not valid YAML: {yaml_mistake(error)}") from error


def yaml_mistake(error: Exception) -> str:
    """What is wrong with a text that is not YAML, and where, in a line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())


def _overlaid(tree: Any, settings: Iterable[Setting]) -> Any:
    for key, value in settings:
        tree = _replaced(tree, key, value)
    return tree


def _replaced(tree: Any, dotted: str, value: Any) -> dict[str, Any]:
    """A copy of `tree` in which the one value at `dotted` is another."""
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


def _explain(problem: Mapping[str, Any]) -> str:
    """One line a user can act on: where, what, and for a wrong key the key that was meant."""
    where = ".".join(str(part) for part in _location(problem))
    match problem["type"]:
        case "union_tag_invalid":
            known = problem["ctx"]["expected_tags"]
            return f"{where}.arch: must be one of {known} (got {problem['ctx']['tag']!r})"
        case "union_tag_not_found" | "model_type" | "model_attributes_type":
            return f"{where}: expected a section (got {problem['input']!r})"
        case "extra_forbidden":
            return f"{where}: unknown key; {_advice(where)}"
        case "missing" if where == "data" or where == "data.train":
            return "data.train: required; name the two files on the command line or in the file"
        case "missing":
            return f"{where}: required, but not given"
        case "value_error":
            return f"{where}: {problem['ctx']['error']}".removeprefix(": ")
        case "string_type" | "path_type" | "literal_error" if isinstance(problem["input"], bool):
            booleans = "YAML reads no, yes, on and off as booleans; put it in quotes"
            return f"{where}: {problem['msg']}; {booleans}"
        case "tuple_type":
            is_pair = where in ("data.train", "data.dev")
            expected = "two files, [source, target]" if is_pair else "a list"
            return f"{where}: must be {expected} (got {problem['input']!r})"
        case _:
            return f"{where}: {problem['msg']} (got {problem['input']!r})"


def _location(problem: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where it is; pydantic also says which of the architectures it is a key of."""
    section, *rest = problem["loc"] or ("",)
    return (section, *rest[1:]) if section == "model" else (section, *rest)


def _advice(unknown: str) -> str:
    known = list(_dotted_keys(Config))
    if unknown in known:
        name = unknown.removeprefix("model.")
        owners = [arch for arch, config in ARCHITECTURES.items() if name in config.model_fields]
        return f"it belongs to model.arch={' and '.join(owners)}; see configs/reference.yaml"
    name = unknown.rpartition(".")[2]
    elsewhere = [key for key in known if key.rpartition(".")[2] == name]
    close = elsewhere or get_close_matches(unknown, known, n=1)
    return f"did you mean {close[0]}?" if close else "configs/reference.yaml lists every key"


def _dotted_keys(section: type[Section], prefix: str = "") -> Iterator[str]:
    """Every key of the configuration, spelt as --set wants it."""
    for name, field in section.model_fields.items():
        yield prefix + name
        for part in _sections_in(field.annotation):
            yield from _dotted_keys(part, f"{prefix}{name}.")


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _sections_in(part)
