"""Translation of lines with any engine, and detection of repetitive translations.

This module implements the steps that are the same for all engines: tokenize, split long lines,
sort by length, batch, restore the order, detokenize, join.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mtcli.config.search import SearchOptions
from mtcli.config.tags import Symbols
from mtcli.errors import EngineError
from mtcli.translation.alignment import Alignment, align_words, word_indices
from mtcli.translation.engines import LoadedEngine
from mtcli.translation.engines.base import NBest, ScoredPieces, Source
from mtcli.translation.pipeline import Group, OnProgress, Wait, run_groups
from mtcli.translation.splitting import LinePart, replace_line_breaks, separator, split_line

_MAX_BEAM_ROWS = 1024  # per batch
# A translation is repetitive if a sequence of up to 8 pieces occurs at least 4 times in a row and
# covers at least 12 pieces. The minimum of 12 allows valid sentences such as "no no no no".
_MAX_PERIOD = 8
_MIN_REPEATS = 4
_MIN_REPEATED_LENGTH = 12
_MIN_DUPLICATES = 9  # smallest number in a repetitive translation: 12 pieces, 3 of them distinct


@dataclass(frozen=True)
class Request:
    """A line to translate."""

    text: str
    prefix: str = ""  # forced start of the translation
    to: str | None = None  # target language; None: the translator's default
    tag: str | None = None  # source tag; None: the translator's default


@dataclass(frozen=True)
class Translation:
    """The translation of a line, with its score and warnings."""

    text: str
    score: float  # log-probability / length**length_penalty; summed over the parts of a split line
    alignment: Alignment | None = None  # None: not requested, or the model has no attention
    n_parts: int = 1  # above 1: the line was too long and was translated in parts
    is_truncated: bool = False  # reached the length limit before EOS
    is_repetitive: bool = False  # repeats itself although the source does not


class LineTranslator:
    """Translator for lines of text that uses a loaded engine."""

    def __init__(
        self,
        loaded: LoadedEngine,
        *,
        batch_tokens: int | None = None,
        to: str | None = None,
        tag: str | None = None,
    ) -> None:
        self.engine = loaded.engine
        self.tokenizers = loaded.tokenizers
        self.max_pieces = loaded.max_pieces
        self.options = loaded.search  # default search options of the model
        self.tags = loaded.tags  # target languages and tags that the model supports
        self.to, self.tag = to, tag  # defaults for requests without these fields
        if to or tag:
            self.tags.check(to, tag)
        self.batch_tokens = batch_tokens or loaded.engine.batch_tokens

    def translate_all(
        self, requests: Sequence[Request], options: SearchOptions
    ) -> list[list[Translation]]:
        """Return the n-best list of each line, in input order; a blank line stays blank."""
        return [line for group in self.translate_groups([requests], options) for line in group]

    def symbols(self, request: Request) -> Symbols:
        """Return the tags that precede the source; raise `EngineError` if they are not valid."""
        return self.tags.symbols(request.to or self.to, request.tag or self.tag)

    def check(self, options: SearchOptions) -> None:
        """Raise `EngineError` if the engine cannot search with `options`."""
        n_positions = self.engine.n_positions
        if n_positions is not None and options.max_length > n_positions:
            raise EngineError(
                f"max_length={options.max_length} exceeds the model's {n_positions} positions",
                hint="use a smaller --max-length, or --engine torch if the model's positions are "
                "not learned",
            )

    def translate_groups(
        self,
        groups: Iterable[Sequence[Request]],
        options: SearchOptions,
        on_progress: OnProgress | None = None,
    ) -> Iterator[list[list[Translation]]]:
        """Yield the translations of each group; prepare the next group during the search.

        An empty group means that no more lines are available yet. In this case, all pending batches
        are finished before the next group is requested. After each batch, `on_progress` is called
        with the number of lines that the batch completed.
        """
        self.check(options)
        work = (
            _Group(self, requests, options, on_progress) if requests else None
            for requests in groups
        )
        yield from run_groups(work, self.engine.n_parallel)


class _Group(Group[list[Translation]]):
    """Lines to translate together. Except in sampling, duplicates are translated only once."""

    def __init__(
        self,
        translator: LineTranslator,
        requests: Sequence[Request],
        options: SearchOptions,
        on_progress: OnProgress | None,
    ) -> None:
        self.on_progress = on_progress or (lambda _: None)
        self.engine, self.options, self.requests = translator.engine, options, requests
        self.batch_tokens = translator.batch_tokens
        self.source, self.target = translator.tokenizers.source, translator.tokenizers.target
        pieces = self.source.tokenize_batch([request.text for request in requests])
        symbols = [translator.symbols(request) for request in requests]
        self.parts = [
            split_line(line, max(1, translator.max_pieces - len(tags)))
            for line, tags in zip(pieces, symbols, strict=True)
        ]
        prefixes = [self.target.tokenize(r.prefix) if r.prefix else [] for r in requests]
        self.rows: list[list[int]] = []  # for each line, the indices of its parts in `sources`
        self.sources: list[Source] = []
        row_of: dict[Source, int] = {}
        for parts, prefix, tags in zip(self.parts, prefixes, symbols, strict=True):
            self.rows.append([])
            for i, part in enumerate(parts):
                pieces_of_part = (*tags, *part.pieces)
                source = Source(pieces_of_part, () if i else tuple(prefix), len(tags))
                row = row_of.setdefault(source, len(self.sources))
                if row == len(self.sources):
                    self.sources.append(source)
                if options.sampling:  # draw separate samples for equal lines
                    row_of.clear()
                self.rows[-1].append(row)
        self.n_best: NBest = [[] for _ in self.sources]
        self.n_unfinished = len(self.sources)
        if not self.sources:  # only blank lines
            self.on_progress(len(requests))

    @property
    def is_done(self) -> bool:
        """Whether all sources have been searched."""
        return self.n_unfinished == 0

    def start_batches(self) -> Iterator[Wait]:
        """Start the searches one by one; for each, yield a function that waits for its results."""
        return map(self._submit, self.batches())

    def batches(self) -> Iterator[list[int]]:
        """Yield batches as indices into `sources`: sources of similar length, longest first.

        All rows of a batch have the same length limit, and either all or none have a prefix.
        The result of a row therefore does not depend on the other rows of its batch, except with a
        shortlist, which contains the candidates for all sources in the batch.
        """
        keys = [(self._limit(s), bool(s.prefix), len(s.pieces)) for s in self.sources]
        n_beams = self.options.n_best if self.options.sampling else self.options.beam_size
        batch: list[int] = []
        max_rows = 0
        for row in sorted(range(len(keys)), key=keys.__getitem__, reverse=True):
            if batch and (len(batch) >= max_rows or keys[row][:2] != keys[batch[0]][:2]):
                yield batch
                batch = []
            if not batch:
                # Also limit the number of rows: each beam needs memory for vocabulary-sized logits.
                max_rows = min(self.batch_tokens // (keys[row][2] + 1), _MAX_BEAM_ROWS // n_beams)
            batch.append(row)
        if batch:
            yield batch

    def _submit(self, rows: list[int]) -> Wait:
        """Start the search for `rows`; return a function that waits for the results."""
        sources = [self.sources[row] for row in rows]
        wait = self.engine.submit(sources, self.options, self._limit(sources[0]))

        def finish() -> None:
            for row, candidates in zip(rows, wait(), strict=True):
                self.n_best[row] = candidates
            self.n_unfinished -= len(rows)
            self.on_progress(len(rows) / len(self.sources) * len(self.requests))

        return finish

    def _limit(self, source: Source) -> int:
        limit = self.options.limit(len(source.pieces), len(source.prefix))
        return min(limit, self.engine.n_positions or limit)

    def results(self) -> list[list[Translation]]:
        """Return the n-best list of each line."""
        pieces = [scored.pieces for candidates in self.n_best for scored in candidates]
        texts = map(replace_line_breaks, self.target.detokenize_batch(pieces))
        candidates_of_row = [
            [self._to_translation(source, scored, next(texts)) for scored in candidates]
            for source, candidates in zip(self.sources, self.n_best, strict=True)
        ]
        return [
            self._join(request, parts, [candidates_of_row[row] for row in rows])
            for request, parts, rows in zip(self.requests, self.parts, self.rows, strict=True)
        ]

    def _to_translation(self, source: Source, scored: ScoredPieces, text: str) -> Translation:
        attention = scored.attention if self.options.with_alignment else None
        pieces = source.pieces[source.n_tags :]
        if attention is not None and source.n_tags:  # tags are not words
            attention = [weights[source.n_tags :] for weights in attention]
        return Translation(
            text,
            scored.score,
            None if attention is None else align_words(pieces, scored.pieces, attention),
            is_truncated=scored.is_truncated,
            is_repetitive=is_repetitive(source.pieces, scored.pieces),
        )

    def _join(
        self, request: Request, parts: list[LinePart], candidates: list[list[Translation]]
    ) -> list[Translation]:
        """Return the n-best list of a line, joined from the n-best lists of its parts.

        The best candidates of all parts form the best translation, the second-best ones form the
        second-best translation, and so on.
        """
        if not parts:
            return [Translation("", 0.0, alignment=() if self.options.with_alignment else None)]
        joined = [join_parts(parts, same_rank) for same_rank in zip(*candidates, strict=False)]
        if not self.options.with_alignment:
            return joined
        n_words = len(request.text.split())
        return [replace(t, alignment=_drop_invalid_links(t, n_words)) for t in joined]


def join_parts(parts: Sequence[LinePart], translations: Sequence[Translation]) -> Translation:
    """Join the translations of the parts of a line into one translation."""
    if len(parts) == 1:
        return translations[0]
    text, links, n_source = "", list[tuple[int, int]](), 0
    for part, translation in zip(parts, translations, strict=True):
        between = separator(text, translation.text, is_inside_word=part.is_inside_word)
        source_start = n_source - part.is_inside_word
        target_start = len(text.split()) - bool(text and translation.text and not between)
        links += [(source_start + i, target_start + j) for i, j in translation.alignment or ()]
        n_source = source_start + word_indices(part.pieces)[-1] + 1
        text += between + translation.text
    return Translation(
        text,
        score=sum(translation.score for translation in translations),
        alignment=None if translations[0].alignment is None else tuple(sorted(links)),
        n_parts=len(parts),
        is_truncated=any(translation.is_truncated for translation in translations),
        is_repetitive=any(translation.is_repetitive for translation in translations),
    )


def _drop_invalid_links(translation: Translation, n_source: int) -> Alignment | None:
    """Return the alignment without links to words that only the tokenizer finds.

    In the output, the words of a text are those that `str.split` finds.
    """
    if translation.alignment is None:
        return None
    n_target = len(translation.text.split())
    return tuple((i, j) for i, j in translation.alignment if i < n_source and j < n_target)


def is_repetitive(source: Sequence[str], target: Sequence[str]) -> bool:
    """Return whether `target` repeats itself although `source` does not."""
    return _has_loop(target) and not _has_loop(source)


def _has_loop(pieces: Sequence[str]) -> bool:
    if len(pieces) - len(set(pieces)) < _MIN_DUPLICATES:
        return False
    for period in range(1, _MAX_PERIOD + 1):
        n_needed = max(_MIN_REPEATS * period, _MIN_REPEATED_LENGTH) - period
        n_equal = 0
        for previous, piece in zip(pieces, pieces[period:], strict=False):
            n_equal = n_equal + 1 if piece == previous else 0
            if n_equal >= n_needed:
                return True
    return False
