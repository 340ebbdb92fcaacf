"""A model directory from a stranger: no file in it leads out of it, and damage is named."""

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

from mtcli import Translator
from mtcli.checkpoint import files
from mtcli.checkpoint.directory import clear
from mtcli.checkpoint.files import check_contained, remove_partial, replacing, write_file
from mtcli.cli import app
from mtcli.errors import CheckpointError, MtcliError
from mtcli.export import manifest as manifests
from mtcli.export.directory import make_export
from mtcli.export.manifest import read_manifest
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
    "translate as a second model": ["translate", "{intact}", "{lines}", "--ensemble", "{model}"],
    "evaluate": ["evaluate", "{model}", "{lines}", "{lines}"],
    "attention": ["attention", "{model}", "water"],
    "info": ["info", "{model}"],
    "export": ["export", "{model}"],
    "export elsewhere": ["export", "{model}", "--output", "{new}"],
    "average": ["average", "{intact}", "{model}", "--out", "{new}"],
    "average one run": ["average", "{model}", "--out", "{new}"],
    "train": ["train", "--out", "{model}"],
    "train again": ["train", "{lines}", "{lines}", "--out", "{model}", "--fresh"],
    "train from it": ["train", "{lines}", "{lines}", "--out", "{new}", "--from", "{model}"],
    "plan": ["train", "--out", "{model}", "--dry-run"],
}


@pytest.fixture
def model(tmp_path):
    return new_model(tmp_path / "model")


def snapshot(directory: Path) -> dict[str, bytes]:
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def put_link(path: Path, outside: Path) -> None:
    """Replace `path` by a link to something of the same kind outside."""
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
def test_no_command_follows_a_link_out_of_a_model(command, tmp_path):
    intact = new_model(tmp_path / "intact")
    for i, entry in enumerate(ENTRIES):
        model = shutil.copytree(intact, tmp_path / f"{i}" / "model")
        outside = tmp_path / f"{i}" / "outside"
        outside.mkdir()
        for name, content in OUTSIDE.items():
            (outside / name).write_text(content)
        put_link(model / entry, outside)
        before = snapshot(outside)
        assert_refused(run(command, tmp_path, model), entry)
        assert snapshot(outside) == before
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("entry", ["config.yaml", "model.safetensors", "ctranslate2/mtcli.json"])
def test_no_command_waits_for_a_fifo(command, entry, tmp_path):
    new_model(tmp_path / "intact")
    model = shutil.copytree(tmp_path / "intact", tmp_path / "model")
    path = model / entry
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    result = run(command, tmp_path, model)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit), result.exception


def test_a_socket_is_refused(model, monkeypatch):
    monkeypatch.chdir(model)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("model.bin")
    with pytest.raises(CheckpointError, match="model.bin is neither a file nor a directory"):
        check_contained(model)


def test_a_loop_of_links_is_refused(model):
    (model / "a").symlink_to("b")
    (model / "b").symlink_to("a")
    with pytest.raises(CheckpointError, match="/a "):
        check_contained(model)


def test_a_link_to_a_directory_is_refused_even_inside_the_model(model):
    (model / "elsewhere").mkdir()
    (model / "ctranslate2").symlink_to("elsewhere")
    with pytest.raises(CheckpointError, match="ctranslate2 is a symbolic link to something"):
        open_ct2(model)
    assert list((model / "elsewhere").iterdir()) == []


def test_a_link_to_a_file_of_the_same_model_is_allowed(model, tmp_path):
    (model / "model.safetensors").rename(model / "weights")
    (model / "model.safetensors").symlink_to("weights")
    (tmp_path / "link").symlink_to(model)
    for path in (model, tmp_path / "link"):
        assert translates(path)
        assert translates(path, TORCH)


def open_ct2(model: Path) -> list[str]:
    return Translator(model, engine=CT2).translate(LINES)


# Atomic writes.


def test_a_prepared_link_does_not_receive_what_is_written(tmp_path, monkeypatch):
    target = tmp_path / "target"
    target.write_text("precious")
    directory = tmp_path / "directory"
    directory.mkdir()
    (directory / ".file.partial").symlink_to(target)
    write_file(directory / "file", "new")
    # Even one that guesses the random name.
    monkeypatch.setattr(files.secrets, "token_hex", lambda n: "0" * 2 * n)
    (directory / f".file.{'0' * 16}.partial").symlink_to(target)
    with pytest.raises(CheckpointError, match="cannot write .*file: File exists"):
        write_file(directory / "file", "newer")
    assert (directory / "file").read_text() == "new"
    assert target.read_text() == "precious"


def test_temporary_names_differ_and_are_known_as_partial(tmp_path):
    names = set()
    for _ in range(3):
        with replacing(tmp_path / "file") as temporary:
            names.add(temporary.name)
            assert files.is_partial(temporary)
    assert len(names) == 3
    assert not files.is_partial(tmp_path / "file")


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def interrupt():
        with replacing(tmp_path / "file"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_kills_are_removed_from_an_export(model):
    make_export(model)
    for name in (".mtcli.json.0123.partial", ".tmpAb3dE9"):
        (model / "ctranslate2" / name).write_text("half")
    (model / "ctranslate2" / "mtcli.json").unlink()
    assert translates(model)
    assert not [path for path in (model / "ctranslate2").iterdir() if path.name.startswith(".")]


def test_starting_over_removes_leftovers_of_kills(model):
    (model / ".report.html.0123.partial").write_text("half")
    clear(model)
    assert list(model.iterdir()) == []


def test_removing_leftovers_removes_links_and_not_their_targets(tmp_path):
    (tmp_path / "target").write_text("precious")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / ".x.partial").symlink_to(tmp_path / "target")
    remove_partial(tmp_path / "d")
    assert list((tmp_path / "d").iterdir()) == []
    assert (tmp_path / "target").read_text() == "precious"


