"""What a corpus looks like, from a sample of it: enough to choose by, and soon there."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import sentencepiece

from mtcli.data import Corpus

_SAMPLE_PAIRS = 10_000
_PROBE_PAIRS = 2_000
_PROBE_LINE = 200  # characters of a line that the probe reads, lest paragraphs take long
_PROBE_MERGES = 640  # pieces of the probe's vocabulary that are longer than a character
_FIXED_PIECES = 260  # of every vocabulary: 256 bytes and 4 symbols
# How what a line has beyond one piece a word shrinks as the vocabulary grows: seen with Multi30k
# and the demo corpus, and vocabularies of 1,000 to 8,000 pieces.
_SHRINKING = 0.63

# Scripts that put no spaces between words, and about how many characters a word has.
_UNSPACED = (
    (0x0E00, 0x0EFF, 4.0),  # Thai, Lao
    (0x1000, 0x109F, 4.0),  # Burmese
    (0x1780, 0x17FF, 4.0),  # Khmer
    (0x3040, 0x30FF, 2.0),  # Hiragana, Katakana
    (0x3400, 0x9FFF, 1.7),  # Han
    (0x20000, 0x3FFFF, 1.7),  # Han, rare
)


@dataclass(frozen=True)
class Side:
    """The lines of one language."""

    characters: float  # of a line, on average, as all that follow
    words: float  # estimated where no spaces tell them apart
    probe_pieces: float  # in the vocabulary of the probe, see `survey`
    long_characters: int  # 99 of 100 lines are not longer

    def pieces(self, n_merges: float) -> float:
        """Pieces of a line in a vocabulary with so many pieces longer than a character.

        No vocabulary makes fewer than about one a word; the rest shrinks as it grows.
        """
        beyond = max(0.0, self.probe_pieces - self.words)
        shrunk = beyond * math.pow(_PROBE_MERGES / max(1.0, n_merges), _SHRINKING)
        return min(self.characters + 1, self.words + shrunk)


@dataclass(frozen=True)
class Survey:
    """What the choices follow from."""

    n_pairs: int
    alphabet: int  # different characters of both sides
    source: Side
    target: Side

    @property
    def least_vocabulary(self) -> int:
        """Pieces that spell every character and leave as many for longer ones."""
        return _FIXED_PIECES + 2 * self.alphabet

    def pieces(self, vocab_size: int, *, is_shared: bool = True) -> tuple[float, float]:
        """Pieces of a source line and of a target line, estimated."""
        n_merges = vocab_size - _FIXED_PIECES - self.alphabet
        # A vocabulary of its own serves a language like a shared one of twice the size.
        n_merges *= 1 if is_shared else 2
        return self.source.pieces(n_merges), self.target.pieces(n_merges)

    def long_pieces(self, vocab_size: int) -> int:
        """Pieces that 99 of 100 lines do not exceed, estimated."""
        sides = zip((self.source, self.target), self.pieces(vocab_size), strict=True)
        return max(round(side.long_characters / side.characters * mean) for side, mean in sides)


def survey(corpus: Corpus) -> Survey:
    """Look at `corpus`, or at some thousands of its pairs, always the same ones.

    How a text falls into pieces is tried out: a small vocabulary is learned from half of the pairs
    and measured on the other half, which takes every language as it is.
    """
    rows = _sampled(len(corpus))
    source, target = [corpus.source[i] for i in rows], [corpus.target[i] for i in rows]
    alphabet = len(set().union(*source, *target))
    probed = slice(0, _PROBE_PAIRS, 2)
    probe = _learn_probe([*source[probed], *target[probed]], alphabet)
    return Survey(len(corpus), alphabet, _side(source, probe), _side(target, probe))


def _sampled(n_pairs: int) -> list[int]:
    """Rows at random, yet always the same; in Multi30k every twentieth line is a short one."""
    size = min(n_pairs, _SAMPLE_PAIRS)
    rows: list[int] = np.random.default_rng(1).choice(n_pairs, size, replace=False).tolist()
    return rows


def _learn_probe(lines: Sequence[str], alphabet: int) -> sentencepiece.SentencePieceProcessor:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line[:_PROBE_LINE] for line in lines]),
        model_writer=model,
        model_type="bpe",  # it is learned ten times faster than unigram, and as long
        vocab_size=_PROBE_MERGES + _FIXED_PIECES + alphabet,
        hard_vocab_limit=False,
        byte_fallback=True,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def _side(lines: Sequence[str], probe: sentencepiece.SentencePieceProcessor) -> Side:
    lengths = np.array([len(line) for line in lines])
    # What the probe was learned from falls into fewer pieces than other text does.
    unseen = [line[:_PROBE_LINE] for line in (lines[1:_PROBE_PAIRS:2] or lines)]
    n_probed = sum(len(line) for line in unseen)
    characters = float(lengths.mean())
    n_pieces = sum(len(ids) for ids in probe.encode(unseen))
    return Side(
        characters=characters,
        words=sum(map(_n_words, unseen)) / n_probed * characters,
        probe_pieces=n_pieces / n_probed * characters,
        long_characters=int(np.quantile(lengths, 0.99)),
    )


def _n_words(line: str) -> float:
    """Words of a line; in scripts without spaces, as many as its characters usually make."""
    n_words = float(len(line.split()))
    if line.isascii():
        return n_words
    for first, last, length in _UNSPACED:
        n_words += sum(first <= ord(character) <= last for character in line) / length
    return n_words
