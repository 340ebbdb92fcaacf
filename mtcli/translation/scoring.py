"""Scoring of existing translations: log-probabilities of tokens, sentences and a corpus."""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass

from mtcli.errors import DataError, EngineError
from mtcli.translation.engines import LoadedEngine
from mtcli.translation.engines.base import Engine, PiecePair, Source, TokenScores
from mtcli.translation.pipeline import LINES_PER_GROUP, Group, OnProgress, Wait, run_groups

EOS = "</s>"
_GROUP_CHARACTERS = 1 << 20  # limit for groups of long lines


@dataclass(frozen=True)
class Pair:
    """A source line and an existing translation of it."""

    source: str
    target: str


@dataclass(frozen=True)
class PairScore:
    """Score of a translation: the log-probability of each of its tokens, including EOS.

    An overlong pair has no tokens, and its score is minus infinity.
    """

    tokens: tuple[str, ...]  # pieces of the target, then EOS
    log_probs: tuple[float, ...]  # natural logarithms
    is_overlong: bool = False  # the source or the target exceeds the maximum length
    is_blank: bool = False  # the source or the target has no pieces

    @property
    def log_prob(self) -> float:
        """Log-probability of the translation: the sum over its tokens."""
        return -math.inf if self.is_overlong else math.fsum(self.log_probs)

    def score(self, length_penalty: float) -> float:
        """Return log-probability / length**length_penalty, as in search (length includes EOS)."""
        divisor: float = max(1, len(self.tokens)) ** length_penalty
        return self.log_prob / divisor


