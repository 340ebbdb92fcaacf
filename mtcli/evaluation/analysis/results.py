"""Results of an analysis, as plain data that can be written as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass

# Kinds of findings for a sentence, in the order in which tables list them.
FINDINGS: Mapping[str, str] = {
    "empty": "no output",
    "copied": "the output equals the source, and no reference does",
    "truncated": "no final punctuation, and under 80% of the reference length",
    "repetitive": "a phrase occurs four or more times in a row",
    "too-short": "under half the reference length",
    "too-long": "over twice the reference length",
    "number-lost": "a number in both source and reference is missing",
    "number-invented": "a number is in neither source nor reference",
    "name-lost": "a name in both source and reference is missing",
    "name-invented": "an abbreviation is in neither source nor reference",
    "url-lost": "a URL or email address in both source and reference is missing",
    "url-invented": "a URL or email address is in neither source nor reference",
    "punctuation-lost": "a punctuation mark in both source and reference is missing",
    "punctuation-invented": "a punctuation mark is in neither source nor reference",
    "source-in-training": "the source is also a training source",
    "output-in-training": "the output is also a training target",
}


@dataclass(frozen=True)
class FindingCount:
    """Number and share of the lines with a finding."""

    finding: str  # key of FINDINGS
    n_lines: int
    share: float  # of all lines


@dataclass(frozen=True)
class ItemCount:
    """Counts of one kind of item in the outputs of a system."""

    kind: str  # "number", "name", "url", "punctuation"
    n_expected: int  # in both source and reference
    n_lost: int  # expected, but not in the output
    n_output: int  # in the output
    n_invented: int  # in the output, but in neither source nor reference


@dataclass(frozen=True)
class GroupScore:
    """Scores of a group of lines."""

    label: str
    n_lines: int
    scores: dict[str, float]  # by metric: "bleu", "chrf"


@dataclass(frozen=True)
class WordRecall:
    """Recall and precision of words with a similar frequency in the training text."""

    label: str  # training frequency, such as "10-99"
    n_reference: int
    recall: float  # share of the reference words that the output contains
    n_output: int
    precision: float  # share of the output words that the reference contains


@dataclass(frozen=True)
class TrainingMatches:
    """Lines that also occur in the training corpus."""

    n_sources: int  # test sources that are training sources
    n_references: int  # references that are training targets
    n_outputs: int  # outputs that are training targets


@dataclass(frozen=True)
class Sentence:
    """Findings and scores of one line."""

    findings: tuple[str, ...]  # keys of FINDINGS
    scores: dict[str, float]  # "bleu" (with effective order) and "chrf" of the sentence


@dataclass(frozen=True)
class SystemAnalysis:
    """Analysis of one system."""

    name: str
    length_ratio: float  # tokens of the output / tokens of the reference, as in BLEU
    brevity_penalty: float
    precisions: tuple[float, ...]  # n-gram precisions of BLEU, in percent
    findings: tuple[FindingCount, ...]
    items: tuple[ItemCount, ...]
    by_length: tuple[GroupScore, ...]  # by number of source words
    by_frequency: tuple[GroupScore, ...]  # by training frequency of the rarest reference word
    by_document: tuple[GroupScore, ...]
    by_training: tuple[GroupScore, ...]  # by whether the source occurs in training
    word_recall: tuple[WordRecall, ...]
    matches: TrainingMatches | None
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True)
class LargestDifferences:
    """Lines on which a system and the baseline differ most in sentence chrF."""

    system: str
    baseline: str
    better: tuple[int, ...]  # line indexes from 0, largest difference first
    worse: tuple[int, ...]


@dataclass(frozen=True)
class TrainingInfo:
    """Origin and size of the training text in which words were counted."""

    origin: str  # model directory, or names of corpora
    n_pairs: int | None  # None: unknown, because the corpus is streamed
    n_counted: int  # pairs that were counted; if fewer than n_pairs, a sample


@dataclass(frozen=True)
class Analysis:
    """Analysis of all systems on a test set."""

    systems: tuple[SystemAnalysis, ...]
    differences: tuple[LargestDifferences, ...]  # one per system except the baseline
    training: TrainingInfo | None  # None: no word counts
    notices: tuple[str, ...] = ()
