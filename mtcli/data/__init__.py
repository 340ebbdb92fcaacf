"""Two line-aligned files become sentence pairs, ids, and batches by token budget."""

from mtcli.data.batches import IGNORED, Batch, Group, Position, batches_in_order, groups, pad
from mtcli.data.corpus import (
    Corpus,
    EncodedCorpus,
    encode,
    hold_out,
    read_corpus,
)

__all__ = [
    "IGNORED",
    "Batch",
    "Corpus",
    "EncodedCorpus",
    "Group",
    "Position",
    "batches_in_order",
    "encode",
    "groups",
    "hold_out",
    "pad",
    "read_corpus",
]
