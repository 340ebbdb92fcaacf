"""Attention maps for an evaluation report."""

from collections.abc import Mapping, Sequence
from typing import Any

from mtcli.errors import DataError, EngineError
from mtcli.evaluation.results import Evaluation
from mtcli.reporting.attention.compact import compact_map
from mtcli.translation.translator import Translator

_MAX_CHARACTERS = 300  # maps of longer lines do not fit on a screen


def choose_map_lines(
    evaluation: Evaluation, scores: Sequence[Sequence[float]], n: int
) -> list[int]:
    """Return the indexes of up to `n` lines for attention maps, in ascending order.

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
    return sorted([*dict.fromkeys(in_turn)][:n])


def describe_choice(n: int, *, is_comparison: bool) -> str:
    """Return a sentence that explains how `choose_map_lines` chose `n` lines."""
    rules = "lowest score and"
    if is_comparison:
        rules = "lowest score of the first system, largest difference between systems, and"
    return (
        f"Lines with attention maps: {n:,}, chosen in turn by {rules} greatest length. "
        f"Lines of more than {_MAX_CHARACTERS} characters are excluded."
    )


def trace_maps(
    evaluation: Evaluation, translators: Mapping[int, Translator], lines: Sequence[int]
) -> dict[int, dict[int, Any]]:
    """Return attention maps by line, then by system, for the systems in `translators`.

    Each model is forced to decode its translations from the evaluation. Systems without attention
    weights, such as ensembles, have no maps.
    """
    source = evaluation.test_set.source or ()
    maps: dict[int, dict[int, Any]] = {line: {} for line in lines if line < len(source)}
    for system, translator in translators.items():
        hypotheses = evaluation.systems[system].hypotheses
        for line, by_system in maps.items():
            try:
                traced = translator.attention(source[line], hypotheses[line])
            except EngineError:
                break
            except DataError:  # the line is longer than the model supports
                continue
            if traced.parts:
                by_system[system] = compact_map(traced.parts[0].map())
    return {line: by_system for line, by_system in maps.items() if by_system}
