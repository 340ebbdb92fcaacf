"""Two line-aligned files become sentence pairs, ids, and batches by token budget."""

from mtcli.data.ahead import prepared_ahead
from mtcli.data.augmentation import Augmentation
from mtcli.data.batches import (
    IGNORED,
    Batch,
    Feed,
    Group,
    Position,
    Share,
    batches_in_order,
    pad,
)
from mtcli.data.corpus import (
    Corpus,
    EncodedCorpus,
    encode,
    hold_out,
    read_corpus,
)

__all__ = [
    "IGNORED",
    "Augmentation",
    "Batch",
    "Corpus",
    "EncodedCorpus",
    "Feed",
    "Group",
    "Position",
    "Share",
    "batches_in_order",
    "encode",
    "hold_out",
    "pad",
    "prepared_ahead",
    "read_corpus",
]
