"""Filters: rules that drop unsuitable pairs from the training set.

A rule finds the pairs to drop in a block of pairs. `RULES` has one rule for each key in the config
section `filters`, except `duplicates` and `dev_copies`, which compare a pair with other pairs. All
rules except the script rules treat both sides alike.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtcli.data.characters import count_words, is_damaged, is_letter, script_of
from mtcli.data.encoded_lines import EncodedLines

Mask = NDArray[np.bool_]  # one value per pair; True if the rule finds the pair

RATIO_MIN_CHARACTERS = 50  # if the longer side has fewer, the length ratio is unreliable
MIN_SCRIPT_SHARE = 0.5  # share of a line's letters that must be in the given scripts
_MAX_PHRASE = 4  # maximum number of words in a repeated phrase

# Any damaged text contains one of these two byte patterns. UTF-8 text that was decoded with the
# wrong encoding contains a character from Â to ô, followed by one from U+0080 to U+00BF or by a
# special character of Windows-1252.
_MAYBE_DAMAGED = re.compile(rb"\xc3[\x82-\xb4][\xc2\xc5\xc6\xcb\xe2]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()
_DIGIT = re.compile(r"\d")
_NUMBER = re.compile(
    r"\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?!\d)|\d+(?:[.,'’\u066b\u066c\u00a0\u202f]\d+)*"
)
_URL = re.compile(
    r"(?:https?://|www\.)[\w.~:/?#\[\]@!$&'()*+,;=%-]+|[\w.+-]+@[\w-]+\.[\w.-]+", re.A
)
_URL_END = ".,:;!?'()[]*"


@dataclass(frozen=True)
class PairBlock:
    """Consecutive pairs, with cached values that several rules use."""

    sources: Sequence[str]
    targets: Sequence[str]

    def __len__(self) -> int:
        return len(self.sources)

    @cached_property
    def encoded(self) -> tuple[EncodedLines, EncodedLines]:
        """Both sides in UTF-8; line feeds inside a line become spaces."""
        return _encode(self.sources), _encode(self.targets)

    @cached_property
    def source_lengths(self) -> NDArray[np.int64]:
        """Number of characters in each source."""
        return np.fromiter(map(len, self.sources), np.int64, len(self))

    @cached_property
    def target_lengths(self) -> NDArray[np.int64]:
        """Number of characters in each target."""
        return np.fromiter(map(len, self.targets), np.int64, len(self))


def _encode(lines: Sequence[str]) -> EncodedLines:
    if isinstance(lines, EncodedLines):
        return lines
    text = "\n".join([*lines, ""])
    if text.count("\n") != len(lines):
        text = "\n".join([line.replace("\n", " ") for line in [*lines, ""]])
    return EncodedLines(text.encode(errors="surrogatepass"))


@dataclass(frozen=True)
class Rule:
    """Filter with a threshold. Its name is a key in the config section `filters`."""

    name: str
    drops: str  # description of the dropped pairs; {} stands for the threshold
    find: Callable[[PairBlock, Any], Mask]

    def reason(self, threshold: Any) -> str:
        """Return a description of the dropped pairs, with the setting that drops them."""
        value = ", ".join(threshold) if isinstance(threshold, tuple) else threshold
        drops = self.drops.format(value if isinstance(value, str) else f"{value:g}")
        setting = str(value).lower() if isinstance(value, bool) else value
        return f"{drops} (filters.{self.name}={setting})"


def find_blank(block: PairBlock) -> Mask:
    """Return a mask of pairs with a blank source or target. No setting disables this rule."""
    return _either(block, lambda line: not line.strip())


def _min_characters(block: PairBlock, limit: int) -> Mask:
    return np.minimum(block.source_lengths, block.target_lengths) < limit


def _max_characters(block: PairBlock, limit: int) -> Mask:
    return np.maximum(block.source_lengths, block.target_lengths) > limit


def _min_words(block: PairBlock, limit: int) -> Mask:
    return _either(block, lambda line: count_words(line) < limit)


def _max_words(block: PairBlock, limit: int) -> Mask:
    return _either(block, lambda line: count_words(line) > limit)


def _max_length_ratio(block: PairBlock, limit: float) -> Mask:
    """Return a mask of pairs whose length ratio exceeds the limit in characters and in UTF-8 bytes.

    Byte counts suit Chinese, where a character has three bytes and carries as much text as about
    three Latin letters. Character counts suit Hindi, where each letter also has three bytes.
    """
    sizes = [np.diff(lines.ends, prepend=-1) - 1 for lines in block.encoded]
    mask: Mask = np.maximum(*sizes) > np.maximum(
        limit * np.minimum(*sizes), RATIO_MIN_CHARACTERS - 1
    )
    for row in np.flatnonzero(mask).tolist():
        fewer, more = sorted((len(block.sources[row]), len(block.targets[row])))
        mask[row] = more > limit * fewer and more >= RATIO_MIN_CHARACTERS
    return mask


def _identical(block: PairBlock, _: bool) -> Mask:
    pairs = zip(block.sources, block.targets, strict=True)
    is_same = (source.strip() == target.strip() for source, target in pairs)
    return np.fromiter(is_same, np.bool_, len(block))


def letter_share(line: str) -> float:
    """Return the share of letters among the non-space characters of a line, or 1 if it is blank."""
    text = "".join(line.split())
    return sum(map(is_letter, text)) / len(text) if text else 1.0


def _min_letter_share(block: PairBlock, limit: float) -> Mask:
    return _either(block, lambda line: letter_share(line) < limit)


def script_share(line: str, scripts: Iterable[str]) -> float:
    """Return the share of a line's letters that are in `scripts`, or 1 if it has no letters."""
    found = [script for script in map(script_of, line) if script]
    return sum(map(found.count, set(scripts))) / len(found) if found else 1.0


