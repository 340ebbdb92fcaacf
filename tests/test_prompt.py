"""What a person at the prompt is told."""

import pytest

from mtcli import Translator
from mtcli.cli.prompt import respond
from mtcli.options import SearchOptions

pytestmark = pytest.mark.cpu

PLAIN = SearchOptions(beam_size=2, max_length=9, with_scores=False)


@pytest.fixture(scope="module")
def translator(copying_model):
    return Translator(copying_model)


def test_a_sentence_is_translated_and_timed(translator, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    answer = respond(translator, "water", PLAIN)
    text, remark = answer.lines
    assert text == "water"
    assert remark.endswith(" ms)")
    assert not answer.is_over
    assert respond(translator, "  ", PLAIN).lines == []


def test_several_translations_have_their_scores(translator):
    more = respond(translator, ":best 3", PLAIN).options
    assert (more.n_best, more.beam_size, more.with_scores) == (3, 3, True)
    first, second, third, _ = respond(translator, "water", more).lines
    scores = [float(line.split()[0]) for line in (first, second, third)]
    assert scores == sorted(scores, reverse=True)
    assert respond(translator, ":beam 2", more).options.n_best == 2


def test_alignment_is_shown_on_request(translator, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    options = respond(translator, ":alignment", PLAIN).options
    assert options.with_alignment
    assert "water–water" in respond(translator, "water", options).lines[1]
    assert not respond(translator, ":alignment", options).options.with_alignment


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (":help", ":beam N       keep N hypotheses at each step (now 2)"),
        (":beam many", ":beam needs a number, for instance :beam 5"),
        (":best 0", ":best needs a number"),
        (":wq", "there is no :wq; see :help"),
    ],
)
def test_commands_explain_themselves(translator, line, says):
    answer = respond(translator, line, PLAIN)
    assert says in "\n".join(answer.lines)
    assert answer.options == PLAIN


def test_quit_ends(translator):
    assert respond(translator, ":quit", PLAIN).is_over
