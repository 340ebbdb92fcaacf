"""The translator that Python programs use."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from mtcli.engines import open_engine
from mtcli.lines import WINDOW
from mtcli.options import EngineOptions, SearchOptions
from mtcli.translation.translator import LineTranslator, OnProgress, Request, Translation


class Translator(LineTranslator):
    """A model directory, ready to translate:

        translator = Translator("my-model")
        translator.translate(["Hello."])

    What `mtcli translate` can, it can as well: `options` holds the model's own way of searching,
    and `dataclasses.replace(translator.options, beam_size=5, n_best=5)` another one.
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
        opened = open_engine(Path(model), engine or EngineOptions(), others)
        super().__init__(opened, batch_tokens=batch_tokens)

    def translate(self, lines: Iterable[str], *, beam_size: int | None = None) -> list[str]:
        """The translation of each line, in their order; a blank line stays blank."""
        width = self.options.beam_size if beam_size is None else beam_size
        options = replace(self.options, n_best=1, beam_size=width, with_scores=False)
        return [candidates[0].text for candidates in self.stream(lines, options)]

    def stream(
        self,
        lines: Iterable[str],
        options: SearchOptions | None = None,
        on_progress: OnProgress | None = None,
    ) -> Iterator[list[Translation]]:
        """Yield the translations of each line, best first; the lines may be endless.

        A line end is not part of its line, so an open file can be passed. `on_progress` gets the
        number of lines that each batch completes.
        """
        if isinstance(lines, str):
            raise TypeError("lines must be a list of strings, not one string")
        windows = _windows(map(_request, lines))
        for group in self.flow(windows, options or self.options, on_progress):
            yield from group


def _request(line: str) -> Request:
    return Request(line.removesuffix("\n").removesuffix("\r"))


def _windows(requests: Iterator[Request]) -> Iterator[list[Request]]:
    while window := list(islice(requests, WINDOW)):
        yield window
