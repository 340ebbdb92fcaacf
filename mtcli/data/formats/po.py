"""PO files: gettext message catalogs."""

import re
from collections.abc import Iterator
from tempfile import NamedTemporaryFile
from typing import Any

from mtcli.data.formats.base import (
    CorpusFormat,
    Languages,
    Location,
    OpenedCorpus,
    ReadProgress,
    Row,
    join_lines,
)
from mtcli.data.formats.languages import match_language
from mtcli.errors import DataError

_MAX_SIZE = 256 << 20  # bytes; the entire catalog is read into memory
_MSGID = re.compile(rb'^msgid\s+"', re.MULTILINE)
_CHARSET = re.compile(rb"charset=([\w.:-]+)", re.IGNORECASE)
_LANGUAGE = re.compile(rb'^"Language: *([\w@-]+)', re.MULTILINE)
_LINE = re.compile(
    r'\s*(#.*|((msgctxt|msgid|msgid_plural|msgstr(\[\d+\])?)\s+)?"(?:[^"\\]|\\.)*")?\s*'
)
_SYNTAX_ERROR = re.compile(r"line (\d+)\)?:? *(.*)")


class PoFormat(CorpusFormat):
    """A PO file: msgid is the source and msgstr is the target. Fuzzy translations are ignored."""

    name = "po"
    suffixes = (".po",)

    def recognizes(self, location: Location, head: bytes) -> bool:
        """Return whether a line starts with `msgid`."""
        del location
        return bool(_MSGID.search(head))

    def open(self, location: Location) -> OpenedCorpus:
        """Open the file and find the target language in its header."""
        language = _LANGUAGE.search(location.head())
        languages = location.languages
        target = language[1].decode() if language else None
        if target and languages.target and not _is_same_language(languages.target, target):
            raise DataError(
                f"{location} translates to {target}, not to {languages.target}",
                hint="set --target-lang to the language of the file, or use a different file",
            )
        progress = ReadProgress.in_rows(None)  # the number of entries is known only after parsing
        return OpenedCorpus(
            rows=_rows(location, progress),
            descriptions=(location.describe("PO"),),
            languages=Languages(languages.source, languages.target or target),
            files=location.files,
            progress=(progress,),
        )


def _is_same_language(one: str, other: str) -> bool:
    """Return whether two codes are equal or one is a regional variant of the other."""
    return bool(match_language(one, [other]) or match_language(other, [one]))


def _rows(location: Location, progress: ReadProgress) -> Iterator[Row]:
    n_entries = 0
    entries = _parse(location)
    progress.total = len(entries)
    for entry in entries:
        progress.add(1)
        if entry.obsolete:
            continue
        n_entries += 1
        if entry.msgid_plural:
            forms = entry.msgstr_plural
            yield _row(entry, entry.msgid, forms.get(0, ""))
            if len(forms) == 2:
                yield _row(entry, entry.msgid_plural, forms.get(1, ""))
        else:
            yield _row(entry, entry.msgid, entry.msgstr)
    if not n_entries:
        raise DataError(
            f"{location} has no messages", hint="use a catalog that contains translations"
        )


def _row(entry: Any, source: str, target: str) -> Row:
    return join_lines(source), "" if entry.fuzzy else join_lines(target)


def _parse(location: Location) -> Any:
    """Return the entries without the header."""
    import polib

    with location.open() as file:
        content = file.read(_MAX_SIZE + 1)
    if len(content) > _MAX_SIZE:
        raise DataError(f"{location} is larger than {_MAX_SIZE >> 20} MB", hint="split the catalog")
    charset = _CHARSET.search(content)
    encoding = charset[1].decode() if charset and charset[1] != b"CHARSET" else "utf-8"
    try:
        text = content.decode(encoding).removeprefix("\ufeff")
        _check_syntax(text, location)
        # Pass a file to polib: it splits a file only at line endings, but splits a str at
        # U+2028 and similar characters as well.
        with NamedTemporaryFile("w", suffix=".po", encoding="utf-8", newline="") as file_for_polib:
            file_for_polib.write(text)
            file_for_polib.flush()
            return polib.pofile(file_for_polib.name, encoding="utf-8")
    except (UnicodeDecodeError, LookupError) as error:
        number = content.count(b"\n", 0, getattr(error, "start", 0)) + 1
        raise DataError(
            f"{location}, line {number:,}: not valid {encoding}",
            hint="convert the file to UTF-8 and set charset=UTF-8 in its header",
        ) from error
    except (OSError, ValueError, IndexError, AttributeError) as error:  # raised by polib's parser
        match = _SYNTAX_ERROR.search(str(error))
        raise _invalid(location, match[1] if match else "1", match[2] if match else "") from error


def _check_syntax(text: str, location: Location) -> None:
    """Raise `DataError` for a line that is not a comment, a string, or a keyword with a string.

    polib would truncate such a line.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if not _LINE.fullmatch(line):
            raise _invalid(location, str(number), "expected a keyword and a quoted string")


def _invalid(location: Location, line: str, reason: str) -> DataError:
    return DataError(
        f"{location}, line {line}: not valid PO ({reason or 'unexpected keyword'})",
        hint="check the file with `msgfmt --check`",
    )
