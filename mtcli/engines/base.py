"""Text in, text out. Engines differ in how they search, and in nothing else."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from mtcli.config import SearchConfig
from mtcli.tokenizer import Tokenizers


@dataclass(frozen=True)
class Scored:
    """What a search has found for one source."""

    pieces: list[str]
    score: float
    is_cut: bool = False  # reached the longest length allowed before it came to an end


_WORD_START = "▁"  # SentencePiece's mark for a space
_MAX_ROWS = 1024  # of a batch, all beams counted


@dataclass(frozen=True)
class Translation:
    """What is printed for a line, and how sure the model is of it."""

    text: str
    score: float
    n_parts: int = 1  # more than one: the line was too long and was translated in parts
    is_cut: bool = False  # the search was not allowed to go on to its end


class Translator(ABC):
    """Lines in, translations out; what must never differ between engines is done here."""

    def __init__(
        self, tokenizers: Tokenizers, *, max_pieces: int, batch_positions: int = 16_384
    ) -> None:
        self.tokenizers = tokenizers
        self.max_pieces = max_pieces  # the longest source the model was trained for
        self.batch_positions = batch_positions  # of all beams of a batch together

    @abstractmethod
    def search(self, sources: list[list[str]], options: SearchConfig) -> list[list[Scored]]:
        """For each source (as pieces) its n_best targets (as pieces), best first."""

    def translate(self, lines: Sequence[str], options: SearchConfig) -> list[list[Translation]]:
        """The n_best translations of each line, in the order of the lines; blank stays blank."""
        parts = [split(self.tokenizers.source.pieces(line), self.max_pieces) for line in lines]
        found = iter(self._search_all([part for line in parts for part in line], options))
        return [self._joined([next(found) for _ in line]) for line in parts]

    def _search_all(
        self, sources: list[list[str]], options: SearchConfig
    ) -> list[list[Translation]]:
        results: list[list[Translation]] = [[] for _ in sources]
        for rows in self._batches(sources, options.beam_size):
            found = self.search([sources[row] for row in rows], options)
            for row, candidates in zip(rows, found, strict=True):
                results[row] = [
                    Translation(self._text(c.pieces), c.score, is_cut=c.is_cut) for c in candidates
                ]
        return results

    def _batches(self, sources: list[list[str]], beam_size: int) -> list[list[int]]:
        """Neighbours in length share a batch, so little of it is padding."""
        batches: list[list[int]] = []
        for row in sorted(range(len(sources)), key=lambda i: len(sources[i])):
            # The rows count as well: each has a probability for every piece of the vocabulary.
            room = min(self.batch_positions // (len(sources[row]) + 1), _MAX_ROWS) // beam_size
            if batches and len(batches[-1]) < room:
                batches[-1].append(row)
            else:
                batches.append([row])
        return batches

    def _text(self, pieces: list[str]) -> str:
        """The text of `pieces`; bytes may spell a line break, which a translation never has."""
        return " ".join(self.tokenizers.target.text(pieces).splitlines())

    def _joined(self, parts: list[list[Translation]]) -> list[Translation]:
        """The translations of a line from those of its parts: best with best, and so on."""
        if not parts:
            return [Translation("", 0.0)]
        if len(parts) == 1:
            return parts[0]
        return [
            Translation(
                " ".join(part.text for part in same),
                sum(part.score for part in same),
                n_parts=len(same),
                is_cut=any(part.is_cut for part in same),
            )
            for same in zip(*parts, strict=False)
        ]


def split(pieces: list[str], max_pieces: int) -> list[list[str]]:
    """`pieces` cut into parts of at most `max_pieces`, between words where that is possible."""
    parts, start = [], 0
    while start < len(pieces):
        end = start + max_pieces
        if end < len(pieces):
            word_starts = (i for i in range(end, start, -1) if pieces[i].startswith(_WORD_START))
            end = next(word_starts, end)
        parts.append(pieces[start:end])
        start = end
    return parts
