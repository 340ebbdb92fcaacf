"""Interactive page with the attention of all layers and heads for one or more sentences."""

from collections.abc import Sequence
from typing import Any

from mtcli.reporting.attention.compact import encode_weights
from mtcli.reporting.attention.maps import KINDS, SentenceAttention, piece_labels
from mtcli.reporting.pages import json_for_script, render_page

MAX_WEIGHTS = 6_000_000  # per page, one byte each
_NOTES = {
    "heads": "",
    "layers": "The text is long, so this page shows only the mean of the heads of each layer.",
    "alignment": "The text is very long, so this page shows only the map used for alignment.",
}
_AXES = {
    "cross": "Rows: target, columns: source.",
    "decoder": "Rows: predicted pieces, columns: pieces that the decoder has read.",
    "encoder": "Rows and columns: source.",
}


def attention_page(sentences: Sequence[SentenceAttention], model_name: str) -> str:
    """Return a page with the attention maps of `sentences`.

    If all heads together have more than `MAX_WEIGHTS` weights, the page shows only the mean over
    the heads of each layer. If that is still too many, it shows only the map used for alignment.
    """
    stacks = [stack for sentence in sentences for stack in sentence.stacks.values()]
    n_by_detail = {
        "heads": sum(stack.weights.size for stack in stacks),
        "layers": sum(stack.weights.size // stack.n_heads for stack in stacks),
    }
    fitting = (detail for detail, n in n_by_detail.items() if n <= MAX_WEIGHTS)
    detail = next(fitting, "alignment")
    values = {
        "model_name": model_name,
        "note": _NOTES[detail],
        "n_sentences": len(sentences),
        "data": json_for_script([_to_json(sentence, detail) for sentence in sentences]),
    }
    assets = ["sentences.css", "attention.css", "attention_map.js", "attention.js"]
    return render_page("attention.html.j2", values, assets)


def _to_json(sentence: SentenceAttention, detail: str) -> dict[str, Any]:
    """Return the data that `attention.js` needs to draw the maps of a sentence."""
    layer, heads, kinds = sentence.alignment.layer, list(sentence.alignment.heads), []
    default = sentence.map()
    for kind in (kind for kind in KINDS if kind in sentence.stacks):
        stack = sentence.stacks[kind]
        weights = stack.weights
        if detail == "layers":
            weights, heads = weights.mean(axis=1, keepdims=True), [0]
        elif detail == "alignment":
            if kind != sentence.main_kind:
                continue
            weights, layer, heads = default.weights[None, None], 0, [0]
        n_layers, n_heads = weights.shape[:2]
        kinds.append(
            {
                "name": default.title if detail == "alignment" else KINDS[kind],
                "axes": _AXES[kind],
                "rows": list(piece_labels(stack.rows)),
                "columns": list(piece_labels(stack.columns)),
                "nLayers": n_layers,
                "nHeads": n_heads,
                "weights": encode_weights(weights),
            }
        )
    return {
        "source": sentence.source,
        "target": sentence.target,
        "detail": detail,
        "layer": layer,  # alignment layer, for the first kind
        "heads": heads,
        "kinds": kinds,
    }
