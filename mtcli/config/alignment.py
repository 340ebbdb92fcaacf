"""Attention heads that give the word alignment, in a module that is fast to import."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AlignmentHeads:
    """Heads of one layer whose mean attention to the source gives the alignment."""

    layer: int  # counted from 0, like the heads
    heads: tuple[int, ...]
