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
# Limit for the weights of all layers and heads in a report. With it, a report of 3,000 lines stays
# below 5 MB.
MAX_CHARACTERS_PER_KIND = 500_000


def choose_map_lines(
    evaluation: Evaluation, scores: Sequence[Sequence[float]], n: int
) -> list[int]:
    """Return the indexes of up to `n` lines for attention maps, in the order of choice.

    The lines are taken in turn from three rankings: by lowest score of the first system, by largest
    score difference between systems (only if there are several), and by greatest length. Blank
    lines and lines of more than 300 characters are excluded. Without a source, the list is empty.
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
    """Characters left in a report for the weights of all layers and heads, by kind of attention."""

    def __init__(self, n_characters: int) -> None:
        self._left = dict.fromkeys(KINDS, n_characters)
        self._n_lines = dict.fromkeys(KINDS, 0)
        self.n_complete: dict[str, int] = {}  # number of lines that fit, for each full kind

    def take(self, kind: str, n_characters: int) -> bool:
        """Reserve space for the weights of a line; return whether they fit.

        After the first line that does not fit, no other line of this kind fits.
        """
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
    # For each kind: number of lines with all layers and heads. Missing if all lines have them.
    n_complete: Mapping[str, int]

    def describe_detail(self) -> str:
        """Return how many lines have all layers and heads, as a sentence; empty if all do."""
        if not self.n_complete:
            return ""
        limited = [kind for kind in KINDS if kind in self.n_complete]
        counts = ", ".join(f"{self.n_complete[kind]:,} for {KINDS[kind]}" for kind in limited)
        return (
            "To limit the size of the report, only some lines have maps of all layers and heads: "
            f"{counts}."
        )


def trace_maps(
    evaluation: Evaluation,
    translators: Mapping[int, Translator],
    lines: Sequence[int],
    notify: Callable[[str], None] = lambda _: None,
) -> TracedMaps:
    """Return the attention maps of `lines` for the systems that have a translator.

    Each model is forced to output its translations from the evaluation. Systems without attention
    weights have no maps. If a line is too long for a map, `notify` is called with a warning.
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
                notify(f"warning: {name}: no attention map for line {line + 1:,}: {error.args[0]}")
            else:
                traced |= {system: found.parts[0]} if found.parts else {}
        if traced:
            maps[line] = _compact_line(traced, space)
    return TracedMaps(maps, space.n_complete)


def _compact_line(
    traced: Mapping[int, SentenceAttention], space: _Space
) -> dict[int, Mapping[str, Any]]:
    """Return the compact attention of a line, by system.

    A kind of attention that fits has all layers and heads. If the main kind does not fit, it has
    only its default map. Other kinds that do not fit are omitted.
    """
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
