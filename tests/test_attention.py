"""The map of what a model looks at."""

import inspect
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from conftest import tiny_decoder_only, tiny_model_config, tiny_rnn_config
from mtcli.checkpoint.directory import weights_info
from mtcli.checkpoint.weights import load_model, save_weights
from mtcli.cli import app
from mtcli.cli.attention import attention, drawn
from mtcli.engines import open_engine
from mtcli.errors import EngineError
from mtcli.models import parameters_of
from mtcli.options import EngineOptions
from mtcli.translation.looking import Looks, look
from test_export import random_model

pytestmark = pytest.mark.cpu

SEEING = {
    "transformer": tiny_model_config(),
    "relative, local": tiny_model_config(positions="relative", window=2),
    "decoder-only": tiny_decoder_only(),
    "language model": tiny_decoder_only(source_attention="causal"),
    "recurrent": tiny_rnn_config(),
}


@pytest.mark.parametrize("name", SEEING)
def test_every_piece_looks_at_the_pieces_of_the_source(name, tmp_path, tiny_config, tokenizers):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, SEEING[name])
    looks = look(open_engine(directory, EngineOptions()), "my dog finds the tree")
    assert looks.text == tokenizers.target.text(looks.target)
    assert list(looks.source) == tokenizers.source.pieces("my dog finds the tree")
    assert len(looks.weights) == len(looks.target) > 0
    for row in looks.weights:
        assert len(row) == len(looks.source)
        assert min(row) >= 0
        assert 0.01 < sum(row) < 1.001  # the rest goes to the end of the source


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
@pytest.mark.parametrize("layer", range(4))
def test_a_transformer_shows_the_last_layer_of_the_decoder(
    layer, engine, tmp_path, tiny_config, tokenizers
):
    shape = tiny_model_config(n_decoder_layers=4)
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, shape)
    ignore_content(directory, f"decoder.{layer}.cross_attention")
    assert is_even(directory, engine) is (layer == 3)
    assert "in the last layer of the decoder" in shown_help()


@pytest.mark.parametrize("layer", range(4))
def test_a_decoder_only_model_shows_the_last_layer_but_one(
    layer, tmp_path, tiny_config, tokenizers
):
    shape = tiny_decoder_only(n_layers=4)
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, shape)
    ignore_content(directory, f"layers.{layer}.self_attention")
    assert is_even(directory, "torch") is (layer == 2)
    assert (
        "for a decoder-only model, the part that goes to the source in the last layer but one"
        in (shown_help())
    )


def ignore_content(directory: Path, attention: str) -> None:
    """Give all positions the same query of zeros, so that the attention is even."""
    loaded, info = load_model(directory, torch.device("cpu")), weights_info(directory)
    module = loaded.model.get_submodule(f"{attention}.to_queries")
    for parameter in module.parameters():
        parameter.data.zero_()
    save_weights(directory, parameters_of(loaded.model), info)


def is_even(directory: Path, engine: str) -> bool:
    """Return whether every target piece attends to all source pieces alike."""
    opened = open_engine(directory, EngineOptions(engine=engine, device="cpu"))
    rows = look(opened, "my dog finds the tree").weights
    assert rows
    return all(max(row) - min(row) < 1e-4 for row in rows)


def shown_help() -> str:
    return " ".join((inspect.getdoc(attention) or "").split())


def test_a_model_without_attention_says_so(tmp_path, tiny_config, tokenizers):
    config = tiny_rnn_config(attention="none")
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, config)
    with pytest.raises(EngineError, match="looks at nothing"):
        look(open_engine(directory, EngineOptions()), "my dog")


def test_the_map_is_darker_where_it_looks_more():
    source, target = ["▁Der", "▁Köch", "e", "▁東"], ["▁The", "▁cook", "s"]
    weights = [[0.7, 0.1, 0.0, 0.2], [0.04, 0.5, 0.41, 0.05], [0.0, 0.0, 1.0, 0.0]]
    assert [*drawn("Der Köche 東", Looks("The cooks", source, target, weights))] == [
        "Der Köche 東",
        "The cooks",
        "",
        "         K",
        "       D ö",
        "       e c -",
        "       r h e東",
        " The  ██░░ ·▒▒",
        "cook   ·▓▓▓▓░░",
        "  -s   · ·██ ·",
        "",
        "      ░░ from 5 %   ▒▒ from 20 %   ▓▓ from 40 %   ██ from 65 %",
        "",
    ]


def test_the_command_reads_arguments_or_lines(tiny_trained):
    by_argument = CliRunner().invoke(app, ["attention", str(tiny_trained), "my dog", "water"])
    by_lines = CliRunner().invoke(app, ["attention", str(tiny_trained)], input="my dog\r\nwater\n")
    assert by_argument.exit_code == by_lines.exit_code == 0
    assert by_argument.stdout == by_lines.stdout
    assert "my dog\n" in by_lines.stdout
    blank = CliRunner().invoke(app, ["attention", str(tiny_trained), ""])
    assert (blank.exit_code, blank.stdout.strip()) == (0, "")


def test_a_line_that_is_too_long_is_a_message(tiny_trained):
    result = CliRunner().invoke(app, ["attention", str(tiny_trained), "water " * 500])
    assert result.exit_code == 1
    assert "longer than those that the model was trained for" in result.stderr
