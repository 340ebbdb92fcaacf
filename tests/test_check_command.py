"""`mtcli check`: exit codes, text, JSON, report, cleaned copies and user errors."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mtcli.cli import app
from mtcli.data.quality.check import check_corpus
from mtcli.data.quality.findings import KINDS
from mtcli.data.quality.fix import fix_corpus
from mtcli.data.quality.report import check_page
from parsed_page import Page
from test_quality import demo_lines, demo_pairs

HOSTILE = '</script><script>alert(1)</script> & "x" \x1b[31m'


def run(*arguments: object):
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


def write(directory: Path, pairs, name: str = "a") -> list[Path]:
    pairs = list(pairs)
    paths = [directory / f"{name}.{language}" for language in ("en", "de")]
    for side, path in enumerate(paths):
        path.write_bytes("".join(f"{pair[side]}\n" for pair in pairs).encode())
    return paths


@pytest.fixture
def damaged(tmp_path) -> list[Path]:
    pairs = demo_pairs(60)
    pairs[10] = (pairs[10][0], pairs[10][0])
    pairs[20] = pairs[19]
    pairs[30] = ("", "")
    pairs[40] = (f"{pairs[40][0]}\x07", pairs[40][1])
    pairs[50] = ("Only one side.", "")
    return write(tmp_path, pairs)


def test_a_clean_corpus_exits_with_0(tmp_path):
    result = run(*write(tmp_path, demo_pairs(60)))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "no problems found"
    assert "not checked: alignment" in result.stdout


def test_a_corpus_with_problems_exits_with_3_and_prints_advice(damaged):
    result = run(*damaged)
    assert result.exit_code == 3
    assert "problem: 1 pair with the same text on both sides [copies]" in result.stdout
    assert KINDS["copies"].advice in result.stdout
    assert "line 11\n" in result.stdout
    assert result.stdout.splitlines()[-1] == "5 kinds of problems found"


def test_user_errors_exit_with_1(tmp_path, damaged):
    assert run(damaged[0], tmp_path / "missing.de").exit_code == 1
    assert run(*damaged, "--against", tmp_path / "missing.tsv").exit_code == 1
    (tmp_path / "bad.de").write_bytes(b"\xff\xfe\xfd\n")
    assert run(damaged[0], tmp_path / "bad.de").exit_code == 1


def test_incorrect_usage_exits_with_2():
    assert run().exit_code == 2
    assert run("a", "b", "--nonsense").exit_code == 2
    assert run("a", "b", "c").exit_code == 2


def test_json_contains_the_same_findings_as_the_text(damaged):
    text = run(*damaged).stdout
    values = json.loads(run(*damaged, "--json").stdout)
    titles = re.findall(r"^(?:problem|note): (.*) \[(\w+)\]$", text, re.M)
    assert titles == [(found["title"], found["kind"]) for found in values["findings"]]
    for found in values["findings"]:
        assert found["advice"] in text
        for example in found["examples"]:
            assert f"line {example['line']}\n    {example['source']}" in text
    assert values["n_pairs"] == 60
    assert sum(values["source"]["histogram"]) == 59
    assert run(*damaged, "--json").exit_code == 3


def test_the_input_does_not_change_and_the_list_names_every_removed_pair(tmp_path, damaged):
    before = [path.read_bytes() for path in damaged]
    result = run(*damaged, "--fix", tmp_path / "clean")
    assert result.exit_code == 3
    assert [path.read_bytes() for path in damaged] == before
    table = (tmp_path / "clean.removed.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t")[:3] for line in table[1:]]
    assert rows == [
        ["11", "11", "copies"],
        ["21", "21", "duplicates"],
        ["31", "31", "blank"],
        ["41", "41", "characters removed"],
        ["51", "51", "one_sided"],
    ]
    cleaned = (tmp_path / "clean.en").read_text(encoding="utf-8").split("\n")[:-1]
    kept = [line for i, line in enumerate(demo_lines(60)[0]) if i not in (10, 20, 30, 50)]
    assert cleaned == kept
    assert f"{len(kept)} pairs" in result.stdout.splitlines()[-1]


@pytest.mark.parametrize("longer", ["en", "de"])
def test_the_list_names_the_lines_after_the_end_of_the_shorter_file(tmp_path, damaged, longer):
    path = tmp_path / f"a.{longer}"
    path.write_bytes(path.read_bytes() + b"First extra line.\nSecond\textra line.")
    result = run(*damaged, "--fix", tmp_path / "clean")
    assert result.exit_code == 3
    table = (tmp_path / "clean.removed.tsv").read_text(encoding="utf-8").splitlines()
    rows = [
        ["61", "", "unequal", "First extra line.", ""],
        ["62", "", "unequal", "Second extra line.", ""],
    ]
    if longer == "de":
        rows = [[row[1], row[0], row[2], row[4], row[3]] for row in rows]
    assert [line.split("\t") for line in table[-2:]] == rows
    assert len(table) == 1 + 5 + 2
    assert "lists 6 removed lines or pairs and 1 changed pair" in result.stdout


def test_a_cleaned_corpus_has_no_problems(tmp_path, damaged):
    run(*damaged, "--fix", tmp_path / "clean")
    assert run(tmp_path / "clean.en", tmp_path / "clean.de").exit_code == 0


def test_a_shifted_corpus_is_realigned(tmp_path):
    source, target = map(list, demo_lines(600))
    del target[300]
    del source[450]
    paths = write(tmp_path, zip(source, target, strict=True))
    assert run(*paths, "--fix", tmp_path / "clean").exit_code == 3
    cleaned = [(tmp_path / f"clean.{x}").read_text().split("\n")[:-1] for x in ("en", "de")]
    found = set(zip(*cleaned, strict=True))
    assert found <= set(demo_pairs(600))
    assert len(found) >= 588  # a few lines at the two boundaries are removed
    assert run(tmp_path / "clean.en", tmp_path / "clean.de").exit_code == 0


lines = st.one_of(
    st.sampled_from(["A man sleeps.", "Ein Mann schläft.", "", " ", "fÃ¼r", "1984", "!" * 40]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=80),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(lines, lines), min_size=1, max_size=30))
def test_cleaning_twice_changes_nothing(tmp_path_factory, pairs):
    directory = tmp_path_factory.mktemp("fix")
    pairs = [*pairs, ("The old woman reads.", "Die alte Frau liest.")]
    names = list(map(str, write(directory, pairs)))
    fixed = fix_corpus(check_corpus(names), directory / "one", lambda *_: None)
    again = check_corpus([str(fixed.source), str(fixed.target)])
    assert again.result.problems == ()
    assert again.result.n_pairs == fixed.n_kept


def test_existing_files_are_not_overwritten(tmp_path, damaged):
    (tmp_path / "clean.de").write_text("precious")
    result = run(*damaged, "--fix", tmp_path / "clean")
    assert result.exit_code == 1
    assert "clean.de already exists" in result.stderr
    assert (tmp_path / "clean.de").read_text() == "precious"
    assert not (tmp_path / "clean.en").exists()
    (tmp_path / "report.html").write_text("precious")
    assert run(*damaged, "--report", tmp_path / "report.html").exit_code == 1
    assert (tmp_path / "report.html").read_text() == "precious"


def test_removing_all_pairs_is_an_error(tmp_path):
    result = run(*write(tmp_path, [("Same.", "Same.")] * 3), "--fix", tmp_path / "clean")
    assert result.exit_code == 1
    assert "left after cleaning" in result.stderr


def test_findings_are_printed_even_if_cleaning_fails(tmp_path):
    paths = write(tmp_path, [("Same.", "Same.")] * 3)
    result = run(*paths, "--fix", tmp_path / "clean")
    assert result.exit_code == 1
    assert result.stdout == run(*paths).stdout
    assert "left after cleaning" in result.stderr


@pytest.mark.parametrize("name", [".", "..", "/"])
def test_a_cleaned_copy_needs_a_file_name(damaged, name):
    result = run(*damaged, "--fix", name)
    assert result.exit_code == 2
    assert "is not a file name" in result.stderr


def test_a_directory_is_not_a_name_for_cleaned_copies(tmp_path, damaged):
    (tmp_path / "clean").mkdir()
    result = run(*damaged, "--fix", f"{tmp_path}/clean/")
    assert result.exit_code == 1
    assert (
        f"clean is a directory\n  hint: use a name such as {tmp_path}/clean/cleaned"
        in result.stderr
    )
    assert {path.name for path in tmp_path.iterdir()} == {"a.en", "a.de", "clean"}


def test_options_of_a_corpus_are_refused(damaged):
    result = run(f"{{corpus: [{damaged[0]}, {damaged[1]}], weight: 2}}")
    assert result.exit_code == 2
    assert "has no corpus options" in " ".join(re.sub("[│╭╮╰╯─]", "", result.stderr).split())


@pytest.mark.parametrize("code", ["removed.tsv", "../../evil", "english"])
def test_an_invalid_language_code_is_not_part_of_a_file_name(tmp_path, damaged, code):
    run(*damaged, "--source-lang", code, "--fix", tmp_path / "clean")
    names = {path.name for path in tmp_path.glob("clean*")}
    assert names == {"clean.source", "clean.target", "clean.removed.tsv"}


def test_hostile_text_is_harmless_in_text_and_report(tmp_path):
    paths = write(tmp_path, [*demo_pairs(40), (HOSTILE, HOSTILE)])
    result = run(*paths, "--report", tmp_path / "report.html")
    assert result.exit_code == 3
    assert "\x1b" not in result.stdout
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page
    assert "\x1b" not in page


def test_the_report_has_every_finding_and_example(damaged):
    result = check_corpus(list(map(str, damaged))).result
    text = Page(check_page(result)).text
    for found in result.findings:
        assert found.title in text
        assert found.advice in text
        assert all(example.source in text for example in found.examples if example.source)


def test_the_command_finds_overlap(tmp_path):
    corpus = write(tmp_path, demo_pairs(60))
    write(tmp_path, demo_pairs(60)[7:9], name="test")
    values = json.loads(run(*corpus, "--against", f"{tmp_path}/test.{{en,de}}", "--json").stdout)
    assert {found["kind"]: found["count"] for found in values["findings"]} == {"test_exact": 2}
    assert run(*corpus, "--against", tmp_path / "test").exit_code == 3
