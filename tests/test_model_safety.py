"""Model directories from untrusted sources: mtcli refuses unsafe links and damaged files."""

import json
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mtcli import Translator, files
from mtcli.cli.base import app
from mtcli.errors import CheckpointError, MtcliError
from mtcli.export.directory import make_export
from mtcli.files import atomic_write, remove_partial, write_file
from mtcli.model_dir import manifest as manifests
from mtcli.model_dir.directory import remove_run
from mtcli.model_dir.manifest import read_manifest
from mtcli.model_dir.safety import check_contained
from old_models import CT2, LINES, TORCH, TRANSLATIONS, new_model, translates

OUTSIDE = {"config.yaml": "format: 1\n", "model.bin": "a", "vmap.txt": "b", "mtcli.json": "{}"}
ENTRIES = [
    "config.yaml",
    "model.safetensors",
    "tokenizer.model",
    "log.jsonl",
    "README.md",
    ".lock",
    "checkpoints",
    "checkpoints/step-00000004.safetensors",
    "ctranslate2",
    "ctranslate2/mtcli.json",
    "ctranslate2/model.bin",
    "ctranslate2/vmap.txt",
    "ctranslate2/.mtcli.json.partial",
    "tensorboard",
    "tensorboard/events",
]
COMMANDS = {
    "translate": ["translate", "{model}", "{lines}"],
    "translate with torch": ["translate", "{model}", "{lines}", "--engine", "torch"],
    "translate with an ensemble": ["translate", "{intact}", "{lines}", "--ensemble", "{model}"],
    "evaluate": ["evaluate", "{model}", "{lines}", "{lines}"],
    "attention": ["attention", "{model}", "water"],
    "info": ["info", "{model}"],
    "export": ["export", "{model}"],
    "standalone export": ["export", "{model}", "--output", "{new}"],
    "average": ["average", "{intact}", "{model}", "--out", "{new}"],
    "average one run": ["average", "{model}", "--out", "{new}"],
    "train": ["train", "--out", "{model}"],
    "train with --fresh": ["train", "{lines}", "{lines}", "--out", "{model}", "--fresh"],
    "train from a model": ["train", "{lines}", "{lines}", "--out", "{new}", "--from", "{model}"],
    "plan": ["train", "--out", "{model}", "--dry-run"],
}


@pytest.fixture
def model(tmp_path):
    return new_model(tmp_path / "model")


def read_files(directory: Path) -> dict[str, bytes]:
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def replace_by_link(path: Path, outside: Path) -> None:
    """Replace `path` with a link to an entry of the same type outside the model."""
    name = path.name
    is_directory = name in ("checkpoints", "ctranslate2", "tensorboard")
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    if not is_directory and not (outside / name).exists():
        (outside / name).write_text("outside")
    path.symlink_to(outside if is_directory else outside / name)


def run(command: str, directory: Path, model: Path):
    (directory / "lines").write_text("".join(f"{line}\n" for line in LINES))
    names = {"model": model, "lines": directory / "lines", "new": directory / "new"}
    names["intact"] = directory / "intact"
    return CliRunner().invoke(app, [part.format(**names) for part in COMMANDS[command]])


def assert_refused(result, name: str) -> None:
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit), result.exception  # no traceback
    assert f"{name} is " in "".join(result.output.split("\n")), result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_follows_links_out_of_a_model(command, tmp_path):
    intact = new_model(tmp_path / "intact")
    for i, entry in enumerate(ENTRIES):
        model = shutil.copytree(intact, tmp_path / f"{i}" / "model")
        outside = tmp_path / f"{i}" / "outside"
        outside.mkdir()
        for name, content in OUTSIDE.items():
            (outside / name).write_text(content)
        replace_by_link(model / entry, outside)
        before = read_files(outside)
        assert_refused(run(command, tmp_path, model), entry)
        assert read_files(outside) == before
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("entry", ["config.yaml", "model.safetensors", "ctranslate2/mtcli.json"])
def test_no_command_opens_a_fifo(command, entry, tmp_path):
    new_model(tmp_path / "intact")
    model = shutil.copytree(tmp_path / "intact", tmp_path / "model")
    path = model / entry
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    result = run(command, tmp_path, model)
    # Without a readable config.yaml, `train` reports that it has no corpus, which is wrong usage.
    assert result.exit_code in (1, 2)
    assert isinstance(result.exception, SystemExit), result.exception


def test_a_socket_is_refused(model, monkeypatch):
    monkeypatch.chdir(model)  # socket paths have a length limit
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("model.bin")
    with pytest.raises(CheckpointError, match="model.bin is neither a file nor a directory"):
        check_contained(model)


def test_a_circular_link_is_refused(model):
    (model / "a").symlink_to("b")
    (model / "b").symlink_to("a")
    with pytest.raises(CheckpointError, match="/a "):
        check_contained(model)


