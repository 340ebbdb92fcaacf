"""`mtcli evaluate` on the command line: systems, formats, outputs, and early errors."""

import json
import re
import shutil

import pytest
from typer.testing import CliRunner

from mtcli.cli.base import app
from mtcli.translation.translator import Translator

LINES = ["the man sees a book", "water", "my dog likes bread", "a child finds the tree"]
WORSE = ["the man sees book", "water", "dog my likes bread", "child finds the tree"]


@pytest.fixture
def texts(tmp_path):
    """Write source, reference and two translations; return their directory."""
    for name, lines in {
        "source.en": LINES,
        "reference.de": LINES,
        "good.de": LINES,
        "bad_1.de": WORSE,
    }.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


def evaluate(*arguments: object):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)], env={"COLUMNS": "200"})


def succeed(*arguments: object) -> str:
    result = evaluate(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def two_files(texts):
    hypotheses = ["--hypothesis", texts / "good.de", "--hypothesis", texts / "bad_1.de"]
    return [*hypotheses, texts / "reference.de", "--resamples", 20, "--trials", 20]


def test_files_are_compared_with_the_first_one(texts, two_files):
    lines = succeed(*two_files, "--metric", "chrf", "--metric", "ter").splitlines()
    assert lines[0].split() == ["metric", "system", "score", "difference", "p-value"]
    assert lines[1].split()[:4] == ["chrF2", str(texts / "good.de"), "100.00", "±"]
    assert lines[1].endswith("baseline")
    assert lines[2].split()[0] == str(texts / "bad_1.de")
    assert "-" in lines[2].split()[-3]
    assert lines[3].split()[0] == "TER"
    assert f"baseline: {texts / 'good.de'}; paired bootstrap resampling with 20" in lines[6]
    assert lines[7].startswith("The p-value is roughly the probability that chance alone")
    assert "chrF2  [nrefs:1|bs:20|seed:12345|" in "\n".join(lines)


def test_the_source_of_files_is_used_by_report_and_analysis(texts):
    hypothesis, reference = texts / "source.en", texts / "bad_1.de"
    report = texts / "report.html"
    files = ["--hypothesis", hypothesis, reference, "--resamples", 0]
    without = json.loads(succeed(*files, "--analysis", "--json"))
    given = ["--source", texts / "source.en", "--analysis", "--report", report]
    data = json.loads(succeed(*files, *given, "--json"))
    assert data["systems"][0]["scores"] == without["systems"][0]["scores"]
    assert (without["test_set"]["source_lang"], data["test_set"]["source_lang"]) == (None, "en")

    def n_copied(result) -> int:
        found = result["analysis"]["systems"][0]["findings"]
        return sum(each["n_lines"] for each in found if each["finding"] == "copied")

    assert n_copied(without) == 0
    assert n_copied(data) == 3  # the other line equals its reference
    page = report.read_text(encoding="utf-8")
    assert "By source length" in page
    assert "Length of the source in words" in page
    [text] = re.findall(r'id="sentence-data">(.*?)</script>', page)
    assert [line[0] for line in json.loads(text)["lines"]] == LINES


def test_the_source_of_files_must_have_the_same_number_of_lines(texts):
    short = texts / "short.en"
    short.write_text("one line\n")
    files = ["--hypothesis", texts / "good.de", texts / "reference.de"]
    result = evaluate(*files, "--source", short)
    assert result.exit_code == 1
    assert f"{short} has 1 line, but {texts / 'reference.de'} has 4" in result.stderr
    missing = evaluate(*files, "--source", texts / "missing.en")
    assert missing.exit_code == 1
    assert "missing.en" in missing.stderr


def test_a_source_is_refused_if_the_test_set_has_its_own(texts, copying_model):
    hypothesis, source = ["--hypothesis", texts / "good.de"], ["--source", texts / "source.en"]
    corpus = texts / "test.tsv"
    corpus.write_text("".join(f"{line}\t{line}\n" for line in LINES), encoding="utf-8")
    for arguments, code, message in (
        ([copying_model, texts / "source.en", texts / "reference.de"], 2, "requires --hypothesis"),
        ([*hypothesis, "--test-set", "wmt14", "--pair", "en-de"], 2, "are mutually exclusive"),
        ([*hypothesis, corpus], 1, "test.tsv is not a text file, so it cannot be combined"),
    ):
        result = evaluate(*arguments, *source)
        assert result.exit_code == code, result.output
        assert message in result.stderr


def test_every_format_has_the_same_scores(two_files):
    data = json.loads(succeed(*two_files, "--json"))
    assert data == json.loads(succeed(*two_files, "--format", "json"))
    latex, markdown, text = (
        succeed(*two_files, "--format", name) for name in ("latex", "markdown", "text")
    )
    for system in data["systems"]:
        for score in system["scores"].values():
            value, margin = f"{score['value']:.2f}", f"{score['margin']:.2f}"
            assert rf"{value} $\pm$ {margin}" in latex
            assert f"{value} ± {margin}" in markdown
            assert f"{value} ± {margin}" in text
    for difference in data["comparison"]["differences"]:
        for page in (latex, markdown, text):
            assert f"{difference['p_value']:.4f}" in page


def test_latex_escapes_names_and_keeps_signatures_as_comments(two_files):
    page = succeed(*two_files, "--format", "latex")
    assert r"bad\_1.de &" in page
    assert page.index("% BLEU: nrefs:1|bs:20|") < page.index(r"\begin{tabular}{lrr}")


def test_the_markdown_table_has_one_row_per_system(two_files):
    table = succeed(*two_files, "--format", "markdown").splitlines()[:4]
    assert [line.count("|") for line in table] == [4] * 4
    assert table[1] == "| --- | ---: | ---: |"


def test_one_system_has_no_comparison(texts):
    arguments = ["--hypothesis", texts / "good.de", texts / "reference.de"]
    assert "p-value" not in succeed(*arguments)
    assert "(p =" not in succeed(*arguments, "--format", "latex")
    assert json.loads(succeed(*arguments, "--json"))["comparison"] is None


def test_models_are_compared_and_their_translations_are_kept(copying_model, texts):
    other = texts / "other"
    shutil.copytree(copying_model, other)
    outputs = texts / "one.txt", texts / "two.txt"
    result = evaluate(
        *(copying_model, texts / "source.en", texts / "reference.de", "--compare", other),
        *("--output", outputs[0], "--output", outputs[1], "--beam-size", 1),
        *("--resamples", 10, "--json"),
    )
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert [system["name"] for system in data["systems"]] == [str(copying_model), str(other)]
    assert {system["decoding"]["beam_size"] for system in data["systems"]} == {1}
    for path, model in zip(outputs, (copying_model, other), strict=True):
        assert path.read_text(encoding="utf-8").splitlines() == LINES
        assert f"{model}: ctranslate2, beam size 1, 4 lines in " in result.stderr


def test_quiet_prints_only_the_scores(copying_model, texts):
    result = evaluate(copying_model, texts / "source.en", texts / "reference.de", "--quiet")
    assert result.stderr == ""
    assert result.stdout.startswith("BLEU 100.00")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model", "source.en", "missing.de"], "no such file: {path}/missing.de"),
        (["model", "source.en", "reference.de", "--compare", "gone"], "gone is not a model"),
        (
            ["model", "source.en", "reference.de", "--compare", "new"],
            "new has no model.safetensors",
        ),
        (["model", "source.en", "short.de"], "source.en has 4 lines, but {path}/short.de has 1"),
        (["model", "source.en", "reference.de", "--metric", "comet"], "COMET is not available"),
        (["model", "source.en", "reference.de", "--output", "source.en"], "is also an input"),
        (["model", "source.en", "reference.de", "--output", "model"], "cannot write {path}/model"),
        (["model", "source.en", "latin1.de"], "latin1.de, line 1: not valid UTF-8"),
        (["model", "--test-set", "wmt14x", "--pair", "en-de"], "has no test set named wmt14x"),
    ],
)
def test_errors_are_reported_before_the_first_translation(
    copying_model, texts, monkeypatch, arguments, message
):
    (texts / "short.de").write_text("x\n")
    (texts / "latin1.de").write_bytes("schön\n".encode("latin-1") * 4)
    (texts / "model").symlink_to(copying_model)
    (texts / "new").mkdir()
    shutil.copy(copying_model / "config.yaml", texts / "new")
    monkeypatch.setattr(Translator, "__init__", lambda *_, **__: pytest.fail("model opened"))
    monkeypatch.chdir(texts)
    is_path = {"model", "gone"} | {path.name for path in texts.iterdir()} | {"missing.de"}
    result = evaluate(*(texts / word if word in is_path else word for word in arguments))
    assert result.exit_code == 1, result.output
    assert message.format(path=texts) in result.stderr
    assert result.stdout == ""
    assert (texts / "source.en").read_text().splitlines() == LINES


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--beam-size", "3"], "--beam-size requires"),
        (["--engine", "torch", "--to", "de"], "--to, --engine require"),
        (["--threads", "1", "--device", "cpu", "--tag", "x"], "--tag, --threads, --device require"),
    ],
)
def test_options_of_models_are_refused_with_a_hypothesis(texts, options, names):
    file = texts / "reference.de"
    result = evaluate("--hypothesis", file, file, *options)
    assert result.exit_code == 2
    assert f"{names} MODEL, not --hypothesis" in " ".join(result.stderr.split())
    assert evaluate("--hypothesis", file, file).exit_code == 0


