"""Filter rules drop bad pairs, keep good text in many scripts, and never fail."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcli.config.filters import SCRIPTS
from mtcli.data.characters import count_words, is_damaged, letters_of, script_of
from mtcli.data.filters import (
    RULES,
    PairBlock,
    find_blank,
    letter_share,
    max_repetitions,
    numbers_in,
    urls_in,
)

THRESHOLDS = {
    "damaged": True,
    "min_characters": 2,
    "max_characters": 500,
    "min_words": 1,
    "max_words": 100,
    "max_length_ratio": 9.0,
    "identical": True,
    "min_letter_share": 0.3,
    "source_scripts": ("Latin",),
    "target_scripts": ("Latin",),
    "max_repeated_characters": 10,
    "max_repeated_words": 4,
    "different_numbers": True,
    "different_urls": True,
}
ONE_SIDED = {"source_scripts": "target_scripts", "target_scripts": "source_scripts"}

# Real text in many scripts that no default rule may drop, with either side as the source.
INTACT = [
    ("A man sleeps in a green room.", "Ein Mann schläft in einem grünen Raum."),
    ("He said “yes” — and left…", "„Ja“, sagte er – und ging…"),
    ("He calls it “fun”.", "Er nennt es „Spaß“."),
    ("She said: « déjà »…", "Elle a dit : «\u00a0déjà\u00a0»…"),
    ("TOMORROW, SISTER!", "“AMANHÃ”, IRMû!"),
    ("The café “Olé”…", "Das Café „Olé“…"),
    ("CÂMARA, SÃO PAULO, MANHÃ", "Chamber, São Paulo, morning"),
    ("ÎN ȚARĂ, ÎNTÂI", "In the country, first"),
    ("XÃ HỘI, ÂM NHẠC", "Society, music"),
    ("We do not know.", "我们不知道。"),
    ("The International Monetary Fund approved the loan.", "国际货币基金组织批准了贷款。"),
    ("The president will visit tomorrow.", "سيزور الرئيس غدا."),
    ("This is a very good book.", "यह बहुत अच्छी किताब है।"),
    ("Where is the station?", "สถานีอยู่ที่ไหน"),
    ("Where is the station?", "Где находится вокзал?"),
    ("Good morning", "Καλημέρα, Πέτρο"),
    ("I ❤️ you 😀😀😀", "Ich ❤️ dich 😀😀😀"),
    ("if (x != 0) { return y[i]++; }", "if (x != 0) { return y[i]++; }"),
    ("20 °C ± 0.5 °C, 5 µm, § 3, £5, ½", "20 °C ± 0,5 °C, 5 µm, § 3, 5 £, ½"),
    ("Ñandú, piñata, ESPAÑA", "Rhea, piñata, Spain"),
    ("Ð is an Icelandic letter, þÞ too", "Ð er íslenskur stafur, þÞ líka"),
    ("UN", "Organizacja Narodów Zjednoczonych"),
    ("OK", "In Ordnung, einverstanden."),
]


def flags(name: str, pairs, threshold=None) -> list[bool]:
    block = PairBlock(*map(list, zip(*pairs, strict=True)))
    value = THRESHOLDS[name] if threshold is None else threshold
    return RULES[name].find(block, value).tolist()


def mojibake(text: str, encoding: str) -> str:
    """Decode UTF-8 text with a wrong encoding; undefined bytes become control characters."""
    return "".join(bytes([byte]).decode(encoding, "ignore") or chr(byte) for byte in text.encode())


text = st.text(max_size=60) | st.text(alphabet="aAé1,. 。中é”\ufffd\nहि", max_size=40)
pairs = st.lists(st.tuples(text, text), min_size=1, max_size=8)


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=40)
@given(pairs)
def test_rules_accept_any_text_and_judge_each_pair_independently(name, pairs):
    found = flags(name, pairs)
    assert len(found) == len(pairs)
    assert found == [flags(name, [pair])[0] for pair in pairs]


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=40)
@given(pairs)
def test_rules_treat_both_sides_in_the_same_way(name, pairs):
    swapped = [(target, source) for source, target in pairs]
    assert flags(ONE_SIDED.get(name, name), pairs) == flags(name, swapped)


def test_every_rule_has_a_threshold_and_a_reason_that_names_its_setting():
    assert list(THRESHOLDS) == list(RULES)
    for name, rule in RULES.items():
        reason = rule.reason(THRESHOLDS[name])
        assert f"filters.{name}=" in reason
        assert "{" not in reason


@pytest.mark.parametrize("pair", INTACT, ids=[pair[0] for pair in INTACT])
@pytest.mark.parametrize("name", ["damaged", "max_length_ratio"])
def test_default_rules_keep_intact_pairs(name, pair):
    assert flags(name, [pair, pair[::-1]]) == [False, False]


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
@pytest.mark.parametrize(
    "line",
    [
        "Ein Mädchen läuft über die Straße.",
        "Ärger",
        "Öl",
        "Voilà",
        "L’été",
        "“Yes”, he said.",
        "wait…",
        "5 €",
        "20 °C",
        "naïve",
        "El niño comió",
        "Где вокзал?",
        "Καλημέρα",
        "שלום",
        "سيزور الرئيس",
        "我们不知道",
        "はい、そうです",
        "यह बहुत अच्छी",
        "สถานี",
        "Hi 😀",
    ],
)
def test_utf8_in_the_wrong_encoding_is_damaged(line, encoding):
    damaged = mojibake(line, encoding)
    assert is_damaged(damaged)
    assert not is_damaged(line)
    assert flags("damaged", [("intact", "line"), (damaged, "line"), ("line", damaged)]) == [
        False,
        True,
        True,
    ]


def test_a_replacement_character_is_damage():
    assert flags("damaged", [("M\ufffdnchen", "Munich")]) == [True]


def test_the_length_ratio_ignores_short_pairs_and_scripts_with_few_characters():
    long = "This sentence is long enough to have a reliable ratio. " * 2
    assert flags("max_length_ratio", [(long, "Kurz."), ("x" * 49, "y"), ("x" * 50, "y")]) == [
        True,
        False,
        True,
    ]
    # 110 characters and 12 Chinese characters: the ratio of the bytes is 3.
    assert flags("max_length_ratio", [(long, "这个句子足够长有可靠比例")]) == [False]


def test_length_limits_are_inclusive():
    assert flags("min_characters", [("ab", "abc"), ("a", "abc")], 2) == [False, True]
    assert flags("max_characters", [("ab", "abc"), ("ab", "abcd")], 3) == [False, True]
    assert flags("min_words", [("a b", "c d"), ("a", "c d")], 2) == [False, True]
    assert flags("max_words", [("a b", "c d"), ("a b c", "c d")], 2) == [False, True]


def test_chinese_text_without_spaces_has_words():
    assert 4 < count_words("国际货币基金组织") < 7
    assert flags("min_words", [("the fund said so", "国际货币基金组织")], 3) == [False]


def test_marks_count_as_letters():
    assert letter_share("यह बहुत अच्छी किताब है") == 1
    assert letter_share("12 + 34 = ab") == 0.25
    assert letters_of("Ab-1 éः!") == "abéः"


@pytest.mark.parametrize(
    ("character", "script"),
    [
        ("a", "Latin"),
        ("Ａ", "Latin"),
        ("я", "Cyrillic"),
        ("中", "Han"),
        ("あ", "Hiragana"),
        ("ー", "Katakana"),
        ("한", "Hangul"),
        ("ي", "Arabic"),
        ("ि", "Devanagari"),
        ("1", None),
        ("😀", None),
    ],
)
def test_script_of_returns_the_script_of_a_character(character, script):
    assert script_of(character) == script
    assert script is None or script in SCRIPTS


def test_script_rules_check_only_their_side_and_ignore_lines_without_letters():
    pairs = [("Hello", "Привет"), ("Привет", "Hello"), ("12 %", "😀"), ("Привет (GPU)", "x")]
    assert flags("source_scripts", pairs, ("Latin",)) == [False, True, False, True]
    assert flags("target_scripts", pairs, ("Cyrillic", "Greek")) == [False, True, False, True]


def test_repetitions_are_counted():
    assert max_repetitions("no no no No.") == 3
    assert max_repetitions("a b a b a b") == 3
    assert max_repetitions("one two three four " * 5) == 5
    assert max_repetitions("") == 0
    assert flags("max_repeated_words", [("no no no", "a"), ("a", "no no")], 2) == [True, False]
    assert flags("max_repeated_characters", [("aaa", "b"), ("aa", "...")], 2) == [True, True]


def test_numbers_are_compared_without_separators_and_in_any_script():
    assert numbers_in("1,000.50 and 007") == {"100050", "7"}
    assert numbers_in("10 000 or 10\u202f000 or 10.000") == {"10000"}
    assert numbers_in("٣٤ ४५") == {"34", "45"}
    pairs = [
        ("in 1999", "1999"),
        ("in 1999", "in 1998"),
        ("in 1999", "then"),
        ("3 men", "three men"),
        ("3 men", "4 men"),
    ]
    assert flags("different_numbers", pairs) == [False, True, True, False, True]


def test_addresses_are_compared_without_punctuation_around_them():
    assert urls_in("See https://a.org/x?y=1, (www.B.com) or me@c.de.") == {
        "https://a.org/x?y=1",
        "www.b.com",
        "me@c.de",
    }
    assert urls_in("见https://a.org/x。谢谢") == {"https://a.org/x"}
    pairs = [("www.a.de.", "(www.a.de)"), ("www.a.de", "www.a.com"), ("see", "www.a.de")]
    assert flags("different_urls", pairs) == [False, True, True]


def test_identical_and_blank_pairs_are_found():
    assert flags("identical", [("a", "a "), ("a", "A")]) == [True, False]
    assert find_blank(PairBlock(["a", " ", "a"], ["b", "b", "\t"])).tolist() == [
        False,
        True,
        True,
    ]


def test_a_rule_finds_the_damaged_row_in_a_large_block():
    lines = [f"Zeile {i}: Spaß“ und Öl" for i in range(1000)]
    damaged = list(lines)
    for row in (0, 500, 999):
        damaged[row] = mojibake(damaged[row], "cp1252")
    found = RULES["damaged"].find(PairBlock(lines, damaged), True)
    assert np.flatnonzero(found).tolist() == [0, 500, 999]
