"""Results of an evaluation: the test set, the systems with their scores, and their comparison.

All classes are plain data. `Evaluation.to_json` converts them to JSON, and `tables.py` formats
them as text.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from mtcli.data.formats.base import UNKNOWN_LANGUAGES, Languages
from mtcli.reporting.events import Score, Scores

SIGNIFICANCE_LEVEL = 0.05

__all__ = [
    "SIGNIFICANCE_LEVEL",
    "Comparison",
    "Decoding",
    "Difference",
    "Evaluation",
    "Score",
    "Scores",
    "SystemResult",
    "TestSet",
]


@dataclass(frozen=True)
class TestSet:
    """A test set: source lines, references, and the document id of each line."""

    __test__ = False  # pytest must not collect this class

    name: str
    source: tuple[str, ...] | None  # None: only the references are known
    references: tuple[tuple[str, ...], ...]  # one or more, each with one line per source line
    documents: tuple[str, ...] | None = None  # None: the format has no documents
    languages: Languages = UNKNOWN_LANGUAGES

    def __len__(self) -> int:
        return len(self.references[0])


@dataclass(frozen=True)
class Decoding:
    """Engine, settings and cost of a model's translation of the test set."""

    engine: str  # "ctranslate2" or "torch"
    beam_size: int
    n_lines: int
    seconds: float  # wall-clock time, without loading the model
    cpu_seconds: float  # CPU time of all threads in this process
    model_bytes: int  # size of the weights that the engine loaded
    memory_bytes: int = 0  # peak memory use of this process during translation; 0: unknown

    @property
    def lines_per_second(self) -> float:
        """Translated lines per second; 0 if no time was measured."""
        return self.n_lines / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class SystemResult:
    """Translations of the test set by one system, and their scores."""

    name: str  # model directory or file with translations
    hypotheses: tuple[str, ...]
    scores: Scores  # by name of the metric: "bleu", "chrf"
    decoding: Decoding | None = None  # None: the translations come from a file

    @property
    def signatures(self) -> dict[str, str]:
        """Signatures of the scores, by metric name."""
        return {name: score.signature for name, score in self.scores.items()}


@dataclass(frozen=True)
class Difference:
    """Difference between a system and the baseline in one metric."""

    system: str
    metric: str  # key of `SystemResult.scores`
    difference: float  # score of the system minus score of the baseline
    p_value: float

    @property
    def is_significant(self) -> bool:
        """Whether the scores differ with a p-value below 0.05."""
        # For identical translations, sacreBLEU's p-value is close to 0, so check the difference.
        return self.p_value < SIGNIFICANCE_LEVEL and self.difference != 0


@dataclass(frozen=True)
class Comparison:
    """Paired significance test of each system against the baseline."""

    baseline: str
    method: str  # "bootstrap" or "randomization"
    n_trials: int
    seed: int
    signatures: dict[
        str, str
    ]  # by metric; each includes the method, its number of trials and its seed
    differences: tuple[Difference, ...]  # one per metric and system, except the baseline

    def find(self, system: str, metric: str) -> Difference | None:
        """Return a system's difference from the baseline in a metric; None for the baseline."""
        found = (d for d in self.differences if (d.system, d.metric) == (system, metric))
        return next(found, None)


@dataclass(frozen=True)
class Evaluation:
    """Scores of one or more systems on a test set; the first system is the baseline."""

    test_set: TestSet
    systems: tuple[SystemResult, ...]
    comparison: Comparison | None = None  # None: there is only one system
    analysis: Any = None  # `Analysis`; None: not requested
    notices: tuple[str, ...] = ()  # messages for the user, such as the choice of BLEU tokenizer

    @property
    def scores(self) -> Scores:
        """Scores of the first system, by metric name."""
        return self.systems[0].scores

    @property
    def signatures(self) -> dict[str, str]:
        """Signatures of the first system's scores, by metric name."""
        return self.systems[0].signatures

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """Translations of the first system."""
        return self.systems[0].hypotheses

    def __str__(self) -> str:
        from mtcli.evaluation.tables import format_text  # that module imports this one

        return format_text(self)

    def to_json(self) -> str:
        """Return the evaluation as JSON, without source lines, references and translations."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1)

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as a dictionary with the same content as `to_json`."""
        test_set = self.test_set
        return {
            "test_set": {
                "name": test_set.name,
                "lines": len(test_set),
                "references": len(test_set.references),
                "documents": len(set(test_set.documents)) if test_set.documents else None,
                "source_lang": test_set.languages.source,
                "target_lang": test_set.languages.target,
            },
            "systems": [_system_as_dict(system) for system in self.systems],
            "comparison": asdict(self.comparison) if self.comparison else None,
            "analysis": asdict(self.analysis) if self.analysis else None,
            "notices": list(self.notices),
        }


def _system_as_dict(system: SystemResult) -> dict[str, Any]:
    decoding = system.decoding
    return {
        "name": system.name,
        "scores": {name: asdict(score) for name, score in system.scores.items()},
        "decoding": asdict(decoding) | {"lines_per_second": decoding.lines_per_second}
        if decoding
        else None,
    }
