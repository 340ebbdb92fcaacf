"""Corpus statistics for planning, measured on a sample."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sentencepiece

from mtcli.data.characters import count_words
from mtcli.data.corpus import Corpus

_SAMPLE_PAIRS = 10_000
_PROBE_PAIRS = 2_000
_PROBE_LINE = 200  # characters used from the start of each line; longer texts are slow to segment
_PROBE_MERGES = 640  # pieces of the probe vocabulary that are longer than one character
_FIXED_PIECES = 260  # 256 bytes and 4 special symbols in every vocabulary
# A line has more pieces than words. The difference is proportional to n_merges ** -0.63, as
# measured on Multi30k and the demo corpus with vocabularies of 1,000 to 8,000 pieces.
_EXCESS_EXPONENT = 0.63


@dataclass(frozen=True)
class SideStats:
    """Line lengths in one language; mean values unless stated otherwise."""

    characters: float
    words: float  # estimated for scripts without spaces
    probe_pieces: float  # with the probe vocabulary of `measure_corpus`
    p99_characters: int  # 99th percentile
    bytes: float = 0.0  # in UTF-8

    def estimate_pieces(self, n_merges: float) -> float:
        """Estimate the mean number of pieces per line, given `n_merges` multi-character pieces.

        A line has about one piece per word, plus an excess that shrinks as the vocabulary grows.
        """
        probe_excess = max(0.0, self.probe_pieces - self.words)
        excess = probe_excess * math.pow(_PROBE_MERGES / max(1.0, n_merges), _EXCESS_EXPONENT)
        return min(self.characters + 1, self.words + excess)


@dataclass(frozen=True)
class CorpusStats:
    """Statistics of a parallel corpus."""

    n_pairs: int
    alphabet_size: int  # distinct characters on both sides
    source: SideStats
    target: SideStats

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "CorpusStats":
        """Return the statistics from a dictionary created by `dataclasses.asdict`."""
        sides = {side: SideStats(**values[side]) for side in ("source", "target")}
        return cls(**{**values, **sides})

    @property
    def min_vocab_size(self) -> int:
        """Size of a vocabulary with all characters and an equal number of longer pieces."""
        return _FIXED_PIECES + 2 * self.alphabet_size

    def estimate_pieces(self, vocab_size: int, *, is_shared: bool = True) -> tuple[float, float]:
        """Return the estimated mean number of pieces in a source line and in a target line."""
        n_merges = vocab_size - _FIXED_PIECES - self.alphabet_size
        # A separate vocabulary segments its language like a shared one of twice the size.
        n_merges *= 1 if is_shared else 2
        return self.source.estimate_pieces(n_merges), self.target.estimate_pieces(n_merges)

    def estimate_p99_pieces(self, vocab_size: int) -> int:
        """Estimate the 99th percentile of pieces per line, for the side where it is larger."""
        sides = zip((self.source, self.target), self.estimate_pieces(vocab_size), strict=True)
        return max(round(side.p99_characters / side.characters * mean) for side, mean in sides)


# Assumed if the corpus is not available: as many pairs as WMT 2014 English-German, with typical
# news sentences.
ASSUMED_CORPUS = CorpusStats(
    n_pairs=4_500_000,
    alphabet_size=500,
    source=SideStats(characters=150, words=25, probe_pieces=55, p99_characters=500, bytes=150),
    target=SideStats(characters=165, words=24, probe_pieces=60, p99_characters=550, bytes=170),
)


def measure_corpus(corpus: Corpus) -> CorpusStats:
    """Return the statistics of `corpus`, measured on a fixed random sample of its pairs.

    The number of pieces depends on the language. To measure it, the function trains a small probe
    vocabulary on half of a smaller sample and applies it to the other half.
    """
    sample = corpus.take(_sample_rows(len(corpus)))
    source, target = sample.source, sample.target
    alphabet_size = len(set().union(*source, *target))
    half = slice(0, _PROBE_PAIRS, 2)
    probe = _train_probe([*source[half], *target[half]], alphabet_size)
    sides = (_measure_side(lines, probe) for lines in (source, target))
    return CorpusStats(len(corpus), alphabet_size, *sides)


def _sample_rows(n_pairs: int) -> list[int]:
    """Return the row numbers of a fixed random sample.

    Evenly spaced rows would be biased: in Multi30k, every twentieth line is short.
    """
    size = min(n_pairs, _SAMPLE_PAIRS)
    rows: list[int] = np.random.default_rng(1).choice(n_pairs, size, replace=False).tolist()
    return rows


def _train_probe(lines: Sequence[str], alphabet_size: int) -> sentencepiece.SentencePieceProcessor:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line[:_PROBE_LINE] for line in lines]),
        model_writer=model,
        model_type="bpe",  # ten times faster than unigram, with a similar number of pieces
        vocab_size=_PROBE_MERGES + _FIXED_PIECES + alphabet_size,
        hard_vocab_limit=False,
        byte_fallback=True,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def _measure_side(lines: Sequence[str], probe: sentencepiece.SentencePieceProcessor) -> SideStats:
    lengths = np.array([len(line) for line in lines])
    # Skip the lines that the probe was trained on: it splits them into fewer pieces than new text.
    unseen = [line[:_PROBE_LINE] for line in (lines[1:_PROBE_PAIRS:2] or lines)]
    n_probed = sum(len(line) for line in unseen)
    characters = float(lengths.mean())
    n_pieces = sum(len(ids) for ids in probe.encode(unseen))
    return SideStats(
        characters=characters,
        words=sum(map(count_words, unseen)) / n_probed * characters,
        probe_pieces=n_pieces / n_probed * characters,
        p99_characters=int(np.quantile(lengths, 0.99)),
        bytes=float(np.mean([len(line.encode()) for line in lines])),
    )
