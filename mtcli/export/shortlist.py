"""Vocabulary map (vmap.txt), and the estimated speedup of a search that uses it.

A vocabulary map lists the target pieces that may translate each source piece. It is built from the
training corpus with IBM Model 1 (Brown et al. 1993) over pieces. A search restricted to these
candidates, the shortlist, computes fewer logits.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtcli.config.base import ModelConfig
from mtcli.data.encoding import EncodedCorpus
from mtcli.tokenizer import Tokenizers

_CHUNK = 12_000_000  # links processed at a time; they need about 300 MB
_MAX_CHUNKS = 12  # larger corpora are sampled at equal intervals
_N_ITERATIONS = 4  # iterations of the EM algorithm
_MIN_COUNT = 0.05  # links with a lower expected count are pruned

# CTranslate2 adds these to every candidate list.
_SPECIAL = frozenset(("<unk>", "<s>", "</s>"))
_MAX_CANDIDATES = 80  # per source piece, in addition to the frequent pieces
_MIN_PROBABILITY = 1e-4
_FREQUENT_SHARE = 0.1  # share of the target pieces that are candidates for every source
_SPACE = re.compile(r"[ \t\n\r]")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")

# Overhead per output of a layer (quantization, norms, sums), as a number of multiplications.
# Calibrated on the demo corpus with beam sizes 1 and 4. A model of width 128 has estimated speedups
# of 1.22 and 1.33 (1.20 and 1.40 in measured CPU time). A model of width 64 with one decoder layer
# has estimated speedups of 1.53 and 1.74 (measured: 1.32 and 1.74).
_OVERHEAD = 100

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Lexicon:
    """Piece translation probabilities, sorted by source, then by descending probability."""

    sources: Ints
    targets: Ints
    probabilities: Floats

    def without(self, targets: Ints) -> "Lexicon":
        """Return the lexicon without the entries for `targets`."""
        is_kept = ~np.isin(self.targets, targets)
        return Lexicon(self.sources[is_kept], self.targets[is_kept], self.probabilities[is_kept])


def estimate_lexicon(
    corpus: EncodedCorpus, target_size: int, *, max_chunks: int | None = None
) -> Lexicon:
    """Return the lexicon of a corpus with a target vocabulary of `target_size` pieces.

    A link is a source piece and a target piece of the same pair. If the corpus has more than
    `max_chunks` times 12 million links, a sample of it is used.
    """
    chunks = _chunks(corpus, max_chunks or _MAX_CHUNKS)
    parts = [_expected_counts(corpus, rows, target_size) for rows in chunks]
    keys, indices = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    counts = np.bincount(indices, weights=np.concatenate([part[1] for part in parts]))
    sources, targets = keys // target_size, keys % target_size
    probabilities = counts / np.bincount(sources, weights=counts)[sources]
    order = np.lexsort((-probabilities, sources))
    return Lexicon(sources[order], targets[order], probabilities[order])


def _chunks(corpus: EncodedCorpus, max_chunks: int) -> Iterator[Ints]:
    """Yield the row numbers of the pairs to use, in groups with a limited number of links."""
    links = corpus.source.lengths() * corpus.target.lengths()
    stride = max(1, -(-int(links.sum()) // (_CHUNK * max_chunks)))
    rows = np.arange(0, len(corpus), stride)
    chunk_of_row = np.cumsum(links[rows]) // _CHUNK
    yield from np.split(rows, np.flatnonzero(np.diff(chunk_of_row)) + 1)


def _expected_counts(corpus: EncodedCorpus, rows: Ints, target_size: int) -> tuple[Ints, Floats]:
    """Return the likely links in the given pairs, and their expected counts after EM."""
    keys, sizes = _links(corpus, rows, target_size)
    keys, indices = np.unique(keys, return_inverse=True)
    sources = keys // target_size
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])  # first link of each target piece
    counts = probabilities = np.ones(len(keys))
    for _ in range(_N_ITERATIONS):
        weights = probabilities[indices]
        weights /= np.repeat(np.add.reduceat(weights, starts), sizes)
        counts = np.bincount(indices, weights=weights).astype(np.float64)
        probabilities = counts / np.bincount(sources, weights=counts)[sources]
    is_likely = counts >= _MIN_COUNT
    return keys[is_likely], counts[is_likely]


def _links(corpus: EncodedCorpus, rows: Ints, target_size: int) -> tuple[Ints, Ints]:
    """Return the links in the given pairs, and the number of links of each target piece.

    A link is encoded as source * V + target. The links of a target piece are adjacent. The EOS of
    the source serves as the NULL word of Model 1.
    """
    keys, sizes = [], []
    for row in rows:
        source, target = corpus.source[row].astype(np.int64), corpus.target[row]
        keys.append((source * target_size + target[:, None]).ravel())
        sizes.append(np.full(len(target), len(source)))
    return np.concatenate(keys), np.concatenate(sizes)


def build_vocabulary_map(corpus: EncodedCorpus, tokenizers: Tokenizers) -> str:
    """Return the contents of CTranslate2's vmap.txt: lines `source<TAB>candidates`.

    The first line has no source. Its candidates are added to those of every source. The candidates
    of a source piece are its likely translations in the corpus, the piece itself (because names are
    often copied) and, for a byte piece, all byte pieces.
    """
    source, target = tokenizers.source.vocabulary, tokenizers.target.vocabulary
    counts = np.bincount(corpus.target.values, minlength=len(target))
    frequent = np.argsort(-counts, kind="stable")[: round(_FREQUENT_SHARE * len(target))]
    known = set(target).difference(tokenizers.source.tags)  # a tag is never output
    lines = [_line("", [target[i] for i in frequent if target[i] in known])]
    lexicon = estimate_lexicon(corpus, len(target)).without(frequent)
    candidates = _candidates(lexicon, len(source))
    byte_pieces = [piece for piece in target if _BYTE.fullmatch(piece)]
    for piece, ids in zip(source, candidates, strict=True):
        pieces = [target[i] for i in ids]
        if piece in known and piece not in pieces:
            pieces.append(piece)
        if _BYTE.fullmatch(piece):
            pieces += [byte for byte in byte_pieces if byte not in pieces]
        lines.append(_line(piece, pieces))
    return "".join(lines)


def _candidates(lexicon: Lexicon, source_size: int) -> Iterator[list[int]]:
    """Yield the most probable targets of each source piece."""
    starts = np.searchsorted(lexicon.sources, np.arange(source_size + 1))
    for start, end in zip(starts, starts[1:], strict=False):
        best = slice(start, min(end, start + _MAX_CANDIDATES))
        is_likely = lexicon.probabilities[best] >= _MIN_PROBABILITY
        yield lexicon.targets[best][is_likely].tolist()


def _line(source: str, targets: Sequence[str]) -> str:
    """Return a line of the file, without targets that contain white space.

    Return "" if no targets are left, or if the source contains white space.
    """
    candidates = " ".join(piece for piece in targets if not _SPACE.search(piece))
    return f"{source}\t{candidates}\n" if candidates and not _SPACE.search(source) else ""


@dataclass(frozen=True)
class Candidates:
    """A parsed vocabulary map."""

    common: frozenset[str]  # candidates for every source
    by_piece: dict[str, list[str]]

    @classmethod
    def parse(cls, text: str) -> "Candidates":
        """Parse the contents of vmap.txt."""
        rows = (line.split("\t") for line in text.split("\n") if line)
        by_piece = {source: targets.split(" ") for source, targets in rows}
        return cls(_SPECIAL.union(by_piece.pop("", [])), by_piece)

    def count(self, sources: Sequence[Sequence[str]]) -> int:
        """Return the number of candidates for a batch of sources."""
        pieces = {piece for source in sources for piece in source}
        return len(self.common.union(*(self.by_piece.get(piece, []) for piece in pieces)))


@dataclass(frozen=True)
class SearchedBatch:
    """Source pieces and target size of one translated batch."""

    pieces: Sequence[Sequence[str]]  # source pieces of each sentence
    n_target: int  # target positions of the best hypotheses, including EOS
    beam_size: int


def estimate_speedup(
    model: ModelConfig, target_size: int, candidates: Candidates, batches: Sequence[SearchedBatch]
) -> float:
    """Return the estimated speedup: the work without the shortlist divided by the work with it.

    The work is the number of multiplications, plus an overhead per output of a layer. The encoder
    matrices are applied once per source position. The decoder matrices, and one row of the output
    layer per candidate, are applied once per target position of each hypothesis.
    """
    per_source, per_target = (
        sum(
            group.n_layers * group.rows * (group.columns + _OVERHEAD)
            for group in model.linear_groups()
            if side in group.sides
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