def test_a_link_to_a_directory_is_refused_even_inside_the_model(model):
    (model / "elsewhere").mkdir()
    (model / "ctranslate2").symlink_to("elsewhere")
    with pytest.raises(CheckpointError, match="ctranslate2 is a symbolic link to something"):
        translate_with_ct2(model)
    assert list((model / "elsewhere").iterdir()) == []


def test_a_link_to_a_file_in_the_same_model_is_allowed(model, tmp_path):
    (model / "model.safetensors").rename(model / "weights")
    (model / "model.safetensors").symlink_to("weights")
    (tmp_path / "link").symlink_to(model)
    for path in (model, tmp_path / "link"):
        assert translates(path)
        assert translates(path, TORCH)


def translate_with_ct2(model: Path) -> list[str]:
    return Translator(model, engine=CT2).translate(LINES)


# Tests of atomic writes.


def test_writes_do_not_follow_links_at_the_temporary_name(tmp_path, monkeypatch):
    target = tmp_path / "target"
    target.write_text("precious")
    directory = tmp_path / "directory"
    directory.mkdir()
    (directory / ".file.partial").symlink_to(target)
    write_file(directory / "file", "new")
    # This holds even if the link has the random name that is about to be used.
    monkeypatch.setattr(files.secrets, "token_hex", lambda n: "0" * 2 * n)
    (directory / f".file.{'0' * 16}.partial").symlink_to(target)
    with pytest.raises(CheckpointError, match="cannot write .*file: File exists"):
        write_file(directory / "file", "newer")
    assert (directory / "file").read_text() == "new"
    assert target.read_text() == "precious"


def test_temporary_names_are_unique_and_recognized_as_partial(tmp_path):
    names = set()
    for _ in range(3):
        with atomic_write(tmp_path / "file") as temporary:
            names.add(temporary.name)
            assert files.is_partial(temporary)
    assert len(names) == 3
    assert not files.is_partial(tmp_path / "file")


def test_an_interrupted_write_leaves_no_file(tmp_path):
    def interrupt():
        with atomic_write(tmp_path / "file"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert list(tmp_path.iterdir()) == []


def test_exporting_removes_partial_files(model):
    make_export(model)
    for name in (".mtcli.json.0123.partial", ".tmpAb3dE9"):
        (model / "ctranslate2" / name).write_text("half")
    (model / "ctranslate2" / "mtcli.json").unlink()
    assert translates(model)
    assert not [path for path in (model / "ctranslate2").iterdir() if path.name.startswith(".")]


def test_removing_a_run_removes_partial_files(model):
    (model / ".report.html.0123.partial").write_text("half")
    remove_run(model)
    assert list(model.iterdir()) == []


def test_removing_partial_files_keeps_the_targets_of_links(tmp_path):
    (tmp_path / "target").write_text("precious")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / ".x.partial").symlink_to(tmp_path / "target")
    remove_partial(tmp_path / "d")
    assert list((tmp_path / "d").iterdir()) == []
    assert (tmp_path / "target").read_text() == "precious"


# Tests of the manifest.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
) | st.sampled_from([0, -1, 1, 2**31, 2**63, 10**400, "../x", "/etc/passwd", {}, []])


def key_paths(tree, parents=()):
    """Yield the key path of every value in a JSON object."""
    for key, value in tree.items():
        yield (*parents, key)
        if isinstance(value, dict):
            yield from key_paths(value, (*parents, key))


def with_value(tree, key_path, value):
    """Return a copy of `tree` with `value` at `key_path`."""
    key, *rest = key_path
    return {**tree, key: with_value(tree[key], rest, value) if rest else value}


@pytest.fixture
def guarded(tmp_path):
    """Return a manifest and a function that translates with a changed manifest.

    The function checks that no file other than the manifest changes.
    """
    model = new_model(tmp_path / "model")
    assert translates(model)
    path = model / "ctranslate2" / "mtcli.json"
    shortlist = {"is_on": False, "bleu": 1.0, "bleu_without": 1.0, "speed": 1.0}
    manifest = {**json.loads(path.read_bytes()), "shortlist": shortlist}
    (tmp_path / "x").write_text("outside")
    before = read_files(tmp_path)

    def translate(changed) -> list[str]:
        path.write_text(json.dumps(changed))
        try:
            return translate_with_ct2(model)
        finally:
            now = read_files(tmp_path)
            different = {
                name for name in now.keys() | before.keys() if now.get(name) != before[name]
            }
            assert different <= {"model/ctranslate2/mtcli.json"}

    return manifest, translate


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_manifest_causes_a_new_export(guarded, data):
    manifest, translate = guarded
    key_path = data.draw(st.sampled_from(sorted(key_paths(manifest))))
    assert translate(with_value(manifest, key_path, data.draw(JSON))) == list(TRANSLATIONS)


