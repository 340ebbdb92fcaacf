"""Model directories: saving and loading weights, checkpoints, atomic writes."""

import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import tiny_model_config
from mtcli.errors import CheckpointError
from mtcli.files import atomic_write, write_file
from mtcli.model_dir.card import describe
from mtcli.model_dir.checkpoints import Progress, save_checkpoint
from mtcli.model_dir.directory import (
    FORMAT,
    WeightsInfo,
    checkpoint_paths,
    is_run,
    load_saved_config,
    remove_run,
    save_config,
)
from mtcli.model_dir.weights import load_into, load_model, save_weights
from mtcli.models import build_model
from mtcli.models.base import parameters_of

pytestmark = pytest.mark.cpu

CPU = torch.device("cpu")
INFO = WeightsInfo(n_parameters=0, step=3, bleu=12.5, signature="tok:13a", n_pairs=60)


@pytest.fixture
def saved(tiny_config, tokenizers, tmp_path):
    """Return a model directory and the model that was saved in it."""
    torch.manual_seed(0)
    model = build_model(tiny_config.model, len(tokenizers.source), len(tokenizers.target))
    directory = tmp_path / "model"
    save_config(directory, tiny_config)
    for name, content in tokenizers.files().items():
        write_file(directory / name, content)
    save_weights(directory, parameters_of(model), INFO)
    return directory, model


def test_a_loaded_model_computes_the_same_output_as_the_saved_one(saved):
    directory, model = saved
    loaded = load_model(directory, CPU)
    source, target = torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7]])
    assert torch.equal(loaded.model(source, target), model.eval()(source, target))


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_tied_matrices_are_saved_once_and_stay_tied(tied, tmp_path):
    config = tiny_model_config(tied_embeddings=tied)
    first, second = build_model(config, 12, 12), build_model(config, 12, 12)
    save_weights(tmp_path, parameters_of(first), INFO)
    tensors = load_file(tmp_path / "model.safetensors")
    assert len(tensors) == len(list(first.parameters()))
    load_into(second, tensors.items(), origin=tmp_path)
    for name, tensor in parameters_of(second).items():
        assert torch.equal(tensor, parameters_of(first)[name])
    assert (second.to_logits.weight is second.target_embedding.weight) == (tied != "none")


def test_one_error_lists_all_mismatched_weights(saved):
    directory, model = saved
    tensors = load_file(directory / "model.safetensors")
    del tensors["encoder_norm.bias"]
    tensors["surplus"] = torch.zeros(1)
    tensors["decoder_norm.bias"] = torch.zeros(99)
    with pytest.raises(CheckpointError) as error:
        load_into(model, tensors.items(), origin=directory)
    for problem in (
        "encoder_norm.bias is missing",
        "surplus is not part of the model",
        "decoder_norm.bias has shape [99], expected [16]",
    ):
        assert problem in str(error.value)


def test_loading_refuses_an_unknown_format(saved):
    directory, _ = saved
    path = directory / "config.yaml"
    path.write_text(path.read_text().replace(f"format: {FORMAT}\n", "format: 7\n"))
    with pytest.raises(CheckpointError, match="has format 7, .*reads formats 1, 2, 3, 4"):
        load_saved_config(directory)


def test_loading_refuses_a_directory_without_a_configuration(tmp_path):
    with pytest.raises(CheckpointError, match="is not a model directory: it has no config.yaml"):
        load_model(tmp_path, CPU)


def test_an_error_names_missing_or_damaged_weights(saved):
    directory, _ = saved
    weights = directory / "model.safetensors"
    content = weights.read_bytes()
    for damaged in (content[:50], b"", b"\0" * 100):
        weights.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="model.safetensors is damaged"):
            load_model(directory, CPU)
    save_file({"x": torch.zeros(1)}, weights)
    with pytest.raises(CheckpointError, match="damaged or was not written by mtcli"):
        load_model(directory, CPU)
    weights.unlink()
    with pytest.raises(CheckpointError, match="has no model.safetensors"):
        load_model(directory, CPU)


def test_the_description_includes_the_parameter_count_and_bleu(saved):
    directory, model = saved
    description = dict(describe(directory))
    assert description["parameters"] == f"{sum(p.numel() for p in model.parameters()):,}"
    assert description["dev BLEU"] == "12.50 with greedy search"


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "file"
    write_file(path, "old")

    def write_half():
        with atomic_write(path) as temporary:
            temporary.write_text("ne")
            raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match="cannot write .*file: No space left on device"):
        write_half()
    assert path.read_text() == "old"
    write_file(path, "new")
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_saved_files_have_the_default_mode_of_new_files(saved):
    directory, _ = saved
    (directory / "new").touch()
    modes = {path.name: os.stat(path).st_mode for path in directory.iterdir()}  # noqa: PTH116
    assert set(modes.values()) == {modes["new"]}


def test_saving_after_a_rollback_removes_checkpoints_of_later_steps(tmp_path):
    for step in (4, 8, 12, 8):
        save_checkpoint(tmp_path, {"a": torch.ones(1)}, Progress("", step=step), keep=5)
    names = [path.name for path in checkpoint_paths(tmp_path)]
    assert names == ["step-00000004.safetensors", "step-00000008.safetensors"]


def test_a_partially_removed_run_is_still_recognized_as_a_run(saved, monkeypatch):
    directory, _ = saved
    (directory / "ctranslate2").mkdir()

    def fail(_path):
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr("shutil.rmtree", fail)
    with pytest.raises(
        CheckpointError, match="cannot remove .*ctranslate2: Device or resource busy"
    ):
        remove_run(directory)
    assert is_run(directory)
    monkeypatch.undo()
    remove_run(directory)
    assert list(directory.iterdir()) == []
