import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import tiny_model_config
from mtcli.checkpoint.directory import (
    WeightsInfo,
    checkpoint_paths,
    clear,
    describe,
    is_run,
    load_saved_config,
    save_config,
)
from mtcli.checkpoint.files import replacing, write_file
from mtcli.checkpoint.state import Progress, save_checkpoint
from mtcli.checkpoint.weights import load_into, load_model, save_weights
from mtcli.errors import CheckpointError
from mtcli.models import build_model, parameters_of

pytestmark = pytest.mark.cpu

CPU = torch.device("cpu")
INFO = WeightsInfo(n_parameters=0, step=3, bleu=12.5, signature="tok:13a", n_pairs=60)


@pytest.fixture
def saved(tiny_config, tokenizers, tmp_path):
    """A model directory, and the model that was saved in it."""
    torch.manual_seed(0)
    model = build_model(tiny_config.model, len(tokenizers.source), len(tokenizers.target))
    directory = tmp_path / "model"
    save_config(directory, tiny_config)
    for name, content in tokenizers.files().items():
        write_file(directory / name, content)
    save_weights(directory, parameters_of(model), INFO)
    return directory, model


def test_what_is_loaded_computes_what_was_saved(saved):
    directory, model = saved
    loaded = load_model(directory, CPU)
    source, target = torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7]])
    assert torch.equal(loaded.model(source, target), model.eval()(source, target))


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_tied_matrices_are_written_once_and_stay_tied(tied, tmp_path):
    config = tiny_model_config(tied_embeddings=tied)
    first, second = build_model(config, 12, 12), build_model(config, 12, 12)
    save_weights(tmp_path, parameters_of(first), INFO)
    tensors = load_file(tmp_path / "model.safetensors")
    assert len(tensors) == len(list(first.parameters()))
    load_into(second, tensors.items(), origin=tmp_path)
    for name, tensor in parameters_of(second).items():
        assert torch.equal(tensor, parameters_of(first)[name])
    assert (second.to_logits.weight is second.target_embedding.weight) == (tied != "none")


def test_all_weights_that_do_not_match_are_listed(saved):
    directory, model = saved
    tensors = load_file(directory / "model.safetensors")
    del tensors["encoder_norm.bias"]
    tensors["surplus"] = torch.zeros(1)
    tensors["decoder_norm.bias"] = torch.zeros(99)
    with pytest.raises(CheckpointError) as error:
        load_into(model, tensors.items(), origin=directory)
    for says in (
        "encoder_norm.bias is missing",
        "surplus is not part of the model",
        "decoder_norm.bias has shape [99], expected [16]",
    ):
        assert says in str(error.value)


def test_an_unknown_format_is_refused_by_name(saved):
    directory, _ = saved
    path = directory / "config.yaml"
    path.write_text(path.read_text().replace("format: 1\n", "format: 7\n"))
    with pytest.raises(CheckpointError, match="has format 7, .*reads format 1"):
        load_saved_config(directory)


def test_a_directory_that_is_no_model_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="is not a model directory: it has no config.yaml"):
        load_model(tmp_path, CPU)


def test_missing_and_damaged_weights_are_named(saved):
    directory, _ = saved
    weights = directory / "model.safetensors"
    content = weights.read_bytes()
    for damaged in (content[:50], b"", b"\0" * 100):
        weights.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="model.safetensors is damaged"):
            load_model(directory, CPU)
    save_file({"x": torch.zeros(1)}, weights)
    with pytest.raises(CheckpointError, match="damaged or not made by mtcli"):
        load_model(directory, CPU)
    weights.unlink()
    with pytest.raises(CheckpointError, match="has no model.safetensors"):
        load_model(directory, CPU)


def test_the_description_counts_what_is_there(saved):
    directory, model = saved
    facts = dict(describe(directory))
    assert facts["parameters"] == f"{sum(p.numel() for p in model.parameters()):,}"
    assert facts["dev BLEU"] == "12.50 with greedy search"


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    write_file(path, "old")

    def fail_half_way():
        with replacing(path) as temporary:
            temporary.write_text("ne")
            raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match="cannot write .*file: No space left on device"):
        fail_half_way()
    assert path.read_text() == "old"
    write_file(path, "new")
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_model_can_be_read_by_whoever_may_read_new_files(saved):
    directory, _ = saved
    (directory / "new").touch()
    modes = {path.name: os.stat(path).st_mode for path in directory.iterdir()}  # noqa: PTH116
    assert set(modes.values()) == {modes["new"]}


def test_a_run_that_was_taken_back_has_no_checkpoints_of_later_steps(tmp_path):
    for step in (4, 8, 12, 8):
        save_checkpoint(tmp_path, {"a": torch.ones(1)}, Progress("", step=step), keep=5)
    names = [path.name for path in checkpoint_paths(tmp_path)]
    assert names == ["step-00000004.safetensors", "step-00000008.safetensors"]


def test_a_run_that_is_half_removed_is_still_known_as_one(saved, monkeypatch):
    directory, _ = saved
    (directory / "ctranslate2").mkdir()

    def fail(_path):
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr("shutil.rmtree", fail)
    with pytest.raises(
        CheckpointError, match="cannot remove .*ctranslate2: Device or resource busy"
    ):
        clear(directory)
    assert is_run(directory)
    monkeypatch.undo()
    clear(directory)
    assert list(directory.iterdir()) == []
