"""Help texts are complete, consistent and readable in a narrow terminal; shell completion works."""

import os
import sys
from collections import Counter, defaultdict

import pytest
import typer
from typer.testing import CliRunner

from mtcli.cli.base import app
from mtcli.cli.options import format_choices
from mtcli.config.search import ENGINES, FORMATS, QUANTIZATIONS
from processes import output_of
from test_layers import imported_modules

COMMANDS = typer.main.get_command(app).commands
OPTIONS = [
    (command, parameter)
    for command, details in COMMANDS.items()
    for parameter in details.params
    if parameter.param_type_name == "option"
]


def help_words(command: str, width: int) -> Counter:
    """Return the words of the help text; a word that is split across lines does not appear."""
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
def test_help_does_not_split_words(command, width):
    expected = Counter()
    for parameter in COMMANDS[command].params:
        is_option = parameter.param_type_name == "option"
        names = parameter.opts if is_option else []
        metavar = "" if getattr(parameter, "is_flag", False) else parameter.metavar or ""
        texts = [*names, metavar, parameter.help, default_text(parameter) if is_option else ""]
        expected += Counter(" ".join(texts).split())
    assert expected - help_words(command, width) == Counter()


@pytest.mark.parametrize("width", [80, 100])
def test_help_lists_every_choice(width):
    words = {word.strip(".,;:()") for word in help_words("translate", width)}
    assert {*ENGINES, *FORMATS, *QUANTIZATIONS} <= words


@pytest.mark.parametrize("command", [None, "train", "translate", "evaluate", "export"])
def test_help_does_not_cut_option_names_in_a_narrow_terminal(command):
    # Typer's test runner has a fixed width for plain text, so run a separate process.
    arguments = [command, "--help"] if command else ["--help"]
    environment = {**os.environ, "COLUMNS": "50"}
    lines = output_of([sys.executable, "-m", "mtcli", *arguments], env=environment).splitlines()
    assert max(map(len, lines)) <= 50
    words = {word.rstrip(",") for word in " ".join(lines).split()}
    options = [option for name, p in OPTIONS if name == command for option in p.opts]
    assert {*options, "--help"} <= words
    if command is None:
        assert {*COMMANDS, "--install-completion", "--show-completion"} <= words
        assert not any(line.endswith("...") for line in lines[1:])  # descriptions are not truncated


@pytest.mark.parametrize(("command", "parameter"), OPTIONS, ids=lambda value: str(value))
def test_an_option_has_a_one_sentence_text_a_default_and_a_panel(command, parameter):
    assert parameter.help, command
    assert parameter.help[0].isupper()
    assert parameter.help.endswith(".")
    assert ". " not in parameter.help
    assert parameter.rich_help_panel
    is_switch = parameter.is_flag and not parameter.secondary_opts
    assert parameter.required or is_switch or default_text(parameter)
    if default := default_text(parameter):
        words = " ".join(help_words(command, 200).elements())
        assert default.split()[-1] in words


def test_an_option_has_the_same_text_in_every_command():
    texts = defaultdict(set)
    for _, parameter in OPTIONS:
        texts[parameter.opts[0]].add(parameter.help)
    del texts["--output"]  # a file for `translate`, but a directory for `export`
    del texts["--format"]  # translations, or scores
    del texts["--to"]  # a language for `translate`, but a format for `export`
    assert {option: text for option, text in texts.items() if len(text) > 1} == {}


def test_choices_are_formatted_as_in_a_sentence():
    assert format_choices(["a"]) == "a"
    assert format_choices(["a", "b"]) == "a or b"
    assert format_choices(["a", "b", "c"]) == "a, b or c"


def test_help_does_not_import_modules_that_only_commands_need():
    slow = {"pydantic", "rich.progress", "yaml", "mtcli.config.load", "mtcli.config.sections"}
    assert not imported_modules("import mtcli.cli") & slow


def suggestions(line: str) -> list[str]:
    """Return the completions that bash offers for `line`."""
    n_words = len(line.split()) - (not line.endswith(" "))
    result = CliRunner().invoke(
        app,
        env={
            "COMP_WORDS": line,
            "COMP_CWORD": str(n_words),
            "_MTCLI_COMPLETE": "complete_bash",
        },
        prog_name="mtcli",
    )
    return result.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mtcli tra", ["train", "translate"]),
        ("mtcli translate model --beam", ["--beam-size"]),
        ("mtcli translate model --engine ", [*ENGINES]),
        ("mtcli evaluate --quantization int", ["int8", "int16"]),
        ("mtcli translate model --format ", [*FORMATS]),
        ("mtcli translate model --input-format j", ["jsonl"]),
        ("mtcli attention model --device c", ["cpu", "cuda"]),
        ("mtcli export model --to ", ["ctranslate2"]),
        ("mtcli train --config transformer-", ["transformer-base", "transformer-big"]),
        ("mtcli config transformer-b", ["transformer-base", "transformer-big"]),
        ("mtcli train --config ./my", []),  # the shell then offers files
        ("mtcli translate mod", []),
    ],
)
def test_a_shell_completes_commands_options_and_values(line, expected):
    assert suggestions(line) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_show_completion_prints_a_script_for_each_shell(shell):
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "mtcli", "--show-completion", shell]
    assert f"_MTCLI_COMPLETE=complete_{shell}" in output_of(command, env=environment)


def test_install_completion_installs_the_script(tmp_path):
    variables = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "mtcli", "--install-completion", "bash"]
    output_of(command, env={**os.environ, **variables})
    assert ".bash_completions/mtcli.sh" in (tmp_path / ".bashrc").read_text()


def test_completing_a_recipe_name_imports_no_slow_modules():
    code = "from mtcli.cli.completion import complete_recipe; complete_recipe('d')"
    assert not imported_modules(code) & {"pydantic", "yaml", "torch"}
