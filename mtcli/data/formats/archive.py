"""Zip archives, such as those from OPUS, read without extracting files to disk."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from zipfile import BadZipFile, ZipFile, ZipInfo

from mtcli.data.compression import (
    ZIP_MAGIC,
    DecompressedReader,
    Read,
    count_reads,
    decompress,
    suffix_of,
)
from mtcli.data.formats.base import (
    CorpusFormat,
    Languages,
    Location,
    OpenedCorpus,
    ReadProgress,
    Row,
)
from mtcli.data.formats.fields import check_two
from mtcli.data.formats.languages import language_of_file, match_language
from mtcli.data.lines import paired_lines
from mtcli.errors import DataError

_MAX_SIZE, _MAX_RATIO = 1 << 30, 100  # bytes, ratio; members that exceed both are rejected
_IGNORED_SUFFIXES = (".xml", ".ids", ".scores", ".info", ".md", ".html", ".pdf")
_IGNORED_STEMS = ("readme", "licen", "copying", "changelog")  # "licen" matches both spellings
_ENCRYPTED = 1  # bit in `flag_bits` that marks encrypted members


class ZipFormat(CorpusFormat):
    """A zip archive that contains two line-aligned text files, or one file in another format."""

    name = "zip"
    suffixes = (".zip",)
    reads_streams = False

    def recognizes(self, location: Location, head: bytes) -> bool:
        """Return whether the content is a zip archive."""
        del location
        return head.startswith((ZIP_MAGIC, b"PK\x05\x06"))

    def open(self, location: Location) -> OpenedCorpus:
        """Open the archive and choose the members to read."""
        location.open().close()  # raises `DataError` if the file is missing
        members = _members(location)
        chosen = _choose(members, location)
        for member in chosen:
            _check_member(member, location)
        locations = [_member_location(location, member) for member in chosen]
        if len(locations) == 2:
            return _open_pair(locations, location)
        return replace(_open_member(locations[0], location), files=location.files)


def _members(location: Location) -> dict[str, ZipInfo]:
    """Return the files in an archive by name; raise `DataError` for unsafe names."""
    try:
        with ZipFile(location.name) as archive:
            members = {m.filename: m for m in archive.infolist() if not m.is_dir()}
    except (BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(
            f"{location}: not a complete zip archive ({error})",
            hint="copy or download the file again",
        ) from error
    for name in members:
        path = PurePosixPath(name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
            raise DataError(
                f"{location}: the path of the member {name} points outside the archive",
                hint="do not use this archive; it may be designed to overwrite files",
            )
    return members


def _choose(members: dict[str, ZipInfo], location: Location) -> list[ZipInfo]:
    if len(location.selection) == 1:
        return [_find(location.selection[0], members, location)]
    if location.selection:
        return [_find(name, members, location) for name in check_two(location)]
    candidates = [member for member in members.values() if not _is_ignored(member.filename)]
    texts = [member for member in candidates if language_of_file(member.filename)]
    if pair := _by_language(texts, location.languages):
        return pair
    others = [member for member in candidates if _has_format_suffix(member.filename)]
    if len(others) == 1:
        return others
    is_known = location.languages.source and location.languages.target
    languages = "" if is_known else "set --source-lang and --target-lang, or "
    raise DataError(
        f"{location}: cannot determine source and target; members: {', '.join(members) or 'none'}",
        hint=f"{languages}select the members: {location}#SOURCE,TARGET",
    )


def _find(name: str, members: dict[str, ZipInfo], location: Location) -> ZipInfo:
    if name not in members:
        raise DataError(
            f"{location}: no member {name}; members: {', '.join(members) or 'none'}",
            hint="check the name with `unzip -l`",
        )
    return members[name]


def _is_ignored(name: str) -> bool:
    path = PurePosixPath(name.lower())
    return (
        path.name.startswith(_IGNORED_STEMS)
        or path.name.startswith(".")
        or path.parts[0] == "__macosx"
        or suffix_of(name) in _IGNORED_SUFFIXES
    )


def _by_language(texts: Sequence[ZipInfo], languages: Languages) -> list[ZipInfo] | None:
    """Return the source and target members, or None if there is not exactly one of each."""
    pair = []
    for language in (languages.source, languages.target):
        codes = {language_of_file(member.filename) or "": member for member in texts}
        if language and (code := match_language(language, list(codes))):
            same = [m for m in texts if language_of_file(m.filename) == code]
            pair.extend(same if len(same) == 1 else [])
    if len(pair) == 2 and pair[0] is not pair[1]:
        return pair
    if languages == Languages() and len(texts) == 2:
        return list(texts)
    return None


def _has_format_suffix(name: str) -> bool:
    """Return whether the name has the suffix of a format that can be read inside an archive."""
    from mtcli.data.formats import FORMATS

    return any(f.reads_streams and suffix_of(name) in f.suffixes for f in FORMATS)


def _check_member(member: ZipInfo, location: Location) -> None:
    label = f"{location}, member {member.filename}"
    if member.flag_bits & _ENCRYPTED:
        raise DataError(
            f"{label} is encrypted",
            hint="extract the archive with `unzip` and its password, then pass the files",
        )
    if member.file_size > _MAX_SIZE and member.file_size > _MAX_RATIO * member.compress_size:
        raise DataError(
            f"{label}: {member.compress_size:,} bytes expand to {member.file_size:,} bytes",
            hint="this may be a zip bomb; if you trust the archive, extract it and pass the files",
        )


def _member_location(location: Location, member: ZipInfo) -> Location:
    label = f"{location}, member {member.filename}"
    progress = ReadProgress(member.file_size)
    opener = partial(_open_zip_member, location.name, member.filename, label, progress)
    return Location(label, languages=location.languages, opener=opener, progress=progress)


def _open_zip_member(
    archive_name: str, member: str, label: str, progress: ReadProgress
) -> DecompressedReader:
    try:
        archive = ZipFile(archive_name)
        try:
            file = archive.open(member)
        except BaseException:
            archive.close()
            raise
    except (BadZipFile, OSError, KeyError, RuntimeError, NotImplementedError) as error:
        raise DataError(
            f"cannot read {label}: {error}", hint="copy or download the file again"
        ) from error
    read1: Read = file.read1  # type: ignore[attr-defined]  # defined by ZipExtFile
    return decompress(count_reads(read1, progress.add), [file, archive], label, "zip")


def _open_pair(members: Sequence[Location], location: Location) -> OpenedCorpus:
    source, target = members
    names = [member.name.rpartition(", member ")[2] for member in members]
    for member in members:
        member.head()  # raises `DataError` for a damaged or empty member
    languages = location.languages
    return OpenedCorpus(
        rows=_rows(source, target),
        descriptions=(f"{location}: zip archive, {names[0]} and {names[1]}",),
        languages=Languages(
            languages.source or language_of_file(names[0]),
            languages.target or language_of_file(names[1]),
        ),
        files=location.files,
        progress=(source.progress, target.progress),
    )


def _rows(source: Location, target: Location) -> Iterator[Row]:
    yield from paired_lines((source, source.lines()), (target, target.lines()))


def _open_member(member: Location, location: Location) -> OpenedCorpus:
    """Open an archive member; its suffix or content determines the format."""
    from mtcli.data.formats import recognize_format

    format_ = recognize_format(member)
    if not format_.reads_streams:
        raise DataError(
            f"{member}: the format {format_.name} cannot be read inside an archive",
            hint=f"extract it with `unzip {location}`, then pass the extracted file",
        )
    opened = format_.open(member)
    return opened if opened.progress else replace(opened, progress=(member.progress,))
