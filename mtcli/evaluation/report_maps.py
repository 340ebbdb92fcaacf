"""Attention maps for an evaluation report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mtcli.errors import DataError, EngineError
from mtcli.evaluation.results import Evaluation
from mtcli.reporting.attention.compact import CompactKind, compact_attention, compact_kind
from mtcli.reporting.attention.maps import KINDS, SentenceAttention
from mtcli.translation.translator import Translator

_MAX_CHARACTERS = 300  # maps of longer lines do not fit on a screen
# Of the weights of all layers and heads in a report. A report of 3,000 lines stays below 5 MB.
MAX_CHARACTERS_PER_KIND = 500_000


def choose_map_lines(
    evaluation: Evaluation, scores: Sequence[Sequence[float]], n: int
) -> list[int]:
    """Return the indexes of up to `n` lines for attention maps, in the order of choice.

    The lines are chosen in turn from three rankings: the lowest scores of the first system, the
    largest differences between two systems (if there are several), and the longest lines. Blank
    lines and lines of more than 300 characters are excluded.
    """
    source = evaluation.test_set.source
    if source is None:
        return []
    short = [i for i, text in enumerate(source) if text.strip() and len(text) <= _MAX_CHARACTERS]
    columns = list(zip(*scores, strict=True))
    rankings = [
        sorted(short, key=lambda i: scores[0][i]),
        sorted(short, key=lambda i: -len(source[i])),
    ]
    if len(scores) > 1:
        rankings.insert(1, sorted(short, key=lambda i: min(columns[i]) - max(columns[i])))
    in_turn = (line for lines in zip(*rankings, strict=True) for line in lines)
    return [*dict.fromkeys(in_turn)][:n]


def describe_choice(n: int, *, is_comparison: bool) -> str:
    """Return a sentence that explains how `choose_map_lines` chose `n` lines."""
    rules = "lowest score and"
    if is_comparison:
        rules = "lowest score of the first system, largest difference between systems, and"
    return (
        f"Lines with attention maps: {n:,}, chosen in turn by {rules} greatest length. "
        f"Lines of more than {_MAX_CHARACTERS} characters are excluded."
    )


class _Space:
    """Space for the weights of all layers and heads, for each kind of attention."""

    def __init__(self, n_characters: int) -> None:
        self._left = dict.fromkeys(KINDS, n_characters)
        self._n_lines = dict.fromkeys(KINDS, 0)
        self.n_complete: dict[str, int] = {}  # full kinds: number of lines before it was full

    def take(self, kind: str, n_characters: int) -> bool:
        """Return whether the weights of a line fit. After the first line that does not, none do."""
        if n_characters > self._left[kind]:
            self.n_complete.setdefault(kind, self._n_lines[kind])
        if kind in self.n_complete:
            return False
        self._left[kind] -= n_characters
        self._n_lines[kind] += 1
        return True


@dataclass(frozen=True)
class TracedMaps:
    """Attention maps by line, then by system."""

    maps: Mapping[int, Mapping[int, Mapping[str, Any]]]
    # For each kind that is not complete: number of lines with all layers and heads.
    n_complete: Mapping[str, int]

    def describe_detail(self) -> str:
        """Return a sentence about the lines without all layers and heads, or nothing."""
        if not self.n_complete:
            return ""
        limited = [kind for kind in KINDS if kind in self.n_complete]
        counts = ", ".join(f"{KINDS[kind]} {self.n_complete[kind]:,}" for kind in limited)
        return (
            f"To limit the size, only the first chosen lines have all layers and heads: {counts}."
        )


def trace_maps(
    evaluation: Evaluation,
    translators: Mapping[int, Translator],
    lines: Sequence[int],
    notify: Callable[[str], None] = lambda _: None,
) -> TracedMaps:
    """Return the attention maps of `lines` for the systems that have a translator.

    Each model is forced to decode its translations from the evaluation. Systems without attention
    weights, such as ensembles, have no maps.
    """
    tracers = dict(translators)
    source, space = evaluation.test_set.source or (), _Space(MAX_CHARACTERS_PER_KIND)
    maps = {}
    for line in lines:
        traced: dict[int, SentenceAttention] = {}
        for system in [*tracers]:
            try:
                found = tracers[system].attention(
                    source[line], evaluation.systems[system].hypotheses[line]
                )
            except EngineError:
                del tracers[system]
            except DataError as error:  # the line is too long
                name = evaluation.systems[system].name
                notify(f"warning: no attention map of line {line + 1:,}, {name}: {error.args[0]}")
            else:
                traced |= {system: found.parts[0]} if found.parts else {}
        if traced:
            maps[line] = _compact_line(traced, space)
    return TracedMaps(maps, space.n_complete)


def _compact_line(
    traced: Mapping[int, SentenceAttention], space: _Space
) -> dict[int, Mapping[str, Any]]:
    """Return the attention of a line, by system; in all layers and heads if there is space."""
    compact: dict[int, list[CompactKind]] = {system: [] for system in traced}
    for kind in KINDS:
        having = {system: part for system, part in traced.items() if kind in part.stacks}
        complete = {
            system: compact_kind(part, kind, "heads")
            for system, part in having.items()
            if kind not in space.n_complete
        }
        fits = space.take(kind, sum(len(c.weights) for c in complete.values()))
        for system, part in having.items():
            if fits:
                compact[system].append(complete[system])
            elif kind == part.main_kind:
                compact[system].append(compact_kind(part, kind, "map"))
    return {system: compact_attention(part, compact[system]) for system, part in traced.items()}
