"""Two line-aligned text files."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from mtcli.counts import format_count
from mtcli.data.compression import COMPRESSION_SUFFIXES, STDIN, exists, is_pipe, open_decompressed
from mtcli.data.formats.base import (
    CorpusFormat,
    Languages,
    Location,
    OpenedCorpus,
    ReadProgress,
    Row,
)
from mtcli.data.formats.languages import language_of_file
from mtcli.data.formats.text_blocks import text_blocks
from mtcli.data.lines import paired_lines
from mtcli.errors import DataError

_BRACES = re.compile(r"(.*)\{([^{},]+),([^{},]+)\}(.*)", re.DOTALL)


class TextFormat(CorpusFormat):
    """Two text files specified by a single name.

    The name is `corpus.{en,de}`, or `corpus` if the languages are known.
    """

    name = "text"
    reads_streams = False
    reads_files = False

    def open(self, location: Location) -> OpenedCorpus:
        """Open both files."""
        pair = expand_pair(location.name, location.languages)
        if not pair:
            raise DataError(
                f"{location}: a text corpus requires two files",
                hint="pass both files, SOURCE TARGET, or write 'corpus.{en,de}'",
            )
        return open_text_files(*pair, location.languages)


def expand_pair(name: str, languages: Languages) -> tuple[str, str] | None:
    """Return the two file names for a name with braces or for a common prefix, otherwise None.

    A prefix requires both languages and two existing files.
    """
    if match := _BRACES.fullmatch(name):
        before, first, second, after = match.groups()
        return f"{before}{first}{after}", f"{before}{second}{after}"
    if languages.source and languages.target:
        source, target = (_side(name, code) for code in (languages.source, languages.target))
        if source and target:
            return source, target
    return None


def _side(prefix: str, language: str) -> str | None:
    """Return the name of the file PREFIX.LANGUAGE, plain or compressed; None if it is missing."""
    names = (f"{prefix}.{language}{suffix}" for suffix in ("", *COMPRESSION_SUFFIXES))
    return next((name for name in names if exists(name)), None)


def is_glob(name: str) -> bool:
    """Return whether `name` is a pattern and not the name of an existing file."""
    return any(character in name for character in "*?[") and not exists(name)


def find_files(pattern: str) -> list[str]:
    """Return the sorted files that match a pattern, or the name itself if it is not a pattern."""
    if not is_glob(pattern):
        return [pattern]
    path = Path(pattern)
    relative = path.relative_to(path.anchor) if path.is_absolute() else path
    try:
        found = [str(match) for match in Path(path.anchor).glob(str(relative))]
    except (ValueError, OSError) as error:
        raise DataError(f"{pattern}: {error}", hint="use * to match any part of a name") from error
    return sorted(name for name in found if not Path(name).name.startswith("."))


def open_text_files(source: str, target: str, languages: Languages) -> OpenedCorpus:
    """Open two line-aligned text files, or the files that match two patterns, as one corpus."""
    if source == target == STDIN:
        raise DataError(
            "both sides of the corpus are standard input", hint="use a file for one side"
        )
    sides = find_files(source), find_files(target)
    for pattern, found in zip((source, target), sides, strict=True):
        if not found:
            raise DataError(
                f"no file matches {pattern}", hint="check the pattern and the directory"
            )
    if len(sides[0]) != len(sides[1]):
        raise DataError(
            f"{source} matches {format_count(len(sides[0]), 'file')}, "
            f"but {target} matches {len(sides[1]):,}",
            hint="in alphabetical order, file N of the source must correspond to file N of the "
            "target",
        )
    shards = list(zip(*sides, strict=True))
    descriptions = tuple(_describe(*shard) for shard in shards)
    locations = [(_location(source), _location(target)) for source, target in shards]
    return OpenedCorpus(
        rows=_rows(locations),
        descriptions=descriptions,
        languages=Languages(
            languages.source or language_of_file(sides[0][0]),
            languages.target or language_of_file(sides[1][0]),
        ),
        files=tuple(Path(name) for shard in shards for name in shard if name != STDIN),
        progress=tuple(location.progress for location in chain.from_iterable(locations)),
        blocks=None if any(map(is_pipe, chain(*sides))) else text_blocks(locations),
    )


def _location(name: str) -> Location:
    size = None if is_pipe(name) else Path(name).stat().st_size
    return Location(name, progress=ReadProgress(size))


def _describe(source: str, target: str) -> str:
    """Return a description of the files; raise `DataError` if one of them cannot be opened."""
    kinds = []
    for name in (source, target):
        if not is_pipe(name):  # a stream can be read only once
            with open_decompressed(name) as file:
                kinds.append(file.compression)
    compression = ", ".join(dict.fromkeys(kind for kind in kinds if kind))
    names = " and ".join("standard input" if name == STDIN else name for name in (source, target))
    return f"{names}: two text files" + (f", {compression}" if compression else "")


def _rows(shards: Sequence[tuple[Location, Location]]) -> Iterator[Row]:
    for source, target in shards:
        yield from paired_lines((source, source.lines()), (target, target.lines()))
