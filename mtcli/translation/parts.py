"""A line that is too long for the model: cut where it hurts least, and put together again."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

WORD_START = "▁"  # SentencePiece's mark for a space

_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*$")
_WIDE_SENTENCE_END = re.compile(r"[。！？｡][」』”’）]*$")
_CLAUSE_END = re.compile(r"[,;:–—、，；：][\"'”’»)\]]*$")
# A title, an initial, z.B., U.S., or the German 3. of a date: the sentence most likely goes on.
_ABBREVIATION = re.compile(r"[\"'“„(]*([A-ZÄÖÜ]\w{0,2}|\d+|(\w\.)+\w?)\.")
_CONTINUATION = re.compile(r"<0x[89AB][0-9A-F]>")  # a byte inside a character


_TAIL = 32  # characters of a word that tell how it ends


class Cut(IntEnum):
    """How well a line can be cut before a piece."""

    CHARACTER = 0  # bytes of one character would be torn apart
    WORD = 1
    BETWEEN_WORDS = 2
    CLAUSE = 3
    SENTENCE = 4


@dataclass(frozen=True)
class Part:
    """Some of the pieces of a line."""

    pieces: tuple[str, ...]
    is_inside_word: bool  # begins in the middle of what was one word


def split(pieces: Sequence[str], max_pieces: int) -> list[Part]:
    """All pieces in parts of at most `max_pieces`: whole sentences if the line is longer."""
    if len(pieces) <= max_pieces:
        return [Part(tuple(pieces), is_inside_word=False)] if pieces else []
    cuts = _cuts(pieces)
    sentences = [i for i, cut in enumerate(cuts) if cut is Cut.SENTENCE]
    starts = [0]
    for end in [*sentences, len(pieces)]:
        while end - starts[-1] > max_pieces:
            first, last = starts[-1] + 1 + max_pieces // 2, starts[-1] + max_pieces
            starts.append(max(range(min(first, last), last + 1), key=lambda i: (cuts[i], i)))
        starts.append(end)
    return [
        Part(tuple(pieces[start:end]), is_inside_word=cuts[start] <= Cut.WORD and start > 0)
        for start, end in zip(starts, starts[1:], strict=False)
        if end > start
    ]


def glue(before: str, after: str, *, is_inside_word: bool) -> str:
    """What stands between the translations of two parts: a space, where the script has spaces."""
    if is_inside_word or not before or not after:
        return ""
    return "" if unicodedata.east_asian_width(before[-1]) in "WF" else " "


def _cuts(pieces: Sequence[str]) -> list[Cut]:
    """How well the line can be cut before each of its pieces."""
    cuts, word = [], ""
    for piece in pieces:
        cuts.append(_cut(word, piece))
        word = piece if piece.startswith(WORD_START) else (word + piece)[-_TAIL:]
    return cuts


def _cut(word: str, piece: str) -> Cut:
    word = word.removeprefix(WORD_START)
    if _WIDE_SENTENCE_END.search(word) and not _WIDE_SENTENCE_END.match(piece):
        return Cut.SENTENCE
    if not piece.startswith(WORD_START):
        return Cut.CHARACTER if _CONTINUATION.fullmatch(piece) else Cut.WORD
    if _SENTENCE_END.search(word) and not _ABBREVIATION.fullmatch(word):
        return Cut.SENTENCE
    return Cut.CLAUSE if _CLAUSE_END.search(word) else Cut.BETWEEN_WORDS
