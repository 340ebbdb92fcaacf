"""Explanations of validation errors: the key, the cause, and a suggestion for unknown keys."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import ValidationError

from mtcli.config.base import Section
from mtcli.config.sections import ARCHITECTURES, Config
from mtcli.config.value_errors import explain_value

_UNKNOWN = "extra_forbidden"  # pydantic's error type for unknown keys
_CHECK = "value_error"


@dataclass(frozen=True)
class Problem:
    """A problem in a configuration."""

    key: str  # dotted; empty if the problem concerns several sections
    text: str
    kind: str  # pydantic's error type

    def __str__(self) -> str:
        return f"{self.key}: {self.text}" if self.key else self.text

    @property
    def is_unknown_key(self) -> bool:
        """Whether the key does not exist."""
        return self.kind == _UNKNOWN

    @property
    def is_about_several_keys(self) -> bool:
        """Whether the values are valid individually, but not in combination."""
        return self.kind == _CHECK and "." not in self.key


def find_problems(tree: Mapping[str, Any]) -> list[Problem]:
    """Return all problems in the configuration `tree`."""
    try:
        Config.model_validate(tree)
    except ValidationError as error:
        return explain_errors(error)
    return []


def explain_errors(error: ValidationError) -> list[Problem]:
    """Return the problems that a pydantic error reports."""
    return [_explain(details) for details in error.errors()]


def explain_unknown_key(key: str) -> str:
    """Return an error text for `key`, with the key that the user probably meant."""
    return f"unknown key; {_suggest(key)}"


def _explain(details: Mapping[str, Any]) -> Problem:
    key, kind = ".".join(map(str, _location(details))), details["type"]
    match kind:
        case "union_tag_invalid":
            context = details["ctx"]
            known, got = context["expected_tags"], context["tag"]
            return Problem(f"{key}.arch", f"must be one of {known} (got {got!r})", kind)
        case "missing" if key in ("data", "data.train"):
            hint = "pass SOURCE and TARGET on the command line, or set this key in the config file"
            return Problem("data.train", f"required; {hint}", kind)
        case _:
            return Problem(key, _text(key, details), kind)


def _text(key: str, details: Mapping[str, Any]) -> str:
    got = details.get("input")
    match details["type"]:
        case "union_tag_not_found" | "model_type" | "model_attributes_type":
            return f"expected a section (got {got!r})"
        case "extra_forbidden":
            return explain_unknown_key(key)
        case "missing":
            return "required, but missing"
        case "value_error":
            return str(details["ctx"]["error"])
        case "string_type" | "path_type" | "literal_error" if isinstance(got, bool):
            booleans = "YAML reads no, yes, on and off as booleans; put the value in quotes"
            return f"{explain_value(details)}; {booleans}"
        case "tuple_type":
            is_pair = key in ("data.train", "data.dev")
            expected = "two files, [source, target]" if is_pair else "a list"
            return f"must be {expected} (got {got!r})"
        case _:
            return explain_value(details)


def _location(details: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the path of keys, without the architecture that pydantic adds after `model`."""
    section, *rest = details["loc"] or ("",)
    return (section, *rest[1:]) if section == "model" else (section, *rest)


def _suggest(unknown: str) -> str:
    known = list(_dotted_keys(Config))
    if unknown in known:
        name = unknown.removeprefix("model.")
        owners = [arch for arch, config in ARCHITECTURES.items() if name in config.model_fields]
        return f"only for model.arch={' or '.join(owners)}; see `mtcli config reference`"
    name = unknown.rpartition(".")[2]
    same_name = [key for key in known if key.rpartition(".")[2] == name]
    close = same_name or get_close_matches(unknown, known, n=1)
    return f"did you mean {close[0]}?" if close else "`mtcli config reference` lists all keys"


def _dotted_keys(section: type[Section], prefix: str = "") -> Iterator[str]:
    """Yield all keys of a section in the form that --set expects, such as train.steps."""
    for name, field in section.model_fields.items():
        yield prefix + name
        for subsection in _sections_in(field.annotation):
            yield from _dotted_keys(subsection, f"{prefix}{name}.")


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    """Yield the sections in a type annotation, such as the members of a union."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _sections_in(part)
