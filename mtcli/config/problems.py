"""Explain validation errors: which key, what is wrong, and which key was probably meant."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import ValidationError

from mtcli.config.architectures import ARCHITECTURES
from mtcli.config.section import Section
from mtcli.config.sections import Config

_UNKNOWN = "extra_forbidden"  # pydantic's name
_CHECK = "value_error"


@dataclass(frozen=True)
class Problem:
    """One mistake in a configuration."""

    key: str  # dotted; empty if several sections do not fit together
    text: str
    kind: str  # pydantic's type of error

    def __str__(self) -> str:
        return f"{self.key}: {self.text}" if self.key else self.text

    @property
    def is_unknown_key(self) -> bool:
        """Whether there is no such key."""
        return self.kind == _UNKNOWN

    @property
    def is_about_several_keys(self) -> bool:
        """Whether each value is valid, but not in combination."""
        return self.kind == _CHECK and "." not in self.key


def find_problems(tree: Mapping[str, Any]) -> list[Problem]:
    """Return all problems of the configuration that `tree` describes."""
    try:
        Config.model_validate(tree)
    except ValidationError as error:
        return problems_of(error)
    return []


def problems_of(error: ValidationError) -> list[Problem]:
    """Return the problems that pydantic found."""
    return [_explain(details) for details in error.errors()]


def explain_unknown_key(key: str) -> str:
    """Return an error text for `key` that suggests the key that was probably meant."""
    return f"unknown key; {_advice(key)}"


def _explain(details: Mapping[str, Any]) -> Problem:
    key, kind = ".".join(map(str, _location(details))), details["type"]
    match kind:
        case "union_tag_invalid":
            context = details["ctx"]
            known, got = context["expected_tags"], context["tag"]
            return Problem(f"{key}.arch", f"must be one of {known} (got {got!r})", kind)
        case "missing" if key in ("data", "data.train"):
            how = "name the two files on the command line or in the file"
            return Problem("data.train", f"required; {how}", kind)
        case _:
            return Problem(key, _text(key, details), kind)


def _text(key: str, details: Mapping[str, Any]) -> str:
    got, message = details.get("input"), details["msg"]
    match details["type"]:
        case "union_tag_not_found" | "model_type" | "model_attributes_type":
            return f"expected a section (got {got!r})"
        case "extra_forbidden":
            return explain_unknown_key(key)
        case "missing":
            return "required, but not given"
        case "value_error":
            return str(details["ctx"]["error"])
        case "string_type" | "path_type" | "literal_error" if isinstance(got, bool):
            return f"{message}; YAML reads no, yes, on and off as booleans; put it in quotes"
        case "tuple_type":
            is_pair = key in ("data.train", "data.dev")
            expected = "two files, [source, target]" if is_pair else "a list"
            return f"must be {expected} (got {got!r})"
        case _:
            return f"{message} (got {got!r})"


def _location(details: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the path of keys, without the architecture that pydantic adds after `model`."""
    section, *rest = details["loc"] or ("",)
    return (section, *rest[1:]) if section == "model" else (section, *rest)


def _advice(unknown: str) -> str:
    known = list(_dotted_keys(Config))
    if unknown in known:
        name = unknown.removeprefix("model.")
        owners = [arch for arch, config in ARCHITECTURES.items() if name in config.model_fields]
        return f"it belongs to model.arch={' and '.join(owners)}; see `mtcli config reference`"
    name = unknown.rpartition(".")[2]
    elsewhere = [key for key in known if key.rpartition(".")[2] == name]
    close = elsewhere or get_close_matches(unknown, known, n=1)
    return f"did you mean {close[0]}?" if close else "`mtcli config reference` lists every key"


def _dotted_keys(section: type[Section], prefix: str = "") -> Iterator[str]:
    """Yield every key of the configuration, as --set expects it."""
    for name, field in section.model_fields.items():
        yield prefix + name
        for part in _sections_in(field.annotation):
            yield from _dotted_keys(part, f"{prefix}{name}.")


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _sections_in(part)
