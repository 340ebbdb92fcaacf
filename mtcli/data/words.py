"""Split text into words, and count the words of a corpus by hash."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

# Scripts without spaces between words: each of their characters counts as a word.
_SPACELESS = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u0f00-\u109f\u1780-\u17ff"  # Tibetan, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Chinese characters
    "\U00020000-\U0003ffff"
)
_HAS_SPACELESS = re.compile(f"[{_SPACELESS}]")
_SPACELESS_PARTS = re.compile(f"[{_SPACELESS}]|[^{_SPACELESS}]+")
_MAX_WORDS = 500_000  # number of distinct words to keep: the most frequent ones
_COMPACT_AT = 4 * _MAX_WORDS  # merge the counts when there are this many entries
_MAX_TOKENS = 200_000  # distinct tokens to collect before they are split into words
_HASH_BYTES = 8


def split_words(text: str) -> list[str]:
    """Return the words in a text, without the punctuation and symbols around them.

    In scripts without spaces, each character is a word.
    """
    if text.isascii() and text.isalnum():
        return [text]
    words: list[str] = []
    for token in text.split():
        word = _strip_punctuation(token)
        if word.isascii() or not _HAS_SPACELESS.search(word):
            words.append(word)
        else:
            words += map(_strip_punctuation, _SPACELESS_PARTS.findall(word))
    return [word for word in words if word]


def _strip_punctuation(text: str) -> str:
    """Return `text` without punctuation and symbols at its start and end."""
    start, end = 0, len(text)
    while start < end and _is_punctuation(text[start]):
        start += 1
    while end > start and _is_punctuation(text[end - 1]):
        end -= 1
    return text[start:end]


@cache
def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def hash_word(word: str) -> int:
    """Return a 64-bit hash of a word."""
    digest = blake2b(word.encode(errors="replace"), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, "little")


@dataclass(frozen=True)
class WordCounts:
    """Counts of hashed words."""

    hashes: NDArray[np.uint64]  # sorted
    counts: NDArray[np.uint32]  # occurrences of each word

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, words: Iterable[str]) -> list[int]:
        """Return the count of each word, or 0 if it is not stored."""
        wanted = np.fromiter(map(hash_word, words), np.uint64)
        if not len(self.hashes):
            return [0] * len(wanted)
        positions = np.minimum(np.searchsorted(self.hashes, wanted), len(self.hashes) - 1)
        found = np.where(self.hashes[positions] == wanted, self.counts[positions], 0)
        return [int(count) for count in found]


class WordCounter:
    """Counts the words in blocks of lines, with bounded memory use.

    If there are too many distinct words, the rarest ones are discarded.
    """

    def __init__(self) -> None:
        # Space-separated tokens that are not yet in `_parts`.
        self._tokens: Counter[str] = Counter()
        self._parts: list[tuple[NDArray[np.uint64], NDArray[np.uint64]]] = []
        self._n_entries = 0

    def add(self, lines: Sequence[str]) -> None:
        """Count the words in a block of lines."""
        self._tokens.update(" ".join(lines).split())
        if len(self._tokens) > _MAX_TOKENS:
            self._split_tokens()

    def result(self) -> WordCounts:
        """Return the counts of the most frequent words."""
        self._split_tokens()
        self._compact(_MAX_WORDS)
        if not self._parts:
            return WordCounts(np.zeros(0, np.uint64), np.zeros(0, np.uint32))
        [(hashes, counts)] = self._parts
        limit = np.iinfo(np.uint32).max
        return WordCounts(hashes, np.minimum(counts, limit).astype(np.uint32))

    def _split_tokens(self) -> None:
        """Split the tokens into words, and add the words to the counts."""
        words: defaultdict[str, int] = defaultdict(int)  # faster than `Counter` for new words
        for token, n_tokens in self._tokens.items():
            for word in split_words(token):
                words[word] += n_tokens
        self._tokens.clear()
        if not words:
            return
        hashes = np.fromiter(map(hash_word, words), np.uint64, len(words))
        counts = np.fromiter(words.values(), np.uint64, len(words))
        self._parts.append((hashes, counts))
        self._n_entries += len(hashes)
        if self._n_entries > _COMPACT_AT:
            self._compact(2 * _MAX_WORDS)

    def _compact(self, limit: int) -> None:
        """Merge the counts of equal words; keep the `limit` most frequent words, sorted by hash."""
        if not self._parts:
            return
        hashes = np.concatenate([hashes for hashes, _ in self._parts])
        counts = np.concatenate([counts for _, counts in self._parts])
        unique, inverse = np.unique(hashes, return_inverse=True)
        totals = np.zeros(len(unique), np.uint64)
        np.add.at(totals, inverse, counts)
        if len(unique) > limit:
            kept = np.sort(np.argsort(totals, kind="stable")[len(totals) - limit :])
            unique, totals = unique[kept], totals[kept]
        self._parts = [(unique, totals)]
        self._n_entries = len(unique)