@dataclass(frozen=True)
class ScoreTotals:
    """Totals over scored pairs. Only `n_pairs` and `n_overlong` include overlong pairs."""

    n_pairs: int = 0
    n_overlong: int = 0
    n_blank: int = 0
    n_tokens: int = 0  # target tokens, including EOS
    n_characters: int = 0  # target characters
    log_prob: float = 0.0

    def __add__(self, other: "ScoreTotals") -> "ScoreTotals":
        return ScoreTotals(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def perplexity(self) -> float:
        """Perplexity per token; NaN if no pair was scored."""
        if not self.n_tokens:
            return math.nan
        exponent = -self.log_prob / self.n_tokens
        return math.exp(exponent) if exponent < 700 else math.inf  # exp(710) overflows

    @property
    def bits_per_character(self) -> float:
        """Cross-entropy per target character, comparable across vocabularies.

        NaN if the targets have no characters.
        """
        bits = -self.log_prob / math.log(2)
        return bits / self.n_characters if self.n_characters else math.nan


def total_scores(pairs: Sequence[Pair], scores: Sequence[PairScore]) -> ScoreTotals:
    """Return the totals over `pairs`, given their scores."""
    scored = [(p, s) for p, s in zip(pairs, scores, strict=True) if not s.is_overlong]
    return ScoreTotals(
        n_pairs=len(pairs),
        n_overlong=len(pairs) - len(scored),
        n_blank=sum(score.is_blank for _, score in scored),
        n_tokens=sum(len(score.tokens) for _, score in scored),
        n_characters=sum(len(pair.target) for pair, _ in scored),
        log_prob=math.fsum(score.log_prob for _, score in scored),
    )


class PairScorer:
    """Scorer for pairs that uses a loaded engine."""

    def __init__(
        self,
        loaded: LoadedEngine,
        *,
        batch_tokens: int | None = None,
        max_pieces: int | None = None,
        to: str | None = None,
        tag: str | None = None,
    ) -> None:
        self.engine, self.tokenizers = loaded.engine, loaded.tokenizers
        self.symbols = loaded.tags.symbols(to, tag)  # tags that precede every source
        # Twice the engine's default, which counts only source positions: scoring also counts
        # target positions.
        self.batch_tokens = batch_tokens or 2 * loaded.engine.batch_tokens
        self.max_pieces = _choose_max_pieces(loaded, max_pieces)

    def score_groups(
        self, groups: Iterable[Sequence[Pair]], on_progress: OnProgress | None = None
    ) -> Iterator[list[PairScore]]:
        """Yield the scores of each group; prepare the next group while the engine computes."""
        work = (_Group(self, pairs, on_progress) for pairs in groups)
        return run_groups(work, self.engine.n_parallel)

    def to_pieces(self, pairs: Sequence[Pair]) -> list[PiecePair]:
        """Return the pieces of each pair; the tags precede those of the source."""
        sources = self.tokenizers.source.tokenize_batch([pair.source for pair in pairs])
        targets = self.tokenizers.target.tokenize_batch([pair.target for pair in pairs])
        tags = self.symbols
        return [
            (Source((*tags, *source), n_tags=len(tags)), tuple(target))
            for source, target in zip(sources, targets, strict=True)
        ]


def _choose_max_pieces(loaded: LoadedEngine, wanted: int | None) -> int:
    """Return the maximum length of a source or target: `wanted`, or the model's default.

    Raise `EngineError` if the engine cannot process sequences as long as `wanted`.
    """
    n_positions = loaded.engine.n_positions
    limit = None if n_positions is None else n_positions - 1  # one position is for EOS or BOS
    if wanted is not None and limit is not None and wanted > limit:
        raise EngineError(
            f"max_pieces={wanted} exceeds the model's limit of {limit}",
            hint=f"use at most {limit}, or --engine torch if the model's positions are not learned",
        )
    return wanted or min(loaded.search.max_length, limit or loaded.search.max_length)


def pair_groups(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Yield the pairs in groups of limited size."""
    group: list[Pair] = []
    n_characters = 0
    for pair in pairs:
        group.append(pair)
        n_characters += len(pair.source) + len(pair.target)
        if len(group) == LINES_PER_GROUP or n_characters >= _GROUP_CHARACTERS:
            yield group
            group, n_characters = [], 0
    if group:
        yield group


@dataclass(frozen=True)
class ScoredGroup:
    """Consecutive pairs and their scores."""

    pairs: Sequence[Pair]
    scores: Sequence[PairScore]


def score_stream(
    scorer: PairScorer, pairs: Iterable[Pair], on_progress: OnProgress | None = None
) -> Iterator[ScoredGroup]:
    """Yield groups of pairs with their scores; memory use does not depend on the input size.

    An error in the input is raised after the pairs before it have been yielded.
    """
    pending: deque[list[Pair]] = deque()
    errors: list[DataError] = []

    def groups() -> Iterator[list[Pair]]:
        for group in pair_groups(_until_error(pairs, errors)):
            pending.append(group)
            yield group

    for scores in scorer.score_groups(groups(), on_progress):
        yield ScoredGroup(pending.popleft(), scores)
    if errors:
        raise errors[0]


def _until_error(pairs: Iterable[Pair], errors: list[DataError]) -> Iterator[Pair]:
    """Yield the pairs up to the first error, which is added to `errors`."""
    try:
        yield from pairs
    except DataError as error:
        errors.append(error)


class _Group(Group[PairScore]):
    """Pairs that are sorted by length and scored together."""

    def __init__(
        self, scorer: PairScorer, pairs: Sequence[Pair], on_progress: OnProgress | None
    ) -> None:
        self.engine: Engine = scorer.engine
        self.batch_tokens = scorer.batch_tokens
        self.on_progress = on_progress or (lambda _: None)
        self.pairs = scorer.to_pieces(pairs)
        lengths = [(len(source.pieces), len(pieces)) for source, pieces in self.pairs]
        self.rows = [row for row, n in enumerate(lengths) if max(n) <= scorer.max_pieces]
        self.rows.sort(key=lengths.__getitem__, reverse=True)
        self.log_probs: TokenScores = [[] for _ in pairs]
        self.n_unfinished = len(self.rows)
        self.on_progress(len(pairs) - len(self.rows))

    @property
    def is_done(self) -> bool:
        """Whether all pairs have been scored."""
        return self.n_unfinished == 0

    def start_batches(self) -> Iterator[Wait]:
        """Start the batches one by one; for each, yield a function that waits for its results."""
        return map(self._submit, self._batches())

    def _batches(self) -> Iterator[list[int]]:
        """Yield batches of pairs of similar length; a batch has at most `batch_tokens` positions.

        Padding counts as positions. A single pair may exceed the limit.
        """
        batch: list[int] = []
        longest_source = longest_target = 0
        for row in self.rows:
            source, pieces = self.pairs[row]
            longest_source = max(longest_source, len(source.pieces) + 1)
            longest_target = max(longest_target, len(pieces) + 1)
            if batch and (len(batch) + 1) * (longest_source + longest_target) > self.batch_tokens:
                yield batch
                batch = []
                longest_source, longest_target = len(source.pieces) + 1, len(pieces) + 1
            batch.append(row)
        if batch:
            yield batch

    def _submit(self, rows: list[int]) -> Wait:
        wait = self.engine.submit_scoring([self.pairs[row] for row in rows])

        def finish() -> None:
            for row, log_probs in zip(rows, wait(), strict=True):
                self.log_probs[row] = log_probs
            self.n_unfinished -= len(rows)
            self.on_progress(len(rows))

        return finish

    def results(self) -> list[PairScore]:
        """Return the score of each pair."""
        return [
            PairScore(
                tokens=(*pieces, EOS) if log_probs else (),
                log_probs=tuple(log_probs),
                is_overlong=not log_probs,
                is_blank=len(source.pieces) == source.n_tags or not pieces,
            )
            for (source, pieces), log_probs in zip(self.pairs, self.log_probs, strict=True)
        ]
