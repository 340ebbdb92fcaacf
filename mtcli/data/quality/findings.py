"""Result of a check: statistics, findings and the worst pairs of a corpus."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mtcli.reporting.messages import clip_text

_MAX_CHARACTERS = 160  # of a line in an example


@dataclass(frozen=True)
class Kind:
    """A kind of finding. `weight` times the number of pairs is its importance."""

    name: str
    title: str
    weight: float
    advice: str
    is_problem: bool = True  # notes do not change the exit code, and --fix ignores them


_REMOVE = "`--fix` removes them"
KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "unequal",
            "the two sides have different numbers of lines",
            1e9,
            "Find the missing line: the first misaligned passage below starts near it. `--fix` "
            "realigns the passages that it recognizes and removes the remaining lines.",
        ),
        Kind(
            "misaligned",
            "lines that do not stand beside their translation",
            30,
            "Insert or delete the missing line where the passage starts. `--fix` realigns shifted "
            "passages and removes those without translations.",
        ),
        Kind(
            "test_exact",
            "pairs that also occur in the test set",
            60,
            f"Remove them from the training data, or the test score will be too high; {_REMOVE}.",
        ),
        Kind(
            "test_near",
            "pairs that differ from the test set in a few characters or words",
            20,
            f"Remove them from the training data, or the test score will be too high; {_REMOVE}.",
        ),
        Kind(
            "one_sided",
            "pairs with text on one side only",
            10,
            "Add the missing text or remove the pair; `mtcli train` ignores such pairs, and "
            "`--fix` removes them.",
        ),
        Kind(
            "copies",
            "pairs with the same text on both sides",
            8,
            f"A model learns from them to copy instead of translating; {_REMOVE}.",
        ),
        Kind(
            "wrong_script",
            "lines in a different script than the rest of their side",
            8,
            f"Check whether the text is in the right language; {_REMOVE}.",
        ),
        Kind(
            "wrong_language",
            "lines in a different language than the rest of their side",
            8,
            f"Check whether the text is in the right language; {_REMOVE}.",
        ),
        Kind(
            "damaged",
            "lines with damaged characters",
            8,
            "Convert the text again from its original with the right encoding, usually "
            f"Windows-1252 or UTF-8; {_REMOVE}.",
        ),
        Kind(
            "length_ratio",
            "pairs with very different lengths",
            5,
            f"One side is probably cut off, or has several sentences; {_REMOVE}.",
        ),
        Kind(
            "repeated",
            "lines that repeat a character or a phrase many times",
            3,
            f"Such lines usually come from tables or from another model; {_REMOVE}.",
        ),
        Kind(
            "control",
            "lines with control characters",
            2,
            "`--fix` removes the characters and keeps the pairs.",
        ),
        Kind(
            "duplicates",
            "pairs that repeat an earlier pair",
            1,
            "Remove them, unless they should count more often in training; `--fix` keeps the "
            "first of them.",
        ),
        Kind(
            "blank",
            "pairs without text",
            1,
            "Remove them; `mtcli train` ignores them, and `--fix` removes them.",
        ),
        Kind(
            "byte_order_mark",
            "files that start with a byte order mark",
            1,
            "mtcli ignores the mark, other tools take it for text; `--fix` does not write it.",
        ),
        Kind(
            "crlf",
            "files whose lines end with CR LF",
            1,
            "mtcli ignores the CR, other tools take it for text; `--fix` writes LF.",
        ),
        Kind(
            "few_letters",
            "pairs with a side that has hardly any letters",
            0.1,
            "Lists of numbers and symbols teach a model little; set filters.min_letter_share to "
            "leave them out of training.",
            is_problem=False,
        ),
        Kind(
            "numbers",
            "pairs with different numbers on the two sides",
            0.1,
            "Look at the examples: many such pairs are correct (30 for thirty); set "
            "filters.different_numbers to leave them out of training.",
            is_problem=False,
        ),
        Kind(
            "urls",
            "pairs with different web or mail addresses on the two sides",
            0.1,
            "Look at the examples; set filters.different_urls to leave them out of training.",
            is_problem=False,
        ),
        Kind(
            "ambiguous",
            "pairs whose source also has a different translation",
            0.1,
            "This is usual for short lines. If there are many, the corpus may contain several "
            "styles or domains.",
            is_problem=False,
        ),
    )
}


@dataclass(frozen=True)
class Example:
    """A pair with its line number. `detail` says what is wrong with it, if that is not obvious."""

    line: int
    source: str
    target: str
    detail: str = ""

    @classmethod
    def of(cls, row: int, pair: tuple[str, str], detail: str = "") -> "Example":
        """Return a printable example: long lines are cut and control characters are replaced."""
        source, target = (clip_text(line, _MAX_CHARACTERS) for line in pair)
        return cls(row + 1, source, target, detail)


@dataclass(frozen=True)
class Finding:
    """Something that was found in a corpus."""

    kind: str
    count: int
    unit: str  # of the count: pairs, lines or files
    examples: tuple[Example, ...]
    details: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What was found."""
        return KINDS[self.kind].title

    @property
    def advice(self) -> str:
        """What to do."""
        return KINDS[self.kind].advice

    @property
    def is_problem(self) -> bool:
        """Whether the finding is a problem and not only a note."""
        return KINDS[self.kind].is_problem

    @property
    def importance(self) -> float:
        """Order of the findings: the more important one is greater."""
        return KINDS[self.kind].weight * self.count


