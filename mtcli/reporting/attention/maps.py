"""Attention weights of a sentence pair: all layers and heads, or a single map."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mtcli.config.alignment import AlignmentHeads
from mtcli.errors import DataError

if TYPE_CHECKING:  # importing a translator must not import numpy
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

BOS, EOS = "<s>", "</s>"
_WORD_START = "▁"  # SentencePiece's symbol for the space before a word
KINDS = {  # in the order of the selection list
    "cross": "cross-attention",
    "decoder": "decoder self-attention",
    "encoder": "encoder self-attention",
}


@dataclass(frozen=True)
class AttentionMap:
    """Attention weights of one head, or their mean over several heads."""

    source: str  # text of the sentence
    target: str  # text of its translation
    rows: Sequence[str]  # pieces that attend
    columns: Sequence[str]  # pieces that are attended to
    weights: "Floats"  # [T, S]
    title: str = ""  # such as "cross-attention, layer 2, mean of heads 1 and 3"

    def _repr_html_(self) -> str:
        """Return the map as an SVG picture for notebooks."""
        from mtcli.reporting.attention.picture import svg_picture

        return str(svg_picture([self]))


@dataclass(frozen=True)
class AttentionStack:
    """Attention weights of one kind in all layers and heads."""

    rows: Sequence[str]  # pieces that attend; for target positions, the predicted pieces
    columns: Sequence[str]  # pieces that are attended to; for target positions, the input pieces
    weights: "Floats"  # [L, H, T, S]

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.weights)

    @property
    def n_heads(self) -> int:
        """Number of heads per layer."""
        return len(self.weights[0])


@dataclass(frozen=True)
class SentenceAttention:
    """Attention of a model that translates `source` to `target`.

    `stacks` has an entry for each kind of attention in the model: "cross", "decoder", "encoder".
    The decoder self-attention of a decoder-only model also covers the source.
    """

    source: str
    target: str
    stacks: Mapping[str, AttentionStack]
    alignment: AlignmentHeads  # heads that the alignment uses

    @property
    def main_kind(self) -> str:
        """Kind of attention that provides the alignment."""
        return next(kind for kind in KINDS if kind in self.stacks)

    def _repr_html_(self) -> str:
        """Return the default map as an SVG picture for notebooks."""
        from mtcli.reporting.attention.picture import svg_picture

        return str(svg_picture([self.map()]))

    def map(
        self, kind: str | None = None, layer: int | None = None, head: int | None = None
    ) -> AttentionMap:
        """Return one map; layers and heads are counted from 0.

        The default kind is the one that provides the alignment. Its default layer is the alignment
        layer, and the default layer of other kinds is the last layer. Without `head`, the map is
        the mean of the alignment heads if kind and layer are the defaults. Otherwise, it is the
        mean of all heads.
        """
        kind = self.main_kind if kind is None else kind
        if kind not in self.stacks:
            names = " or ".join(self.stacks)
            raise DataError(f"the model has no {KINDS[kind]}", hint=f"choose {names}")
        stack, is_main = self.stacks[kind], kind == self.main_kind
        if layer is None:
            layer = self.alignment.layer if is_main else stack.n_layers - 1
            heads = self.alignment.heads if is_main else tuple(range(stack.n_heads))
        else:
            heads = tuple(range(stack.n_heads))
        _check_index("layer", layer, stack.n_layers)
        if head is not None:
            _check_index("head", head, stack.n_heads)
            heads = (head,)
        weights = stack.weights[layer, list(heads)].mean(axis=0)
        title = f"{KINDS[kind]}, {describe_heads(layer, heads, stack.n_heads)}"
        return AttentionMap(self.source, self.target, stack.rows, stack.columns, weights, title)


def _check_index(name: str, index: int, size: int) -> None:
    if not 0 <= index < size:
        raise DataError(
            f"there is no {name} {index + 1}: the model has {size} {name}{'s' * (size > 1)}",
            hint=f"{name}s are counted from 1 on the command line and from 0 in Python",
        )


def describe_heads(layer: int, heads: Sequence[int], n_heads: int) -> str:
    """Return the layer and heads as text, counted from 1: "layer 2, mean of heads 1 and 3"."""
    if len(heads) == n_heads > 1:
        return f"layer {layer + 1}, mean of all heads"
    *others, last = (str(head + 1) for head in heads)
    if not others:
        return f"layer {layer + 1}, head {last}"
    return f"layer {layer + 1}, mean of heads {', '.join(others)} and {last}"


def piece_labels(pieces: Sequence[str]) -> Iterator[str]:
    """Yield pieces without word-start markers; a hyphen precedes pieces that continue a word."""
    previous = BOS
    for piece in pieces:
        is_special = piece in (BOS, EOS)
        is_start = piece.startswith(_WORD_START) or previous in (BOS, EOS)
        if is_special:
            yield piece
        else:
            yield (piece.removeprefix(_WORD_START) or _WORD_START) if is_start else f"-{piece}"
        previous = piece