def _source_scripts(block: PairBlock, scripts: Iterable[str]) -> Mask:
    return _mask(block.sources, lambda line: script_share(line, scripts) < MIN_SCRIPT_SHARE)


def _target_scripts(block: PairBlock, scripts: Iterable[str]) -> Mask:
    return _mask(block.targets, lambda line: script_share(line, scripts) < MIN_SCRIPT_SHARE)


@cache
def _repeated_character(limit: int) -> re.Pattern[str]:
    return re.compile(rf"(\S)\1{{{limit}}}")


def _max_repeated_characters(block: PairBlock, limit: int) -> Mask:
    pattern = _repeated_character(limit)
    return _either(block, lambda line: pattern.search(line) is not None)


def max_repetitions(line: str) -> int:
    """Return the maximum number of times that a phrase of up to four words occurs in a row."""
    words = line.lower().split()
    longest = min(1, len(words))
    if len(set(words)) == len(words):
        return longest
    for period in range(1, _MAX_PHRASE + 1):
        run = 0
        for one, other in zip(words, words[period:], strict=False):
            run = run + 1 if one == other else 0
            longest = max(longest, run // period + 1)
    return longest


def _max_repeated_words(block: PairBlock, limit: int) -> Mask:
    return _either(block, lambda line: max_repetitions(line) > limit)


def _damaged(block: PairBlock, _: bool) -> Mask:
    mask = np.zeros(len(block), np.bool_)
    for lines, encoded in zip((block.sources, block.targets), block.encoded, strict=True):
        for row in _maybe_damaged(encoded):
            mask[row] = mask[row] or is_damaged(lines[row])
    return mask


def _maybe_damaged(lines: EncodedLines) -> Iterable[int]:
    """Return the rows that may be damaged, usually none, without testing each line."""
    starts = [match.start() for match in _MAYBE_DAMAGED.finditer(lines.data)]
    if _REPLACEMENT[:1] in lines.data:  # faster than a search for three bytes
        starts += [match.start() for match in re.finditer(_REPLACEMENT, lines.data)]
    if not starts:
        return ()
    return np.unique(np.searchsorted(lines.ends, starts)).tolist()  # type: ignore[no-any-return]


def numbers_in(line: str) -> set[str]:
    """Return the numbers in a line as ASCII digits, without separators or leading zeros."""
    if not _DIGIT.search(line):
        return set()
    return {_digits(match) for match in _NUMBER.findall(line)}


def _digits(number: str) -> str:
    digits = (str(unicodedata.decimal(c)) for c in number if c.isdecimal())
    return "".join(digits).lstrip("0") or "0"


def _have_different_numbers(source: str, target: str) -> bool:
    """Return whether the numbers differ.

    A single-digit number may be missing from one side, because it may be spelled out there.
    """
    in_source, in_target = numbers_in(source), numbers_in(target)
    is_replaced = bool(in_source - in_target) and bool(in_target - in_source)
    return is_replaced or any(len(number) > 1 for number in in_source ^ in_target)


def _different_numbers(block: PairBlock, _: bool) -> Mask:
    pairs = zip(block.sources, block.targets, strict=True)
    return np.fromiter((_have_different_numbers(*pair) for pair in pairs), np.bool_, len(block))


def urls_in(line: str) -> set[str]:
    """Return the URLs and email addresses in a line, in lower case."""
    if "://" not in line and "@" not in line and "www." not in line:
        return set()
    return {match.rstrip(_URL_END).lower() for match in _URL.findall(line)}


def _different_urls(block: PairBlock, _: bool) -> Mask:
    pairs = zip(block.sources, block.targets, strict=True)
    are_different = (urls_in(source) != urls_in(target) for source, target in pairs)
    return np.fromiter(are_different, np.bool_, len(block))


def _mask(lines: Sequence[str], is_dropped: Callable[[str], bool]) -> Mask:
    return np.fromiter(map(is_dropped, lines), np.bool_, len(lines))


def _either(block: PairBlock, is_dropped: Callable[[str], bool]) -> Mask:
    """Return a mask of pairs in which `is_dropped` is true for at least one side."""
    return _mask(block.sources, is_dropped) | _mask(block.targets, is_dropped)


RULES = {
    rule.name: rule
    for rule in (
        Rule("damaged", "damaged characters", _damaged),
        Rule("min_characters", "a side with fewer characters than {}", _min_characters),
        Rule("max_characters", "a side with more characters than {}", _max_characters),
        Rule("min_words", "a side with fewer words than {}", _min_words),
        Rule("max_words", "a side with more words than {}", _max_words),
        Rule(
            "max_length_ratio", "a side more than {} times as long as the other", _max_length_ratio
        ),
        Rule("identical", "the same text on both sides", _identical),
        Rule("min_letter_share", "a side with a share of letters below {}", _min_letter_share),
        Rule("source_scripts", "a source that is mostly not in {}", _source_scripts),
        Rule("target_scripts", "a target that is mostly not in {}", _target_scripts),
        Rule(
            "max_repeated_characters",
            "a character more than {} times in a row",
            _max_repeated_characters,
        ),
        Rule(
            "max_repeated_words",
            "a word or phrase more than {} times in a row",
            _max_repeated_words,
        ),
        Rule("different_numbers", "different numbers on the two sides", _different_numbers),
        Rule("different_urls", "different URLs or email addresses", _different_urls),
    )
}
