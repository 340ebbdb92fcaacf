"""Check that the languages of a test set match those of the models."""

from collections.abc import Callable, Sequence
from pathlib import Path

from mtcli.data.formats.base import Languages
from mtcli.data.formats.languages import language_of_file, match_language
from mtcli.data.formats.text import expand_pair
from mtcli.errors import DataError
from mtcli.model_dir.saved_tree import saved_languages
from mtcli.model_dir.tags import model_tags
from mtcli.tokenizer import load_tokenizers


def check_file_languages(
    models: Sequence[Path], files: Sequence[str], to: str | None, notify: Callable[[str], None]
) -> None:
    """Raise `DataError` if the suffix of a reference is a language other than `to`.

    Call `notify` with a warning if the source and the reference seem to be swapped. A suffix counts
    as a language only if it is a language of the model: "test.new" is probably not Newari text.
    """
    if len(files) == 1:
        files = expand_pair(files[0], Languages(None, None)) or ()
    if len(files) < 2:
        return
    source, *references = [language_of_file(name) for name in files]
    for model in models:
        languages = model_tags(model, load_tokenizers(model)).languages
        for name, found in zip(files[1:], references, strict=True):
            if to in languages and any(_is_same(found, code) for code in languages):
                check_language(name, found, to)
        saved = saved_languages(model)
        is_reversed = _is_same(source, saved.target) and _is_same(references[-1], saved.source)
        if is_reversed and not _is_same(saved.source, saved.target):
            notify(
                f"warning: {model} translates from {saved.source} to {saved.target}, but "
                f"{files[0]} and {files[-1]} are in the opposite order"
            )


def check_language(name: str, found: str | None, to: str | None) -> None:
    """Raise `DataError` if `to` and the language of the reference are known and differ."""
    if to and found and not _is_same(to, found):
        raise DataError(
            f"--to {to} contradicts the reference {name}, which is in {found}",
            hint=f"use --to {found}, or a reference in {to}",
        )


def _is_same(code: str | None, other: str | None) -> bool:
    """Return whether both codes are known, and one is equal to the other or a variant of it."""
    if code is None or other is None:
        return False
    return bool(match_language(code, [other]) or match_language(other, [code]))
