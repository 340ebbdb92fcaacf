"""Parts of a sentence that a translation must keep: numbers, names, URLs, punctuation."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

from mtcli.data.words import split_words

# The part of an email address before the @ has at most 64 characters (RFC 5321). Without this limit
# and the lookbehind, matching a long word would take quadratic time.
_ADDRESS = r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+\.[\w.-]+"
_URL = re.compile(rf"(?:https?://|www\.)[^\s<>\"“”«»]+|{_ADDRESS}")
_URL_END = ".,;:!?)]}'’"
# A space separates the digits of one number only if exactly three digits follow, as in "1 000".
_SPACED_DIGITS = re.compile(r"(?<=\d)[\u00a0\u202f ](?=\d{3}(?!\d))")
_NUMBER = re.compile(r"\d+(?:[.,:'’]\d+)*")
_MARKS = {  # marks of different scripts, mapped to the mark with the same meaning
    **dict.fromkeys(".。।։｡", "."),
    **dict.fromkeys("?？؟", "?"),
    **dict.fromkeys("!！", "!"),
    **dict.fromkeys("…", "…"),
    **dict.fromkeys(":：", ":"),
    **dict.fromkeys("(（", "("),
    **dict.fromkeys(")）", ")"),
    **dict.fromkeys('"“”„«»「」『』', '"'),
}
_FINAL_MARKS = frozenset(".:")  # counted only at the end; elsewhere, they can be part of a word
_CLOSING = " \t\"“”»)）」』'’"
_MIN_NAME = 3  # letters; shorter words such as "In" are often the same in two languages


@dataclass(frozen=True)
class ItemChange:
    """Counts of expected, lost, output and invented items of one kind in one sentence."""

    n_expected: int = 0
    n_lost: int = 0
    n_output: int = 0
    n_invented: int = 0


def compare_items(
    kind: str, source: str | None, references: Sequence[str], output: str
) -> ItemChange:
    """Return the counts of expected, lost, output and invented items of one kind.

    An item is expected if the source and all references contain it. An item of the output is
    invented if none of them contains it. All other items are optional in a correct translation.
    Without a source, only the references count, and no names are expected.
    """
    inputs = [*references] if source is None else [source, *references]
    if kind == "name":
        return _compare_names(inputs if source is not None else [], references, output)
    find = _ITEMS[kind]
    found = [find(text) for text in inputs]
    items, expected, known = find(output), reduce(and_, found), reduce(or_, found)
    return ItemChange(
        expected.total(), (expected - items).total(), items.total(), (items - known).total()
    )


def _compare_names(inputs: Sequence[str], references: Sequence[str], output: str) -> ItemChange:
    """Return the counts of names.

    A name is expected if it is capitalized and spelled the same in the source and all references.
    Some languages capitalize every noun, so only abbreviations (words with two or more capital
    letters) are counted in the output and can be invented.
    """
    names = [{word for word in _words(text) if _is_name(word)} for text in inputs]
    expected = reduce(and_, names) if names else set()
    abbreviations = {word for word in _words(output) if _is_abbreviation(word)}
    known = " ".join([*inputs, *references]).casefold()
    return ItemChange(
        len(expected),
        sum(name not in output for name in expected),
        len(abbreviations),
        sum(word.casefold() not in known for word in abbreviations),
    )


def _words(text: str) -> list[str]:
    return split_words(_without_urls(text))


def _is_name(word: str) -> bool:
    has_capital = word[0].isupper() or _is_abbreviation(word)
    return has_capital and (len(word) >= _MIN_NAME or word.isupper()) and not word.isdecimal()


def _is_abbreviation(word: str) -> bool:
    return sum(map(str.isupper, word)) > 1


def _numbers(text: str) -> Counter[str]:
    """Return the count of each number, without its separators, which differ between languages."""
    text = _SPACED_DIGITS.sub("", _without_urls(text))
    return Counter(
        "".join(str(unicodedata.digit(c)) for c in match if c.isdecimal())
        for match in _NUMBER.findall(text)
    )


def _urls(text: str) -> Counter[str]:
    """Return the count of each URL and email address."""
    return Counter(match.rstrip(_URL_END).casefold() for match in _URL.findall(text))


def _without_urls(text: str) -> str:
    """Return a text without URLs and email addresses; keep the punctuation after them."""
    return _URL.sub(lambda match: f" {match[0][len(match[0].rstrip(_URL_END)) :]}", text)


def _punctuation(text: str) -> Counter[str]:
    """Return the count of each punctuation mark that most languages use in the same way."""
    text = _without_urls(text).rstrip()
    marks = Counter(_MARKS[c] for c in text if c in _MARKS and _MARKS[c] not in _FINAL_MARKS)
    last = _MARKS.get(text.rstrip(_CLOSING)[-1:])
    if last in _FINAL_MARKS:
        marks[last] += 1
    return marks


_ITEMS: Mapping[str, Callable[[str], Counter[str]]] = {
    "number": _numbers,
    "url": _urls,
    "punctuation": _punctuation,
}
KINDS = ("number", "name", "url", "punctuation")


def final_mark(text: str) -> str | None:
    """Return the punctuation mark that ends a text, or None; ignore closing quotes after it."""
    return _MARKS.get(text.rstrip().rstrip(_CLOSING)[-1:])