@pytest.mark.parametrize(
    ("key_path", "value"),
    [(("max_pieces",), 2), (("n_positions",), 40), (("search", "max_length"), 2)],
)
def test_a_changed_but_valid_value_in_a_manifest_is_detected(guarded, key_path, value):
    manifest, translate = guarded
    assert translate(with_value(manifest, key_path, value)) == list(TRANSLATIONS)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_forged_manifest_is_harmless(guarded, data):
    manifest, translate = guarded
    key_path = data.draw(st.sampled_from(sorted(key_paths(manifest))))
    forged = with_value(manifest, key_path, data.draw(JSON))
    forged.pop("checksum", None)
    forged["checksum"] = manifests._checksum(forged)
    with suppress(MtcliError):
        assert len(translate(forged)) == len(LINES)


@pytest.mark.parametrize(
    ("key_path", "value"),
    [
        (("max_pieces",), 0),
        (("max_pieces",), -1),
        (("max_pieces",), "many"),
        (("max_pieces",), True),
        (("n_positions",), 0),
        (("target_size",), None),
        (("inputs",), {}),
        (("inputs", "config.yaml"), None),
        (("inputs", "config.yaml", "size"), "1"),
        (("files",), {}),
        (("files", "../../x"), 1),
        (("files", "vmap.txt"), 1),
        (("files", "config.json"), "1"),
        (("search", "beam_size"), 2000),
        (("search", "max_length_ratio"), 0),
        (("search", "sampling"), {"temperature": 1.0, "top_k": 0, "top_p": 1.0}),
        (("search", "with_scores"), 1),
        (("is_language_model",), 0),
        (("shortlist", "is_on"), True),  # without a vocabulary map
        (("version",), True),
        (("surplus",), 1),
    ],
)
def test_a_forged_manifest_with_an_invalid_value_is_treated_as_missing(model, key_path, value):
    make_export(model)
    path = model / "ctranslate2" / "mtcli.json"
    shortlist = {"is_on": False, "bleu": 1.0, "bleu_without": 1.0, "speed": 1.0}
    manifest = {**json.loads(path.read_bytes()), "shortlist": shortlist}
    for changed, is_valid in ((manifest, True), (with_value(manifest, key_path, value), False)):
        forged = {key: entry for key, entry in changed.items() if key != "checksum"}
        path.write_text(json.dumps({**forged, "checksum": manifests._checksum(forged)}))
        assert (read_manifest(model / "ctranslate2") is not None) == is_valid


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 100_000, b"\xff", b'{"version": 5}', b"1"])
def test_an_unreadable_manifest_is_treated_as_missing(model, content):
    make_export(model)
    (model / "ctranslate2" / "mtcli.json").write_bytes(content)
    assert read_manifest(model / "ctranslate2") is None
    assert translates(model)


# Tests of the metadata of the weights.


@example({"step": "x"})
@example({"bleu": 10**400})
@example({"sets": {"a": "x"}})
@example({"sets": [1.0]})
@example([])
@given(JSON)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_forged_metadata_in_weights_does_not_cause_a_traceback(tmp_path_factory, metadata):
    from safetensors.torch import load_file, save_file

    from old_models import OLD_MODEL

    model = tmp_path_factory.mktemp("forged")
    shutil.copyfile(OLD_MODEL / "config.yaml", model / "config.yaml")
    valid = {"step": 1, "bleu": 1.0, "signature": "", "n_pairs": 1, "weights": ""}
    merged = {**valid, **metadata} if isinstance(metadata, dict) else metadata
    tensors = load_file(OLD_MODEL / "model.safetensors")
    save_file(tensors, model / "model.safetensors", {"mtcli": json.dumps(merged)})
    result = CliRunner().invoke(app, ["info", str(model)])
    assert result.exit_code in (0, 1)
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("command", ["info", "export"])
def test_a_yaml_alias_bomb_is_refused(model, command):
    """Ten levels of ten aliases would expand to ten billion values."""
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 11)]
    path = model / "config.yaml"
    path.write_text("a0: &a0 [1]\n" + "".join(levels) + path.read_text())
    result = CliRunner().invoke(app, [command, str(model)])
    assert result.exit_code == 1
    assert f"{path} is damaged: line 2, column 10: aliases are not allowed" in result.stderr


@pytest.mark.parametrize("value", ['!!int ""', '!!float ""', "!!bool x", "!!timestamp x"])
def test_an_invalid_yaml_tag_is_reported_as_damage(model, value):
    path = model / "config.yaml"
    path.write_text(path.read_text() + f"x: {value}\n")
    result = CliRunner().invoke(app, ["info", str(model)])
    assert result.exit_code == 1
    assert f"{path} is damaged" in result.stderr
