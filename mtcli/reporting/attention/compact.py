"""Attention maps as small JSON values, which `templates/attention_map.js` draws."""

import string
from typing import Any

import numpy as np

from mtcli.reporting.attention.maps import AttentionMap, piece_labels

# One character for each weight, in 64 levels. The script has the same list.
_LEVELS = np.array(list(string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"))


def compact_map(attention_map: AttentionMap) -> dict[str, Any]:
    """Return labels, title and rounded weights of a map: about one byte for each weight."""
    levels = np.rint(np.clip(attention_map.weights, 0, 1) * (len(_LEVELS) - 1)).astype(int)
    return {
        "title": attention_map.title,
        "rows": list(piece_labels(attention_map.rows)),
        "columns": list(piece_labels(attention_map.columns)),
        "weights": ["".join(row) for row in _LEVELS[levels]],
    }
