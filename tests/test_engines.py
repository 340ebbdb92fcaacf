import io

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import tiny_model_config
from mtcli.config import SearchConfig
from mtcli.data import line_content
from mtcli.engines.base import Scored, Translator, split
from mtcli.engines.pytorch import TorchTranslator, choose_device
from mtcli.engines.stream import Tally, lines_as_they_come, translate_lines
from mtcli.errors import EngineError
from mtcli.models import build_model


class Echo(Translator):
    """An engine whose every translation can be foreseen: it says what it hears."""

    def search(self, sources, options):
        assert max(map(len, sources)) <= self.max_pieces
        room = max(map(len, sources)) * len(sources) * options.beam_size
        assert room <= self.batch_positions or len(sources) == 1
        return [[Scored(source, -1.0)] * options.n_best for source in sources]


@pytest.fixture(scope="session")
def echo(tokenizers):
    return Echo(tokenizers, max_pieces=100, batch_positions=200)


@pytest.fixture(scope="session")
def torch_translator(tokenizers):
    torch.manual_seed(0)
    size = len(tokenizers.source)
    model = build_model(tiny_model_config(), size, size).eval()
    return TorchTranslator(model, tokenizers, max_pieces=40)


def test_n_lines_in_n_lines_out_in_order(echo):
    lines = ["the man sees a book", "", "water", "  ", "a tree\tand bread"]
    found = echo.translate(lines, SearchConfig(beam_size=2))
    assert [best[0].text for best in found] == [
        "the man sees a book",
        "",
        "water",
        "",
        "a tree and bread",
    ]


@given(st.lists(st.text(), max_size=6))
def test_whatever_a_line_contains_it_has_one_translation_on_one_line(torch_translator, lines):
    options = SearchConfig(beam_size=2, max_length=8)
    found = torch_translator.translate(lines, options)
    assert len(found) == len(lines)
    for candidates in found:
        assert len(candidates) == 1
        assert len(candidates[0].text.splitlines()) <= 1


def test_the_batch_size_does_not_change_the_translations(torch_translator, tokenizers, corpus):
    options = SearchConfig(beam_size=3, n_best=2, max_length=12)
    expected = torch_translator.translate(corpus.source, options)
    for positions in (1, 300):
        other = TorchTranslator(torch_translator.model, tokenizers, max_pieces=40)
        other.batch_positions = positions
        found = other.translate(corpus.source, options)
        assert [[t.text for t in line] for line in found] == [
            [t.text for t in line] for line in expected
        ]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_score_is_the_models_own(torch_translator, tokenizers, beam_size):
    """What search says of a translation is what teacher forcing says of it."""
    options = SearchConfig(beam_size=beam_size, max_length=9, length_penalty=0.7)
    pieces = tokenizers.source.pieces("the man sees a book")
    [[found]] = torch_translator.search([pieces], options)
    source = torch.tensor([[*tokenizers.source.ids(pieces), 3]])
    words = [*tokenizers.target.ids(found.pieces), 3][:9]
    target = torch.tensor([[2, *words[:-1]]])
    log_probs = torch_translator.model(source, target).log_softmax(dim=-1)[0]
    total = sum(float(log_probs[i, word].detach()) for i, word in enumerate(words))
    assert found.score == pytest.approx(total / len(words) ** 0.7, abs=1e-4)
    assert found.is_cut == (words[-1] != 3)


PIECES = st.lists(st.sampled_from(["▁a", "b", "▁c", "d"]), max_size=60)


@given(PIECES, st.integers(1, 20))
def test_splitting_loses_nothing_and_cuts_between_words_where_it_can(pieces, max_pieces):
    parts = split(pieces, max_pieces)
    assert [piece for part in parts for piece in part] == pieces
    assert all(0 < len(part) <= max_pieces for part in parts)
    for before, after in zip(parts, parts[1:], strict=False):
        could_cut = any(piece.startswith("▁") for piece in [*before, after[0]][1:])
        assert after[0].startswith("▁") or not could_cut


def test_a_line_too_long_is_translated_in_parts_and_counted(tokenizers):
    translator = Echo(tokenizers, max_pieces=20, batch_positions=1000)
    line = "the man sees the house and the tree " * 10
    groups = [[line.encode(), b"water"]]
    [done] = translate_lines(translator, groups, SearchConfig())
    assert done.texts == [line.strip(), "water"]
    assert done.tally == Tally(n_lines=2, n_split=1)
    [notice] = done.tally.notices()
    assert "1 of 2 lines were longer than what the model was trained on" in notice


def test_a_translation_that_was_cut_off_is_counted(torch_translator):
    groups = [[b"the man sees the tree", b""]]
    [done] = translate_lines(torch_translator, groups, SearchConfig(beam_size=1, max_length=2))
    assert done.tally.n_cut == 1
    assert "1 of 2 translations were cut off" in next(done.tally.notices())


class Trickling(io.BytesIO):
    """A pipe that gives a few bytes at a time."""

    def read1(self, size=-1):  # noqa: ARG002
        return self.read(3)


@given(st.text(st.sampled_from("a\r\n\ufeff\u2028ü")).map(str.encode) | st.binary())
def test_lines_come_whole_however_the_bytes_arrive(raw):
    """The same lines as those of a corpus file that holds the same bytes."""
    raw_lines = enumerate(io.BytesIO(raw))
    expected = [line_content(line, is_first=number == 0) for number, line in raw_lines]
    for file in (io.BytesIO(raw), Trickling(raw)):
        assert [line for group in lines_as_they_come(file) for line in group] == expected


def test_a_line_is_given_on_before_the_next_one_comes():
    groups = lines_as_they_come(Trickling(b"a\nbcd\ne"))
    assert [next(groups) for _ in range(3)] == [[b"a"], [b"bcd"], [b"e"]]


@given(st.lists(st.binary().map(lambda raw: raw.replace(b"\n", b"")), max_size=8))
def test_every_line_of_bytes_gets_its_line(echo, lines):
    [done] = translate_lines(echo, [lines], SearchConfig())
    assert len(done.texts) == len(lines) == done.tally.n_lines
    assert done.tally.n_invalid == sum(b"\xef\xbf\xbd" in line.decode(errors="replace").encode()
                                  and b"\xef\xbf\xbd" not in line for line in lines)  # fmt: skip


def test_invalid_bytes_are_counted_and_told(echo):
    [done] = translate_lines(echo, [[b"water \xff", b"bread"]], SearchConfig())
    total = done.tally + Tally(n_lines=1)
    assert list(total.notices()) == ["1 of 3 lines were not valid UTF-8"]


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "meta", ""])
def test_a_device_that_is_not_there_is_named(name):
    with pytest.raises(EngineError, match=f"torch cannot use '{name}' here"):
        choose_device(name)
