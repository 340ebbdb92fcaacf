"""Findings of `mtcli check`: each kind of damage is found, and clean text is not flagged."""

import math
import random
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from corpus_files import WRITERS
from mtcli.data.corpus import Corpus
from mtcli.data.formats.base import Languages
from mtcli.data.quality.alignment import MAX_OFFSET, OFFSETS
from mtcli.data.quality.analysis import Analysis, analyze
from mtcli.data.quality.check import Check, check_corpus
from mtcli.data.quality.findings import KINDS, Finding, length_class_labels
from mtcli.data.quality.overlap import OverlapIndex
from mtcli.data.quality.quick import _sample_rows, quick_warnings
from mtcli.data.quality.segments import Segment, find_segments
from mtcli.data.quality.stored_pairs import StoredPairs, read_checked
from mtcli.data.quality.tokens import TextBlock, tokenize

DEMO = Path(__file__).parent.parent / "data" / "demo"
EN_DE = Languages("en", "de")
pytestmark = pytest.mark.cpu


@cache
def demo_lines(n_pairs: int = 1500) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the first lines of both sides of the demo corpus."""
    sides = (DEMO / f"train.{language}" for language in ("en", "de"))
    source, target = (path.read_text(encoding="utf-8").split("\n")[:n_pairs] for path in sides)
    return tuple(source), tuple(target)


def demo_pairs(n_pairs: int = 1500) -> list[tuple[str, str]]:
    return list(zip(*demo_lines(n_pairs), strict=True))


def analysis_of(pairs, overlap: OverlapIndex | None = None) -> Analysis:
    return analyze(StoredPairs.of(pairs), overlap, lambda *_: None)


def problems_of(analysis: Analysis) -> dict[str, list[int]]:
    """Return the rows of each problem that was found."""
    return {
        kind: rows.tolist()
        for kind, rows in analysis.rows.items()
        if KINDS[kind].is_problem and len(rows)
    }


def test_a_clean_corpus_has_no_problems():
    analysis = analysis_of(demo_pairs())
    assert problems_of(analysis) == {}
    assert analysis.segments == (Segment(0, 1500, 0),)
    assert analysis.worst == ()


DAMAGE = {
    "copies": lambda pair: (pair[0], pair[0]),
    "one_sided": lambda pair: (pair[0], "\u2003"),
    "blank": lambda _: ("", " "),
    "length_ratio": lambda pair: (pair[0], " ".join([pair[1], *LONG])),
    "wrong_script": lambda pair: (pair[0], "Мой дядя самых честных правил"),
    "damaged": lambda pair: (pair[0], pair[1] + " fÃ¼r"),
    "control": lambda pair: (pair[0] + "\x1b", pair[1]),
    "repeated": lambda pair: (pair[0], pair[1] + " !" + "!" * 30),
}
LONG = demo_lines()[1][10:16]


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_pairs_are_found_and_no_others(kind):
    rows = [100, 101, 777, 1499]
    pairs = demo_pairs()
    for row in rows:
        pairs[row] = DAMAGE[kind](pairs[row])
    assert problems_of(analysis_of(pairs)) | {"duplicates": []} == {kind: rows, "duplicates": []}


def test_only_later_copies_of_a_pair_are_duplicates():
    pairs = demo_pairs(300)
    pairs[200] = pairs[50]
    pairs[250] = pairs[50]
    pairs[260] = (pairs[51][0], pairs[52][1])
    analysis = analysis_of(pairs)
    assert analysis.rows["duplicates"].tolist() == [200, 250]
    assert analysis.rows["ambiguous"].tolist() == [260]


def test_identical_numbers_are_not_copies():
    pairs = [*demo_pairs(300), ("1984", "1984"), ("www.example.org", "www.example.org")]
    assert analysis_of(pairs).rows["copies"].tolist() == [301]


def test_lines_in_the_language_of_the_other_side_are_found():
    pairs = demo_pairs(3000)
    rows = list(range(40, 3000, 150))
    for row in rows:
        pairs[row] = (pairs[row][0], pairs[(row * 7 + 1) % 3000][0])
    found = analysis_of(pairs).rows["wrong_language"].tolist()
    assert len(set(found) & set(rows)) >= 0.95 * len(rows)
    assert len(set(found) - set(rows)) <= 3


def into_script(line: str, first: int) -> str:
    """Replace each letter with a letter from another script."""
    return "".join(chr(first + ord(c) % 32) if c.isalpha() else c for c in line.lower())


def test_lines_in_a_third_language_of_the_same_script_are_found():
    pairs = demo_pairs(3000)
    rows = list(range(40, 3000, 50))
    english = [pairs[(row * 7 + 1) % 3000][0] for row in rows]
    pairs = [(into_script(source, 0x10D0), target) for source, target in pairs]
    for row, line in zip(rows, english, strict=True):
        pairs[row] = (pairs[row][0], line)
    found = analysis_of(pairs).rows["wrong_language"].tolist()
    assert len(set(found) & set(rows)) >= 0.95 * len(rows)
    assert len(set(found) - set(rows)) <= 3


def test_duplicates_are_not_mistaken_for_a_third_language():
    rng = random.Random(3)
    pairs = demo_pairs(600)
    unusual = ("Zyx wvu tsrq ponml kjihg fedcba zyx.", "Qwertz uiopü asdfgh jklöä yxcvbnm qay.")
    pairs += [unusual] * 100 + rng.choices(pairs, k=1000)
    rng.shuffle(pairs)
    assert analysis_of(pairs).rows["wrong_language"].tolist() == []


@pytest.mark.parametrize("script", [None, 0x10D0], ids=["latin", "georgian"])
@pytest.mark.parametrize(("offset", "side"), [(1, 0), (-1, 1)])
def test_a_shift_is_found_within_a_few_lines(offset, side, script):
    source, target = map(list, demo_lines())
    if script:
        target = [into_script(line, script) for line in target]
    del (source, target)[side][600]
    (source, target)[1 - side].pop()
    analysis = analysis_of(list(zip(source, target, strict=True)))
    (segment,) = analysis.misaligned
    assert abs(segment.start - 600) <= 5
    assert (segment.end, segment.offset) == (1499, offset)


def test_a_temporary_shift_is_found():
    source, target = map(list, demo_lines())
    del source[300:302]
    del target[900:902]
    (segment,) = analysis_of(list(zip(source, target, strict=True))).misaligned
    assert abs(segment.start - 300) <= 5
    assert abs(segment.end - 898) <= 5
    assert segment.offset == 2


def test_a_passage_without_translations_is_found():
    source, target = map(list, demo_lines())
    target[500:700] = random.Random(1).sample(target[800:], 200)
    (segment,) = analysis_of(list(zip(source, target, strict=True))).misaligned
    assert abs(segment.start - 500) <= 10
    assert abs(segment.end - 700) <= 10
    assert segment.offset is None


def test_single_wrong_pairs_are_listed_as_the_worst_pairs():
    source, target = map(list, demo_lines())
    rows = range(100, 1000, 100)
    for row in rows:
        target[row] = target[row + 437]
    analysis = analysis_of(list(zip(source, target, strict=True)))
    assert analysis.misaligned == ()
    found = {row for row, _ in analysis.worst}
    assert found
    assert found <= set(rows)


def test_weak_evidence_does_not_produce_a_segment():
    scores = np.full((500, len(OFFSETS)), -3.0, np.float32)
    scores[:, MAX_OFFSET] = 3.0
    scores[100:104, MAX_OFFSET] = -30.0
    scores[100:104, MAX_OFFSET + 1] = 30.0
    assert find_segments(scores) == [Segment(0, 500, 0)]
    scores[100:150, MAX_OFFSET] = -3.0
    scores[100:150, MAX_OFFSET + 1] = 3.0
    assert find_segments(scores) == [Segment(0, 100, 0), Segment(100, 150, 1), Segment(150, 500, 0)]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda line: line, "test_exact"),
        (lambda line: line.upper() + " !", "test_near"),
        (lambda line: " ".join(["Dann", *line.split()[1:]]), "test_near"),
    ],
)
def test_overlap_with_a_test_set_is_found(change, kind):
    pairs = demo_pairs(300)
    texts = ((DEMO / f"long.{x}").read_text(encoding="utf-8") for x in ("en", "de"))
    test = list(zip(*(text.split("\n")[:50] for text in texts), strict=True))
    pairs[20] = (change(test[7][0]), change(test[7][1]))
    pairs[30] = (" ".join(demo_lines()[0][40:42]), change(test[8][1]))
    found = problems_of(analysis_of(pairs, OverlapIndex(test)))
    assert found == {kind: [20, 30]}


def test_short_lines_of_a_test_set_may_occur_in_other_pairs():
    pairs = demo_pairs(300)
    pairs[10] = ("Yes.", "Ja, gern.")
    pairs[11] = ("Yes.", "Jawohl.")
    index = OverlapIndex([("Yes.", "Jawohl."), ("", "")])
    assert problems_of(analysis_of(pairs, index)) == {"test_exact": [11]}


def checked(tmp_path: Path, source: bytes, target: bytes) -> Check:
    (tmp_path / "a.en").write_bytes(source)
    (tmp_path / "a.de").write_bytes(target)
    return check_corpus([str(tmp_path / "a.en"), str(tmp_path / "a.de")])


def finding(check: Check, kind: str) -> Finding:
    return next(found for found in check.result.findings if found.kind == kind)


def test_byte_order_marks_and_cr_lf_are_reported_with_the_file_name(tmp_path):
    result = checked(tmp_path, b"\xef\xbb\xbfOne\nTwo\n", b"Eins\r\nZwei\r\n")
    assert finding(result, "byte_order_mark").details == (str(tmp_path / "a.en"),)
    assert finding(result, "crlf").details == (f"{tmp_path / 'a.de'}: 2 lines",)


def test_unequal_files_are_checked_as_far_as_possible(tmp_path):
    source, target = map(list, demo_lines())
    del target[700]
    texts = ("".join(f"{line}\n" for line in side).encode() for side in (source, target))
    result = checked(tmp_path, *texts)
    assert result.result.n_pairs == 1499
    assert finding(result, "unequal").details == ("1,500 source lines, 1,499 target lines",)
    assert result.result.findings[0].kind == "unequal"
    examples = finding(result, "misaligned").examples
    assert any(abs(example.line - 701) <= 5 for example in examples)


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_findings(name, tmp_path):
    pairs = [*demo_pairs(60), ("Same text.", "Same text."), demo_pairs(60)[5], ("One side.", "")]
    names = WRITERS[name](tmp_path, pairs)
    result = check_corpus(names, languages=EN_DE).result
    kinds = {found.kind: found.count for found in result.problems}
    assert kinds == {"copies": 1, "duplicates": 1, "one_sided": 1}
    assert result.n_pairs == len(pairs)


def test_findings_are_sorted_by_importance():
    pairs = demo_pairs(300)
    pairs[3] = pairs[2]
    pairs[4] = (pairs[4][0], pairs[4][0])
    corpus = StoredPairs.of(pairs)
    assert len(corpus) == 300
    importances = [Finding(kind, 5).importance for kind in KINDS]
    assert len(set(importances)) > 5
    assert Finding("duplicates", 100).importance > Finding("copies", 10).importance


def test_the_histogram_counts_every_line(tmp_path):
    lines = ["x" * n for n in (1, 10, 11, 1000, 1001, 5000)]
    text = "".join(f"{line}\n" for line in [*lines, ""]).encode()
    stats = checked(tmp_path, text, text).result.source
    assert sum(stats.histogram) == len(lines)
    assert stats.histogram[:2] == (2, 1)
    assert stats.histogram[-2:] == (1, 2)
    assert (stats.longest, stats.median) == (5000, 11)
    assert len(length_class_labels()) == len(stats.histogram)


def test_tokens_do_not_depend_on_case_or_on_other_lines():
    lines = ["The old man, the sea!", "", "日本語のテキスト", "ΑΒΓ абв 123"]
    together = tokenize(TextBlock.of(lines))
    for row, line in enumerate(lines):
        alone = tokenize(TextBlock.of([line.upper()]))
        assert together.slice(row, row + 1).hashes.tolist() == alone.hashes.tolist()
    assert together.counts.tolist() == [7, 0, 8, 3]


def test_blocks_and_processes_do_not_change_the_analysis(monkeypatch):
    import mtcli.data.quality.examination as examination

    source, target = map(list, demo_lines())
    del source[800]
    pairs = list(zip(source, target, strict=False))
    pairs[5] = pairs[4]
    expected = analysis_of(pairs)
    monkeypatch.setattr("mtcli.data.line_store._BLOCK_LINES", 170)
    in_blocks = analysis_of(pairs)
    monkeypatch.setattr(examination, "_PARALLEL_PAIRS", 0)
    monkeypatch.setattr(examination, "usable_cores", lambda: 2)
    in_processes = analysis_of(pairs)
    for other in (in_blocks, in_processes):
        assert problems_of(other) == problems_of(expected)
        assert other.segments == expected.segments
        assert other.lengths == expected.lengths


def test_the_quick_check_warns_about_frequent_problems():
    source, target = map(list, demo_lines())
    assert list(quick_warnings(Corpus(source, target))) == []
    for row in range(0, 1500, 30):
        target[row] = source[row]
    warnings = list(quick_warnings(Corpus(source, target)))
    assert (
        warnings[0]
        == "warning: about 3% of the corpus consists of pairs with the same text on both sides"
    )
    assert "mtcli check" in warnings[-1]
    del target[700]
    source.pop()
    assert "misaligned near pair 70" in next(iter(quick_warnings(Corpus(source, target))))
    assert list(quick_warnings(Corpus(source[:900], source[:900]))) == []


@pytest.mark.parametrize("n_pairs", [4_001, 4_099, 20_000, 1_234_567])
def test_every_passage_of_3_percent_and_100_lines_contains_a_sampled_passage(n_pairs):
    rows = _sample_rows(n_pairs)
    assert len(np.unique(rows)) == len(rows) == 4_000
    assert 0 <= rows[0] < rows[-1] < n_pairs
    starts = rows[::100]
    np.testing.assert_array_equal(rows, (starts[:, None] + np.arange(100)).ravel())
    limits = [0, *starts.tolist(), n_pairs]  # a range without a passage crosses at most one limit
    assert max(np.diff(limits)) + 99 <= math.ceil(0.03 * n_pairs) + 100


@pytest.mark.parametrize(
    "start", [9_000, *(pytest.param(start, marks=pytest.mark.long) for start in (500, 19_200))]
)
def test_the_quick_check_finds_a_shift_of_3_percent(start):
    source, target = map(list, demo_lines(20_000))
    assert list(quick_warnings(Corpus(source, target))) == []
    del target[start]
    del source[start + 700]
    first = next(iter(quick_warnings(Corpus(source, target))))
    place = int(re.search(r"misaligned near pair ([\d,]+)", first)[1].replace(",", ""))
    assert start <= place <= start + 700


def test_a_corpus_without_pairs_is_refused(tmp_path):
    from mtcli.errors import DataError

    (tmp_path / "a.tsv").write_text("en\tde\n")
    with pytest.raises(DataError, match=r"a\.tsv"):
        read_checked([f"{tmp_path / 'a.tsv'}#en,de"], EN_DE)


ODD_LINES = {
    "distinct words": lambda i: f"{i * 7919 % 999_983:x}" * 8,
    "one line": lambda _: "the same line",
    "digits": str,
    "punctuation": lambda i: "!" * (i % 5 + 1),
    "emoji": lambda i: "👍🏽" * (i % 3 + 1),
    "Chinese": lambda i: chr(0x4E00 + i) * 4,
    "surrogates": lambda i: "a\udcff" if i % 2 else "b",
}


@pytest.mark.parametrize("source", ODD_LINES)
@pytest.mark.parametrize("target", ["distinct words", "one line"])
def test_the_quick_check_accepts_any_text(source, target):
    sides = [[ODD_LINES[name](i) for i in range(1_000)] for name in (source, target)]
    assert all(isinstance(text, str) for text in quick_warnings(Corpus(*sides)))
