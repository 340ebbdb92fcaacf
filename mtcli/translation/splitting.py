"""Splitting of lines that are too long for the model, preferably at sentence boundaries."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from mtcli.tokenizer import WORD_START

_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*$")
_WIDE_SENTENCE_END = re.compile(r"[。！？｡][」』”’）]*$")
_CLAUSE_END = re.compile(r"[,;:–—、，；：][\"'”’»)\]]*$")
# A sentence probably continues after a title, an initial, "z.B.", "U.S." or an ordinal such as "3."
# in a German date.
_ABBREVIATION = re.compile(r"[\"'“„(]*([A-ZÄÖÜ]\w{0,2}|\d+|(\w\.)+\w?)\.")
_CONTINUATION_BYTE = re.compile(r"<0x[89AB][0-9A-F]>")  # not the first byte of a character
_MAX_WORD_TAIL = 32  # characters; enough to recognize the punctuation at the end of a word


class Boundary(IntEnum):
    """Kind of boundary before a piece. Higher values are better places to split a line."""

    INSIDE_CHARACTER = 0  # between the bytes of one character
    INSIDE_WORD = 1
    WORD = 2
    CLAUSE = 3
    SENTENCE = 4


@dataclass(frozen=True)
class LinePart:
    """Consecutive pieces of a line."""

    pieces: tuple[str, ...]
    is_inside_word: bool  # continues the last word of the previous part


def split_line(pieces: Sequence[str], max_pieces: int) -> list[LinePart]:
    """Split the pieces of a line into parts of at most `max_pieces`.

    A longer line is split at every sentence boundary. A sentence that is still too long is split at
    the best boundary in the second half of the allowed length.
    """
    if len(pieces) <= max_pieces:
        return [LinePart(tuple(pieces), is_inside_word=False)] if pieces else []
    boundaries = _boundaries(pieces)
    sentence_starts = [i for i, kind in enumerate(boundaries) if kind is Boundary.SENTENCE]
    starts = [0]
    for end in [*sentence_starts, len(pieces)]:
        while end - starts[-1] > max_pieces:
            first, last = starts[-1] + 1 + max_pieces // 2, starts[-1] + max_pieces
            starts.append(max(range(min(first, last), last + 1), key=lambda i: (boundaries[i], i)))
        starts.append(end)
    return [
        LinePart(
            tuple(pieces[start:end]),
            is_inside_word=boundaries[start] <= Boundary.INSIDE_WORD and start > 0,
        )
        for start, end in zip(starts, starts[1:], strict=False)
        if end > start
    ]


def separator(before: str, after: str, *, is_inside_word: bool) -> str:
    """Return the separator between two translated parts: a space or an empty string."""
    if is_inside_word or not before or not after:
        return ""
    return "" if unicodedata.east_asian_width(before[-1]) in "WF" else " "


def replace_line_breaks(text: str) -> str:
    """Replace line breaks, which byte pieces can form, with spaces."""
    return text if text.isprintable() else " ".join(text.splitlines())


def _boundaries(pieces: Sequence[str]) -> list[Boundary]:
    """Return the kind of boundary before each piece."""
    boundaries, word = [], ""
    for piece in pieces:
        boundaries.append(_boundary(word, piece))
        word = piece if piece.startswith(WORD_START) else (word + piece)[-_MAX_WORD_TAIL:]
    return boundaries


def _boundary(word: str, piece: str) -> Boundary:
    """Return the kind of boundary between the end of `word` and the next `piece`."""
    word = word.removeprefix(WORD_START)
    if _WIDE_SENTENCE_END.search(word) and not _WIDE_SENTENCE_END.match(piece):
        return Boundary.SENTENCE
    if not piece.startswith(WORD_START):
        is_continuation = _CONTINUATION_BYTE.fullmatch(piece)
        return Boundary.INSIDE_CHARACTER if is_continuation else Boundary.INSIDE_WORD
    if _SENTENCE_END.search(word) and not _ABBREVIATION.fullmatch(word):
        return Boundary.SENTENCE
    return Boundary.CLAUSE if _CLAUSE_END.search(word) else Boundary.WORD
