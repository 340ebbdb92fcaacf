"""Attention weights of all layers and heads, for a translation or a reference."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mtcli.config.tags import Symbols
from mtcli.errors import DataError, EngineError
from mtcli.reporting.attention.maps import BOS, EOS, AttentionStack, SentenceAttention
from mtcli.reporting.attention.picture import svg_picture
from mtcli.tokenizer import Tokenizers
from mtcli.translation.alignment import split_with_tags, translate_part
from mtcli.translation.engines import LoadedEngine
from mtcli.translation.engines.base import ScoredPieces
from mtcli.translation.splitting import LinePart, replace_line_breaks, separator

if TYPE_CHECKING:
    from mtcli.models.base import TranslationModel

_MAX_POSITIONS = 1_000  # of a line or its reference; the number of weights grows quadratically


@dataclass(frozen=True)
class LineAttention:
    """A line, its translation or reference, and the attention between them.

    A line that is longer than the training sentences is translated in parts, each with its own
    attention. Other lines have one part. A blank line has no parts.
    """

    source: str
    target: str
    parts: tuple[SentenceAttention, ...]

    def _repr_html_(self) -> str:
        """Return the default map of each part as an SVG picture for notebooks."""
        return str(svg_picture([part.map() for part in self.parts]))


def trace_attention(
    loaded: LoadedEngine, text: str, reference: str | None = None, *, symbols: Symbols = ()
) -> LineAttention:
    """Return the attention weights of all layers and heads when the model translates `text`.

    With `reference`, the model is forced to output the reference, and the line is not split. The
    loaded engine translates, but the torch model computes the weights. The source pieces include
    the tags in `symbols`.
    """
    if loaded.open_model is None:
        raise EngineError(
            "cannot show the attention of an ensemble", hint="use one of its models alone"
        )
    model = loaded.open_model()
    if reference is not None:
        pieces = loaded.tokenizers.source.tokenize(text)
        target = loaded.tokenizers.target.tokenize(reference)
        parts = [LinePart((*symbols, *pieces), is_inside_word=False)] if pieces else []
        translations = [ScoredPieces(target, 0.0) for _ in parts]
        _check_length(model, max(len(symbols) + len(pieces), len(target)) + 1)
    else:
        parts = split_with_tags(loaded, text, symbols)
        translations = [translate_part(loaded, part) for part in parts]
    traced = tuple(
        _trace(model, loaded.tokenizers, part.pieces, translation)
        for part, translation in zip(parts, translations, strict=True)
    )
    if len(traced) == 1:
        traced = (replace(traced[0], source=text, target=reference or traced[0].target),)
    return LineAttention(text, reference or _join(parts, traced), traced)


def _check_length(model: "TranslationModel[Any]", n_positions: int) -> None:
    """Raise `DataError` if a line or its reference is too long for the model or for a map."""
    if n_positions > _MAX_POSITIONS:
        raise DataError(
            f"the line or its translation has {n_positions:,} pieces, but an attention map can "
            f"have only {_MAX_POSITIONS:,}",
            hint="use a shorter line and a shorter translation",
        )
    if model.n_positions is not None and n_positions > model.n_positions:
        raise DataError(
            f"the line or its reference needs {n_positions} positions, but the model has "
            f"{model.n_positions}",
            hint="use a shorter line and a shorter reference",
        )


def _join(parts: Sequence[LinePart], traced: Sequence[SentenceAttention]) -> str:
    text = ""
    for part, attention in zip(parts, traced, strict=True):
        text += separator(text, attention.target, is_inside_word=part.is_inside_word)
        text += attention.target
    return text


def _trace(
    model: "TranslationModel[Any]",
    tokenizers: Tokenizers,
    pieces: Sequence[str],
    translation: ScoredPieces,
) -> SentenceAttention:
    """Run the model on a sentence pair and return its attention weights."""
    import torch

    special, target = tokenizers.special, translation.pieces
    # The input at position t is token t-1. A truncated translation has no EOS to predict.
    n_rows = max(1, len(target) + (not translation.is_truncated))
    ids = [*tokenizers.source.pieces_to_ids(pieces), special.eos]
    inputs = [special.bos, *tokenizers.target.pieces_to_ids(target)][:n_rows]
    device = next(model.parameters()).device
    with torch.inference_mode():
        weights = model.attention_weights(
            torch.tensor([ids], device=device), torch.tensor([inputs], device=device)
        )
    if weights is None:
        raise EngineError(
            "the model has no attention (model.attention=none)",
            hint="use a model with attention, such as one trained with the recipe rnn",
        )
    source, rows, columns = [*pieces, EOS], [*target, EOS][:n_rows], [BOS, *target][:n_rows]
    is_decoder_only = weights.cross is None
    labels = {
        "cross": (rows, source),
        "decoder": (rows, [*source, *columns] if is_decoder_only else columns),
        "encoder": (source, source),
    }
    stacks = {
        kind: AttentionStack(*labels[kind], values[0].float().cpu().numpy())
        for kind, values in weights.by_kind().items()
    }
    return SentenceAttention(
        tokenizers.source.detokenize(pieces),
        replace_line_breaks(tokenizers.target.detokenize(target)),
        stacks,
        weights.alignment,
    )
