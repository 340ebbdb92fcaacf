"""Interactive page with the attention of all layers and heads for one or more sentences."""

from collections.abc import Sequence
from typing import Any

from mtcli.reporting.attention.compact import compact_attention, compact_kind
from mtcli.reporting.attention.maps import KINDS, SentenceAttention
from mtcli.reporting.pages import json_for_script, render_page

MAX_WEIGHTS = 6_000_000  # per page, at most one byte each
# Styles and scripts of `attentionView`, which draws the attention of one sentence.
VIEW_ASSETS = ("attention.css", "attention_map.js", "attention_view.js")
_NOTES = {
    "heads": "",
    "layers": "The text is long, so this page shows only the mean of the heads of each layer.",
    "map": "The text is very long, so this page shows only the map used for alignment.",
}


def attention_page(sentences: Sequence[SentenceAttention], model_name: str) -> str:
    """Return a page with the attention maps of `sentences`.

    If all heads together have more than `MAX_WEIGHTS` weights, the page shows only the mean over
    the heads of each layer. If these are still too many weights, it shows only the map used for
    alignment.
    """
    stacks = [stack for sentence in sentences for stack in sentence.stacks.values()]
    n_by_detail = {
        "heads": sum(stack.weights.size for stack in stacks),
        "layers": sum(stack.weights.size // stack.n_heads for stack in stacks),
    }
    fitting = (detail for detail, n in n_by_detail.items() if n <= MAX_WEIGHTS)
    detail = next(fitting, "map")
    values = {
        "model_name": model_name,
        "note": _NOTES[detail],
        "n_sentences": len(sentences),
        "data": json_for_script([_to_json(sentence, detail) for sentence in sentences]),
    }
    return render_page("attention.html.j2", values, ["sentences.css", *VIEW_ASSETS, "attention.js"])


def _to_json(sentence: SentenceAttention, detail: str) -> dict[str, Any]:
    """Return the texts of a sentence, and the values from which the script draws its maps."""
    kinds = [kind for kind in KINDS if kind in sentence.stacks]
    if detail == "map":
        kinds = [sentence.main_kind]
    compact = [compact_kind(sentence, kind, detail) for kind in kinds]
    return {
        "source": sentence.source,
        "target": sentence.target,
        **compact_attention(sentence, compact),
    }
