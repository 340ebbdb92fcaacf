"""Problems in single sentences: empty, copied, truncated, repetitive and other outputs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mtcli.data.words import split_words
from mtcli.evaluation.analysis.items import KINDS, ItemChange, compare_items, final_mark

_MIN_REPEATS = 4  # consecutive occurrences of a phrase
_MAX_PHRASE = 8  # words
_CHARACTER_LOOP = re.compile(r"(\S.{0,7}?)\1{7,}")  # repetition without spaces: "hahahahahahahaha"
_SHORT, _LONG, _TRUNCATED = 0.5, 2.0, 0.8  # output length / reference length
_MIN_WORDS = 4  # length ratios are not meaningful for shorter references


@dataclass(frozen=True)
class Line:
    """A source line, its references, and its translation by one system."""

    source: str | None
    references: Sequence[str]
    output: str


@dataclass(frozen=True)
class LineFindings:
    """Names of the findings for one line, and counts of its items by kind."""

    names: tuple[str, ...]
    items: Mapping[str, ItemChange]


def find_problems(line: Line) -> LineFindings:
    """Return the findings for one line, except matches with the training corpus."""
    if not line.output.strip():
        if any(not reference.strip() for reference in line.references):
            return LineFindings((), {})
        return LineFindings(("empty",), {})
    items = {kind: compare_items(kind, line.source, line.references, line.output) for kind in KINDS}
    return LineFindings((*_shape_problems(line), *_item_problems(items)), items)


def _shape_problems(line: Line) -> Iterator[str]:
    output = _collapse_whitespace(line.output)
    references = [_collapse_whitespace(reference) for reference in line.references]
    if (
        line.source is not None
        and output == _collapse_whitespace(line.source)
        and output not in references
    ):
        yield "copied"
    n_words = len(split_words(output))
    lengths = [len(split_words(reference)) for reference in references]
    shortest, longest = min(lengths), max(lengths)
    if _is_truncated(line, n_words / max(1, shortest)) and shortest >= _MIN_WORDS:
        yield "truncated"
    inputs = [*references, *([line.source] if line.source is not None else [])]
    if is_loop(output) and not any(map(is_loop, inputs)):
        yield "repetitive"
    if shortest >= _MIN_WORDS and n_words < _SHORT * shortest:
        yield "too-short"
    if longest >= _MIN_WORDS and n_words > _LONG * longest:
        yield "too-long"


def _is_truncated(line: Line, ratio: float) -> bool:
    """Return whether the output is short and, unlike all references, has no final punctuation.

    `ratio` is the length of the output divided by that of the shortest reference.
    """
    has_mark = all(final_mark(reference) for reference in line.references)
    return has_mark and final_mark(line.output) is None and ratio < _TRUNCATED


def _item_problems(items: Mapping[str, ItemChange]) -> Iterator[str]:
    for kind, change in items.items():
        if change.n_lost:
            yield f"{kind}-lost"
        if change.n_invented:
            yield f"{kind}-invented"


def is_loop(text: str) -> bool:
    """Return whether a text repeats a phrase or a short string many times in a row."""
    words = split_words(text)
    for period in range(1, min(_MAX_PHRASE, len(words) // _MIN_REPEATS) + 1):
        n_equal = 0
        for previous, word in zip(words, words[period:], strict=False):
            n_equal = n_equal + 1 if word == previous else 0
            if n_equal >= (_MIN_REPEATS - 1) * period:
                return True
    return _CHARACTER_LOOP.search(text) is not None


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())
