import os
import re
import sys
from pathlib import Path

import pytest

from mtcli.cli import app
from processes import output_of

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FAST = {
    "train.steps": 8,
    "train.warmup": 1,
    "train.validate_every": 4,
    "train.validate_pairs": 8,
    "model.d_model": 24,
    "data.max_length": 20,
    "search.max_length": 20,
}


def commands() -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```", README, flags=re.M | re.S)
    return re.findall(r"^\$ (.*)$", "".join(blocks), flags=re.M)


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    """Where a reader stands who has done all that the README says."""
    directory = tmp_path_factory.mktemp("readme")
    for name in ("data", "configs"):
        (directory / name).symlink_to(ROOT / name)
    run_all(commands(), directory)
    return directory


def run_all(lines: list[str], directory: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    faster = "".join(f" --set {key}={value}" for key, value in FAST.items())
    for line in lines:
        command = ["bash", "-o", "pipefail", "-c", line + (faster if "mtcli train" in line else "")]
        output_of(command, cwd=directory, env={**os.environ, "PATH": path})


def test_the_commands_of_the_readme_run(directory):
    """In their order, as they stand there, but for the time that training takes."""
    assert {"train", "translate", "evaluate", "info"} <= set(" ".join(commands()).split())
    assert (directory / "runs" / "demo" / "model.safetensors").is_file()


@pytest.mark.long
def test_the_examples_of_the_help_run(directory):
    """With the model that the README makes."""
    examples = [command.epilog.removeprefix("Example: ") for command in app.registered_commands]
    assert len(examples) == 8
    run_all(examples, directory)


def test_the_python_lines_of_the_readme_run(directory, copying_model):
    """In a directory that has a model `my-model` and a file `input.txt`."""
    [block] = re.findall(r"^```python\n(.*?)^```", README, flags=re.M | re.S)
    (directory / "my-model").symlink_to(copying_model)
    (directory / "input.txt").write_text("the man\nwater\n", encoding="utf-8")
    output = output_of([sys.executable, "-c", block], cwd=directory)
    assert [line.split()[0] for line in output.splitlines()] == ["the", "water"]


def test_what_the_readme_names_is_there():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    block = README.split("## The map of the code")[1].split("```")[1]
    parts = [line.split()[0] for line in block.strip().splitlines()]
    package = ROOT / "mtcli"
    existing = {path.stem for path in package.iterdir() if not path.name.startswith(("_", "."))}
    assert {part.rstrip("/") for part in parts} == existing - {"py"}
    for part in parts:
        assert (
            (package / part).is_dir() if part.endswith("/") else (package / f"{part}.py").is_file()
        )
