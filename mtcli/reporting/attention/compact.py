"""Attention maps as compact JSON, which `templates/attention_map.js` draws."""

import string
from typing import TYPE_CHECKING, Any

import numpy as np

from mtcli.reporting.attention.maps import AttentionMap, piece_labels

if TYPE_CHECKING:
    from mtcli.reporting.attention.maps import Floats

# One character for each of 64 levels. Keep in sync with `attention_map.js`.
_LEVELS = np.array(list(string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"))


def compact_map(attention_map: AttentionMap) -> dict[str, Any]:
    """Return the title, labels and rounded weights of a map, with one character per weight."""
    return {
        "title": attention_map.title,
        "rows": list(piece_labels(attention_map.rows)),
        "columns": list(piece_labels(attention_map.columns)),
        "weights": [encode_weights(row) for row in attention_map.weights],
    }


def encode_weights(weights: "Floats") -> str:
    """Return weights of any shape as one string, in row-major order, one character each."""
    levels = np.rint(np.clip(weights, 0, 1) * (len(_LEVELS) - 1)).astype(int)
    return "".join(_LEVELS[levels].ravel())
