"""Seeing the same sentence differently each time: other segmentations, missing pieces."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtcli.data.corpus import IdArray
from mtcli.tokenizer import EOS_ID, UNK_ID, Tokenizer, Tokenizers


@dataclass(frozen=True)
class Augmentation:
    """What happens to the pairs of a batch before they are shown; its seed decides how."""

    tokenizers: Tokenizers
    subword_sampling: float  # as in the configuration: 0 takes the best segmentation
    word_dropout: float  # share of pieces that are not shown
    max_length: int  # of a side, in pieces; a longer segmentation is not used

    def segment(
        self, sources: Sequence[IdArray], targets: Sequence[IdArray], seed: int
    ) -> tuple[list[IdArray], list[IdArray]]:
        """The same sentences in other pieces."""
        if not self.subword_sampling:
            return list(sources), list(targets)
        return (
            self._segment_side(sources, self.tokenizers.source, seed),
            self._segment_side(targets, self.tokenizers.target, seed + 1),
        )

    def _segment_side(
        self, rows: Sequence[IdArray], tokenizer: Tokenizer, seed: int
    ) -> list[IdArray]:
        bare = [row[:-1].tolist() for row in rows]  # without the end symbol
        sampled = tokenizer.resegment(bare, self.subword_sampling, seed)
        return [
            np.array([*new, EOS_ID], dtype=np.int32) if 0 < len(new) <= self.max_length else row
            for row, new in zip(rows, sampled, strict=True)
        ]

    def hide(self, rows: Sequence[IdArray], random: np.random.Generator) -> list[IdArray]:
        """The same rows with some pieces unknown; where a row begins and ends always shows."""
        if not self.word_dropout:
            return list(rows)
        return [self._with_gaps(row, random) for row in rows]

    def _with_gaps(self, row: IdArray, random: np.random.Generator) -> IdArray:
        is_hidden = (random.random(len(row)) < self.word_dropout) & (row > EOS_ID)
        return np.where(is_hidden, np.int32(UNK_ID), row)
