"""The vocabulary map: for each source piece the target pieces that search has to look at."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from mtcli.data import EncodedCorpus
from mtcli.export.lexicon import Lexicon, learn_lexicon
from mtcli.tokenizer import Tokenizers

_MOST_CANDIDATES = 80  # of a source piece, besides the frequent ones
_LEAST_PROBABILITY = 1e-4
_FREQUENT_SHARE = 0.1  # of the target vocabulary: candidates whatever the source is
_SPACE = re.compile(r"[ \t\n\r]")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


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
