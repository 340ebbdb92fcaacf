"""`mtcli compare`: comparison of runs on a test set by cost and by quality per source length."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mtcli.cli import app
from mtcli.evaluation.request import EvaluationRequest
from mtcli.evaluation.run_comparison import compare_runs, read_training_cost

SOURCE = ["the man sees bread"] * 12 + ["my dog likes the house " * 3] * 12
REFERENCE = ["the man sees bread"] * 12 + ["mein Hund"] * 12


@pytest.fixture
def runs(tmp_path, copying_model, repeating_model) -> list[Path]:
    """Return two models; the first has a log and outputs its source, the second repeats a word."""
    paths = [tmp_path / "runs" / name for name in ("copying", "repeating")]
    for path, model in zip(paths, (copying_model, repeating_model), strict=True):
        shutil.copytree(model, path)
    write_log(paths[0])
    return paths


@pytest.fixture
def test_files(tmp_path) -> list[Path]:
    paths = [tmp_path / "test.en", tmp_path / "test.de"]
    for path, lines in zip(paths, (SOURCE, REFERENCE), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def write_log(run: Path) -> None:
    steps = [
        {"event": "step", "step": 10, "n_tokens": 100, "seconds": 2.0},
        {"event": "step", "step": 20, "n_tokens": 300, "seconds": 4.0},
        {"event": "step", "step": 30, "n_tokens": 999, "seconds": 99.0},
        {"event": "rollback", "step": 30, "to_step": 20},
        {"event": "finished", "step": 25},
    ]
    (run / "log.jsonl").write_text("".join(f"{json.dumps(step)}\n" for step in steps))


def run(*arguments: object):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_the_cost_of_a_run_comes_from_its_log(runs, tmp_path):
    cost = read_training_cost(runs[0])
    assert cost is not None
    assert (cost.steps, cost.tokens, cost.seconds) == (25, 200 * 25, 3.0 * 25)
    assert read_training_cost(tmp_path) is None


def test_runs_are_compared_by_source_length(runs, test_files):
    request = EvaluationRequest(models=tuple(runs), files=tuple(map(str, test_files)))
    result = compare_runs(request)
    copying, repeating = result.by_length.groups
    assert [(group.label, group.n_lines) for group in copying] == [("0-5", 12), ("11-20", 12)]
    assert copying[0].scores["bleu"] == pytest.approx(100)
    assert copying[1].scores["bleu"] < 1
    assert repeating[0].scores["bleu"] < 1
    assert [system.name for system in result.evaluation.systems] == [str(path) for path in runs]
    assert all(run.n_parameters > 0 for run in result.runs)
    assert [run.training is None for run in result.runs] == [False, True]


def test_the_command_prints_a_table_and_writes_a_report(runs, test_files, tmp_path, open_page):
    report = tmp_path / "report.html"
    result = run("compare", *runs, *test_files, "--report", report, "--maps", 1)
    assert result.exit_code == 0, result.stderr
    assert "transformer" in result.stdout
    assert "BLEU by source length in words\nwords  lines  copying  repeating\n0-5" in result.stdout
    assert f"{runs[1]}: BLEU -" in result.stdout
    page = open_page(report.read_text(encoding="utf-8"))
    assert page.locator("h1").inner_text() == "Comparison of runs"
    chart = page.locator(".chart", has_text="BLEU by source length")
    assert chart.locator("polyline").count() == 2
    chart.get_by_text("Show the values").click()
    rows = chart.locator("tbody tr").all_inner_texts()
    assert rows[0].split("\t")[:2] == ["0-5", "100.00"]
    table = page.locator("section", has_text="Tokens and training time").inner_text()
    assert "75 s" in table
    assert page.locator("#sentence-list article").count() == 24


def test_json_has_runs_scores_and_lengths(runs, test_files):
    result = run("compare", *runs, *test_files, "--json", "--quiet")
    values = json.loads(result.stdout)
    assert [entry["name"] for entry in values["runs"]] == [str(path) for path in runs]
    assert values["runs"][0]["training"]["steps"] == 25
    assert len(values["by_length"]["groups"]) == len(values["systems"]) == 2
    assert values["comparison"]["differences"]


def test_incorrect_arguments_are_reported(runs, test_files, tmp_path):
    wrong = {
        "expected two or more model directories": [runs[0], *test_files],
        "typo is not a model directory": [runs[0], tmp_path / "typo", *test_files],
        "expected SOURCE REFERENCE after": runs,
    }
    for message, arguments in wrong.items():
        result = run("compare", *arguments)
        assert result.exit_code == 2
        text = " ".join(result.stderr.replace("│", " ").split())
        assert message.replace(" ", "") in text.replace(" ", "")
    result = run("compare", *runs, test_files[0], tmp_path / "missing.de")
    assert result.exit_code == 1
    assert "missing.de" in result.stderr
    result = run("compare", runs[0], runs[0], *test_files)
    assert "is given twice" in result.stderr
