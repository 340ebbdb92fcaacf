"""Attention of a sentence as compact JSON, which `templates/attention_view.js` draws."""

import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mtcli.reporting.attention.maps import KINDS, SentenceAttention, piece_labels

if TYPE_CHECKING:
    from mtcli.reporting.attention.maps import Floats

# One character for each of 64 levels. `attention_map.js` must have the same list.
_LEVELS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
_LEVEL_BYTES = np.frombuffer(_LEVELS.encode(), dtype=np.uint8)
_RUN_OF_ZEROS = re.compile("A{3,63}")  # saved as `~` and a character for the length

_AXES = {
    "cross": "Rows: target, columns: source.",
    "decoder": "Rows: predicted pieces, columns: pieces that the decoder has read.",
    "encoder": "Rows and columns: source.",
}


@dataclass(frozen=True)
class CompactKind:
    """Attention of one kind. `detail` says which weights are stored:

    - "heads": all layers and heads
    - "layers": the mean of the heads of each layer
    - "map": only the default map
    """

    kind: str
    detail: str
    shape: tuple[int, int]  # layers, heads
    weights: str


def compact_kind(sentence: SentenceAttention, kind: str, detail: str) -> CompactKind:
    """Return one kind of attention with rounded weights, in the given detail."""
    weights = sentence.stacks[kind].weights
    if detail == "layers":
        weights = weights.mean(axis=1, keepdims=True)
    elif detail == "map":
        weights = sentence.map(kind).weights[None, None]
    return CompactKind(kind, detail, weights.shape[:2], encode_weights(weights))


def compact_attention(
    sentence: SentenceAttention, kinds: Iterable[CompactKind]
) -> Mapping[str, Any]:
    """Return the JSON values from which `attention_view.js` draws the given kinds.

    Kinds with the same labels share one list of labels.
    """
    label_lists: dict[tuple[str, ...], int] = {}

    def index(pieces: Iterable[str]) -> int:
        return label_lists.setdefault(tuple(piece_labels([*pieces])), len(label_lists))

    values = [
        {
            "name": KINDS[compact.kind],
            "axes": _AXES[compact.kind],
            "rows": index(sentence.stacks[compact.kind].rows),
            "columns": index(sentence.stacks[compact.kind].columns),
            "nLayers": compact.shape[0],
            "nHeads": compact.shape[1],
            "weights": compact.weights,
            **_default_map(sentence, compact),
        }
        for compact in kinds
    ]
    return {"labels": [list(labels) for labels in label_lists], "kinds": values}


def _default_map(sentence: SentenceAttention, compact: CompactKind) -> dict[str, Any]:
    """Return the detail of a kind, and the layer and heads of the map that is shown first."""
    if compact.detail == "map":
        return {"detail": "map", "title": sentence.map(compact.kind).title, "layer": 0}
    if compact.kind != sentence.main_kind:
        return {"detail": compact.detail, "layer": compact.shape[0] - 1}
    layer, heads = sentence.alignment.layer, sentence.alignment.heads
    is_whole = compact.detail == "heads"
    return {"detail": compact.detail, "layer": layer, "alignment": list(heads) if is_whole else [0]}


def encode_weights(weights: "Floats") -> str:
    """Return weights of any shape as text, in row-major order.

    Each weight becomes one character for its level, out of 64. Runs of zeros are shortened.
    """
    levels = np.rint(np.clip(weights, 0, 1) * (len(_LEVELS) - 1)).astype(np.uint8)
    text = _LEVEL_BYTES[levels].tobytes().decode()
    return _RUN_OF_ZEROS.sub(lambda run: f"~{_LEVELS[len(run[0])]}", text)
