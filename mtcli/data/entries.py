"""Open corpora, each with its own languages, direction and tag."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from mtcli.config.tags import Symbols, symbols_for
from mtcli.data.formats import is_read_once, open_corpus
from mtcli.data.formats.base import UNKNOWN_LANGUAGES, Languages, OpenedCorpus
from mtcli.data.formats.languages import match_language
from mtcli.errors import DataError

if TYPE_CHECKING:
    from mtcli.config.corpora import CorpusEntry, CorpusSource


REVERSED = ", reversed"  # end of the description of a reversed corpus


class EntryInfo(NamedTuple):
    """Options of a corpus, stored with its pairs. The field order is part of the cache format."""

    to: str | None = None
    tag: str | None = None
    set_name: str = ""  # name of the dev set
    is_reversed: bool = False

    @property
    def symbols(self) -> Symbols:
        """Symbols that precede every source sentence."""
        return symbols_for(self.to, self.tag)


@dataclass(frozen=True)
class OpenedEntry:
    """An open corpus, in the direction that its entry requires."""

    entry: "CorpusEntry"
    corpus: OpenedCorpus
    info: EntryInfo


def open_entries(
    source: "CorpusSource",
    languages: Languages = UNKNOWN_LANGUAGES,
    targets: Sequence[str] = (),
) -> Iterator[OpenedEntry]:
    """Yield the corpora of `source`, opened one after the other.

    Languages found in one corpus also apply to later corpora, except those with the config key
    `to`. `targets` lists the target languages of the model. If it is not empty, an entry without
    this key gets the target language in `targets` that matches its corpus.
    """
    for entry in source.entries:
        if entry.to or targets:
            yield _open_direction(entry, targets)
            continue
        given = _swap(languages) if entry.reverse else languages
        opened = _open(entry, given)
        languages = Languages(
            languages.source or opened.languages.source,
            languages.target or opened.languages.target,
        )
        opened = replace(opened, languages=languages)
        info = EntryInfo(None, entry.tag, entry.set_name, entry.reverse)
        yield OpenedEntry(entry, opened, info)


def find_languages(source: "CorpusSource", languages: Languages = UNKNOWN_LANGUAGES) -> Languages:
    """Return `languages`, with unknown codes filled in from the corpora. Pipes are skipped.

    Corpora with the config key `to` are ignored, because they may have other languages.
    """
    for opened in open_entries(_without_pipes(source), languages):
        languages = languages if opened.info.to else opened.corpus.languages
    return languages


def check_can_open(
    source: "CorpusSource", languages: Languages, targets: Sequence[str] = ()
) -> None:
    """Raise `DataError` if a corpus cannot be opened. Pipes are skipped."""
    for _ in open_entries(_without_pipes(source), languages, targets):
        pass


def _without_pipes(source: "CorpusSource") -> "CorpusSource":
    entries = tuple(entry for entry in source.entries if not is_read_once(entry.corpus))
    return replace(source, entries=entries)


def _open(entry: "CorpusEntry", languages: Languages) -> OpenedCorpus:
    """Open the corpus of an entry, and swap its sides if the entry sets `reverse`.

    Languages set in the entry take precedence over `languages`.
    """
    stored = Languages(entry.source_lang or languages.source, entry.target_lang or languages.target)
    opened = open_corpus(entry.corpus, stored)
    return _reverse(opened) if entry.reverse else opened


def _open_direction(entry: "CorpusEntry", targets: Sequence[str]) -> OpenedEntry:
    """Open a corpus, and swap its sides if the source side is in the target language."""
    opened = _open(entry, UNKNOWN_LANGUAGES)
    found = opened.languages
    to = entry.to or _choose_target(entry, found, targets)
    if found.target and not _is_same(to, found.target):
        if entry.reverse or not (found.source and _is_same(to, found.source)):
            raise DataError(
                f"{entry}: cannot translate to {to}: the corpus direction is {_describe(found)}",
                hint="set `to` to a language of the corpus, or set source_lang and target_lang",
            )
        opened = _reverse(opened)
    if not found.target and not found.source:
        side = "first" if entry.reverse else "second"
        note = f"{entry}: languages unknown; using the {side} side as {to}"
        opened = replace(opened, descriptions=(*opened.descriptions, note))
    return OpenedEntry(entry, opened, EntryInfo(to, entry.tag, entry.name or to))


def _choose_target(entry: "CorpusEntry", found: Languages, targets: Sequence[str]) -> str:
    """Return the target language of an entry that does not set `to`."""
    if len(targets) == 1:
        return targets[0]
    for target in targets:
        if found.target and _is_same(target, found.target):
            return target
    raise DataError(
        f"{entry}: the target language is missing; the model translates to {', '.join(targets)}",
        hint=f"add the key `to`: {{corpus: {_quote(entry)}, to: {targets[0]}}}",
    )


def _quote(entry: "CorpusEntry") -> str:
    names = ", ".join(entry.corpus)
    return f"[{names}]" if len(entry.corpus) == 2 else names


def _describe(languages: Languages) -> str:
    return f"{languages.source or 'unknown'} to {languages.target or 'unknown'}"


def _is_same(code: str, other: str) -> bool:
    return bool(match_language(code, [other]) or match_language(other, [code]))


def _swap(languages: Languages) -> Languages:
    return Languages(languages.target, languages.source)


def _reverse(opened: OpenedCorpus) -> OpenedCorpus:
    return replace(
        opened,
        rows=((row[1], row[0]) for row in opened.rows),
        blocks=opened.blocks and ((targets, sources) for sources, targets in opened.blocks),
        descriptions=tuple(text + REVERSED for text in opened.descriptions),
        languages=_swap(opened.languages),
    )
