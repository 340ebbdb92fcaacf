"""The vocabulary map: for each source piece the target pieces that search has to look at."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mtcli.config import ModelConfig
from mtcli.data import EncodedCorpus
from mtcli.export.lexicon import Lexicon, learn_lexicon
from mtcli.tokenizer import Tokenizers

_MOST_CANDIDATES = 80  # of a source piece, besides the frequent ones
_LEAST_PROBABILITY = 1e-4
_FREQUENT_SHARE = 0.1  # of the target vocabulary: candidates whatever the source is
_SPACE = re.compile(r"[ \t\n\r]")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_SPECIAL = frozenset(("<unk>", "<s>", "</s>"))  # CTranslate2 adds them to every candidate list
# Multiplications in whose time one output of a layer's matrix passes quantization, norms and sums.
# Calibrated on the demo corpus, estimates beside CPU times: width 128, beams 1 and 4: 1.22 and 1.33
# beside 1.20 and 1.40; width 64, one decoder layer: 1.53 and 1.74 beside 1.32 and 1.74.
_OVERHEAD = 100


def vocabulary_map(corpus: EncodedCorpus, tokenizers: Tokenizers) -> str:
    """CTranslate2's vmap.txt: a source piece, a tab, its candidates; first those of every source.

    What a piece becomes is learned from the corpus. It may always stay what it is, as names do, and
    what is spelt in bytes may become anything that is spelt so.
    """
    source, target = tokenizers.source.vocabulary, tokenizers.target.vocabulary
    counts = np.bincount(corpus.target.flat, minlength=len(target))
    frequent = np.argsort(-counts, kind="stable")[: round(_FREQUENT_SHARE * len(target))]
    lines = [_line("", [target[i] for i in frequent])]
    lexicon = learn_lexicon(corpus, len(target)).without(frequent)
    candidates = _candidates(lexicon, len(source))
    known = set(target)
    spelt = [piece for piece in target if _BYTE.fullmatch(piece)]
    for piece, ids in zip(source, candidates, strict=True):
        pieces = [target[i] for i in ids]
        if piece in known and piece not in pieces:
            pieces.append(piece)
        if _BYTE.fullmatch(piece):
            pieces += [byte for byte in spelt if byte not in pieces]
        lines.append(_line(piece, pieces))
    return "".join(lines)


def _candidates(lexicon: Lexicon, source_size: int) -> Iterator[list[int]]:
    """The likeliest targets of each source piece."""
    starts = np.searchsorted(lexicon.sources, np.arange(source_size + 1))
    for start, end in zip(starts, starts[1:], strict=False):
        best = slice(start, min(end, start + _MOST_CANDIDATES))
        is_likely = lexicon.probabilities[best] >= _LEAST_PROBABILITY
        yield lexicon.targets[best][is_likely].tolist()


def _line(source: str, targets: Sequence[str]) -> str:
    """What the format has no way to write is left out."""
    candidates = " ".join(piece for piece in targets if not _SPACE.search(piece))
    return f"{source}\t{candidates}\n" if candidates and not _SPACE.search(source) else ""


@dataclass(frozen=True)
class Candidates:
    """A vocabulary map, to count the candidates of a batch."""

    fixed: frozenset[str]  # of every source
    of_piece: dict[str, list[str]]

    @classmethod
    def of(cls, text: str) -> "Candidates":
        """Parse a vmap.txt."""
        rows = (line.split("\t") for line in text.split("\n") if line)
        of_piece = {source: targets.split(" ") for source, targets in rows}
        return cls(_SPECIAL.union(of_piece.pop("", [])), of_piece)

    def count(self, sources: Sequence[Sequence[str]]) -> int:
        """Return the number of target pieces that the search of a batch considers."""
        pieces = {piece for source in sources for piece in source}
        return len(self.fixed.union(*(self.of_piece.get(piece, []) for piece in pieces)))


@dataclass(frozen=True)
class SearchedBatch:
    """The size of one batch search."""

    pieces: Sequence[Sequence[str]]  # of each source
    n_target: int  # target positions of the best hypotheses, EOS included
    beam_size: int


def estimated_speedup(
    model: ModelConfig, target_size: int, candidates: Candidates, batches: Sequence[SearchedBatch]
) -> float:
    """Return the work without the shortlist as a multiple of the work with it.

    The work of a batch is the size of all matrices that its positions pass: those of the encoder
    once for each source position; those of the decoder, and a vector of the output layer for each
    candidate, once for each target position of each hypothesis.
    """
    per_source, per_target = (
        sum(
            maps.n * maps.rows * (maps.columns + _OVERHEAD)
            for maps in model.maps()
            if side in maps.reads
        )
        for side in ("source", "target")
    )
    without = with_it = 0
    for batch in batches:
        n_source = sum(len(source) + 1 for source in batch.pieces)
        n_target = batch.n_target * batch.beam_size
        layers = n_source * per_source + n_target * per_target
        per_candidate = n_target * model.d_model
        without += layers + target_size * per_candidate
        with_it += layers + candidates.count(batch.pieces) * per_candidate
    return without / with_it if with_it else 1.0
