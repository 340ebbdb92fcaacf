"""What a model looks at while it translates: the attention of each target piece to the source."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mtcli.engines import Opened, Source
from mtcli.errors import DataError


@dataclass(frozen=True)
class Looks:
    """A translation, and how much each of its pieces looks at each of the source."""

    text: str
    source: Sequence[str]
    target: Sequence[str]
    weights: Sequence[Sequence[float]]  # [T][S]


def look(opened: Opened, line: str) -> Looks:
    """Translate a line, and watch."""
    pieces = opened.tokenizers.source.pieces(line)
    if len(pieces) > opened.max_pieces:
        raise DataError(
            f"a line of {len(pieces)} pieces is longer than those that the model was trained for",
            hint=f"show it a sentence of at most {opened.max_pieces}",
        )
    if not pieces:
        return Looks("", [], [], [])
    options = replace(opened.search, n_best=1, with_alignment=True)
    limit = options.limit(len(pieces))
    [[best]] = opened.engine.search([Source(tuple(pieces))], options, limit)
    assert best.attention is not None  # which was asked for
    text = opened.tokenizers.target.text(best.pieces)
    return Looks(text, pieces, best.pieces, [row[: len(pieces)] for row in best.attention])
