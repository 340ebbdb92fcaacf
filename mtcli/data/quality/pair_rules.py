"""Findings about individual pairs, based on the rules of the training filters.

The rules are slow, so faster operations on whole blocks first exclude most lines.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mtcli.data.characters import is_letter, script_of
from mtcli.data.filters import RULES, Mask, PairBlock, script_share
from mtcli.data.quality.tokens import TextBlock, Tokens

MAX_LENGTH_RATIO = 3.0
MAX_REPEATED_CHARACTERS = 20
MAX_REPEATED_WORDS = 5
MIN_LETTER_SHARE = 0.3
MIN_SCRIPT_SHARE = 0.5  # share of a line's letters that must be in an expected script
_MIN_SIDE_SCRIPT_SHARE = 0.1  # share of all letters; rarer scripts are unexpected on that side
_MIN_FOREIGN_LETTERS = 3  # a formula with one Greek letter is not in the wrong script
_SCRIPT_CHARACTERS = 200  # characters per line that are used to find the scripts of a side
_MAX_PHRASE = 4  # maximum number of words in a repeated phrase, as in the filter

# Control characters (except tab and LF), line separators, and byte order marks inside text.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]")
_DIGIT = re.compile(r"\d")
_ADDRESS = re.compile(r"://|@|www\.")


@dataclass(frozen=True)
class Side:
    """One side of a block of pairs."""

    lines: Sequence[str]
    text: TextBlock
    tokens: Tokens
    scripts: tuple[str, ...]  # expected scripts


def find_scripts(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the scripts that make up at least 10% of the letters in `lines`."""
    counts: Counter[str] = Counter()
    for character, n in Counter("".join(line[:_SCRIPT_CHARACTERS] for line in lines)).items():
        if script := script_of(character):
            counts[script] += n
    total = counts.total()
    return tuple(sorted(s for s, n in counts.items() if n >= _MIN_SIDE_SCRIPT_SHARE * total))


def examine_pairs(source: Side, target: Side) -> dict[str, Mask]:
    """Return a mask for each kind of finding.

    Pairs with a blank side are only checked for blank sides and control characters.
    """
    block = PairBlock(source.lines, target.lines)
    sides = source, target
    found = {
        "damaged": RULES["damaged"].find(block, True),
        "copies": _confirmed(RULES["identical"].find(block, True), block, _has_letters),
        "length_ratio": RULES["max_length_ratio"].find(block, MAX_LENGTH_RATIO),
        "repeated": _repeated_characters(block, sides) | _repeated_words(block, sides),
        "wrong_script": _wrong_script(source) | _wrong_script(target),
        "few_letters": _few_letters(block, sides),
        "numbers": _by_rule("different_numbers", True, block, _rows_with(_DIGIT, sides)),
        "urls": _by_rule("different_urls", True, block, _rows_with(_ADDRESS, sides)),
    }
    blanks = [np.fromiter(map(_is_blank, side.lines), bool, len(block)) for side in sides]
    found = {kind: mask & ~(blanks[0] | blanks[1]) for kind, mask in found.items()}
    found["control"] = _rows_with(CONTROL, sides)
    found["one_sided"] = blanks[0] ^ blanks[1]
    found["blank"] = blanks[0] & blanks[1]
    return found


def _is_blank(line: str) -> bool:
    return not line.strip()


def _has_letters(source: str, _: str) -> bool:
    return any(map(is_letter, source))


def _confirmed(mask: Mask, block: PairBlock, test: Callable[[str, str], bool]) -> Mask:
    """Return a mask of the pairs in `mask` for which `test` is true."""
    confirmed = np.zeros(len(mask), bool)
    for row in np.flatnonzero(mask).tolist():
        confirmed[row] = test(block.sources[row], block.targets[row])
    return confirmed


def _by_rule(name: str, threshold: object, block: PairBlock, candidates: Mask) -> Mask:
    """Return a mask of the candidates that the filter `name` would drop."""
    rows = np.flatnonzero(candidates)
    found = np.zeros(len(block), bool)
    if len(rows):
        chosen = rows.tolist()
        pairs = PairBlock([block.sources[i] for i in chosen], [block.targets[i] for i in chosen])
        found[rows] = RULES[name].find(pairs, threshold)
    return found


def _rows_with(pattern: re.Pattern[str], sides: Sequence[Side]) -> Mask:
    """Return a mask of the pairs in which at least one side matches `pattern`."""
    found = np.zeros(len(sides[0].lines), bool)
    for side in sides:
        text = "\n".join(side.lines)
        positions = [match.start() for match in pattern.finditer(text)]
        if positions:
            ends = np.cumsum(np.fromiter(map(len, side.lines), np.int64, len(side.lines)) + 1)
            found[np.searchsorted(ends, positions, side="right")] = True
    return found


def _repeated_characters(block: PairBlock, sides: Sequence[Side]) -> Mask:
    candidates = np.zeros(len(block), bool)
    for side in sides:
        codes = side.text.codes
        changes = np.flatnonzero(codes[1:] != codes[:-1])
        lengths = np.diff(changes, prepend=-1)
        candidates[side.text.rows(changes[lengths > MAX_REPEATED_CHARACTERS])] = True
    return _by_rule("max_repeated_characters", MAX_REPEATED_CHARACTERS, block, candidates)


def _repeated_words(block: PairBlock, sides: Sequence[Side]) -> Mask:
    """Return a mask of the pairs that repeat a phrase; word hashes preselect the candidates."""
    candidates = np.zeros(len(block), bool)
    for side in sides:
        hashes, rows = side.tokens.hashes, side.tokens.rows
        for period in range(1, _MAX_PHRASE + 1):
            is_same = (hashes[period:] == hashes[:-period]) & (rows[period:] == rows[:-period])
            ends = np.flatnonzero(np.diff(is_same.astype(np.int8), append=0) == -1)
            starts = np.flatnonzero(np.diff(is_same.astype(np.int8), prepend=0) == 1)
            is_long = ends - starts + 1 >= MAX_REPEATED_WORDS * period
            candidates[rows[ends[is_long]]] = True
    return _by_rule("max_repeated_words", MAX_REPEATED_WORDS, block, candidates)


def _few_letters(block: PairBlock, sides: Sequence[Side]) -> Mask:
    candidates = np.zeros(len(block), bool)
    for side in sides:
        starts = np.concatenate([[0], side.text.line_ends[:-1] + 1])
        n_letters = np.add.reduceat(side.text.is_letter, starts, dtype=np.int64)
        n_visible = np.add.reduceat(side.text.kinds != 0, starts, dtype=np.int64)
        candidates |= n_letters <= (MIN_LETTER_SHARE + 0.1) * n_visible
    return _by_rule("min_letter_share", MIN_LETTER_SHARE, block, candidates)


def _wrong_script(side: Side) -> Mask:
    found = np.zeros(len(side.lines), bool)
    if not side.scripts:
        return found
    is_latin = "Latin" in side.scripts
    for row, line in enumerate(side.lines):
        if is_latin and line.isascii():
            continue
        if script_share(line, side.scripts) < MIN_SCRIPT_SHARE:
            found[row] = sum(map(_is_foreign(side.scripts), line)) >= _MIN_FOREIGN_LETTERS
    return found


def _is_foreign(scripts: tuple[str, ...]) -> Callable[[str], bool]:
    def is_foreign(character: str) -> bool:
        script = script_of(character)
        return script is not None and script not in scripts

    return is_foreign
