"""Words and lines of the training text that also occur in a test set."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtcli.data.formats import open_corpus
from mtcli.data.formats.base import Languages, Row
from mtcli.data.words import split_words
from mtcli.evaluation.analysis.results import TrainingInfo
from mtcli.evaluation.results import SystemResult, TestSet
from mtcli.model_dir.word_counts import load_word_counts


@dataclass(frozen=True)
class TrainingText:
    """Training counts of words in references and outputs, and test lines that occur in training."""

    info: TrainingInfo
    counts: Mapping[str, float]  # by word of the references and outputs; estimates if from a sample
    # Test sources, and references or outputs, that occur in the training corpus; None: unknown.
    sources: frozenset[str] | None = None
    targets: frozenset[str] | None = None


def read_saved_counts(
    models: Iterable[Path], test_set: TestSet, systems: Sequence[SystemResult]
) -> TrainingText | None:
    """Return the saved word counts of the first model that has any; None if no model has any."""
    for model in models:
        saved = load_word_counts(model)
        if saved is None:
            continue
        words = sorted(_target_words(test_set, systems))
        counts = (saved.scale * count for count in saved.target.find(words))
        info = TrainingInfo(str(model), saved.text.n_pairs, saved.text.n_counted)
        return TrainingText(info, dict(zip(words, counts, strict=True)))
    return None


def read_training_corpus(
    names: Sequence[str], languages: Languages, test_set: TestSet, systems: Sequence[SystemResult]
) -> TrainingText:
    """Return word counts from a training corpus, and its matches with the test set and outputs."""
    rows = (row for name in names for row in open_corpus([name], languages).rows)
    return _scan(rows, " ".join(names), test_set, systems)


def _scan(
    rows: Iterable[Row], origin: str, test_set: TestSet, systems: Sequence[SystemResult]
) -> TrainingText:
    wanted = _target_words(test_set, systems)
    wanted_sources = {line for line in test_set.source or () if line.strip()}
    wanted_targets = {
        line
        for lines in (*test_set.references, *(system.hypotheses for system in systems))
        for line in lines
        if line.strip()
    }
    counts: Counter[str] = Counter()
    sources: set[str] = set()
    targets: set[str] = set()
    n_pairs = 0
    for source, target, *_ in rows:
        n_pairs += 1
        counts.update(word for word in split_words(target) if word in wanted)
        if source in wanted_sources:
            sources.add(source)
        if target in wanted_targets:
            targets.add(target)
    info = TrainingInfo(origin, n_pairs, n_pairs)
    all_counts = {word: float(counts[word]) for word in wanted}
    return TrainingText(info, all_counts, frozenset(sources), frozenset(targets))


def _target_words(test_set: TestSet, systems: Sequence[SystemResult]) -> set[str]:
    """Return the distinct words of all references and outputs."""
    words: set[str] = set()
    for lines in (*test_set.references, *(system.hypotheses for system in systems)):
        for line in lines:
            words.update(split_words(line))
    return words
