"""Lines in, translations out: split, batched, joined, aligned; over an engine one can foresee."""

import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtcli import Translator
from mtcli.engines import Engine, Opened, Scored
from mtcli.errors import EngineError
from mtcli.options import EngineOptions, Sampling, SearchOptions
from mtcli.translation import LineTranslator, Request, Translation
from mtcli.translation.alignment import align, word_numbers
from mtcli.translation.guard import is_runaway
from mtcli.translation.parts import glue, split
from processes import output_of

pytestmark = pytest.mark.cpu


class Echo(Engine):
    """An engine whose every translation can be foreseen: it says what it hears."""

    def __init__(self, *, max_pieces=100, batch_tokens=200, n_parallel=1):
        self.max_pieces = max_pieces
        self.batch_tokens = batch_tokens
        self.n_parallel = n_parallel
        self.batches = []

    def search(self, sources, options, limit):
        self.batches.append(sources)
        assert max(len(source.pieces) for source in sources) <= self.max_pieces
        room = (max(len(source.pieces) for source in sources) + 1) * len(sources)
        assert room <= self.batch_tokens or len(sources) == 1
        assert {options.limit(len(s.pieces), len(s.prefix)) for s in sources} == {limit}
        return [
            [Scored([*s.prefix, *s.pieces], -1.0, attention=identity(len(s.pieces)))]
            * options.n_best
            for s in sources
        ]


def identity(n):
    return [[float(i == j) for i in range(n)] for j in range(n)]


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def translator(tokenizers, echo):
    return LineTranslator(Opened(echo, tokenizers, 100, SearchOptions()))


def texts(translator, lines, options=None):
    found = translator.translate_all([Request(line) for line in lines], options or SearchOptions())
    return [candidates[0].text for candidates in found]


def test_n_lines_in_n_lines_out_in_order(translator):
    lines = ["the man sees a book", "", "water", "  ", "a tree\tand bread"]
    assert texts(translator, lines) == ["the man sees a book", "", "water", "", "a tree and bread"]


class Repeater(Translator):
    """A translator that returns its lines."""

    def __init__(self) -> None:
        self.options = SearchOptions()

    def flow(self, groups, options, on_progress=None):
        del options, on_progress
        for group in groups:
            yield [[Translation(request.text, 0.0)] for request in group]


def test_a_line_end_is_not_part_of_a_line(tmp_path):
    lines = ["a", "b\n", "c\r\n", "\n", " d \n", "e\rf\n"]
    expected = ["a", "b", "c", "", " d ", "e\rf"]
    assert Repeater().translate(lines) == expected
    assert [best.text for [best] in Repeater().stream(lines)] == expected
    (tmp_path / "input.txt").write_text("g\nh\n", encoding="utf-8")
    with (tmp_path / "input.txt").open(encoding="utf-8") as file:
        assert Repeater().translate(file) == ["g", "h"]


def test_repeated_lines_are_searched_once(translator, echo):
    lines = ["water", "the tree", "water", "", "water"]
    assert texts(translator, lines) == lines
    assert sum(map(len, echo.batches)) == 2


def test_samples_of_repeated_lines_are_drawn_for_each(translator, echo):
    options = SearchOptions(beam_size=1, sampling=Sampling())
    assert texts(translator, ["water"] * 3, options) == ["water"] * 3
    assert sum(map(len, echo.batches)) == 3


LINES = st.lists(st.text(st.sampled_from("the man water.  "), max_size=60), max_size=8)


@given(st.lists(LINES, max_size=5), st.integers(1, 3), st.integers(1, 300))
def test_groups_come_back_one_by_one_in_their_order(tokenizers, groups, n_parallel, batch_tokens):
    engine = Echo(n_parallel=n_parallel, batch_tokens=batch_tokens)
    translator = LineTranslator(Opened(engine, tokenizers, 100, SearchOptions()))
    requests = [[Request(line) for line in group] for group in groups]
    found = list(translator.flow(requests, SearchOptions()))
    expected = [[" ".join(line.split()) for line in group] for group in groups if group]
    assert [[line[0].text for line in group] for group in found] == expected


