"""Translation of lines with fake and real engines: splitting, batching, joining, alignment."""

import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtcli import Translator
from mtcli.config.search import EngineOptions, Sampling, SearchOptions
from mtcli.errors import EngineError
from mtcli.translation.alignment import align_words, word_indices
from mtcli.translation.engines import LoadedEngine
from mtcli.translation.engines.base import Engine, ScoredPieces
from mtcli.translation.line_translator import LineTranslator, Request, Translation, is_repetitive
from mtcli.translation.splitting import separator, split_line
from processes import output_of

pytestmark = pytest.mark.cpu


class EchoEngine(Engine):
    """Fake engine that returns the prefix and the source, with an identity matrix as attention."""

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
            [ScoredPieces([*s.prefix, *s.pieces], -1.0, attention=identity(len(s.pieces)))]
            * options.n_best
            for s in sources
        ]

    def score(self, pairs):
        self.batches.append(pairs)
        return [[-1.0] * (len(pieces) + 1) for _, pieces in pairs]


def identity(n):
    return [[float(i == j) for i in range(n)] for j in range(n)]


@pytest.fixture
def engine():
    return EchoEngine()


@pytest.fixture
def translator(tokenizers, engine):
    return LineTranslator(LoadedEngine(engine, tokenizers, 100, SearchOptions()))


def texts(translator, lines, options=None):
    found = translator.translate_all([Request(line) for line in lines], options or SearchOptions())
    return [candidates[0].text for candidates in found]


def test_output_has_one_line_per_input_line_in_order(translator):
    lines = ["the man sees a book", "", "water", "  ", "a tree\tand bread"]
    assert texts(translator, lines) == ["the man sees a book", "", "water", "", "a tree and bread"]


class EchoTranslator(Translator):
    """Translator that returns its input."""

    def __init__(self) -> None:
        self.options = SearchOptions()

    def translate_groups(self, groups, options, on_progress=None):
        del options, on_progress
        for group in groups:
            yield [[Translation(request.text, 0.0)] for request in group]


def test_line_endings_are_removed(tmp_path):
    lines = ["a", "b\n", "c\r\n", "\n", " d \n", "e\rf\n"]
    expected = ["a", "b", "c", "", " d ", "e\rf"]
    assert EchoTranslator().translate(lines) == expected
    assert [best.text for [best] in EchoTranslator().stream(lines)] == expected
    (tmp_path / "input.txt").write_text("g\nh\n", encoding="utf-8")
    with (tmp_path / "input.txt").open(encoding="utf-8") as file:
        assert EchoTranslator().translate(file) == ["g", "h"]


def test_repeated_lines_are_searched_once(translator, engine):
    lines = ["water", "the tree", "water", "", "water"]
    assert texts(translator, lines) == lines
    assert sum(map(len, engine.batches)) == 2


def test_repeated_lines_get_separate_samples(translator, engine):
    options = SearchOptions(beam_size=1, sampling=Sampling())
    assert texts(translator, ["water"] * 3, options) == ["water"] * 3
    assert sum(map(len, engine.batches)) == 3


LINES = st.lists(st.text(st.sampled_from("the man water.  "), max_size=60), max_size=8)


@given(st.lists(LINES, max_size=5), st.integers(1, 3), st.integers(1, 300))
def test_translate_groups_keeps_groups_and_their_order(
    tokenizers, groups, n_parallel, batch_tokens
):
    engine = EchoEngine(n_parallel=n_parallel, batch_tokens=batch_tokens)
    translator = LineTranslator(LoadedEngine(engine, tokenizers, 100, SearchOptions()))
    requests = [[Request(line) for line in group] for group in groups]
    found = list(translator.translate_groups(requests, SearchOptions()))
    expected = [[" ".join(line.split()) for line in group] for group in groups if group]
    assert [[line[0].text for line in group] for group in found] == expected


def test_an_empty_group_flushes_pending_groups(translator):
    requested = []

    def groups():
        for group in (["water"], ["bread"], [], ["the tree"]):
            requested.append(group)
            yield [Request(line) for line in group]

    translated = translator.translate_groups(groups(), SearchOptions())
    assert next(translated)[0][0].text == "water"
    assert next(translated)[0][0].text == "bread"
    assert requested == [["water"], ["bread"], []]


def test_blank_lines_do_not_accumulate(translator):
    """A sentence that is followed by many blank groups is returned before the input ends."""
    n_requested = 0

    def groups():
        nonlocal n_requested
        for text in ["water", *[""] * 50]:
            n_requested += 1
            yield [Request(text)]

    assert next(translator.translate_groups(groups(), SearchOptions()))[0][0].text == "water"
    assert n_requested < 10


def test_a_prefix_is_limited_to_the_positions_of_the_model(tokenizers):
    engine = EchoEngine(batch_tokens=999)
    engine.n_positions = 20
    translator = LineTranslator(LoadedEngine(engine, tokenizers, 20, SearchOptions()))
    limits = []
    engine.search = lambda sources, _options, limit: (
        limits.append(limit)
        or [[ScoredPieces(list(s.prefix), 0.0, is_truncated=True)] for s in sources]
    )
    options = SearchOptions(max_length=20)
    translator.translate_all([Request("water", "das Haus " * 20)], options)
    assert limits == [20]
    with pytest.raises(EngineError, match="max_length=21 exceeds the model's 20 positions"):
        translator.translate_all([Request("water")], SearchOptions(max_length=21))


