"""Attention maps: weights, rendering and the `attention` command."""

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from conftest import tiny_decoder_only, tiny_model_config, tiny_rnn_config
from mtcli.cli.attention import attention
from mtcli.cli.base import app
from mtcli.config.search import EngineOptions
from mtcli.errors import EngineError
from mtcli.model_dir.directory import weights_info
from mtcli.model_dir.weights import load_model, save_weights
from mtcli.models.base import parameters_of
from mtcli.reporting.attention.maps import AttentionMap
from mtcli.reporting.attention.text import render_text
from mtcli.translation.alignment import compute_attention_maps
from mtcli.translation.engines import open_engine
from test_export import random_model

pytestmark = pytest.mark.cpu

MODELS = {
    "transformer": tiny_model_config(),
    "relative, local": tiny_model_config(positions="relative", window=2),
    "decoder-only": tiny_decoder_only(),
    "language model": tiny_decoder_only(source_attention="causal"),
    "recurrent": tiny_rnn_config(),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_target_piece_attends_to_the_source_pieces(name, tmp_path, tiny_config, tokenizers):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, MODELS[name])
    [attention_map] = compute_attention_maps(
        open_engine(directory, EngineOptions()), "my dog finds the tree"
    )
    assert attention_map.target == tokenizers.target.detokenize(attention_map.rows)
    assert list(attention_map.columns) == tokenizers.source.tokenize("my dog finds the tree")
    assert len(attention_map.weights) == len(attention_map.rows) > 0
    for row in attention_map.weights:
        assert len(row) == len(attention_map.columns)
        assert min(row) >= 0
        assert 0.01 < sum(row) < 1.001  # the rest of the weight is on the source EOS


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
@pytest.mark.parametrize("layer", range(4))
def test_transformer_map_comes_from_the_last_decoder_layer(
    layer, engine, tmp_path, tiny_config, tokenizers
):
    shape = tiny_model_config(n_decoder_layers=4)
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, shape)
    ignore_content(directory, f"decoder.{layer}.cross_attention")
    assert is_uniform(directory, engine) is (layer == 3)
    assert "all heads of the last decoder layer" in help_text()


@pytest.mark.parametrize("layer", range(4))
def test_decoder_only_map_comes_from_the_second_to_last_layer(
    layer, tmp_path, tiny_config, tokenizers
):
    shape = tiny_decoder_only(n_layers=4)
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, shape)
    ignore_content(directory, f"layers.{layer}.self_attention")
    assert is_uniform(directory, "torch") is (layer == 2)
    assert "decoder-only models: of the second-to-last layer" in help_text()


def ignore_content(directory: Path, attention: str) -> None:
    """Set all queries to zero, so that the attention is uniform."""
    loaded, info = load_model(directory, torch.device("cpu")), weights_info(directory)
    module = loaded.model.get_submodule(f"{attention}.to_queries")
    for parameter in module.parameters():
        parameter.data.zero_()
    save_weights(directory, parameters_of(loaded.model), info)


def is_uniform(directory: Path, engine: str) -> bool:
    """Return whether every target piece attends to all source pieces equally."""
    loaded = open_engine(directory, EngineOptions(engine=engine, device="cpu"))
    [attention_map] = compute_attention_maps(loaded, "my dog finds the tree")
    rows = attention_map.weights
    assert len(rows)
    return all(max(row) - min(row) < 1e-4 for row in rows)


def help_text() -> str:
    return " ".join((inspect.getdoc(attention) or "").split())


def test_a_model_without_attention_is_refused(tmp_path, tiny_config, tokenizers):
    config = tiny_rnn_config(attention="none")
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, config)
    with pytest.raises(EngineError, match="the model has no attention"):
        compute_attention_maps(open_engine(directory, EngineOptions()), "my dog")


def test_larger_weights_are_rendered_darker():
    source, target = ["▁Der", "▁Köch", "e", "▁東"], ["▁The", "▁cook", "s"]
    weights = [[0.7, 0.1, 0.0, 0.2], [0.04, 0.5, 0.41, 0.05], [0.0, 0.0, 1.0, 0.0]]
    attention_map = AttentionMap("Der Köche 東", "The cooks", target, source, np.array(weights))
    assert [*render_text(attention_map)] == [
        "         K",
        "       D ö",
        "       e c -",
        "       r h e東",
        " The  ██░░ ·▒▒",
        "cook   ·▓▓▓▓░░",
        "  -s   · ·██ ·",
        "",
        "      ░░ ≥ 5%   ▒▒ ≥ 20%   ▓▓ ≥ 40%   ██ ≥ 65%",
        "",
    ]


def test_the_command_reads_arguments_or_stdin(tiny_trained):
    by_argument = CliRunner().invoke(app, ["attention", str(tiny_trained), "my dog", "water"])
    by_lines = CliRunner().invoke(app, ["attention", str(tiny_trained)], input="my dog\r\nwater\n")
    assert by_argument.exit_code == by_lines.exit_code == 0
    assert by_argument.stdout == by_lines.stdout
    assert "my dog\n" in by_lines.stdout
    blank = CliRunner().invoke(app, ["attention", str(tiny_trained), ""])
    assert (blank.exit_code, blank.stdout.strip()) == (0, "")


def test_a_long_line_is_shown_in_parts(copying_model, tokenizers):
    line = "water " * 40  # the model was trained on at most 32 pieces
    n_pieces = len(tokenizers.source.tokenize(line))
    result = CliRunner().invoke(app, ["attention", str(copying_model), line])
    assert result.exit_code == 0
    assert result.stdout.count("██ ≥ 65%") > 1
    n_cells = sum(row.count("██") for row in result.stdout.splitlines() if "≥" not in row)
    assert n_cells == n_pieces  # each piece attends to itself
