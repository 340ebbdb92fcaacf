"""Exit codes of all commands: 1 for unusable files and models, 2 for a wrong command line.

The command line is wrong if no file could make it right: an unknown option, a missing argument, a
value that the option does not accept, or options that contradict each other.
"""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mtcli.cli import app

FILES = ["a.en", "a.de"]
TRAIN = ["train", *FILES, "--out", "new", "--dry-run"]

WRONG_USAGE = {
    "no command": ["nonsense"],
    "train: no --out": ["train", *FILES],
    "train: no corpus": ["train", "--out", "new"],
    "train: unknown option": [*TRAIN, "--nonsense"],
    "train: three files": [*TRAIN, "c.de"],
    "train: --dev and --dev-corpus": [*TRAIN, "--dev", *FILES, "--dev-corpus", "a.tsv"],
    "train: --dev with one file": ["train", *FILES, "--dev", "a.en", "--out", "new"],
    "train: --set without a value": [*TRAIN, "--set", "train.steps"],
    "train: --set with broken YAML": [*TRAIN, "--set", "train.steps=[1"],
    "train: --set of an unknown key": [*TRAIN, "--set", "train.stepz=1"],
    "train: --set of a wrong type": [*TRAIN, "--set", "train.steps=many"],
    "train: --set out of range": [*TRAIN, "--set", "train.steps=0"],
    "train: --set inside a value": [*TRAIN, "--set", "train.steps.x=1"],
    "train: --set of a combination": [
        *TRAIN,
        "--set",
        "model.n_heads=3",
        "--set",
        "model.d_model=8",
    ],
    "train: --minutes 0": [*TRAIN, "--minutes", "0"],
    "train: --minutes and train.steps": [*TRAIN, "--minutes", "3", "--set", "train.steps=5"],
    "train: --from is --out": [*TRAIN, "--from", "new"],
    "train: --stop-after nan": [*TRAIN, "--stop-after", "nan"],
    "train: broken --corpus entry": [*TRAIN, "--corpus", "{corpus: [a.en, a.de], weight: -1}"],
    "train: broken YAML in --corpus": [*TRAIN, "--corpus", "{corpus: [a.en, a.de}"],
    "train: a list as --corpus": [*TRAIN, "--corpus", "[a.en, a.de]"],
    "train: weights and streaming": [
        *("train", "{corpus: [a.en, a.de], weight: 2}", "--out", "new", "--minutes", "1"),
        *("--set", "data.streaming=true"),
    ],
    "check: no corpus": ["check"],
    "check: three files": ["check", *FILES, "c.de"],
    "check: --fix is not a name": ["check", *FILES, "--fix", ".."],
    "check: unknown option": ["check", *FILES, "--nonsense"],
    "evaluate: nothing": ["evaluate"],
    "evaluate: no reference": ["evaluate", "--hypothesis", "a.en"],
    "evaluate: unknown metric": ["evaluate", "--hypothesis", *FILES, "--metric", "x"],
    "evaluate: option without effect": ["evaluate", "--hypothesis", *FILES, "--beam-size", "3"],
    "evaluate: --json and --format": [
        "evaluate",
        "--hypothesis",
        *FILES,
        "--json",
        "--format",
        "text",
    ],
    "evaluate: beam size": ["evaluate", "model", *FILES, "--beam-size", "0"],
    "translate: beam size": ["translate", "model", "a.en", "--beam-size", "x"],
    "translate: unknown engine": ["translate", "model", "a.en", "--engine", "x"],
    "translate: --top-k": ["translate", "model", "a.en", "--top-k", "3"],
    "score: no target": ["score", "model"],
    "attention: suffix": ["attention", "model", "text", "--output", "x.pdf"],
    "export: unknown format": ["export", "model", "--to", "x"],
    "average: no --out": ["average", "model"],
    "info: no model": ["info"],
}

UNUSABLE = {
    "train: no such file": ["train", "b.en", "a.de", "--out", "new"],
    "train: no such --config": [*TRAIN, "--config", "missing.yaml"],
    "train: wrong value in --config": [*TRAIN, "--config", "wrong.yaml"],
    "train: wrong value in --config and --set": [
        *TRAIN,
        "--config",
        "wrong.yaml",
        "--set",
        "train.stepz=1",
    ],
    "train: --out is a file": [*TRAIN[:-2], "a.en", "--dry-run"],
    "train: --from is not a model": [*TRAIN, "--from", "missing"],
    "check: no such file": ["check", "b.en", "a.de"],
    "check: --fix exists": ["check", *FILES, "--fix", "a"],
    "evaluate: no such model": ["evaluate", "missing", *FILES],
    "evaluate: no such hypothesis": ["evaluate", "--hypothesis", "missing", "a.de"],
    "translate: no such model": ["translate", "missing", "a.en"],
    "score: no such model": ["score", "missing", *FILES],
    "attention: no such model": ["attention", "missing", "text"],
    "attention: --output exists": ["attention", "missing", "text", "--output", "taken.svg"],
    "export: no such model": ["export", "missing"],
    "average: no such model": ["average", "missing", "--out", "new"],
    "info: no such model": ["info", "missing"],
    "config: no such recipe": ["config", "missing"],
}


def run(arguments, directory: Path, monkeypatch):
    monkeypatch.chdir(directory)
    for name in FILES:
        Path(name).write_text("one\ntwo\n", encoding="utf-8")
    Path("wrong.yaml").write_text("train: {steps: 0}\n", encoding="utf-8")
    Path("taken.svg").write_text("text\n", encoding="utf-8")
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("arguments", WRONG_USAGE.values(), ids=WRONG_USAGE)
def test_a_wrong_command_line_exits_with_2(arguments, tmp_path, monkeypatch):
    result = run(arguments, tmp_path, monkeypatch)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("arguments", UNUSABLE.values(), ids=UNUSABLE)
def test_unusable_files_and_models_exit_with_1(arguments, tmp_path, monkeypatch):
    result = run(arguments, tmp_path, monkeypatch)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert "error: " in result.stderr
