"""Corpora in the configuration: `CorpusSource`, the value of `data.train` and `data.dev`."""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema

from mtcli.config.base import Float, Section
from mtcli.config.tags import check_language, check_tag
from mtcli.config.value_errors import explain_value

CorpusNames = tuple[str, ...]  # the name of one corpus, or its two line-aligned text files

_NAME = re.compile(r"([a-z]+:)?(.*?)(#[^/]*)?", re.DOTALL)
_FORMS = "must be a corpus name, two files [source, target], or a list of mappings such as "
_BOOLEANS = "YAML reads no, yes, on and off as booleans; put names in quotes"
_MAX_ENTRIES = 255  # one byte per pair stores the index of its corpus


def _parse_names(value: Any) -> CorpusNames:
    names = (value,) if isinstance(value, str | Path) else value
    if not _is_list(names) or len(names) not in (1, 2) or not all(map(_is_name, names)):
        has_boolean = _is_list(names) and any(isinstance(name, bool) for name in names)
        note = f"; {_BOOLEANS}" if has_boolean else ""
        raise ValueError(f"must be a corpus name or two files (got {value!r}){note}")
    return tuple(map(str, names))


Code = Annotated[str, AfterValidator(check_language)]


class CorpusEntry(Section):
    """A corpus with options: an item of `data.train` or `data.dev`."""

    corpus: Annotated[CorpusNames, BeforeValidator(_parse_names)]
    """Name of a corpus, or two line-aligned text files."""
    name: str | None = Field(None, min_length=1, pattern=r"^[^\n\r\t]+$")
    """Name to show in messages. Entries in `data.dev` with the same name form one dev set."""
    weight: Float = Field(1.0, gt=0, le=1_000)
    """Average number of times that an epoch contains each pair of the corpus."""
    tag: Annotated[str, AfterValidator(check_tag)] | None = None
    """Tag of the corpus. For example, bt puts the symbol <bt> before every source."""
    to: Code | None = None
    """Target language. For example, de puts the symbol <2de> before every source."""
    reverse: bool = False
    """Swap source and target."""
    source_lang: str | None = Field(None, min_length=1)
    """Language code of the first side, before `reverse`."""
    target_lang: str | None = Field(None, min_length=1)
    """Language code of the second side, before `reverse`."""

    def __str__(self) -> str:
        return " and ".join(self.corpus)

    @property
    def label(self) -> str:
        """Name of the corpus in messages, with its direction and tag."""
        extras = [f"to {self.to}"] if self.to else ["reversed"] if self.reverse else []
        extras += [f"tag {self.tag}"] if self.tag else []
        return ", ".join([self.name or str(self), *extras])

    @property
    def set_name(self) -> str:
        """Name of the entry's dev set: `name`, or else `to`, or else ""."""
        return self.name or self.to or ""

    @property
    def is_plain(self) -> bool:
        """Whether the entry has no options."""
        return not self.options()

    def options(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        return self.model_dump(exclude={"corpus"}, exclude_defaults=True)


@dataclass(frozen=True)
class CorpusSource:
    """Corpora of a training or dev set, read one after the other.

    The YAML value is a corpus name, a list of two text files, or a list of mappings with the keys
    of `CorpusEntry`. `docs/corpora.md` describes the names, and `docs/mixing.md` the other keys.
    """

    entries: tuple[CorpusEntry, ...]

    def __str__(self) -> str:
        return ", ".join(dict.fromkeys(map(str, self.entries)))

    @property
    def corpora(self) -> tuple[CorpusNames, ...]:
        """The name or the two files of each corpus."""
        return tuple(entry.corpus for entry in self.entries)

    @property
    def text_files(self) -> tuple[Path, ...]:
        """Files of all corpora that consist of two text files."""
        return tuple(Path(name) for names in self.corpora if len(names) == 2 for name in names)

    @property
    def targets(self) -> tuple[str, ...]:
        """Target languages (`to`), in order of appearance."""
        return tuple(dict.fromkeys(entry.to for entry in self.entries if entry.to))

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the corpora, in order of appearance."""
        return tuple(dict.fromkeys(entry.tag for entry in self.entries if entry.tag))

    @property
    def languages(self) -> tuple[str, str] | None:
        """Language suffixes of the first corpus's files, or file names if there are no suffixes.

        The value is None if the first corpus is not two text files, or if any corpus has `to`.
        """
        if len(self.corpora[0]) != 2 or self.targets:
            return None
        source, target = (_language(Path(name).name) for name in self.corpora[0])
        return (target, source) if self.entries[0].reverse else (source, target)

    @property
    def has_options(self) -> bool:
        """Whether any corpus has options."""
        return not all(entry.is_plain for entry in self.entries)

    def with_names_of(self, other: "CorpusSource") -> "CorpusSource":
        """Return these entries with the corpus names of `other`.

        If the two have different numbers of corpora, return `self` if either has options, and
        `other` if neither has any.
        """
        if len(self.entries) != len(other.entries):
            return self if self.has_options or other.has_options else other
        pairs = zip(self.entries, other.entries, strict=True)
        return CorpusSource(
            tuple(entry.model_copy(update={"corpus": o.corpus}) for entry, o in pairs)
        )

    def strip_absolute_paths(self) -> "CorpusSource":
        """Return these corpora with file names instead of absolute paths."""
        return CorpusSource(
            tuple(
                entry.model_copy(update={"corpus": tuple(map(_strip_directory, entry.corpus))})
                for entry in self.entries
            )
        )

    def to_yaml(self) -> Any:
        """Return the corpora in the form used in configuration files."""
        values = [list(names) if len(names) == 2 else names[0] for names in self.corpora]
        if len(values) == 1 and not self.has_options:
            return values[0]
        return [
            {"corpus": value, **entry.options()}
            for value, entry in zip(values, self.entries, strict=True)
        ]

    @classmethod
    def parse(cls, value: Any) -> "CorpusSource":
        """Return the corpora in a configuration value; raise `ValueError` if it is invalid."""
        if isinstance(value, CorpusSource):
            return value
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            return cls(_parse_entries(value))
        try:
            return cls((CorpusEntry(corpus=value),))
        except ValidationError as error:
            has_boolean = _is_list(value) and any(isinstance(name, bool) for name in value)
            note = f"; {_BOOLEANS}" if has_boolean else ""
            raise ValueError(f"{_FORMS}{{corpus: NAME}} (got {value!r}){note}") from error

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse,
            serialization=core_schema.plain_serializer_function_ser_schema(cls.to_yaml),
        )


def _parse_entries(items: list[Any]) -> tuple[CorpusEntry, ...]:
    """Return the entries of a list of mappings; raise one `ValueError` with all problems."""
    if len(items) > _MAX_ENTRIES:
        raise ValueError(f"at most {_MAX_ENTRIES} corpora are supported (got {len(items)})")
    entries, problems = [], []
    for number, item in enumerate(items, start=1):
        try:
            if not isinstance(item, dict):
                raise ValueError(f"must be a mapping such as {{corpus: NAME}} (got {item!r})")
            entries.append(CorpusEntry.model_validate(item))
        except ValidationError as error:
            problems += [f"item {number}: {_explain(details)}" for details in error.errors()]
        except ValueError as error:
            problems.append(f"item {number}: {error}")
    if problems:
        raise ValueError("; ".join(problems))
    return tuple(entries)


def _explain(details: Any) -> str:
    key, got = ".".join(map(str, details["loc"])), details.get("input")
    match details["type"]:
        case "extra_forbidden":
            close = get_close_matches(key, CorpusEntry.model_fields, n=1)
            known = (
                f"did you mean {close[0]}?"
                if close
                else "known keys: " + ", ".join(CorpusEntry.model_fields)
            )
            return f"unknown key {key}; {known}"
        case "missing":
            return f"{key} is missing"
        case "value_error":
            return f"{key}: {details['ctx']['error']}"
        case "string_type" if isinstance(got, bool):
            return f"{key}: {_BOOLEANS} (got {got!r})"
        case _:
            return f"{key}: {explain_value(details)}"


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_name(value: Any) -> bool:
    return isinstance(value, str | Path) and bool(str(value))


def _strip_directory(name: str) -> str:
    """Remove the directory of an absolute path from a corpus name, `[FORMAT:]PATH[#SELECTION]`."""
    prefix, path, selection = _NAME.fullmatch(name).groups("")  # type: ignore[union-attr]
    return f"{prefix}{Path(path).name}{selection}" if Path(path).is_absolute() else name


def _language(file_name: str) -> str:
    suffix = file_name.rpartition(".")[2]
    return suffix if len(suffix) in (2, 3) and suffix != "txt" else file_name