def test_an_empty_group_brings_all_that_is_under_way(translator):
    asked = []

    def groups():
        for group in (["water"], ["bread"], [], ["the tree"]):
            asked.append(group)
            yield [Request(line) for line in group]

    flow = translator.flow(groups(), SearchOptions())
    assert next(flow)[0][0].text == "water"
    assert next(flow)[0][0].text == "bread"
    assert asked == [["water"], ["bread"], []]


def test_a_desert_of_blank_lines_does_not_pile_up(translator):
    """The first sentence is still under way when they come; they must not wait for the end."""
    n_asked = 0

    def groups():
        nonlocal n_asked
        for text in ["water", *[""] * 50]:
            n_asked += 1
            yield [Request(text)]

    assert next(translator.flow(groups(), SearchOptions()))[0][0].text == "water"
    assert n_asked < 10


def test_a_prefix_longer_than_all_positions_is_cut_off(tokenizers):
    engine = Echo(batch_tokens=999)
    engine.n_positions = 20
    translator = LineTranslator(Opened(engine, tokenizers, 20, SearchOptions()))
    limits = []
    engine.search = lambda sources, _options, limit: (
        limits.append(limit) or [[Scored(list(s.prefix), 0.0, is_cut=True)] for s in sources]
    )
    options = SearchOptions(max_length=20)
    translator.translate_all([Request("water", "das Haus " * 20)], options)
    assert limits == [20]
    with pytest.raises(EngineError, match="max_length=21 is more than the model's 20 positions"):
        translator.translate_all([Request("water")], SearchOptions(max_length=21))


