"""The interactive prompt translates lines and runs commands."""

import pytest

from mtcli import Translator
from mtcli.cli.prompt import handle_line
from mtcli.config.search import SearchOptions

pytestmark = pytest.mark.cpu

PLAIN = SearchOptions(beam_size=2, max_length=9, with_scores=False)


@pytest.fixture(scope="module")
def translator(copying_model):
    return Translator(copying_model)


def test_a_sentence_is_translated_and_timed(translator, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    response = handle_line(translator, "water", PLAIN)
    text, notes = response.lines
    assert text == "water"
    assert notes.endswith(" ms)")
    assert not response.is_quit
    assert handle_line(translator, "  ", PLAIN).lines == []


def test_n_best_translations_are_printed_with_scores(translator):
    options = handle_line(translator, ":best 3", PLAIN).options
    assert (options.n_best, options.beam_size, options.with_scores) == (3, 3, True)
    first, second, third, _ = handle_line(translator, "water", options).lines
    scores = [float(line.split()[0]) for line in (first, second, third)]
    assert scores == sorted(scores, reverse=True)
    assert handle_line(translator, ":beam 2", options).options.n_best == 2


def test_a_command_turns_the_alignment_on_and_off(translator, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    options = handle_line(translator, ":alignment", PLAIN).options
    assert options.with_alignment
    assert "water–water" in handle_line(translator, "water", options).lines[1]
    assert not handle_line(translator, ":alignment", options).options.with_alignment


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (":help", ":beam N       set the beam size (now 2)"),
        (":beam many", ":beam requires a number, such as :beam 5"),
        (":best 0", ":best requires a number"),
        (":wq", "unknown command :wq; type :help for a list"),
    ],
)
def test_help_and_invalid_commands_print_a_message(translator, line, message):
    response = handle_line(translator, line, PLAIN)
    assert message in "\n".join(response.lines)
    assert response.options == PLAIN


def test_quit_ends_the_prompt(translator):
    assert handle_line(translator, ":quit", PLAIN).is_quit
