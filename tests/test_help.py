"""Help texts: complete, consistent, and readable in a narrow terminal."""

from collections import Counter, defaultdict

import pytest
import typer
from typer.testing import CliRunner

from mtcli.cli import app
from mtcli.cli.options import choices
from mtcli.options import ENGINES, FORMATS, QUANTIZATIONS
from test_layers import modules_after

COMMANDS = typer.main.get_command(app).commands
OPTIONS = [
    (command, parameter)
    for command, details in COMMANDS.items()
    for parameter in details.params
    if parameter.param_type_name == "option"
]


def shown_words(command: str, width: int) -> Counter:
    """Return the words of the help; a word that is broken in two is not among them."""
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": str(width)})
    assert result.exit_code == 0
    lines = [line.strip("│╭╮╰╯─ ") for line in result.stdout.splitlines()]
    assert max(map(len, result.stdout.splitlines())) <= width
    return Counter(" ".join(lines).split())


def default_text(parameter) -> str:
    if isinstance(parameter.show_default, str):
        return f"[default: ({parameter.show_default})]"
    is_shown = parameter.show_default and parameter.default not in (None, [], False)
    return f"[default: {parameter.default}]" if is_shown else ""


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_word_is_broken(command, width):
    expected = Counter()
    for parameter in COMMANDS[command].params:
        is_option = parameter.param_type_name == "option"
        names = parameter.opts if is_option else []
        metavar = "" if getattr(parameter, "is_flag", False) else parameter.metavar or ""
        texts = [*names, metavar, parameter.help, default_text(parameter) if is_option else ""]
        expected += Counter(" ".join(texts).split())
    assert expected - shown_words(command, width) == Counter()


@pytest.mark.parametrize("width", [80, 100])
def test_every_choice_is_named(width):
    shown = {word.strip(".,;:()") for word in shown_words("translate", width)}
    assert {*ENGINES, *FORMATS, *QUANTIZATIONS} <= shown


@pytest.mark.parametrize(("command", "parameter"), OPTIONS, ids=lambda value: str(value))
def test_an_option_has_a_sentence_and_a_default(command, parameter):
    assert parameter.help, command
    assert parameter.help[0].isupper()
    assert parameter.help.endswith(".")
    is_switch = parameter.is_flag and not parameter.secondary_opts
    assert parameter.required or is_switch or default_text(parameter)
    if default := default_text(parameter):
        shown = " ".join(shown_words(command, 200).elements())
        assert default.split()[-1] in shown


def test_an_option_has_the_same_text_in_every_command():
    texts = defaultdict(set)
    for _, parameter in OPTIONS:
        texts[parameter.opts[0]].add(parameter.help)
    del texts["--output"]  # a file of translate, a directory of export
    assert {option: text for option, text in texts.items() if len(text) > 1} == {}


def test_choices_are_listed_as_in_a_sentence():
    assert choices(["a"]) == "a"
    assert choices(["a", "b"]) == "a or b"
    assert choices(["a", "b", "c"]) == "a, b or c"


def test_help_does_not_import_what_only_a_command_needs():
    assert not modules_after("import mtcli.cli") & {"rich.progress", "yaml", "mtcli.config"}