@pytest.mark.parametrize(
    "changes",
    [
        {"beam_size": 0}, {"n_best": 9}, {"length_penalty": float("nan")}, {"max_length": 0},
        {"max_length_ratio": float("inf")}, {"no_repeat_ngram": -1}, {"repetition_penalty": 0},
        {"n_best": 2, "sampling": Sampling(top_k=1)},
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        SearchOptions(**changes)


def test_no_more_is_under_way_than_the_engine_can_use(tokenizers):
    under_way = []

    class Patient(Echo):
        def submit(self, sources, options, limit):
            under_way.append(sources)
            assert len(under_way) <= 4 * self.n_parallel + 1

            def result():
                under_way.remove(sources)
                return self.search(sources, options, limit)

            return result

    engine = Patient(n_parallel=2, batch_tokens=20)
    translator = LineTranslator(Opened(engine, tokenizers, 100, SearchOptions()))
    lines = [f"{'water ' * (i % 7)}{i}" for i in range(100)]
    assert texts(translator, lines, SearchOptions(beam_size=1)) == lines
    assert not under_way


def test_lines_with_and_without_a_prefix_never_share_a_batch(translator, echo):
    requests = [Request("water", "das" if i % 2 else "") for i in range(10)]
    requests += [Request(f"bread {i}", "das Brot" if i % 2 else "") for i in range(10)]
    found = translator.translate_all(requests, SearchOptions())
    assert [line[0].text for line in found[:2]] == ["water", "das water"]
    for batch in echo.batches:
        assert len({bool(source.prefix) for source in batch}) == 1


def test_a_length_ratio_gives_each_its_own_limit(translator, echo):
    options = SearchOptions(max_length_ratio=1.5)
    assert texts(translator, ["water " * n for n in range(1, 30)], options)
    assert [options.limit(n) for n in (1, 5, 6, 100, 1000)] == [8, 8, 16, 152, 256]
    assert options.limit(5, n_prefix=3) == 16
    assert len(echo.batches) > 3


PIECES = st.lists(st.sampled_from(["▁a", "b", "▁c", "d.", ",", "▁Dr.", "<0xE2>", "<0x82>"]))


@given(PIECES, st.integers(1, 20))
def test_splitting_loses_nothing_and_tears_no_word_that_it_need_not(pieces, max_pieces):
    parts = split(pieces, max_pieces)
    assert [piece for part in parts for piece in part.pieces] == pieces
    assert all(0 < len(part.pieces) <= max_pieces for part in parts)
    assert len(parts) <= 1 or len(pieces) > max_pieces
    for before, after in zip(parts, parts[1:], strict=False):
        is_torn = not after.pieces[0].startswith("▁")
        assert after.is_inside_word == is_torn
        could_cut = [*before.pieces, after.pieces[0]][1 + max_pieces // 2 :]
        assert not is_torn or not any(piece.startswith("▁") for piece in could_cut)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("▁He ▁came . ▁She ▁went ! ▁Who ▁knows", ["▁He ▁came .", "▁She ▁went !", "▁Who ▁knows"]),
        ("▁Dr. ▁Who ▁and ▁Mr . ▁X ▁met", ["▁Dr. ▁Who ▁and ▁Mr .", "▁X ▁met"]),
        ("▁am ▁3. ▁Mai ▁war ▁es ▁gut", ["▁am ▁3. ▁Mai ▁war ▁es", "▁gut"]),
        ("▁a ▁b ▁c , ▁d ▁e", ["▁a ▁b ▁c ,", "▁d ▁e"]),
        ("▁a ▁b ▁c ▁d ▁e ▁f", ["▁a ▁b ▁c ▁d ▁e", "▁f"]),
        ("▁abc d e f g h", ["▁abc d e f g", "h"]),
        ("▁a b c d <0xE2> <0x82> <0xAC>", ["▁a b c d", "<0xE2> <0x82> <0xAC>"]),
        ("▁今日 は 。 明日 も 。 はい", ["▁今日 は 。", "明日 も 。", "はい"]),
        ('▁He ▁said ▁"no ." ▁She ▁left', ['▁He ▁said ▁"no ."', "▁She ▁left"]),
    ],
)
def test_a_line_is_cut_where_it_hurts_least(text, parts):
    assert [" ".join(part.pieces) for part in split(text.split(), 5)] == parts


@pytest.mark.parametrize(
    ("before", "after", "is_inside_word", "between"),
    [
        ("One.", "Two.", False, " "),
        ("abc", "def", True, ""),
        ("今日は。", "明日も。", False, ""),
        ("", "Two.", False, ""),
        ("One.", "", False, ""),
    ],
)
def test_parts_are_put_together_as_their_script_has_it(before, after, is_inside_word, between):
    assert glue(before, after, is_inside_word=is_inside_word) == between


@given(st.text(st.sampled_from("the man. sees,\u3000x€"), max_size=300), st.integers(5, 40))
def test_what_is_said_in_parts_is_all_there(tokenizers, line, max_pieces):
    """Nothing is lost or added but spaces, wherever the line is cut."""
    translator = LineTranslator(
        Opened(Echo(max_pieces=max_pieces), tokenizers, max_pieces, SearchOptions())
    )
    [[found]] = translator.translate_all([Request(line)], SearchOptions(with_alignment=True))
    wide = LineTranslator(Opened(Echo(max_pieces=999), tokenizers, 999, SearchOptions()))
    [whole] = texts(wide, [line])
    torn = "\ufffd"  # a character that had to be cut through
    if torn not in found.text:
        assert found.text.replace(" ", "") == whole.replace(" ", "")
    assert (found.n_parts > 1) == (len(tokenizers.source.pieces(line)) > max_pieces)


def test_words_are_aligned_across_parts(tokenizers):
    translator = LineTranslator(Opened(Echo(max_pieces=12), tokenizers, 12, SearchOptions()))
    line = "the man sees the tree. my dog likes water. the woman finds bread."
    [[found]] = translator.translate_all([Request(line)], SearchOptions(with_alignment=True))
    assert found.n_parts > 1
    assert found.text == line
    assert found.alignment == tuple((i, i) for i in range(len(line.split())))


@given(st.text(max_size=60))
def test_links_are_between_words_that_are_there(tokenizers, line):
    translator = LineTranslator(Opened(Echo(max_pieces=9), tokenizers, 9, SearchOptions()))
    [[found]] = translator.translate_all([Request(line)], SearchOptions(with_alignment=True))
    for i, j in found.alignment:
        assert i < len(line.split())
        assert j < len(found.text.split())


def test_alignment_links_each_target_word_to_the_word_it_looks_at_most():
    source, target = ["▁the", "▁h", "ouse"], ["▁das", "▁Haus", "▁da"]
    attention = [[0.9, 0.1, 0.0], [0.4, 0.3, 0.3], [0.5, 0.1, 0.1]]
    assert align(source, target, attention) == ((0, 0), (0, 2), (1, 1))
    assert word_numbers(["a", "▁b", "c", "▁", "d"]) == [0, 1, 1, 2, 2]
    assert align(source, [], []) == ()
    blind = [attention[0], *([0.0] * len(row) for row in attention[1:])]
    assert align(source, target, blind) == ((0, 0),)  # who sees nothing is linked to nothing


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("a b c", "x y z", False),
        ("a b c", "x " * 12, True),
        ("a b c", "x y z " * 4, True),
        ("a b c", "x " * 11, False),
        ("a b c", "u v " + "x y " * 6 + "w", True),
        ("a b c", "u v " + "x y z " * 3 + "w", False),
        ("ha " * 20, "ha " * 20, False),
        ("", "", False),
    ],
)
def test_a_runaway_repeats_what_its_source_does_not(source, target, expected):
    assert is_runaway(source.split(), target.split()) is expected


