"""What a model said of the same sentences as it learned, for the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import escape

from mtcli.report.curves import LoggedEvent, number, thinned

_MAX_SAYINGS = 100  # of a sentence: a long run has thousands
_N_OPEN = 6  # at the start and at the end; those in between are folded away
_INTRO = '<p class="quiet intro">Words that agree with the reference stand out.</p>\n'
_MAX_CHARACTERS = 400  # of a text: young models babble


@dataclass(frozen=True)
class Saying:
    """A translation and the validations, one after the other, that gave it."""

    first_step: float
    last_step: float
    text: str


def samples_html(validations: Sequence[LoggedEvent]) -> str:
    """Every sample sentence with its reference and its translations through time."""
    found: dict[tuple[str, str], list[Saying]] = {}
    for validation in validations:
        step = number(validation, "step") or 0
        for sample in validation.get("samples") or ():
            sentence = str(sample.get("source", "")), str(sample.get("reference", ""))
            _add(found.setdefault(sentence, []), step, str(sample.get("translation", "")))
    return _INTRO * bool(found) + "".join(
        _sentence(*sentence, sayings) for sentence, sayings in found.items()
    )


def _add(sayings: list[Saying], step: float, text: str) -> None:
    """Note what was said at `step`; the same as before only makes the last entry longer."""
    if sayings and sayings[-1].text == text:
        sayings[-1] = Saying(sayings[-1].first_step, step, text)
    else:
        sayings.append(Saying(step, step, text))


def _sentence(source: str, reference: str, sayings: Sequence[Saying]) -> str:
    rows = [
        _row(_steps(saying), marked(saying.text, reference))
        for saying in thinned(sayings, _MAX_SAYINGS)
    ]
    is_long = len(rows) > 3 * _N_OPEN
    folded = rows[_N_OPEN:-_N_OPEN] if is_long else []
    said = [rows[:_N_OPEN], rows[-_N_OPEN:]] if is_long else [rows]
    between = f"""<details><summary>{len(folded)} in between</summary>{_said(folded)}</details>
"""
    return f"""<article class="sample">
<dl>{_row("source", escape(_clipped(source)))}{_row("reference", escape(_clipped(reference)))}</dl>
<hr>{between.join(_said(part) for part in said)}
</article>
"""


def _said(rows: Sequence[str]) -> str:
    return f'<dl class="said">{"".join(rows)}</dl>'


def marked(text: str, reference: str) -> str:
    """`text` as HTML; the words that also stand in the reference, in its order, are set off."""
    words = _clipped(text).split()
    matcher = SequenceMatcher(None, words, _clipped(reference).split(), autojunk=False)
    parts, end = [], 0
    for block in matcher.get_matching_blocks():
        parts.append(escape(" ".join(words[end : block.a])))
        agreed = " ".join(words[block.a : block.a + block.size])
        parts.append(f"<b>{escape(agreed)}</b>" if agreed else "")
        end = block.a + block.size
    return " ".join(part for part in parts if part)


def _row(label: str, content: str) -> str:
    # Each text may be written in its own direction.
    return f'<dt>{label}</dt><dd dir="auto">{content}</dd>'


def _steps(saying: Saying) -> str:
    first, last = f"{saying.first_step:,.0f}", f"{saying.last_step:,.0f}"
    return f"step {first}" if first == last else f"step {first} to {last}"


def _clipped(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
