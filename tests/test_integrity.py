"""Checksums: all files that translation uses are verified, and errors name the damaged file."""

import json
import os
import zlib
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file

from conftest import tiny_pairs
from mtcli import Translator
from mtcli.config.load import load_config
from mtcli.config.search import EngineOptions
from mtcli.config.tokenizer import TokenizerConfig
from mtcli.errors import CheckpointError
from mtcli.export import directory as export_directory
from mtcli.export.directory import (
    make_export,
    open_export,
    write_standalone,
    write_vocabulary_map,
)
from mtcli.model_dir import integrity
from mtcli.model_dir.averaging import average_models
from mtcli.model_dir.directory import load_saved_config, read_metadata, weights_info
from mtcli.model_dir.integrity import load_arrays
from mtcli.model_dir.manifest import Shortlist, read_manifest
from mtcli.model_dir.weights import load_model, load_weights, save_tensors, save_weights
from mtcli.tokenizer import load_tokenizers, train_tokenizers
from mtcli.training.run import train_run
from mtcli.translation.engines import open_engine
from old_models import CT2, LINES, TORCH, TRANSLATIONS, new_model, translates

CPU = torch.device("cpu")
ENABLED = Shortlist(is_on=True, bleu=100.0, bleu_without=100.0, speed=1.5)
DISABLED = replace(ENABLED, is_on=False)


@pytest.fixture
def model(tmp_path):
    return new_model(tmp_path / "model")


@pytest.fixture(scope="module")
def damaged_model(tmp_path_factory):
    """Return a model directory that one test damages many times."""
    return new_model(tmp_path_factory.mktemp("damaged") / "model")


def readers(model, tmp_path):
    """Return functions that read the weights of a model, by name."""
    files = [str(tmp_path / name) for name in ("train.en", "train.de")]
    for path, lines in zip(files, zip(*tiny_pairs(), strict=True), strict=True):
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write("".join(f"{line}\n" for line in lines))
    saved = load_saved_config(new_model(tmp_path / "intact"))
    data = [("data.train", files), ("train.start_from", str(model)), ("train.steps", 1)]
    sections = [(name, getattr(saved, name).model_dump()) for name in ("model", "tokenizer")]
    config = load_config(None, [*sections, *data, ("train.device", "cpu")])
    return {
        "torch": lambda: open_engine(model, TORCH),
        "CTranslate2": lambda: open_engine(model, CT2),
        "export": lambda: make_export(model),
        "standalone export": lambda: write_standalone(model, "int8", tmp_path / "standalone"),
        "ensemble": lambda: open_engine(tmp_path / "intact", EngineOptions(), [model]),
        "average": lambda: average_models([tmp_path / "intact", model], tmp_path / "mean"),
        "fine-tuning": lambda: train_run(config, tmp_path / "tuned", lambda _: None),
    }


READERS = (
    "torch",
    "CTranslate2",
    "export",
    "standalone export",
    "ensemble",
    "average",
    "fine-tuning",
)


