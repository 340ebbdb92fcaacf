"""Lines in, translations out; what must never differ between engines is done here."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mtcli.engines import Found, Opened, Scored, Source
from mtcli.errors import EngineError
from mtcli.options import SearchOptions
from mtcli.translation.alignment import Alignment, align, word_numbers
from mtcli.translation.guard import is_runaway
from mtcli.translation.parts import Part, glue, split

_AHEAD = 4  # batches under way for each one that is worked on
_MAX_ROWS = 1024  # of a batch, all beams counted
OnProgress = Callable[[float], None]


@dataclass(frozen=True)
class Request:
    """A line that somebody wants to have translated."""

    text: str
    prefix: str = ""  # how the translation is to begin


@dataclass(frozen=True)
class Translation:
    """What a line becomes, and how sure the model is of it."""

    text: str
    score: float  # log-probability / length**length_penalty; of a line in parts, their sum
    alignment: Alignment | None = None  # if asked for: which word comes from which
    n_parts: int = 1  # more than one: the line was too long and was translated in parts
    is_cut: bool = False  # the search was not allowed to go on to its end
    is_runaway: bool = False  # says the same again and again


class LineTranslator:
    """Tokenises, splits, batches, searches and puts together again, over any engine."""

    def __init__(self, opened: Opened, *, batch_tokens: int | None = None) -> None:
        self.engine = opened.engine
        self.tokenizers = opened.tokenizers
        self.max_pieces = opened.max_pieces
        self.options = opened.search  # the model's own
        self.batch_tokens = batch_tokens or opened.engine.batch_tokens

    def translate_all(
        self, requests: Sequence[Request], options: SearchOptions
    ) -> list[list[Translation]]:
        """The n_best translations of each line, in the order of the lines; blank stays blank."""
        return [line for group in self.flow([requests], options) for line in group]

    def check(self, options: SearchOptions) -> None:
        """Refuse what the model cannot do."""
        n_positions = self.engine.n_positions
        if n_positions is not None and options.max_length > n_positions:
            raise EngineError(
                f"max_length={options.max_length} is more than the model's {n_positions} positions",
                hint="ask for a smaller --max-length; torch has no limit, unless they are learned",
            )

    def flow(
        self,
        groups: Iterable[Sequence[Request]],
        options: SearchOptions,
        on_progress: OnProgress | None = None,
    ) -> Iterator[list[list[Translation]]]:
        """Yield the translations of group after group; while one is searched, prepare the next.

        An empty group means that there are no more lines for now: all pending batches are finished
        before the next group is requested. `on_progress` gets the number of lines that each batch
        completes.
        """
        self.check(options)
        windows: deque[_Window] = deque()
        under_way: deque[Callable[[], None]] = deque()
        for group in groups:
            if not group:
                _finish(under_way, 0)
            else:
                windows.append(_Window(self, group, options, on_progress))
                for rows in windows[-1].batches(self.batch_tokens):
                    under_way.append(windows[-1].begin(rows))
                    # More than are worked on, so that no thread waits while we do something else.
                    _finish(under_way, _AHEAD * self.engine.n_parallel)
                if len(windows) > _AHEAD:  # blank lines make no batches that would drive others out
                    _finish(under_way, 0)
            while windows and windows[0].is_done:
                yield windows.popleft().translations()
        _finish(under_way, 0)
        for window in windows:
            yield window.translations()


def _finish(under_way: deque[Callable[[], None]], n_left: int) -> None:
    while len(under_way) > n_left:
        under_way.popleft()()


class _Window:
    """Lines that are translated together: sorted by length, and each source searched once."""

    def __init__(
        self,
        translator: LineTranslator,
        requests: Sequence[Request],
        options: SearchOptions,
        on_progress: OnProgress | None,
    ) -> None:
        self.on_progress = on_progress or (lambda _: None)
        self.engine, self.options, self.requests = translator.engine, options, requests
        self.source, self.target = translator.tokenizers.source, translator.tokenizers.target
        pieces = self.source.pieces_of_each([request.text for request in requests])
        self.lines = [split(line, translator.max_pieces) for line in pieces]
        prefixes = [self.target.pieces(r.prefix) if r.prefix else [] for r in requests]
        self.rows: list[list[int]] = []  # of each line's parts in `sources`
        self.sources: list[Source] = []
        known: dict[Source, int] = {}
        for parts, prefix in zip(self.lines, prefixes, strict=True):
            self.rows.append([])
            for i, part in enumerate(parts):
                source = Source(part.pieces, () if i else tuple(prefix))
                row = known.setdefault(source, len(self.sources))
                if row == len(self.sources):
                    self.sources.append(source)
                if options.sampling:  # the same line may become something else each time
                    known.clear()
                self.rows[-1].append(row)
        self.found: Found = [[] for _ in self.sources]
        self.n_open = len(self.sources)
        if not self.sources:  # blank lines
            self.on_progress(len(requests))

    @property
    def is_done(self) -> bool:
        """Whether all is found."""
        return self.n_open == 0

    def batches(self, batch_tokens: int) -> Iterator[list[int]]:
        """Rows of `sources` that are searched together: of like length, the longest first.

        Rows that share a batch have the same limit, and either all of them have a prefix or none:
        so what is found for one does not depend on the others. (With a shortlist it may: its
        candidates are those of all sources of a batch.)
        """
        keys = [(self._limit(s), bool(s.prefix), len(s.pieces)) for s in self.sources]
        n_rows = self.options.n_best if self.options.sampling else self.options.beam_size
        batch: list[int] = []
        room = 0
        for row in sorted(range(len(keys)), key=keys.__getitem__, reverse=True):
            if batch and (len(batch) >= room or keys[row][:2] != keys[batch[0]][:2]):
                yield batch
                batch = []
            if not batch:
                # The rows count as well: each has a probability for every piece there is.
                room = min(batch_tokens // (keys[row][2] + 1), _MAX_ROWS // n_rows)
            batch.append(row)
        if batch:
            yield batch

    def begin(self, rows: list[int]) -> Callable[[], None]:
        """Start to search for `rows`; calling what is returned waits for it to end."""
        sources = [self.sources[row] for row in rows]
        result = self.engine.submit(sources, self.options, self._limit(sources[0]))

        def finish() -> None:
            for row, candidates in zip(rows, result(), strict=True):
                self.found[row] = candidates
            self.n_open -= len(rows)
            self.on_progress(len(rows) / len(self.sources) * len(self.requests))

        return finish

    def _limit(self, source: Source) -> int:
        limit = self.options.limit(len(source.pieces), len(source.prefix))
        return min(limit, self.engine.n_positions or limit)

    def translations(self) -> list[list[Translation]]:
        """The n_best translations of each line."""
        flat = [scored.pieces for candidates in self.found for scored in candidates]
        texts = map(one_line, self.target.text_of_each(flat))
        each = [
            [self._translation(source, scored, next(texts)) for scored in candidates]
            for source, candidates in zip(self.sources, self.found, strict=True)
        ]
        return [
            self._joined(request, parts, [each[row] for row in rows])
            for request, parts, rows in zip(self.requests, self.lines, self.rows, strict=True)
        ]

    def _translation(self, source: Source, scored: Scored, text: str) -> Translation:
        attention = scored.attention if self.options.with_alignment else None
        return Translation(
            text,
            scored.score,
            None if attention is None else align(source.pieces, scored.pieces, attention),
            is_cut=scored.is_cut,
            is_runaway=is_runaway(source.pieces, scored.pieces),
        )

    def _joined(
        self, request: Request, parts: list[Part], each: list[list[Translation]]
    ) -> list[Translation]:
        """The translations of a line from those of its parts: best with best, and so on."""
        if not parts:
            return [Translation("", 0.0, alignment=() if self.options.with_alignment else None)]
        candidates = [joined(parts, same) for same in zip(*each, strict=False)]
        if not self.options.with_alignment:
            return candidates
        n_words = len(request.text.split())
        return [replace(c, alignment=_between_words(c, n_words)) for c in candidates]


def joined(parts: Sequence[Part], translations: Sequence[Translation]) -> Translation:
    """One translation of a line from one of each of its parts."""
    if len(parts) == 1:
        return translations[0]
    text, links, n_source = "", list[tuple[int, int]](), 0
    for part, translation in zip(parts, translations, strict=True):
        between = glue(text, translation.text, is_inside_word=part.is_inside_word)
        source_start = n_source - part.is_inside_word
        target_start = len(text.split()) - bool(text and translation.text and not between)
        links += [(source_start + i, target_start + j) for i, j in translation.alignment or ()]
        n_source = source_start + word_numbers(part.pieces)[-1] + 1
        text += between + translation.text
    return Translation(
        text,
        score=sum(translation.score for translation in translations),
        alignment=None if translations[0].alignment is None else tuple(sorted(links)),
        n_parts=len(parts),
        is_cut=any(translation.is_cut for translation in translations),
        is_runaway=any(translation.is_runaway for translation in translations),
    )


def _between_words(translation: Translation, n_source: int) -> Alignment | None:
    """Its links, if both words are there: a tokenizer may see spaces where nobody else does."""
    if translation.alignment is None:
        return None
    n_target = len(translation.text.split())
    return tuple((i, j) for i, j in translation.alignment if i < n_source and j < n_target)


def one_line(text: str) -> str:
    """`text` without line breaks: bytes may spell one, which a translation never has."""
    return text if text.isprintable() else " ".join(text.splitlines())