@dataclass(frozen=True)
class LengthStats:
    """Line lengths of one side in characters; blank lines do not count."""

    mean: float
    median: int
    longest: int
    histogram: tuple[int, ...]  # lines per class of `LENGTH_CLASSES`


LENGTH_CLASSES = (10, 20, 30, 50, 70, 100, 150, 200, 300, 500, 1000)  # upper limits; then longer


def length_class_labels() -> list[str]:
    """Return the names of the length classes: "1-10", "11-20", ..., "over 1000"."""
    lows = [1, *(limit + 1 for limit in LENGTH_CLASSES[:-1])]
    labels = [f"{low}-{high}" for low, high in zip(lows, LENGTH_CLASSES, strict=True)]
    return [*labels, f"over {LENGTH_CLASSES[-1]}"]


@dataclass(frozen=True)
class CheckResult:
    """All that is known about a corpus."""

    corpus: str
    source_lang: str | None
    target_lang: str | None
    n_pairs: int
    source: LengthStats
    target: LengthStats
    findings: tuple[Finding, ...]  # the most important one first
    worst: tuple[Example, ...]  # pairs that look least like translations, if they are bad
    skipped: tuple[str, ...] = ()  # checks that were not possible, with the reason

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that are problems."""
        return tuple(finding for finding in self.findings if finding.is_problem)

    def to_dict(self) -> dict[str, Any]:
        """Return the content as plain values."""
        findings = [
            {
                "kind": finding.kind,
                "title": finding.title,
                "is_problem": finding.is_problem,
                "count": finding.count,
                "unit": finding.unit,
                "advice": finding.advice,
                "details": list(finding.details),
                "examples": [asdict(example) for example in finding.examples],
            }
            for finding in self.findings
        ]
        sides = {name: asdict(getattr(self, name)) for name in ("source", "target")}
        return {
            "corpus": self.corpus,
            "source_lang": self.source_lang,
            "target_lang": self.target_lang,
            "n_pairs": self.n_pairs,
            "length_classes": length_class_labels(),
            **sides,
            "n_problems": len(self.problems),
            "findings": findings,
            "worst": [asdict(example) for example in self.worst],
            "skipped": list(self.skipped),
        }


@dataclass(frozen=True)
class FixResult:
    """Files of a cleaned corpus."""

    source: Path
    target: Path
    removed: Path  # list of removed and changed lines
    n_kept: int
    n_removed: int
    n_changed: int

    def to_dict(self) -> dict[str, Any]:
        """Return the content as plain values."""
        values = asdict(self)
        return {name: str(v) if isinstance(v, Path) else v for name, v in values.items()}
