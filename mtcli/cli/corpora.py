"""Conversion of corpus arguments to values of `data.train` and `data.dev`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtcli.errors import ConfigError, UsageError

_MAPPING_START = re.compile(r"\{\s*['\"]?\w+['\"]?\s*:")
_LIST = re.compile(r"\[[^\[\]]+, [^\[\]]+\]")
_EXAMPLE = "for example: '{corpus: [train.en, train.de], weight: 2}'"


def training_corpora(names: Sequence[str], more: Sequence[str]) -> Any:
    """Return the value of `data.train` for the given corpora, or None if there are none."""
    first = list(names) if len(names) == 2 else parse_corpus("".join(names))
    values = [value for value in (first, *map(parse_corpus, more)) if value]
    if len(values) == 1 and not isinstance(values[0], dict):
        return values[0]
    return [_to_entry(value) for value in values] or None


def dev_corpora(files: tuple[Path, Path] | None, names: Sequence[str]) -> Any:
    """Return the value of `data.dev` for the given dev sets, or None if there are none."""
    if files:
        return [*map(str, files)]
    values = [parse_corpus(name) for name in names]
    if len(values) == 1 and not isinstance(values[0], dict):
        return values[0]
    return [_to_named_entry(value) for value in values] or None


def parse_corpus(text: str) -> Any:
    """Return `text` if it is a corpus name, or parse a mapping such as {corpus: NAME, to: de}.

    Raise `UsageError` if `text` is a list, or if it starts like a mapping but is not a mapping with
    the key `corpus`. {train.en,train.de} is a name, not a mapping.
    """
    if _LIST.fullmatch(text):
        raise UsageError(
            f"{text} is a list, not a corpus", hint=f"write a mapping: '{{corpus: {text}}}'"
        )
    if not _MAPPING_START.match(text):
        return text
    from mtcli.config.load import parse_yaml

    try:
        value = parse_yaml(text, origin=text)
    except ConfigError as error:
        raise UsageError(str(error), hint=_EXAMPLE) from error
    if not isinstance(value, dict):
        raise UsageError(f"{text} is not a mapping", hint=_EXAMPLE)
    if "corpus" not in value:
        raise UsageError(f"{text} names no corpus: the key `corpus` is missing", hint=_EXAMPLE)
    return value


def _to_entry(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"corpus": value}


def _to_named_entry(value: Any) -> dict[str, Any]:
    """Return the entry for a dev set; without `name` and `to`, it is named after its file."""
    entry = _to_entry(value)
    if "name" in entry or "to" in entry:
        return entry
    names = entry["corpus"]
    return {"name": Path(names if isinstance(names, str) else str(names[0])).name, **entry}
