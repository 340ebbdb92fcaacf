"""Tags: symbols before the source that select a target language or identify a corpus.

In an entry of `data.train`, `to: de` stands for the symbol <2de>, and `tag: bt` for <bt>. Both are
control symbols in the vocabulary, so no text can contain them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mtcli.errors import EngineError

Symbols = tuple[str, ...]  # symbols of one sentence: the target language, then the tag

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*")
# A tag starts with a letter, so its symbol differs from languages (<2de>) and bytes (<0x0A>).
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_RESERVED = ("s", "unk", "pad")
_SYMBOL = re.compile(rf"<(2{_LANGUAGE.pattern}|{_TAG.pattern})>")


def check_language(code: str) -> str:
    """Return `code`; raise `ValueError` if it does not have the form of a language code."""
    if not _LANGUAGE.fullmatch(code):
        raise ValueError(f"must be a language code such as de or pt-BR (got {code!r})")
    return code


def check_tag(name: str) -> str:
    """Return `name`; raise `ValueError` if it cannot be a tag."""
    if not _TAG.fullmatch(name) or name in _RESERVED:
        raise ValueError(
            f"must be a letter followed by up to 31 letters, digits, _ or -, and not "
            f"{', '.join(_RESERVED)} (got {name!r})"
        )
    return name


def symbols_for(to: str | None, tag: str | None) -> Symbols:
    """Return the symbols for a target language and a tag."""
    return (*((f"<2{to}>",) if to else ()), *((f"<{tag}>",) if tag else ()))


@dataclass(frozen=True)
class ModelTags:
    """Target languages and tags that the user of a model can choose from."""

    languages: tuple[str, ...] = ()  # empty if the user cannot choose a target language
    tags: tuple[str, ...] = ()

    @classmethod
    def from_symbols(cls, symbols: Sequence[str]) -> "ModelTags":
        """Return the languages and tags among the control symbols of a vocabulary."""
        names = [match[1] for symbol in symbols if (match := _SYMBOL.fullmatch(symbol))]
        return cls(
            tuple(name[1:] for name in names if name.startswith("2")),
            tuple(name for name in names if not name.startswith("2") and name not in _RESERVED),
        )

    def symbols(self, to: str | None = None, tag: str | None = None) -> Symbols:
        """Return the symbols for a sentence; raise `EngineError` if the model lacks one of them.

        `to` is required only if the model has several target languages.
        """
        self.check(to, tag)
        if to is None and len(self.languages) > 1:
            raise EngineError(
                f"the model has several target languages: {', '.join(self.languages)}",
                hint=f"choose one, for example --to {self.languages[0]}",
            )
        return symbols_for(to or next(iter(self.languages), None), tag)

    def check(self, to: str | None, tag: str | None) -> None:
        """Raise `EngineError` if the model does not have this target language or tag."""
        if to is not None and to not in self.languages:
            names = ", ".join(self.languages)
            raise EngineError(
                f"the model has no target language {to!r}"
                if names
                else f"cannot choose the target language {to!r}: the model has only one direction",
                hint=f"choose --to from {names}" if names else "omit --to",
            )
        if tag is not None and tag not in self.tags:
            hint = f"choose --tag from {', '.join(self.tags)}" if self.tags else "omit --tag"
            raise EngineError(f"the model has no tag {tag!r}", hint=hint)
