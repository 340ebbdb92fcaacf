"""Result of a check: statistics, findings and the worst pairs in a corpus."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mtcli.counts import format_count
from mtcli.reporting.messages import clip_text

_MAX_CHARACTERS = 160  # per line in an example


@dataclass(frozen=True)
class Kind:
    """A kind of finding. The importance of a finding is `weight` times its count."""

    name: str
    unit: str  # noun after the count, in the singular
    title: str  # description after the unit; may be empty
    weight: float
    advice: str
    is_problem: bool = True  # False for a note, which affects neither --fix nor the exit code


_LEAK = "Remove them from the training data: they would make the test score too high."
KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "unequal",
            "line",
            "without a counterpart: one side is longer than the other",
            1e9,
            "Insert the missing lines, or delete the extra ones; misaligned lines are listed "
            "below. --fix writes only complete pairs.",
        ),
        Kind(
            "misaligned",
            "misaligned line",
            "",
            30,
            "Insert the missing line, or delete the extra one, where the passage starts. --fix "
            "realigns shifted passages and removes passages without translations.",
        ),
        Kind("test_exact", "pair", "from a test set", 60, _LEAK),
        Kind("test_near", "pair", "similar to a pair in a test set", 20, _LEAK),
        Kind(
            "one_sided",
            "pair",
            "with text on one side only",
            10,
            "Add the missing text or remove the pairs. mtcli train ignores them.",
        ),
        Kind(
            "copies",
            "pair",
            "with the same text on both sides",
            8,
            "Remove them: they teach the model to copy instead of translating.",
        ),
        Kind(
            "wrong_script",
            "pair",
            "with a line in a different script from the rest of its side",
            8,
            "Remove them, unless the language uses both scripts.",
        ),
        Kind(
            "wrong_language",
            "pair",
            "with a line in a different language from the rest of its side",
            8,
            "Remove them, or translate the lines.",
        ),
        Kind(
            "damaged",
            "pair",
            "with damaged characters",
            8,
            "Convert the original text again with the correct encoding, or remove the pairs.",
        ),
        Kind(
            "length_ratio",
            "pair",
            "with very different lengths",
            5,
            "Remove them, or complete the shorter side.",
        ),
        Kind(
            "repeated",
            "pair",
            "with a character or phrase repeated many times",
            3,
            "Remove them: such lines often come from tables or from another model.",
        ),
        Kind(
            "control",
            "pair",
            "with control characters",
            2,
            "Remove the characters, as --fix does.",
        ),
        Kind(
            "duplicates",
            "pair",
            "repeating an earlier pair",
            1,
            "Remove them, unless the repetition is intended: training uses each copy. --fix keeps "
            "the first one.",
        ),
        Kind("blank", "pair", "without text", 1, "Remove them. mtcli train ignores them."),
        Kind(
            "byte_order_mark",
            "file",
            "with a byte order mark at the start",
            1,
            "Remove the mark: mtcli ignores it, but other tools may read it as text.",
        ),
        Kind(
            "crlf",
            "file",
            "with CR LF line endings",
            1,
            "Convert the line endings to LF: mtcli ignores CR, but other tools may read it as "
            "text.",
        ),
        Kind(
            "few_letters",
            "pair",
            "with very few letters on one side",
            0.1,
            "Set filters.min_letter_share to exclude such pairs from training.",
            is_problem=False,
        ),
        Kind(
            "numbers",
            "pair",
            "with different numbers on the two sides",
            0.1,
            "Check the examples: many of these pairs are correct, for example 30 for thirty. To "
            "exclude all pairs with different numbers, set filters.different_numbers.",
            is_problem=False,
        ),
        Kind(
            "urls",
            "pair",
            "with different URLs or email addresses on the two sides",
            0.1,
            "Set filters.different_urls to exclude such pairs from training.",
            is_problem=False,
        ),
        Kind(
            "ambiguous",
            "pair",
            "with the same source as an earlier pair, but a different target",
            0.1,
            "This is normal for short lines.",
            is_problem=False,
        ),
    )
}


@dataclass(frozen=True)
class Example:
    """A pair and its line number. `detail` is a note if the problem is not obvious."""

    line: int
    source: str
    target: str
    detail: str = ""

    @classmethod
    def of(cls, row: int, pair: tuple[str, str], detail: str = "") -> "Example":
        """Return a printable example: truncate long lines and replace control characters."""
        source, target = (clip_text(line, _MAX_CHARACTERS) for line in pair)
        return cls(row + 1, source, target, detail)


@dataclass(frozen=True)
class Finding:
    """All occurrences of one kind of finding in a corpus."""

    kind: str
    count: int
    examples: tuple[Example, ...] = ()
    details: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Number and kind, such as "12 pairs without text"."""
        kind = KINDS[self.kind]
        return f"{format_count(self.count, kind.unit)} {kind.title}".rstrip()

    @property
    def advice(self) -> str:
        """Recommended action."""
        return KINDS[self.kind].advice

    @property
    def is_problem(self) -> bool:
        """Whether the finding is a problem rather than a note."""
        return KINDS[self.kind].is_problem

    @property
    def importance(self) -> float:
        """Sort key of the finding; more important findings have greater values."""
        return KINDS[self.kind].weight * self.count


@dataclass(frozen=True)
class LengthStats:
    """Line lengths on one side, in characters. Blank lines are not included."""

    mean: float
    median: int
    longest: int
    histogram: tuple[int, ...]  # number of lines in each class of `length_class_labels()`


# Upper limits of the length classes. Longer lines form another class.
LENGTH_CLASSES = (10, 20, 30, 50, 70, 100, 150, 200, 300, 500, 1000)


def length_class_labels() -> list[str]:
    """Return the names of the length classes: "1-10", "11-20", ..., "over 1000"."""
    lows = [1, *(limit + 1 for limit in LENGTH_CLASSES[:-1])]
    labels = [f"{low}-{high}" for low, high in zip(lows, LENGTH_CLASSES, strict=True)]
    return [*labels, f"over {LENGTH_CLASSES[-1]}"]


@dataclass(frozen=True)
class CheckResult:
    """Result of checking a corpus."""

    corpus: str
    source_lang: str | None
    target_lang: str | None
    n_pairs: int
    source: LengthStats
    target: LengthStats
    findings: tuple[Finding, ...]  # the most important one first
    worst: tuple[Example, ...]  # pairs that are probably not translations, worst first
    skipped: tuple[str, ...] = ()  # checks that were not possible, with reasons

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that are problems."""
        return tuple(finding for finding in self.findings if finding.is_problem)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON-serializable dictionary."""
        findings = [
            {
                "kind": finding.kind,
                "title": finding.title,
                "is_problem": finding.is_problem,
                "count": finding.count,
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
    """Files of a cleaned corpus; numbers of kept pairs, removed pairs or lines, changed pairs."""

    source: Path
    target: Path
    removed: Path  # list of removed and changed lines
    n_kept: int
    n_removed: int
    n_changed: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON-serializable dictionary; paths become strings."""
        values = asdict(self)
        return {name: str(v) if isinstance(v, Path) else v for name, v in values.items()}
