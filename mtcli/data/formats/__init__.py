"""Corpus formats: parse corpus names (`[FORMAT:]PATH[#SELECTION]`) and open corpora."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from mtcli.data.compression import STDIN, exists, is_pipe, open_stream, suffix_of
from mtcli.data.formats.archive import ZipFormat
from mtcli.data.formats.base import (
    UNKNOWN_LANGUAGES,
    CorpusFormat,
    Languages,
    Location,
    OpenedCorpus,
    ReadProgress,
    Row,
)
from mtcli.data.formats.hf import ArrowFormat, DatasetFormat, ParquetFormat
from mtcli.data.formats.hub import HubFormat
from mtcli.data.formats.jsonl import JsonlFormat
from mtcli.data.formats.po import PoFormat
from mtcli.data.formats.table import CsvFormat, TsvFormat
from mtcli.data.formats.text import (
    TextFormat,
    expand_pair,
    find_files,
    is_glob,
    open_text_files,
)
from mtcli.data.formats.tmx import TmxFormat
from mtcli.data.formats.wmt import SGML_SUFFIXES, WmtFormat, open_sgml_files
from mtcli.data.formats.xliff import XliffFormat
from mtcli.errors import DataError

__all__ = [
    "FORMATS",
    "UNKNOWN_LANGUAGES",
    "CorpusFormat",
    "Languages",
    "Location",
    "OpenedCorpus",
    "Row",
    "has_known_suffix",
    "is_read_once",
    "open_corpus",
    "recognize_format",
]

# File content is matched against the formats in this order: magic bytes first, TSV last.
FORMATS: tuple[CorpusFormat, ...] = (
    ParquetFormat(),
    ArrowFormat(),
    ZipFormat(),
    DatasetFormat(),
    HubFormat(),
    TmxFormat(),
    XliffFormat(),
    WmtFormat(),
    JsonlFormat(),
    PoFormat(),
    CsvFormat(),
    TsvFormat(),
    TextFormat(),
)

_PREFIX = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_EXAMPLE = "examples of corpora: train.en train.de, 'train.{en,de}', train.tsv.gz, memory.tmx"


def open_corpus(names: Sequence[str], languages: Languages = UNKNOWN_LANGUAGES) -> OpenedCorpus:
    """Open a corpus, given as one name or as a source file and a target file.

    Missing files or columns raise `DataError` immediately. Most errors in the content raise it
    later, while the caller iterates over `rows`.
    """
    match list(names):
        case [name]:
            return _open_one(name, languages)
        case [source, target]:
            if all(suffix_of(name) in SGML_SUFFIXES for name in (source, target)):
                return open_sgml_files(names, languages)
            return open_text_files(source, target, languages)
    raise DataError(
        f"expected one or two names for a corpus, got {len(names)}: {' '.join(names)}",
        hint=f"quote patterns so that the shell does not expand them; {_EXAMPLE}",
    )


def has_known_suffix(name: str) -> bool:
    """Return whether the suffix of a file name identifies a corpus format."""
    return any(suffix_of(_split_selection(name)[0]) in format_.suffixes for format_ in FORMATS)


def is_read_once(names: Sequence[str]) -> bool:
    """Return whether a corpus comes from standard input or a pipe, which can be read only once."""
    paths = (
        names if len(names) == 2 else [_parse(name, UNKNOWN_LANGUAGES)[1].name for name in names]
    )
    return any(is_pipe(path) for path in paths)


def _open_one(name: str, languages: Languages) -> OpenedCorpus:
    format_, location = _parse(name, languages)
    if format_ and not format_.reads_files:
        return format_.open(location)
    if not (location.name == STDIN or exists(location.name)):
        if not format_ and (pair := expand_pair(location.name, languages)):
            return open_text_files(*pair, languages)
        files = find_files(location.name) if is_glob(location.name) else []
        if not files:
            raise _not_found(name, location)
        return _open_shards([replace(location, name=file) for file in files], format_)
    return _open_file(location, format_)


def _parse(name: str, languages: Languages) -> tuple[CorpusFormat | None, Location]:
    """Return the format that the prefix specifies (None without a prefix) and the location.

    If `name` is an existing file, a colon in it does not separate a prefix.
    """
    path, selection = _split_selection(name)
    for existing, selected in ((name, ()), (path, selection)):
        if exists(existing):
            return None, Location(existing, selected, languages)
    match = _PREFIX.fullmatch(name)
    if not match:
        return None, Location(path, selection, languages)
    format_ = next((f for f in FORMATS if f.name == match[1].lower()), None)
    if not format_:
        known = ", ".join(f.name for f in FORMATS)
        raise DataError(
            f"{name}: unknown format {match[1]}; known formats: {known}",
            hint="download the file first, then pass its path"
            if match[2].startswith("//")
            else f"check the prefix or the file name; {_EXAMPLE}",
        )
    if format_.reads_files and exists(match[2]):
        return format_, Location(match[2], (), languages)
    path, selection = _split_selection(match[2])
    return format_, Location(path, selection, languages)


def _split_selection(name: str) -> tuple[str, tuple[str, ...]]:
    path, mark, selection = name.rpartition("#")
    if not mark:
        return name, ()
    return path, tuple(part.strip() for part in selection.split(","))


def _open_file(location: Location, format_: CorpusFormat | None) -> OpenedCorpus:
    if is_pipe(location.name):
        stream = open_stream(location.name)
        location = replace(location, opener=lambda: stream)
    elif location.path.is_file():
        location = replace(location, progress=ReadProgress(location.path.stat().st_size))
    format_ = format_ or recognize_format(location)
    if location.opener and not format_.reads_streams:
        raise DataError(
            f"{location}: the format {format_.name} cannot be read from a pipe",
            hint="save the data to a file and pass the file",
        )
    opened = format_.open(location)
    return opened if opened.progress else replace(opened, progress=(location.progress,))


def recognize_format(location: Location) -> CorpusFormat:
    """Return the format of a file, determined by its suffix or, failing that, by its content."""
    if not location.opener and location.path.is_dir():
        return _recognize_directory(location)
    suffix = suffix_of(location.name)
    for format_ in FORMATS:
        if suffix and suffix in format_.suffixes:
            return format_
    head = location.head()
    for format_ in FORMATS:
        if format_.recognizes(location, head):
            return format_
    raise DataError(
        f"{location}: cannot determine the format",
        hint="pass two text files, SOURCE TARGET or 'NAME.{en,de}', or specify the format: "
        f"tsv:{location.name}",
    )


def _recognize_directory(location: Location) -> CorpusFormat:
    for format_ in FORMATS:
        if format_.recognizes(location, b""):
            return format_
    raise DataError(
        f"{location} is a directory, but not a saved dataset",
        hint=f"pass its files, for example '{location.path}/*.parquet'",
    )


def _open_shards(locations: Sequence[Location], format_: CorpusFormat | None) -> OpenedCorpus:
    """Open several files as one corpus; take unknown languages from the first file."""
    opened = [_open_file(locations[0], format_)]
    languages = opened[0].languages
    for location in locations[1:]:
        opened.append(_open_file(replace(location, languages=languages), format_))
    return OpenedCorpus(
        rows=chain.from_iterable(shard.rows for shard in opened),
        descriptions=tuple(chain.from_iterable(shard.descriptions for shard in opened)),
        languages=languages,
        files=tuple(chain.from_iterable(shard.files for shard in opened)),
        version=" ".join(shard.version for shard in opened if shard.version),
        progress=tuple(chain.from_iterable(shard.progress for shard in opened)),
    )


def _not_found(name: str, location: Location) -> DataError:
    languages = location.languages
    tried = [f"the file {location.name}"]
    if languages.source and languages.target:
        tried += [f"{location.name}.{code}" for code in (languages.source, languages.target)]
    if is_glob(location.name):
        tried = [f"files that match {location.name}"]
    return DataError(
        f"no such corpus: {name}", hint=f"mtcli looked for {', '.join(tried)}; {_EXAMPLE}"
    )
