"""Language codes in file names, columns and XML attributes."""

import re
from collections.abc import Sequence
from pathlib import PurePath

from mtcli.data.compression import strip_compression_suffix
from mtcli.data.formats.base import Languages

_CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z]{2,4})?")
# Suffixes and column names that have the form of a language code but are not one.
_NOT_CODES = {
    *("bpe", "csv", "gz", "hyp", "ids", "raw", "ref", "sgm", "spm", "src", "tgt", "tmx", "tok"),
    *("trg", "tsv", "txt", "xlf", "xml", "xz", "zip", "zst"),
}


def is_language_code(text: str) -> bool:
    """Return whether `text` has the form of a language code: en, deu, en_US, de-AT."""
    return bool(_CODE.fullmatch(text)) and text.lower() not in _NOT_CODES


def language_of_file(name: str) -> str | None:
    """Return the language code in a file name, such as de in train.de-en.de.gz, or None."""
    stem = strip_compression_suffix(PurePath(name).name).removesuffix(".txt")
    _, dot, suffix = stem.rpartition(".")
    return suffix if dot and is_language_code(suffix) else None


def _normalized(code: str) -> str:
    return code.lower().replace("_", "-")


def match_language(wanted: str, available: Sequence[str]) -> str | None:
    """Return the code in `available` that equals `wanted`, else a regional variant, else None."""
    codes = {_normalized(code): code for code in reversed(available)}
    wanted = _normalized(wanted)
    if wanted in codes:
        return codes[wanted]
    return next((codes[c] for c in reversed(codes) if c.startswith(f"{wanted}-")), None)


def choose_languages(available: Sequence[str], languages: Languages) -> tuple[str, str] | None:
    """Return the source and target codes in `available`, or None if missing or ambiguous.

    Unknown languages can be determined only if `available` contains exactly two codes. If both
    languages are unknown, the first code is the source and the second is the target.
    """
    source = match_language(languages.source, available) if languages.source else None
    target = match_language(languages.target, available) if languages.target else None
    others = [code for code in available if code not in (source, target)]
    if source is None and not languages.source and len(available) == 2 and others:
        source = others.pop(0)
    if target is None and not languages.target and len(available) == 2 and others:
        target = others.pop(0)
    return (source, target) if source and target and source != target else None


def languages_from_names(names: Sequence[str], languages: Languages) -> Languages:
    """Return `languages`, with unknown codes filled in from `names` that are language codes."""
    codes = [name if is_language_code(name) else None for name in names[:2]]
    return Languages(languages.source or codes[0], languages.target or codes[1])