# The manifest.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
) | st.sampled_from([0, -1, 1, 2**31, 2**63, 10**400, "../x", "/etc/passwd", {}, []])


def places(facts, above=()):
    """Yield the path of every value in a JSON object."""
    for key, value in facts.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from places(value, (*above, key))


def replaced(facts, place, value):
    """Return a copy of `facts` with another value in one place."""
    key, *rest = place
    return {**facts, key: replaced(facts[key], rest, value) if rest else value}


@pytest.fixture
def guarded(tmp_path):
    """Return a function that writes another manifest and translates, watching everything else."""
    model = new_model(tmp_path / "model")
    assert translates(model)
    path = model / "ctranslate2" / "mtcli.json"
    shortlist = {"is_on": False, "bleu": 1.0, "bleu_without": 1.0, "speed": 1.0}
    facts = {**json.loads(path.read_bytes()), "shortlist": shortlist}
    (tmp_path / "x").write_text("outside")
    before = snapshot(tmp_path)

    def translate(facts) -> list[str]:
        path.write_text(json.dumps(facts))
        try:
            return open_ct2(model)
        finally:
            now = snapshot(tmp_path)
            changed = {name for name in now.keys() | before.keys() if now.get(name) != before[name]}
            assert changed <= {"model/ctranslate2/mtcli.json"}

    return facts, translate


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_of_a_manifest_leads_to_a_new_export(guarded, data):
    facts, translate = guarded
    place = data.draw(st.sampled_from(sorted(places(facts))))
    assert translate(replaced(facts, place, data.draw(JSON))) == list(TRANSLATIONS)


@pytest.mark.parametrize(
    ("place", "value"),
    [(("max_pieces",), 2), (("n_positions",), 40), (("search", "max_length"), 2)],
)
def test_another_valid_value_in_a_manifest_is_noticed(guarded, place, value):
    facts, translate = guarded
    assert translate(replaced(facts, place, value)) == list(TRANSLATIONS)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_forged_manifest_is_harmless(guarded, data):
    facts, translate = guarded
    place = data.draw(st.sampled_from(sorted(places(facts))))
    forged = replaced(facts, place, data.draw(JSON))
    forged.pop("checksum", None)
    forged["checksum"] = manifests._checksum(forged)
    with suppress(MtcliError):
        assert len(translate(forged)) == len(LINES)


@pytest.mark.parametrize(
    ("place", "value"),
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
def test_a_forged_manifest_with_an_invalid_value_counts_as_missing(model, place, value):
    make_export(model)
    path = model / "ctranslate2" / "mtcli.json"
    shortlist = {"is_on": False, "bleu": 1.0, "bleu_without": 1.0, "speed": 1.0}
    facts = {**json.loads(path.read_bytes()), "shortlist": shortlist}
    for changed, is_valid in ((facts, True), (replaced(facts, place, value), False)):
        forged = {key: entry for key, entry in changed.items() if key != "checksum"}
        path.write_text(json.dumps({**forged, "checksum": manifests._checksum(forged)}))
        assert (read_manifest(model / "ctranslate2") is not None) == is_valid


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 100_000, b"\xff", b'{"version": 5}', b"1"])
def test_a_manifest_that_is_none_counts_as_missing(model, content):
    make_export(model)
    (model / "ctranslate2" / "mtcli.json").write_bytes(content)
    assert read_manifest(model / "ctranslate2") is None
    assert translates(model)


# The weights' own facts.


@example({"step": "x"})
@example({"bleu": 10**400})
@example([])
@given(JSON)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_forged_facts_in_the_weights_are_no_traceback(tmp_path_factory, facts):
    from safetensors.torch import load_file, save_file

    from old_models import OLD_MODEL

    model = tmp_path_factory.mktemp("forged")
    shutil.copyfile(OLD_MODEL / "config.yaml", model / "config.yaml")
    usual = {"step": 1, "bleu": 1.0, "signature": "", "n_pairs": 1, "weights": ""}
    merged = {**usual, **facts} if isinstance(facts, dict) else facts
    tensors = load_file(OLD_MODEL / "model.safetensors")
    save_file(tensors, model / "model.safetensors", {"mtcli": json.dumps(merged)})
    result = CliRunner().invoke(app, ["info", str(model)])
    assert result.exit_code in (0, 1)
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("command", ["info", "export"])
def test_a_bomb_of_yaml_aliases_is_refused_at_once(model, command):
    """Ten levels of ten aliases would be ten billion values."""
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 11)]
    path = model / "config.yaml"
    path.write_text("a0: &a0 [1]\n" + "".join(levels) + path.read_text())
    result = CliRunner().invoke(app, [command, str(model)])
    assert result.exit_code == 1
    assert f"{path} is damaged: line 2, column 10: aliases are not allowed" in result.stderr


@pytest.mark.parametrize("value", ['!!int ""', '!!float ""', "!!bool x", "!!timestamp x"])
def test_a_wrong_tag_in_the_configuration_is_damage(model, value):
    path = model / "config.yaml"
    path.write_text(path.read_text() + f"x: {value}\n")
    result = CliRunner().invoke(app, ["info", str(model)])
    assert result.exit_code == 1
    assert f"{path} is damaged" in result.stderr
