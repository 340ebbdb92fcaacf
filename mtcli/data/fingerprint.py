"""Fingerprint of a corpus, computed from its files without parsing them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from mtcli.data.cache import cache_key, file_digest
from mtcli.data.entries import EntryInfo, open_entries
from mtcli.data.formats import is_read_once
from mtcli.data.formats.base import Languages

if TYPE_CHECKING:
    from mtcli.config.corpora import CorpusSource


def fingerprint(
    source: "CorpusSource", languages: Languages, targets: tuple[str, ...] = ()
) -> str | None:
    """Return a hash of a corpus, or None for pipes and datasets without a version.

    The hash includes file names, which may determine the format, but not directories.
    """
    if any(is_read_once(names) for names in source.corpora):
        return None
    parts: list[object] = []
    with ThreadPoolExecutor() as pool:
        names = _without_directories(source).corpora
        entries = open_entries(source, languages, targets)
        for stripped, entry in zip(names, entries, strict=True):
            opened = entry.corpus
            if not opened.version and not opened.files:
                return None  # a dataset without a version
            digests = list(pool.map(file_digest, opened.files))
            # Use the languages found in the corpus, not only those in the settings. A resumed run
            # has them in its settings and must get the same hash.
            codes = opened.languages.source, opened.languages.target
            options = [] if entry.info == EntryInfo() else [entry.info]
            parts.append([stripped, codes, opened.version, digests, *options])
    return cache_key("corpus", parts)


def _without_directories(source: "CorpusSource") -> "CorpusSource":
    def absolute(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(Path(name).absolute()) if Path(name).exists() else name for name in names)

    entries = [
        entry.model_copy(update={"corpus": absolute(entry.corpus)}) for entry in source.entries
    ]
    return type(source)(tuple(entries)).strip_absolute_paths()
