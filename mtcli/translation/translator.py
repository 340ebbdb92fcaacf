"""`Translator`, the Python interface for translation, scoring and attention."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from mtcli.config.search import EngineOptions, SearchOptions
from mtcli.translation.attention import LineAttention, trace_attention
from mtcli.translation.engines import open_engine
from mtcli.translation.line_translator import LineTranslator, Request, Translation
from mtcli.translation.pipeline import LINES_PER_GROUP, OnProgress
from mtcli.translation.scoring import Pair, PairScore, PairScorer, pair_groups


class Translator(LineTranslator):
    """A trained model, loaded from its directory:

        translator = Translator("my-model")
        translator.translate(["Hello."])

    `to` selects the target language if the model has several, and `tag` selects one of the model's
    tags. The attribute `options` contains the model's search options. To change some of them, pass
    `dataclasses.replace(translator.options, beam_size=5, n_best=5)` to `stream`.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        engine: EngineOptions | None = None,
        ensemble: Sequence[str | Path] = (),
        batch_tokens: int | None = None,
        to: str | None = None,
        tag: str | None = None,
    ) -> None:
        others = [Path(other) for other in ensemble]
        self.model = Path(model)
        self.loaded = open_engine(self.model, engine or EngineOptions(), others)
        super().__init__(self.loaded, batch_tokens=batch_tokens, to=to, tag=tag)

    def translate(
        self, lines: Iterable[str], *, beam_size: int | None = None, to: str | None = None
    ) -> list[str]:
        """Return the translation of each line, in input order; a blank line stays blank.

        `to` overrides the translator's target language.
        """
        width = self.options.beam_size if beam_size is None else beam_size
        options = replace(self.options, n_best=1, beam_size=width, with_scores=False)
        return [candidates[0].text for candidates in self.stream(lines, options, to=to)]

    def attention(self, text: str, reference: str | None = None) -> LineAttention:
        """Return the attention weights of all layers and heads for one line.

        The target is the model's translation or, if given, `reference`, which the model is forced
        to output. The torch model computes the weights, whichever engine translates.
        """
        symbols = self.tags.symbols(self.to, self.tag)
        return trace_attention(self.loaded, text, reference, symbols=symbols)

    def stream(
        self,
        lines: Iterable[str],
        options: SearchOptions | None = None,
        on_progress: OnProgress | None = None,
        *,
        to: str | None = None,
    ) -> Iterator[list[Translation]]:
        """Yield the n-best list of each line, best first; `lines` may be infinite.

        Line endings are removed, so `lines` can be an open file. After each batch, `on_progress` is
        called with the number of lines that the batch completed.
        """
        if isinstance(lines, str):
            raise TypeError("lines must be a list of strings, not one string")
        groups = _groups(Request(_without_line_end(line), to=to) for line in lines)
        for group in self.translate_groups(groups, options or self.options, on_progress):
            yield from group

    def score(self, sources: Iterable[str], targets: Iterable[str]) -> list[PairScore]:
        """Score existing translations; return the log-probability of each token of each target.

        `sources` and `targets` are lists of lines or open files. A pair whose source or target is
        longer than the model's `search.max_length` has no tokens, and its score is minus infinity.
        """
        if isinstance(sources, str) or isinstance(targets, str):
            raise TypeError("sources and targets must be lists of strings, not single strings")
        pairs = (
            Pair(_without_line_end(source), _without_line_end(target))
            for source, target in zip(sources, targets, strict=True)
        )
        scorer = PairScorer(self.loaded, to=self.to, tag=self.tag)
        groups = scorer.score_groups(pair_groups(pairs))
        return [score for group in groups for score in group]


def _without_line_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _groups(requests: Iterator[Request]) -> Iterator[list[Request]]:
    while group := list(islice(requests, LINES_PER_GROUP)):
        yield group
