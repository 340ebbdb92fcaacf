"""Seeing the same sentence differently each time: other segmentations, missing pieces."""

from collections.abc import Sequence

import numpy as np

from mtcli.config import DataConfig
from mtcli.data.corpus import IdArray
from mtcli.feed.segmentation import Segmenter
from mtcli.tokenizer import EOS_ID, UNK_ID, Tokenizers


class Augmentation:
    """What happens to the pairs of a batch before they are shown; its seed decides how."""

    def __init__(self, tokenizers: Tokenizers, options: DataConfig) -> None:
        self.word_dropout = options.word_dropout
        self.max_length = options.max_length
        self._segmenters: tuple[Segmenter, Segmenter] | None = None
        if strength := options.subword_sampling:
            source = Segmenter(tokenizers.source, strength)
            target = source if tokenizers.is_shared else Segmenter(tokenizers.target, strength)
            self._segmenters = source, target

    def segment(
        self, sources: Sequence[IdArray], targets: Sequence[IdArray], seed: int
    ) -> tuple[list[IdArray], list[IdArray]]:
        """The same sentences in other pieces."""
        if not self._segmenters:
            return list(sources), list(targets)
        source, target = self._segmenters
        return self._side(source, sources, [seed, 0]), self._side(target, targets, [seed, 1])

    def _side(
        self, segmenter: Segmenter, rows: Sequence[IdArray], seed: list[int]
    ) -> list[IdArray]:
        bare = [row[:-1].tolist() for row in rows]  # without the end symbol
        return [
            np.array([*new, EOS_ID], dtype=np.int32) if len(new) <= self.max_length else row
            for row, new in zip(rows, segmenter.segment(bare, seed), strict=True)
        ]

    def hide(self, rows: Sequence[IdArray], random: np.random.Generator) -> list[IdArray]:
        """The same rows with some pieces unknown; where a row begins and ends always shows."""
        if not self.word_dropout:
            return list(rows)
        return [self._with_gaps(row, random) for row in rows]

    def _with_gaps(self, row: IdArray, random: np.random.Generator) -> IdArray:
        is_hidden = (random.random(len(row)) < self.word_dropout) & (row > EOS_ID)
        return np.where(is_hidden, np.int32(UNK_ID), row)
