"""Scores of groups of lines, and recall and precision of words by training frequency."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mtcli.data.words import split_words
from mtcli.evaluation.analysis.results import GroupScore, WordRecall
from mtcli.evaluation.significance import Rows

_LENGTH_STARTS = (0, 6, 11, 21, 31, 41, 61)  # words
_FREQUENCY_STARTS = (0, 1, 2, 10, 100, 1000, 10_000)


@dataclass(frozen=True)
class SentenceStatistics:
    """Statistics of each line for each metric. The sum over a group of lines gives its score."""

    metrics: Mapping[str, Any]  # sacreBLEU metrics
    rows: Mapping[str, Rows]

    def score(self, lines: Sequence[int]) -> dict[str, float]:
        """Return the scores of a group of lines by metric."""
        return {
            name: float(metric._aggregate_and_compute([self.rows[name][i] for i in lines]).score)
            for name, metric in self.metrics.items()
        }

    def group(self, keys: Sequence[Any], label: Callable[[Any], str]) -> tuple[GroupScore, ...]:
        """Return the scores of each group of lines with the same key, sorted by key.

        `keys` has one key per line, and `label` returns the name of the group with a given key.
        """
        lines_of: dict[Any, list[int]] = {}
        for i, key in enumerate(keys):
            lines_of.setdefault(key, []).append(i)
        return tuple(
            GroupScore(label(key), len(lines_of[key]), self.score(lines_of[key]))
            for key in sorted(lines_of)
        )

    def group_by_length(self, lines: Sequence[str]) -> tuple[GroupScore, ...]:
        """Return the scores of each group of lines with a similar number of words."""
        keys = [bisect_right(_LENGTH_STARTS, len(split_words(line))) - 1 for line in lines]
        return self.group(keys, lambda key: _label(_LENGTH_STARTS, key))

    def group_by_frequency(
        self, references: Sequence[str], counts: Mapping[str, float]
    ) -> tuple[GroupScore, ...]:
        """Return the scores of each group of lines, by frequency of the rarest reference word."""
        rarest = (min((counts[w] for w in split_words(r)), default=0) for r in references)
        return self.group([*map(frequency_class, rarest)], FREQUENCY_LABELS.__getitem__)

    def group_by_document(self, documents: Sequence[str]) -> tuple[GroupScore, ...]:
        """Return the scores of each document, in the order of the test set."""
        order = {document: i for i, document in enumerate(dict.fromkeys(documents))}
        names = list(order)
        return self.group([order[document] for document in documents], names.__getitem__)


def frequency_class(count: float) -> int:
    """Return the index in `FREQUENCY_LABELS` for a word that occurs `count` times in training."""
    # Counts estimated from a sample are 0 or at least 1, so class 0 contains only unseen words.
    return bisect_right(_FREQUENCY_STARTS, count) - 1


def _label(starts: Sequence[int], index: int) -> str:
    ends = [next_start - 1 for _, next_start in pairwise(starts)]
    if index == len(starts) - 1:
        return f"{starts[-1]:,}+"
    start, end = starts[index], ends[index]
    return f"{start:,}" if start == end else f"{start:,}-{end:,}"


FREQUENCY_LABELS = tuple(_label(_FREQUENCY_STARTS, i) for i in range(len(_FREQUENCY_STARTS)))


def word_recall(
    references: Sequence[str], outputs: Sequence[str], counts: Mapping[str, float]
) -> tuple[WordRecall, ...]:
    """Return the recall and precision of words by training frequency."""
    in_reference: Counter[int] = Counter()
    in_output: Counter[int] = Counter()
    in_both: Counter[int] = Counter()
    for reference, output in zip(references, outputs, strict=True):
        expected, found = Counter(split_words(reference)), Counter(split_words(output))
        for total, words in (
            (in_reference, expected),
            (in_output, found),
            (in_both, expected & found),
        ):
            for word, n in words.items():
                total[frequency_class(counts[word])] += n
    return tuple(
        WordRecall(
            FREQUENCY_LABELS[index],
            in_reference[index],
            _ratio(in_both[index], in_reference[index]),
            in_output[index],
            _ratio(in_both[index], in_output[index]),
        )
        for index in sorted(in_reference.keys() | in_output.keys())
    )


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
