"""`Translator`, the Python interface for translation."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from mtcli.config.search import EngineOptions, SearchOptions
from mtcli.translation.attention import LineAttention, trace_attention
from mtcli.translation.engines import open_engine
from mtcli.translation.line_translator import (
    LINES_PER_GROUP,
    LineTranslator,
    OnProgress,
    Request,
    Translation,
)


class Translator(LineTranslator):
    """A model directory, loaded for translation:

        translator = Translator("my-model")
        translator.translate(["Hello."])

    `options` are the search options of the model. To change some of them, pass
    `dataclasses.replace(translator.options, beam_size=5, n_best=5)` to `stream`.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        engine: EngineOptions | None = None,
        ensemble: Sequence[str | Path] = (),
        batch_tokens: int | None = None,
    ) -> None:
        others = [Path(other) for other in ensemble]
        self.model = Path(model)
        loaded = open_engine(self.model, engine or EngineOptions(), others)
        super().__init__(loaded, batch_tokens=batch_tokens)
        self._loaded = loaded

    def translate(self, lines: Iterable[str], *, beam_size: int | None = None) -> list[str]:
        """Return the translation of each line, in input order; a blank line stays blank."""
        width = self.options.beam_size if beam_size is None else beam_size
        options = replace(self.options, n_best=1, beam_size=width, with_scores=False)
        return [candidates[0].text for candidates in self.stream(lines, options)]

    def attention(self, text: str, reference: str | None = None) -> LineAttention:
        """Return the attention weights of all layers and heads for one line.

        The target is the translation of the model or, if given, `reference`, which the model is
        forced to output. The torch model computes the weights, whichever engine translates.
        """
        return trace_attention(self._loaded, text, reference)

    def stream(
        self,
        lines: Iterable[str],
        options: SearchOptions | None = None,
        on_progress: OnProgress | None = None,
    ) -> Iterator[list[Translation]]:
        """Yield the n-best list of each line, best first; `lines` may be infinite.

        Line ends are removed, so `lines` can be an open file. After each batch, `on_progress` is
        called with the number of lines that the batch completed.
        """
        if isinstance(lines, str):
            raise TypeError("lines must be a list of strings, not one string")
        groups = _groups(map(_to_request, lines))
        for group in self.translate_groups(groups, options or self.options, on_progress):
            yield from group


def _to_request(line: str) -> Request:
    return Request(line.removesuffix("\n").removesuffix("\r"))


def _groups(requests: Iterator[Request]) -> Iterator[list[Request]]:
    while group := list(islice(requests, LINES_PER_GROUP)):
        yield group
