"""Attention from target to source pieces: the attention map of a line, and word alignment."""

from collections.abc import Sequence
from dataclasses import replace

from mtcli.config.tags import Symbols
from mtcli.reporting.attention.maps import AttentionMap
from mtcli.tokenizer import WORD_START
from mtcli.translation.engines import LoadedEngine
from mtcli.translation.engines.base import ScoredPieces, Source
from mtcli.translation.splitting import LinePart, replace_line_breaks, split_line

Attention = Sequence[Sequence[float]]  # [T][S]: weights from target to source pieces
Alignment = tuple[tuple[int, int], ...]  # (source word, target word), both counted from 0


def compute_attention_maps(
    loaded: LoadedEngine, line: str, *, symbols: Symbols = ()
) -> list[AttentionMap]:
    """Translate one line and return its attention map, or one map per part of a long line.

    The engine computes the weights as the mean over the alignment heads, without the weights of the
    source EOS. The source pieces of a map include the tags in `symbols`.
    """
    import numpy as np

    maps = []
    parts = split_with_tags(loaded, line, symbols)
    for part in parts:
        best, n_source = translate_part(loaded, part, with_alignment=True), len(part.pieces)
        assert best.attention is not None  # requested by with_alignment
        weights = np.array([row[:n_source] for row in best.attention], dtype=np.float32)
        untagged = part.pieces[len(symbols) :]
        source = line if len(parts) == 1 else loaded.tokenizers.source.detokenize(untagged)
        target = replace_line_breaks(loaded.tokenizers.target.detokenize(best.pieces))
        weights = weights.reshape(-1, n_source)  # an empty target has 0 rows
        maps.append(AttentionMap(source, target, best.pieces, part.pieces, weights))
    return maps


def split_with_tags(loaded: LoadedEngine, line: str, symbols: Symbols) -> list[LinePart]:
    """Split a line into parts that each start with the tags in `symbols`."""
    pieces = loaded.tokenizers.source.tokenize(line)
    parts = split_line(pieces, max(1, loaded.max_pieces - len(symbols)))
    return [replace(part, pieces=(*symbols, *part.pieces)) for part in parts]


def translate_part(
    loaded: LoadedEngine, part: LinePart, *, with_alignment: bool = False
) -> ScoredPieces:
    """Return the best translation of one part of a line."""
    options = replace(loaded.search, n_best=1, with_alignment=with_alignment)
    limit = options.limit(len(part.pieces))
    limit = min(limit, loaded.engine.n_positions or limit)
    [[best]] = loaded.engine.search([Source(part.pieces)], options, limit)
    return best


def align_words(source: Sequence[str], target: Sequence[str], attention: Attention) -> Alignment:
    """Return links from each target word to the source word that its pieces attend to most.

    A target word whose attention weights are all zero has no link.
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
