"""Imports: packages use only lower layers, there are no cycles, and startup is fast."""

import ast
import sys
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import mtcli
from processes import output_of

LAYERS = [
    {"errors", "counts"},
    {"config", "files", "hardware", "signals", "distributed"},
    {"tokenizer", "reporting"},
    {"models", "data"},
    {"search", "model_dir"},
    {"export", "planning"},
    {"translation"},
    {"evaluation"},
    {"training"},
    {"cli"},
    {"__main__"},
]
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}
ROOT = Path(mtcli.__file__).parent


def imported_names(nodes: Iterable[ast.AST], path: Path) -> Iterator[str]:
    """Yield the dotted names that are imported: `from a.b import c` yields `a.b.c`."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: use an absolute import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def imported_packages(path: Path) -> set[str]:
    """Return the packages of mtcli that a file imports: `mtcli.models.base` counts as `models`."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    names = [name for name in imported_names(nodes, path) if name.startswith("mtcli.")]
    return {name.split(".")[1] for name in names} - {"__version__"}


def test_every_import_statement_is_found(tmp_path):
    (tmp_path / "x.py").write_text("import mtcli.a\nfrom mtcli import b\nfrom mtcli.c.d import e")
    assert imported_packages(tmp_path / "x.py") == {"a", "b", "c"}


def test_packages_import_only_from_lower_layers():
    for path in ROOT.rglob("*.py"):
        package = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if package == "__init__":
            continue
        for other in imported_packages(path) - {package}:
            assert HEIGHT[other] < HEIGHT[package], f"{path} must not import mtcli.{other}"


def executed_on_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run on import, without functions and `if TYPE_CHECKING` blocks."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from executed_on_import(child)


def import_graph(root: Path) -> dict[str, set[str]]:
    """Map each module below `root` to the modules below `root` that its import loads.

    The `__init__.py` of a package runs before its modules, but it counts only where a name is
    imported from it: a package may import its own modules.
    """
    paths = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root.parent).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph = {}
    for module, path in paths.items():
        nodes = executed_on_import(ast.parse(path.read_text(encoding="utf-8")))
        names = [
            name if name in paths else name.rpartition(".")[0]
            for name in imported_names(nodes, path)
        ]
        graph[module] = {name for name in names if name in paths and name != root.name}
    return graph


def test_modules_have_no_import_cycles():
    try:
        TopologicalSorter(import_graph(ROOT)).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize(
    ("files", "has_cycle"),
    [
        ({"a": "import p.b", "b": "import p.a"}, True),
        ({"a": "from p import b", "b": "from p.c import x", "c": "from p import a"}, True),
        ({"a": "class A:\n    from p import b", "b": "if True:\n    import p.a"}, True),
        ({"a": "from p.q import x", "q/__init__": "from p.q import b", "q/b": "import p.a"}, True),
        ({"a": "import p.b", "b": "def f():\n    import p.a"}, False),
        ({"a": "import p.b", "b": "if TYPE_CHECKING:\n    import p.a"}, False),
        ({"a": "import os", "os": "import p.a"}, False),
        ({"q/__init__": "from p.q.b import x", "q/b": "from p.q import c", "q/c": ""}, False),
    ],
)
def test_import_cycles_are_found(tmp_path, files, has_cycle):
    for name, code in {"__init__": "", **files}.items():
        path = tmp_path / "p" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    sorter = TopologicalSorter(import_graph(tmp_path / "p"))
    if has_cycle:
        with pytest.raises(CycleError):
            sorter.prepare()
    else:
        sorter.prepare()


def imported_modules(code: str) -> set[str]:
    """Return the modules that are loaded after a new Python process has run `code`."""
    script = f"{code}\nimport sys; print(*sys.modules)"
    return set(output_of([sys.executable, "-c", script]).split())


def test_help_does_not_import_torch():
    modules = imported_modules("import mtcli.cli")
    assert not modules & {"torch", "pydantic", "sacrebleu", "sentencepiece", "numpy"}


def test_reading_configurations_and_model_metadata_does_not_import_torch():
    assert "torch" not in imported_modules("import mtcli.config.load, mtcli.model_dir.directory")