@given(st.lists(st.integers(0, 3)))
def test_a_runaway_is_what_a_plain_definition_says(pieces):
    """Some period of at most 8, four times in a row, and twelve pieces long."""
    expected = any(
        all(pieces[i + k] == pieces[i + k + period] for k in range(length - period))
        for period in range(1, 9)
        for length in [max(4 * period, 12)]
        for i in range(len(pieces) - length + 1)
    )
    assert is_runaway([], pieces) is expected


ENGINES = ("torch", "ctranslate2")


@pytest.fixture(scope="session", params=ENGINES)
def real(request, copying_model):
    return Translator(copying_model, engine=EngineOptions(engine=request.param))


@given(st.lists(st.text(), max_size=6))
def test_whatever_a_line_contains_it_has_one_translation_on_one_line(real, lines):
    options = SearchOptions(beam_size=2, max_length=8)
    found = real.translate_all([Request(line) for line in lines], options)
    assert len(found) == len(lines)
    for candidates in found:
        assert len(candidates) == 1
        assert len(candidates[0].text.splitlines()) <= 1


NASTY = [
    "x" * 10_000,
    "the man sees the house. " * 4000,
    "\x00", "\ufeff", "a\u2028b\u2029c\x85d\x0be\x0cf", "e\u0301" * 50, "שלום עולם", "🙂👩‍👩‍👧",
    "<s>", "</s>", "<unk>", "<pad>", "<0x41>", "▁", "\ud800 half", "\t\t", "a" + "\u0300" * 300,
]  # fmt: skip


@pytest.mark.parametrize("line", NASTY, ids=range(len(NASTY)))
def test_nasty_lines_have_a_translation(real, line):
    options = replace(real.options, max_length=6, beam_size=1)
    for lines in ([line], ["water", line, "bread"]):
        found = [candidates[0].text for candidates in real.stream(lines, options)]
        assert len(found) == len(lines)
        assert all(len(text.splitlines()) <= 1 for text in found)


def test_symbols_in_a_text_are_text(tokenizers):
    """They never become the control symbols of the same name."""
    for symbol in ("<s>", "</s>", "<unk>", "<pad>"):
        pieces = tokenizers.source.pieces(f"a {symbol} b")
        assert symbol not in pieces
        assert tokenizers.source.text(pieces) == f"a {symbol} b"


def test_unknown_characters_that_spell_a_symbol_end_nothing():
    from mtcli.config import TokenizerConfig
    from mtcli.tokenizer import EOS_ID, train_tokenizers

    options = TokenizerConfig(vocab_size=30, byte_fallback=False, character_coverage=0.98)
    tokenizer = train_tokenizers(["он видит дом"] * 9, ["она пьёт"] * 9, options).source
    assert EOS_ID not in tokenizer.ids(tokenizer.pieces("</s>"))


def test_python_says_the_same_in_three_lines(copying_model):
    translator = Translator(str(copying_model))
    lines = ["the man sees a book", "", "water"]
    found = translator.translate(lines)
    assert found == lines
    assert found == [c[0].text for c in translator.stream(iter(lines))]
    with pytest.raises(TypeError, match="not one string"):
        translator.translate("water")
    best = list(translator.stream(lines, replace(translator.options, n_best=3)))
    assert [len(candidates) for candidates in best] == [3, 1, 3]


def test_python_does_not_wait_for_torch(tiny_trained):
    code = f"""
import sys
import mtcli
assert len([name for name in sys.modules if name.startswith("mtcli")]) == 1
from mtcli import Translator
Translator({str(tiny_trained)!r}).translate(["water"])
assert not {{"torch", "datasets", "pydantic", "yaml"}} & set(sys.modules)
"""
    output_of([sys.executable, "-c", code])