def test_unequal_line_counts_name_the_hypothesis_and_the_reference(texts):
    (texts / "short.de").write_text("x\n")
    result = evaluate("--hypothesis", texts / "short.de", texts / "reference.de")
    assert result.exit_code == 1
    assert f"{texts}/short.de has 1 line, but {texts}/reference.de has 4" in result.stderr
    assert "line N of one file must correspond to line N of the other" in result.stderr


def test_an_empty_hypothesis_file_is_reported(texts):
    (texts / "empty.de").write_text("")
    result = evaluate("--hypothesis", texts / "empty.de", texts / "reference.de")
    assert result.exit_code == 1
    assert f"{texts}/empty.de is empty" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["model"],
        ["--hypothesis", "a"],
        ["--hypothesis", "a", "--compare", "b", "c"],
        ["--hypothesis", "a", "--output", "b", "c"],
        ["--hypothesis", "a", "--hypothesis", "a", "c"],
        ["model", "--compare", "model", "source", "reference"],
        ["model", "source", "reference", "--output", "x", "--output", "y"],
        ["model", "source", "reference", "--pair", "en-de"],
        ["model", "source", "reference", "--origlang", "en"],
        ["model", "source", "--test-set", "wmt14", "--pair", "en-de"],
        ["--hypothesis", "a", "b", "--test-set", "wmt14", "--pair", "en-de"],
        ["--hypothesis", "a", "--test-set", "wmt14"],
        ["model", "source", "reference", "--metric", "meteor"],
        ["model", "source", "reference", "--tokenize", "moses"],
        ["model", "source", "reference", "--smooth-method", "chen"],
        ["model", "source", "reference", "--smooth-value", "0.1"],
        ["model", "source", "reference", "--test", "t-test"],
        ["model", "source", "reference", "--trials", "10"],
        ["model", "source", "reference", "--format", "html"],
        ["model", "source", "reference", "--format", "latex", "--json"],
        ["model", "source", "reference", "--resamples", "-1"],
    ],
)
def test_incorrect_usage_exits_with_status_2(arguments):
    assert evaluate(*arguments).exit_code == 2


def test_a_usage_error_names_the_option():
    result = evaluate("--hypothesis", "a", "b", "--smooth-value", "0.1")
    assert "--smooth-value 0.1 requires --smooth-method floor or add-k" in result.stderr
