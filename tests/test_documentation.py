"""README.md and docs/ are correct: commands and programs run, and all names on the pages exist."""

import os
import re
import sys
from pathlib import Path

import pytest

from corpus_files import WRITERS
from mtcli.cli.base import app
from processes import output_of, run

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CORPORA, MIXING = (ROOT / "docs" / f"{name}.md" for name in ("corpora", "mixing"))
NEEDS_NETWORK = ("mtcli train hf:wmt/wmt14/de-en",)  # prefixes of commands
# Files read by the commands in docs/corpora.md.
CORPUS_FILES = (
    *("csv", "jsonl", "nested jsonl", "parquet", "feather", "saved splits", "tmx", "xliff 1.2"),
    *("po", "wmt xml", "wmt sgml pair", "zip"),
)
FAST = {
    "train.steps": 8,
    "train.warmup": 1,
    "train.validate_every": 4,
    "train.validate_pairs": 8,
    "model.d_model": 24,
    "data.max_length": 20,
    "search.max_length": 20,
}


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks in `language` on a page."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.M | re.S)


def examples(page: Path) -> list[tuple[str, list[str]]]:
    """Return the commands after a `$` prompt on a page, each with the lines of its output."""
    text = "".join(blocks(page, "console"))
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, flags=re.M)
    return [
        (command, output.splitlines())
        for command, output in found
        if not command.startswith(NEEDS_NETWORK)
    ]


def commands(page: Path) -> list[str]:
    """Return the commands on a page that need no network."""
    return [command for command, _ in examples(page)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    """Return a directory in which all commands in the README have been run."""
    directory = tmp_path_factory.mktemp("readme")
    for name in ("data", "configs"):
        (directory / name).symlink_to(ROOT / name)
    sides = (ROOT / "data" / "demo" / f"dev.{code}" for code in ("en", "de"))
    lines = (side.read_text(encoding="utf-8").splitlines() for side in sides)
    pairs = list(zip(*lines, strict=True))
    for name in CORPUS_FILES:
        WRITERS[name](directory, pairs)
    run_all(commands(ROOT / "README.md"), directory)
    return directory


def run_all(lines: list[str], directory: Path) -> list[str]:
    """Run the commands, but shorten the training; return the output of each one."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    faster = "".join(f" --set {key}={value}" for key, value in FAST.items())
    outputs = []
    for line in lines:
        command = ["bash", "-o", "pipefail", "-c", line + (faster if "mtcli train" in line else "")]
        result = run(command, cwd=directory, env={**os.environ, "PATH": path})
        assert result.returncode == 0, f"{line}\n{result.stderr}"
        outputs.append(result.stderr + result.stdout)
    return outputs


def test_the_commands_in_the_readme_succeed(directory):
    assert {"train", "translate", "evaluate"} <= set(" ".join(commands(PAGES[0])).split())
    assert (directory / "runs" / "demo" / "model.safetensors").is_file()


@pytest.mark.long
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES[1:] if page not in (CORPORA, MIXING)],
    ids=lambda page: page.name,
)
def test_the_commands_on_every_page_succeed(directory, page):
    run_all(commands(page), directory)


@pytest.mark.long
@pytest.mark.parametrize("page", [CORPORA, MIXING], ids=lambda page: page.name)
def test_the_commands_on_the_corpora_pages_print_the_output_shown_there(directory, page):
    outputs = run_all(commands(page), directory)
    for (command, shown), output in zip(examples(page), outputs, strict=True):
        missing = [line for line in shown if line not in ("...", *output.splitlines())]
        assert not missing, command
    assert len(outputs) > 10


@pytest.mark.long
def test_the_examples_in_the_help_texts_succeed(directory):
    examples = [command.epilog.removeprefix("Example: ") for command in app.registered_commands]
    assert len(examples) >= 11
    run_all(examples, directory)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=str)
def test_the_python_programs_on_every_page_succeed(tmp_path, copying_model, page):
    (tmp_path / "my-model").symlink_to(copying_model)
    for name in ("input.txt", "test.en", "test.de"):
        (tmp_path / name).write_text("the man\nwater\n", encoding="utf-8")
    for program in blocks(page, "python"):
        assert output_of([sys.executable, "-c", program], cwd=tmp_path)


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name
)
def test_links_point_to_existing_files(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_readme_is_short():
    assert len(PAGES[0].read_text(encoding="utf-8").splitlines()) <= 150


def test_the_internals_page_lists_all_packages_and_modules():
    text = (ROOT / "docs" / "internals.md").read_text(encoding="utf-8")
    block = text.split("## Map of the code")[1].split("```")[1]
    parts = [line.split()[0] for line in block.strip().splitlines()]
    package = ROOT / "mtcli"
    existing = {path.stem for path in package.iterdir() if not path.name.startswith(("_", "."))}
    assert {part.rstrip("/") for part in parts} == existing - {"py"}
    for part in parts:
        assert (
            (package / part).is_dir() if part.endswith("/") else (package / f"{part}.py").is_file()
        )


def test_files_and_names_on_the_internals_page_exist():
    text = (ROOT / "docs" / "internals.md").read_text(encoding="utf-8")
    for path in re.findall(r"`((?:\w+/)*\w+\.py)`", text):
        assert (ROOT / "mtcli" / path).is_file() or (ROOT / path).is_file(), path
    for name, path in re.findall(r"`([\w.]+)` in `([\w/]+\.py)`", text):
        code = (ROOT / "mtcli" / path).read_text(encoding="utf-8")
        for part in name.split("."):
            assert re.search(rf"(class|def) {part}\b", code), f"{name} in {path}"
