"""Text in, text out. Engines differ in how they search, and in nothing else."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from mtcli.config import SearchConfig
from mtcli.tokenizer import Tokenizers

Scored = tuple[list[str], float]  # target pieces and their score

_WORD_START = "▁"  # SentencePiece's mark for a space


@dataclass(frozen=True)
class Translation:
    """What is printed for a line, and how sure the model is of it."""

    text: str
    score: float
    n_parts: int = 1  # more than one: the line was too long and was translated in parts


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
                results[row] = [Translation(self._text(p), score) for p, score in candidates]
        return results

    def _batches(self, sources: list[list[str]], beam_size: int) -> list[list[int]]:
        """Neighbours in length share a batch, so little of it is padding."""
        batches: list[list[int]] = []
        for row in sorted(range(len(sources)), key=lambda i: len(sources[i])):
            room = self.batch_positions // (beam_size * len(sources[row]))
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
            Translation(" ".join(p.text for p in same), sum(p.score for p in same), len(same))
            for same in zip(*parts, strict=False)
        ]


def split(pieces: list[str], max_pieces: int) -> list[list[str]]:
    """`pieces` cut into parts of at most `max_pieces`, between words where that is possible."""
    parts = []
    while len(pieces) > max_pieces:
        starts = [i for i in range(1, max_pieces + 1) if pieces[i].startswith(_WORD_START)]
        cut = starts[-1] if starts else max_pieces
        parts.append(pieces[:cut])
        pieces = pieces[cut:]
    return [*parts, pieces] if pieces else parts
