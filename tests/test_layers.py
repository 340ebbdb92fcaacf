import ast
import sys
from pathlib import Path

import mtcli
from processes import output_of

LAYERS = [
    {"errors"},
    {"options", "lines", "hardware", "signals"},
    {"config"},
    {"tokenizer", "report", "distributed"},
    {"data"},
    {"feed"},
    {"models"},
    {"search", "optim", "checkpoint", "loss"},
    {"evaluation", "export", "planning"},
    {"engines"},
    {"translation"},
    {"training", "stream"},
    {"cli"},
    {"__main__"},
]
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}
ROOT = Path(mtcli.__file__).parent


def imported_parts(path: Path) -> set[str]:
    """The parts of mtcli that a file imports: `mtcli.models.base` counts as `models`."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it goes"
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
    parts = {module.split(".")[1] for module in modules if module.startswith("mtcli.")}
    return parts - {"__version__"}


def test_every_way_to_import_is_seen(tmp_path):
    (tmp_path / "x.py").write_text("import mtcli.a\nfrom mtcli import b\nfrom mtcli.c.d import e")
    assert imported_parts(tmp_path / "x.py") == {"a", "b", "c"}


def test_no_file_imports_from_a_layer_above_or_beside_it():
    for path in ROOT.rglob("*.py"):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        for other in imported_parts(path) - {part}:
            assert HEIGHT[other] < HEIGHT[part], f"{path} must not import mtcli.{other}"


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*sys.modules)"
    return set(output_of([sys.executable, "-c", script]).split())


def test_help_does_not_wait_for_torch():
    modules = modules_after("import mtcli.cli")
    assert not modules & {"torch", "pydantic", "sacrebleu", "sentencepiece", "numpy"}


def test_a_config_mistake_and_the_facts_of_a_model_do_not_wait_for_torch():
    assert "torch" not in modules_after("import mtcli.config, mtcli.checkpoint.directory")