@pytest.mark.parametrize(
    "changes",
    [
        {"beam_size": 0}, {"n_best": 9}, {"length_penalty": float("nan")}, {"max_length": 0},
        {"max_length_ratio": float("inf")}, {"no_repeat_ngram": -1}, {"repetition_penalty": 0},
        {"n_best": 2, "sampling": Sampling(top_k=1)},
    ],
)  # fmt: skip
def test_out_of_range_options_raise_an_error(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        SearchOptions(**changes)


def test_the_number_of_pending_batches_is_limited(tokenizers):
    pending = []

    class CountingEngine(EchoEngine):
        def submit(self, sources, options, limit):
            pending.append(sources)
            assert len(pending) <= 4 * self.n_parallel + 1

            def result():
                pending.remove(sources)
                return self.search(sources, options, limit)

            return result

    engine = CountingEngine(n_parallel=2, batch_tokens=20)
    translator = LineTranslator(LoadedEngine(engine, tokenizers, 100, SearchOptions()))
    lines = [f"{'water ' * (i % 7)}{i}" for i in range(100)]
    assert texts(translator, lines, SearchOptions(beam_size=1)) == lines
    assert not pending


def test_lines_with_and_without_prefix_never_share_a_batch(translator, engine):
    requests = [Request("water", "das" if i % 2 else "") for i in range(10)]
    requests += [Request(f"bread {i}", "das Brot" if i % 2 else "") for i in range(10)]
    found = translator.translate_all(requests, SearchOptions())
    assert [line[0].text for line in found[:2]] == ["water", "das water"]
    for batch in engine.batches:
        assert len({bool(source.prefix) for source in batch}) == 1


def test_the_length_ratio_makes_the_limit_depend_on_the_source_length(translator, engine):
    options = SearchOptions(max_length_ratio=1.5)
    assert texts(translator, ["water " * n for n in range(1, 30)], options)
    assert [options.limit(n) for n in (1, 5, 6, 100, 1000)] == [8, 8, 16, 152, 256]
    assert options.limit(5, n_prefix=3) == 16
    assert len(engine.batches) > 3


PIECES = st.lists(st.sampled_from(["▁a", "b", "▁c", "d.", ",", "▁Dr.", "<0xE2>", "<0x82>"]))


@given(PIECES, st.integers(1, 20))
def test_splitting_keeps_all_pieces_and_avoids_breaking_words(pieces, max_pieces):
    parts = split_line(pieces, max_pieces)
    assert [piece for part in parts for piece in part.pieces] == pieces
    assert all(0 < len(part.pieces) <= max_pieces for part in parts)
    assert len(parts) <= 1 or len(pieces) > max_pieces
    for before, after in zip(parts, parts[1:], strict=False):
        is_inside_word = not after.pieces[0].startswith("▁")
        assert after.is_inside_word == is_inside_word
        alternatives = [*before.pieces, after.pieces[0]][1 + max_pieces // 2 :]
        assert not is_inside_word or not any(piece.startswith("▁") for piece in alternatives)


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
def test_a_line_is_split_at_the_best_boundary(text, parts):
    assert [" ".join(part.pieces) for part in split_line(text.split(), 5)] == parts


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
def test_the_separator_depends_on_the_script(before, after, is_inside_word, between):
    assert separator(before, after, is_inside_word=is_inside_word) == between


@given(st.text(st.sampled_from("the man. sees,\u3000x€"), max_size=300), st.integers(5, 40))
def test_joining_parts_restores_the_line(tokenizers, line, max_pieces):
    """Splitting and joining change nothing but spaces."""
    translator = LineTranslator(
        LoadedEngine(EchoEngine(max_pieces=max_pieces), tokenizers, max_pieces, SearchOptions())
    )
    [[found]] = translator.translate_all([Request(line)], SearchOptions(with_alignment=True))
    wide = LineTranslator(
        LoadedEngine(EchoEngine(max_pieces=999), tokenizers, 999, SearchOptions())
    )
    [whole] = texts(wide, [line])
    if "\ufffd" not in found.text:  # no split inside a character
        assert found.text.replace(" ", "") == whole.replace(" ", "")
    assert (found.n_parts > 1) == (len(tokenizers.source.tokenize(line)) > max_pieces)


def test_the_alignment_of_a_split_line_counts_words_from_the_start_of_the_line(tokenizers):
    translator = LineTranslator(
        LoadedEngine(EchoEngine(max_pieces=12), tokenizers, 12, SearchOptions())
    )
    line = "the man sees the tree. my dog likes water. the woman finds bread."
    [[found]] = translator.translate_all([Request(line)], SearchOptions(with_alignment=True))
    assert found.n_parts > 1
    assert found.text == line
    assert found.alignment == tuple((i, i) for i in range(len(line.split())))


@given(st.text(max_size=60))
def test_alignment_links_existing_words(tokenizers, line):
    translator = LineTranslator(
        LoadedEngine(EchoEngine(max_pieces=9), tokenizers, 9, SearchOptions())
    )
    [[found]] = translator.translate_all([Request(line)], SearchOptions(with_alignment=True))
    for i, j in found.alignment:
        assert i < len(line.split())
        assert j < len(found.text.split())


def test_alignment_links_each_target_word_to_the_word_it_attends_to_most():
    source, target = ["▁the", "▁h", "ouse"], ["▁das", "▁Haus", "▁da"]
    attention = [[0.9, 0.1, 0.0], [0.4, 0.3, 0.3], [0.5, 0.1, 0.1]]
    assert align_words(source, target, attention) == ((0, 0), (0, 2), (1, 1))
    assert word_indices(["a", "▁b", "c", "▁", "d"]) == [0, 1, 1, 2, 2]
    assert align_words(source, [], []) == ()
    mostly_zero = [attention[0], *([0.0] * len(row) for row in attention[1:])]
    assert align_words(source, target, mostly_zero) == ((0, 0),)  # no attention, no link


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
def test_a_translation_is_repetitive_unless_its_source_is_repetitive(source, target, expected):
    assert is_repetitive(source.split(), target.split()) is expected


@given(st.lists(st.integers(0, 3)))
def test_is_repetitive_matches_its_definition(pieces):
    """A period of at most 8 pieces occurs four times in a row, over at least 12 pieces."""
    expected = any(
        all(pieces[i + k] == pieces[i + k + period] for k in range(length - period))
        for period in range(1, 9)
        for length in [max(4 * period, 12)]
        for i in range(len(pieces) - length + 1)
    )
    assert is_repetitive([], pieces) is expected


ENGINES = ("torch", "ctranslate2")


@pytest.fixture(scope="session", params=ENGINES)
def real_translator(request, copying_model):
    return Translator(copying_model, engine=EngineOptions(engine=request.param))


@given(st.lists(st.text(), max_size=6))
def test_every_text_has_a_translation_on_one_line(real_translator, lines):
    options = SearchOptions(beam_size=2, max_length=8)
    found = real_translator.translate_all([Request(line) for line in lines], options)
    assert len(found) == len(lines)
    for candidates in found:
        assert len(candidates) == 1
        assert len(candidates[0].text.splitlines()) <= 1


UNUSUAL_LINES = [
    "x" * 10_000,
    "the man sees the house. " * 4000,
    "\x00", "\ufeff", "a\u2028b\u2029c\x85d\x0be\x0cf", "e\u0301" * 50, "שלום עולם", "🙂👩‍👩‍👧",
    "<s>", "</s>", "<unk>", "<pad>", "<0x41>", "▁", "\ud800 half", "\t\t", "a" + "\u0300" * 300,
]  # fmt: skip


@pytest.mark.parametrize("line", UNUSUAL_LINES, ids=range(len(UNUSUAL_LINES)))
def test_unusual_lines_have_a_translation(real_translator, line):
    options = replace(real_translator.options, max_length=6, beam_size=1)
    for lines in ([line], ["water", line, "bread"]):
        found = [candidates[0].text for candidates in real_translator.stream(lines, options)]
        assert len(found) == len(lines)
        assert all(len(text.splitlines()) <= 1 for text in found)


def test_control_symbols_in_text_are_treated_as_text(tokenizers):
    for symbol in ("<s>", "</s>", "<unk>", "<pad>"):
        pieces = tokenizers.source.tokenize(f"a {symbol} b")
        assert symbol not in pieces
        assert tokenizers.source.detokenize(pieces) == f"a {symbol} b"


def test_unknown_characters_do_not_become_eos():
    from mtcli.config.tokenizer import TokenizerConfig
    from mtcli.tokenizer import DEFAULT_SPECIAL_IDS, train_tokenizers

    options = TokenizerConfig(vocab_size=30, byte_fallback=False, character_coverage=0.98)
    tokenizer = train_tokenizers(["он видит дом"] * 9, ["она пьёт"] * 9, options).source
    assert DEFAULT_SPECIAL_IDS.eos not in tokenizer.pieces_to_ids(tokenizer.tokenize("</s>"))


def test_translate_and_stream_give_the_same_translations(copying_model):
    translator = Translator(str(copying_model))
    lines = ["the man sees a book", "", "water"]
    found = translator.translate(lines)
    assert found == lines
    assert found == [c[0].text for c in translator.stream(iter(lines))]
    with pytest.raises(TypeError, match="not one string"):
        translator.translate("water")
    best = list(translator.stream(lines, replace(translator.options, n_best=3)))
    assert [len(candidates) for candidates in best] == [3, 1, 3]


def test_translator_with_ctranslate2_does_not_import_torch(tiny_trained):
    code = f"""
import sys
import mtcli
assert len([name for name in sys.modules if name.startswith("mtcli")]) == 1
from mtcli import Translator
Translator({str(tiny_trained)!r}).translate(["water"])
assert not {{"torch", "datasets", "numpy", "pydantic", "yaml"}} & set(sys.modules)
"""
    output_of([sys.executable, "-c", code])
