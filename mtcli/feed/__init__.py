"""Sentence pairs as a model reads them: batches by token budget, prepared ahead of their use."""

from mtcli.feed.ahead import prepared_ahead
from mtcli.feed.augmentation import Augmentation
from mtcli.feed.batches import (
    IGNORED,
    Batch,
    Feed,
    Group,
    Position,
    Share,
    batches_in_order,
    pad,
)

__all__ = [
    "IGNORED",
    "Augmentation",
    "Batch",
    "Feed",
    "Group",
    "Position",
    "Share",
    "batches_in_order",
    "pad",
    "prepared_ahead",
]
