"""Near-copies of dev pairs, and exact duplicates."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mtcli.data import duplicates
from mtcli.data.characters import letters_of
from mtcli.data.duplicates import DuplicateFinder
from mtcli.data.encoded_lines import EncodedLines
from mtcli.data.filters import PairBlock
from mtcli.data.near_copies import NearCopyIndex, letter_sums

DEV = [
    ("A man in a blue shirt is asleep.", "Ein Mann in blauem Hemd schläft."),
    ("Yes.", "Ja."),
    ("这是一个很长的句子", "Это длинное предложение, да."),
    ("12.5 %", "12,5 %"),
]


def is_copy(source: str, target: str, dev=DEV) -> bool:
    return NearCopyIndex(dev).find(PairBlock([source], [target])).tolist() == [True]


def test_case_digits_and_punctuation_do_not_hide_a_copy():
    assert is_copy("a man in a BLUE shirt is asleep 17!", "x")
    assert is_copy("x", "„Ein Mann“ in blauem Hemd schläft")
    assert is_copy("x", "Это длинное - предложение. Да")
    assert is_copy("“这是”一个很长的句子。", "x")
    assert not is_copy("A man in a red shirt is asleep.", "Ein Mann in rotem Hemd schläft.")


def test_the_reverse_of_a_dev_pair_is_a_copy():
    assert is_copy("Ein Mann in blauem Hemd schläft.", "A man in a blue shirt is asleep.")
    assert is_copy("ja", "yes")


def test_short_lines_are_copies_only_if_both_sides_match():
    assert is_copy("YES!", "Ja")
    assert not is_copy("Yes.", "Doch.")
    assert not is_copy("Yeah.", "Ja.")


def test_lines_without_letters_are_compared_as_they_are():
    assert is_copy("12.5 %", " 12,5 %")
    assert not is_copy("13.5 %", "13,5 %")


line = st.text(max_size=30) | st.text(alphabet="aAbBéÉ 1.。中İıK\u212aIi\nक़ि", max_size=12)
pairs = st.lists(st.tuples(line, line), min_size=1, max_size=6)


@given(pairs, pairs)
def test_the_fast_search_equals_the_definition(dev, candidates):
    index = NearCopyIndex(dev)
    found = index.find(PairBlock(*zip(*candidates, strict=True)))
    assert found.tolist() == [index.has_copy_of(*pair) for pair in candidates]
    assert all(index.has_copy_of(*pair) for pair in dev)


def test_the_sum_of_a_line_depends_only_on_its_letters():
    """Sums add up over characters, so it is enough to test every character."""
    codes = [*range(0xD800), *range(0xE000, 0x20000)]
    characters = [chr(code) for code in codes if code != ord("\n")]
    text, letters = (
        letter_sums(EncodedLines("".join(f"{line}\n" for line in lines).encode()))
        for lines in (characters, map(letters_of, characters))
    )
    assert [c for c, same in zip(characters, text == letters, strict=True) if not same] == []
    assert letter_sums(EncodedLines(b"")).tolist() == []


def test_different_lines_have_different_sums():
    lines = ["a b", "a c", "ab c", "да", "нет", "我们", "他是", "αβγ", "שלום", "한국"]
    sums = letter_sums(EncodedLines("".join(f"{line}\n" for line in lines).encode()))
    assert len(set(sums.tolist())) == len(lines)
    assert 0 not in sums


def find_duplicates(texts: list[str], size: int = 3) -> list[int]:
    finder = DuplicateFinder()
    for start in range(0, len(texts), size):
        block = texts[start : start + size]
        finder.add(block, np.arange(start, start + len(block)))
    return finder.find().tolist()


@given(st.lists(st.sampled_from(["", "a", "b", "a ", "é", "\ud800"]), max_size=30))
def test_every_repetition_is_a_duplicate_and_the_first_occurrence_is_not(texts):
    expected = [row for row, text in enumerate(texts) if text in texts[:row]]
    assert find_duplicates(texts) == expected


def test_duplicates_are_the_same_when_hashes_are_sorted_in_parts(monkeypatch):
    texts = [f"line {i % 70}" for i in range(200)]
    whole = find_duplicates(texts)
    monkeypatch.setattr(duplicates, "_MAX_SORTED", 16)
    monkeypatch.setattr(duplicates, "_CHUNK", 7)
    assert find_duplicates(texts) == whole == list(range(70, 200))
