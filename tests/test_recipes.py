"""Recipes are found by name, in a checkout and in an installed package."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mtcli.cli.base import app
from mtcli.config.recipes import all_recipes, find_config, recipe_at
from mtcli.config.reference import reference_yaml
from mtcli.errors import ConfigError
from mtcli.model_dir.directory import load_saved_config

ROOT = Path(__file__).parent.parent
NAMES = sorted(path.stem for path in (ROOT / "configs").glob("*.yaml"))


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Change to a directory without configs/ and data/."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("elsewhere")
def test_config_prints_one_line_per_recipe():
    lines = run("config").stdout.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    for line in lines:
        assert len(line) <= 100
        assert line.endswith(".")


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("name", NAMES)
def test_config_prints_a_recipe_unchanged(name):
    result = run("config", name)
    assert result.exit_code == 0
    assert result.stdout == (ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8")


def test_config_prints_the_complete_reference():
    assert run("config", "reference").stdout == reference_yaml()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["config", "transfromer-base"],
            "error: no such recipe: transfromer-base\n  hint: did you mean transformer-base? "
            "`mtcli config` lists the recipes\n",
        ),
        (["config", "zzz"], "no such recipe: zzz\n  hint: `mtcli config` lists the recipes\n"),
        (
            ["train", "a", "b", "--out", "x", "--config", "configs/rnn.yaml"],
            "no such file or recipe: configs/rnn.yaml\n  hint: did you mean rnn? ",
        ),
        (
            ["train", "--out", "x", "--config", "demo"],
            "recipe demo: data/demo/train.en is not in the current directory\n"
            "  hint: pass a corpus: mtcli train SOURCE TARGET --config demo --out DIR\n",
        ),
        (
            ["train", "--out", "x", "--config", "transformer-base"],
            "recipe transformer-base: train.en is not in the current directory",
        ),
    ],
)
def test_a_user_error_prints_a_message(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr


def test_a_file_takes_precedence_over_a_recipe_but_a_directory_does_not(elsewhere):
    (elsewhere / "rnn").mkdir()
    assert recipe_at(find_config("rnn")).name == "rnn"
    (elsewhere / "demo").write_text("train: {steps: 7}")
    assert find_config("demo") == Path("demo")
    assert recipe_at(find_config("demo")) is None
    (elsewhere / "mine").mkdir()
    with pytest.raises(ConfigError, match="mine is a directory"):
        find_config("mine")


def test_a_recipe_is_found_by_its_path():
    for recipe in all_recipes():
        assert recipe_at(ROOT / "configs" / f"{recipe.name}.yaml") == recipe


@pytest.mark.parametrize("has_dev", [False, True])
def test_files_on_the_command_line_replace_the_data_of_a_recipe(
    elsewhere, corpus_files, tiny_options, has_dev
):
    dev = ["--dev", *corpus_files] if has_dev else []
    options = ["--config", "demo", "--out", elsewhere / "model", *tiny_options, *dev, "--quiet"]
    result = run("train", *corpus_files, *options)
    assert result.exit_code == 0, result.stderr
    config = load_saved_config(elsewhere / "model")
    names = [Path("train.en"), Path("train.de")]  # a model stores file names only
    assert [*config.data.train.text_files] == names
    assert [*(config.data.dev.text_files if config.data.dev else ())] == (names if has_dev else [])
    assert config.train.average == 3  # demo's value, not the default


def test_the_package_contains_the_recipes(tmp_path):
    """Build the package as pip does and run it outside the checkout."""
    pytest.importorskip("setuptools", reason="setuptools builds the package")
    checkout, target = tmp_path / "checkout", tmp_path / "target"
    for name in ("mtcli", "configs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, checkout)
    build = f"import setuptools; setuptools.setup(script_args=['build_py', '-d', {str(target)!r}])"
    subprocess.run(
        [sys.executable, "-c", build], cwd=checkout, check=True, timeout=60, capture_output=True
    )
    shutil.rmtree(checkout)
    command = [sys.executable, "-m", "mtcli", "config"]
    listed = subprocess.run(
        command, cwd=target, check=True, timeout=60, capture_output=True, text=True
    )
    assert [line.split()[0] for line in listed.stdout.splitlines()] == NAMES
