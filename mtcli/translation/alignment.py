"""Which word comes from which: attention between pieces becomes links between words."""

from collections.abc import Sequence

from mtcli.translation.parts import WORD_START

Attention = Sequence[Sequence[float]]  # [T][S]
Alignment = tuple[tuple[int, int], ...]  # source word, target word; both counted from 0


def align(source: Sequence[str], target: Sequence[str], attention: Attention) -> Alignment:
    """For each target word the source word that its pieces look at most, if they look at any."""
    source_words, target_words = word_numbers(source), word_numbers(target)
    if not source_words or not target_words:
        return ()
    totals = [[0.0] * (source_words[-1] + 1) for _ in range(target_words[-1] + 1)]
    for weights, target_word in zip(attention, target_words, strict=False):
        row = totals[target_word]
        for weight, source_word in zip(weights, source_words, strict=False):
            row[source_word] += weight
    return tuple(sorted((row.index(max(row)), j) for j, row in enumerate(totals) if any(row)))


def word_numbers(pieces: Sequence[str]) -> list[int]:
    """The word that each piece belongs to."""
    numbers, word = [], 0
    for i, piece in enumerate(pieces):
        word += i > 0 and piece.startswith(WORD_START)
        numbers.append(word)
    return numbers
