"""Attention from target to source pieces: the attention map of a line, and word alignment."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mtcli.errors import DataError
from mtcli.tokenizer import WORD_START
from mtcli.translation.engines import LoadedEngine
from mtcli.translation.engines.base import Source

Attention = Sequence[Sequence[float]]  # [T][S]: weights from target to source pieces
Alignment = tuple[tuple[int, int], ...]  # (source word, target word); both counted from 0


@dataclass(frozen=True)
class AttentionMap:
    """A translation with the attention of its pieces to the source pieces."""

    text: str
    source: Sequence[str]
    target: Sequence[str]
    weights: Attention


def compute_attention_map(
    loaded: LoadedEngine, line: str, *, to: str | None = None, tag: str | None = None
) -> AttentionMap:
    """Translate one line and return its attention map, with its tags among the source pieces."""
    symbols = loaded.tags.symbols(to, tag)
    pieces = loaded.tokenizers.source.tokenize(line)
    pieces = [*symbols, *pieces] if pieces else []
    if len(pieces) > loaded.max_pieces:
        raise DataError(
            f"the line has {len(pieces)} pieces, but the model was trained on at most "
            f"{loaded.max_pieces}",
            hint="use a shorter line",
        )
    if not pieces:
        return AttentionMap("", [], [], [])
    options = replace(loaded.search, n_best=1, with_alignment=True)
    limit = options.limit(len(pieces))
    [[best]] = loaded.engine.search([Source(tuple(pieces))], options, limit)
    assert best.attention is not None  # because of with_alignment
    text = loaded.tokenizers.target.detokenize(best.pieces)
    return AttentionMap(text, pieces, best.pieces, [row[: len(pieces)] for row in best.attention])


def align_words(source: Sequence[str], target: Sequence[str], attention: Attention) -> Alignment:
    """Link each target word to the source word that its pieces attend to most.

    A target word whose attention is all zero has no link.
    """
    source_words, target_words = word_indices(source), word_indices(target)
    if not source_words or not target_words:
        return ()
    totals = [[0.0] * (source_words[-1] + 1) for _ in range(target_words[-1] + 1)]
    for weights, target_word in zip(attention, target_words, strict=False):
        row = totals[target_word]
        for weight, source_word in zip(weights, source_words, strict=False):
            row[source_word] += weight
    return tuple(sorted((row.index(max(row)), j) for j, row in enumerate(totals) if any(row)))


def word_indices(pieces: Sequence[str]) -> list[int]:
    """Return the index of the word that each piece belongs to."""
    indices, word = [], 0
    for i, piece in enumerate(pieces):
        word += i > 0 and piece.startswith(WORD_START)
        indices.append(word)
    return indices