@settings(max_examples=100)
@given(st.integers(0, 8 * 40_000))
@example(0)
@example(8 * 40_000)
def test_both_readers_detect_a_flipped_bit_in_the_weights(damaged_model, bit):
    path = damaged_model / "model.safetensors"
    intact = path.read_bytes()
    bit %= 8 * len(intact)
    damaged = bytearray(intact)
    damaged[bit // 8] ^= 1 << bit % 8
    try:
        path.write_bytes(damaged)
        for read in (load_weights, load_arrays):
            with pytest.raises(CheckpointError, match="model.safetensors is damaged"):
                read(damaged_model)
    finally:
        path.write_bytes(intact)


@pytest.mark.parametrize("name", READERS)
def test_every_reader_verifies_the_weights(model, tmp_path, name):
    path = model / "model.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match="model.safetensors is damaged: its checksum is wr"):
        readers(model, tmp_path)[name]()


@pytest.mark.parametrize("name", READERS)
def test_every_reader_refuses_changed_model_settings(model, tmp_path, name):
    path = model / "config.yaml"
    path.write_text(path.read_text().replace("  n_heads: 2\n", "  n_heads: 4\n"))
    message = "the model or tokenizer section of .*config.yaml was changed after training"
    with pytest.raises(CheckpointError, match=message):
        readers(model, tmp_path)[name]()


@pytest.mark.parametrize("name", READERS)
def test_every_reader_refuses_the_tokenizer_of_another_model(model, tmp_path, name):
    size = len(load_tokenizers(model).source)
    # Use the same number of pieces so that the shapes of the weights match.
    options = TokenizerConfig(kind="bpe", vocab_size=size, byte_fallback=False)
    other = train_tokenizers([*LINES, "xyz"], TRANSLATIONS, options)
    (model / "tokenizer.model").write_bytes(other.source.model)
    with pytest.raises(CheckpointError, match=r"tokenizer\.model is damaged, or is the tokenizer"):
        readers(model, tmp_path)[name]()


def test_changed_model_settings_are_detected_despite_an_export(model):
    assert translates(model)
    path = model / "config.yaml"
    status = path.stat()
    path.write_text(path.read_text().replace("  n_heads: 2\n", "  n_heads: 4\n"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # same size and modification time
    with pytest.raises(CheckpointError, match="was changed after training"):
        open_engine(model, CT2)


def test_a_flipped_bit_in_a_tokenizer_is_detected_despite_an_export(model):
    assert translates(model)
    path = model / "tokenizer.model"
    status = path.stat()
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(CheckpointError, match=r"tokenizer\.model is "):
        open_engine(model, CT2)


def test_search_settings_and_yaml_formatting_may_change(model):
    path = model / "config.yaml"
    text = path.read_text().replace("  beam_size: 4\n", "  beam_size: 3\n")
    text = text.replace("  n_heads: 2\n", "  # a comment\n  n_heads:   2\n")
    path.write_text(text)
    for engine in (TORCH, CT2):
        assert open_engine(model, engine).search.beam_size == 3
        assert translates(model, engine)


def test_defaults_of_later_versions_do_not_change_the_digest(model, monkeypatch):
    """The digest covers the file, not the validated configuration."""
    saved = load_saved_config(model)

    def with_another_default(_directory):
        changed = saved.tokenizer.model_copy(update={"sample_lines": 1})
        return saved.model_copy(update={"tokenizer": changed})

    monkeypatch.setattr("mtcli.model_dir.weights.load_saved_config", with_another_default)
    assert load_model(model, CPU).config.tokenizer.sample_lines == 1


def test_equal_weights_are_saved_as_equal_bytes(model):
    path = model / "model.safetensors"
    before, weights, info = path.read_bytes(), load_weights(model), weights_info(model)
    for _ in range(8):  # safetensors writes several metadata keys in random order
        save_weights(model, weights, info)
        assert path.read_bytes() == before


def save_with_checksums(path, checksums):
    """Replace the checksums of a model with an arbitrary JSON value."""
    metadata = {**read_metadata(path), "checksums": checksums}
    save_tensors(path, load_file(path), {"mtcli": json.dumps(metadata)})


def test_unreadable_checksums_are_reported(model):
    for damaged in ([], {}, 1, None, "x", {"all": "", "config": "", "files": 1}):
        save_with_checksums(model / "model.safetensors", damaged)
        with pytest.raises(CheckpointError, match="list of checksums cannot be read"):
            load_weights(model)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64, torch.int32])
@pytest.mark.parametrize("engine", [TORCH, CT2], ids=["torch", "CTranslate2"])
def test_weights_other_than_float32_are_refused(model, kind, engine):
    path = model / "model.safetensors"
    with safe_open(path, framework="pt") as file:
        metadata = {"mtcli": file.metadata()["mtcli"]}
        tensors = {name: file.get_tensor(name).to(kind) for name in file.keys()}  # noqa: SIM118
    save_tensors(path, tensors, metadata)
    with pytest.raises(CheckpointError, match="not all of its tensors are float32"):
        open_engine(model, engine)


def test_checksums_do_not_refer_to_files_outside_the_model(model, tmp_path):
    path = model / "model.safetensors"
    os.mkfifo(tmp_path / "fifo")  # reading it would block
    metadata = weights_info(model).to_metadata()
    arrays = {name: tensor.numpy() for name, tensor in load_file(path).items()}
    for name in ("../fifo", str(tmp_path / "fifo")):
        digests = {"config": None, "files": {name: ""}}
        save_with_checksums(
            path, {**digests, "all": integrity._checksum_of_all(metadata, digests, arrays)}
        )
        with pytest.raises(CheckpointError, match="model.safetensors is damaged"):
            load_weights(model)


def test_deeply_nested_metadata_is_reported_as_damage(model):
    path = model / "model.safetensors"
    save_tensors(path, load_file(path), {"mtcli": "[" * 100_000})
    with pytest.raises(CheckpointError, match="model.safetensors is damaged"):
        load_weights(model)


def test_weights_can_be_saved_while_the_configuration_is_invalid(model):
    weights, info, config = load_weights(model), weights_info(model), model / "config.yaml"
    intact = config.read_text()
    config.write_text("model: [")
    save_weights(model, weights, info)
    config.write_text(intact)
    assert load_weights(model).keys() == weights.keys()


# Tests of the vocabulary map.


def valid_map(model) -> str:
    """Return a vocabulary map whose candidates are the entire vocabulary."""
    vocabulary = load_tokenizers(model).target.vocabulary
    return "\t" + " ".join(vocabulary) + "\n" + "".join(f"{piece}\t</s>\n" for piece in vocabulary)


DAMAGED_MAPS = [None, b"", b"garbage", b"\n", b"\t</s>\n", b"a\tb\nc\n", b"x\t</s>\n"]
OPTIONS = {None: CT2, True: replace(CT2, shortlist=True)}


def replace_map(model, content):
    path = model / "ctranslate2" / "vmap.txt"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


@pytest.mark.parametrize("content", DAMAGED_MAPS)
@pytest.mark.parametrize("requested", OPTIONS)
def test_a_damaged_vocabulary_map_is_reported_if_it_is_used(model, content, requested):
    write_vocabulary_map(model, valid_map(model), ENABLED)
    assert translates(model, OPTIONS[requested])
    assert open_engine(model, OPTIONS[requested]).engine.uses_shortlist
    replace_map(model, content)
    problem = "missing" if content is None else "damaged"
    with pytest.raises(CheckpointError, match=f"vmap.txt is {problem}") as error:
        open_engine(model, OPTIONS[requested])
    assert "--no-shortlist" in str(error.value)
    assert translates(model, replace(CT2, shortlist=False))


@pytest.mark.parametrize("content", DAMAGED_MAPS)
def test_a_disabled_vocabulary_map_is_not_read(model, content):
    write_vocabulary_map(model, valid_map(model), DISABLED)
    replace_map(model, content)
    assert open_export(model, "float32").vocabulary_map is None
    assert translates(model)


@pytest.mark.parametrize("content", [b"", b"garbage", b"\t</s>\n", b"a\tb\nc\n"])
def test_a_vocabulary_map_that_would_crash_ctranslate2_is_refused(model, content):
    """The map is refused even if its checksum is valid."""
    write_vocabulary_map(model, valid_map(model), ENABLED)
    replace_map(model, content)
    manifest = read_manifest(model / "ctranslate2")
    replace(manifest, vocabulary_map=zlib.crc32(content)).write(model / "ctranslate2")
    with pytest.raises(CheckpointError, match="vmap.txt is damaged"):
        open_engine(model, CT2)


def test_exporting_a_second_quantization_keeps_the_vocabulary_map_and_the_shortlist(model):
    write_vocabulary_map(model, valid_map(model), ENABLED)
    before = read_manifest(model / "ctranslate2")
    open_engine(model, CT2)
    after = read_manifest(model / "ctranslate2")
    assert set(before.files) < set(after.files)
    assert (after.shortlist, after.vocabulary_map) == (ENABLED, before.vocabulary_map)


def test_a_new_export_removes_a_damaged_vocabulary_map(model):
    write_vocabulary_map(model, valid_map(model), ENABLED)
    replace_map(model, b"x\t</s>\n")
    path = model / "config.yaml"
    path.write_text(path.read_text().replace("  beam_size: 4\n", "  beam_size: 3\n"))
    assert translates(model)
    assert read_manifest(model / "ctranslate2").vocabulary_map is None
    assert not (model / "ctranslate2" / "vmap.txt").exists()


def test_the_user_must_request_a_vocabulary_map_that_training_did_not_evaluate(model):
    write_vocabulary_map(model, valid_map(model))
    assert read_manifest(model / "ctranslate2").shortlist is None
    assert not open_engine(model, CT2).engine.uses_shortlist
    assert open_engine(model, replace(CT2, shortlist=True)).engine.uses_shortlist


def test_the_manifest_is_written_under_the_lock(model, monkeypatch):
    is_locked = []
    export_lock = export_directory._export_lock

    @contextmanager
    def recorded_lock(directory):
        with export_lock(directory):
            is_locked.append(True)
            yield
            is_locked.pop()

    def write(path, content):
        assert is_locked, path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        written.append(path.name)

    written: list[str] = []
    monkeypatch.setattr(export_directory, "_export_lock", recorded_lock)
    monkeypatch.setattr(export_directory, "write_file", write)
    monkeypatch.setattr("mtcli.model_dir.manifest.write_file", write)
    make_export(model)
    write_vocabulary_map(model, valid_map(model))
    write_vocabulary_map(model, valid_map(model), ENABLED)
    os.utime(model / "model.safetensors", ns=(1, 1))  # as after copying
    assert open_export(model, "int8").manifest.shortlist == ENABLED
    assert written.count("vmap.txt") == 2
    assert written[-1] == "mtcli.json"
    assert read_manifest(model / "ctranslate2").is_fresh_by_stat(model)


@pytest.mark.parametrize("n_writes", range(3))
def test_interrupting_a_write_of_the_vocabulary_map_leaves_a_usable_model(
    model, monkeypatch, n_writes
):
    write_vocabulary_map(model, valid_map(model), ENABLED)
    write_file, count = export_directory.write_file, iter(range(9))

    def fail(path, content):
        if next(count) == n_writes:
            raise KeyboardInterrupt
        write_file(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(export_directory, "write_file", fail)
        patch.setattr("mtcli.model_dir.manifest.write_file", fail)
        with pytest.raises(KeyboardInterrupt):
            write_vocabulary_map(model, "x\t</s>\n", ENABLED)
    assert translates(model)


def test_the_manifest_contains_checksums_of_the_vocabulary_map_and_the_inputs(model):
    write_vocabulary_map(model, valid_map(model), ENABLED)
    saved = json.loads((model / "ctranslate2" / "mtcli.json").read_bytes())
    content = (model / "ctranslate2" / "vmap.txt").read_bytes()
    assert saved["vocabulary_map"] == zlib.crc32(content)
    assert set(saved["inputs"]) == {"config.yaml", "model.safetensors", "tokenizer.model"}
    assert Translator(model, engine=CT2).translate([]) == []
