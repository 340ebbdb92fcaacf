"""Attention maps: weights, rendering and the `attention` command."""

import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.cells import cell_len
from typer.testing import CliRunner, Result

from conftest import tiny_decoder_only, tiny_model_config, tiny_rnn_config
from mtcli import Translator
from mtcli.cli.attention import attention
from mtcli.cli.base import app
from mtcli.config.search import EngineOptions
from mtcli.errors import DataError, EngineError
from mtcli.model_dir.directory import weights_info
from mtcli.model_dir.weights import load_model, save_weights
from mtcli.models.base import parameters_of
from mtcli.reporting.attention.maps import AttentionMap
from mtcli.reporting.attention.text import render_text
from mtcli.translation.alignment import compute_attention_maps
from mtcli.translation.engines import open_engine
from mtcli.translation.splitting import replace_line_breaks
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
    text = tokenizers.target.detokenize(attention_map.rows)
    assert attention_map.target == replace_line_breaks(text)
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
    assert "in decoder-only models, of the second-to-last layer" in help_text()


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
    with pytest.raises(EngineError, match="the model has no attention"):
        Translator(directory).attention("my dog")


KINDS = {
    "transformer": {"cross", "decoder", "encoder"},
    "relative, local": {"cross", "decoder", "encoder"},
    "decoder-only": {"decoder", "encoder"},
    "language model": {"decoder", "encoder"},
    "recurrent": {"cross"},
}


@pytest.mark.parametrize("reference", [None, "die Frau mag das Haus", ""])
@pytest.mark.parametrize("name", MODELS)
def test_attention_covers_all_pieces_layers_and_heads(
    name, reference, tmp_path, tiny_config, tokenizers
):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, MODELS[name])
    translator, text = Translator(directory), "my dog finds the tree"
    line = translator.attention(text, reference)
    [sentence] = line.parts
    target = translator.translate([text])[0] if reference is None else reference
    assert (line.source, line.target) == (sentence.source, sentence.target) == (text, target)
    assert sentence.stacks.keys() == KINDS[name]
    source = [*tokenizers.source.tokenize(text), "</s>"]
    rows = list(next(iter(sentence.stacks.values())).rows)
    if reference is not None:
        assert rows == [*tokenizers.target.tokenize(reference), "</s>"]
    columns = ["<s>", *rows][: len(rows)]
    pieces = {
        "cross": (rows, source),
        "decoder": (rows, columns if "cross" in sentence.stacks else source + columns),
        "encoder": (source, source),
    }
    n_heads = getattr(MODELS[name], "n_heads", 1)
    for kind, stack in sentence.stacks.items():
        assert (list(stack.rows), list(stack.columns)) == pieces[kind]
        sizes = len(stack.rows), len(stack.columns)
        assert stack.weights.shape == (stack.n_layers, n_heads, *sizes)
        np.testing.assert_allclose(stack.weights.sum(axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_default_map_is_the_map_of_the_alignment(engine, tmp_path, tiny_config, tokenizers):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers)
    quantization = "float32" if engine == "ctranslate2" else None
    options = EngineOptions(engine=engine, device="cpu", quantization=quantization)
    translator = Translator(directory, engine=options)
    [by_engine] = compute_attention_maps(open_engine(directory, options), "my dog finds")
    [sentence] = translator.attention("my dog finds").parts
    found = sentence.map()
    n_rows, n_columns = by_engine.weights.shape
    assert (found.target, found.title) == (
        by_engine.target,
        "cross-attention, layer 2, mean of all heads",
    )
    np.testing.assert_allclose(found.weights[:n_rows, :n_columns], by_engine.weights, atol=1e-5)


def test_a_map_is_one_head_or_a_mean(tmp_path, tiny_config, tokenizers):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers)
    [sentence] = Translator(directory).attention("my dog", "mein Hund").parts
    for kind, stack in sentence.stacks.items():
        for layer in range(2):
            mean = sentence.map(kind, layer)
            np.testing.assert_allclose(mean.weights, stack.weights[layer].mean(axis=0), rtol=1e-6)
            assert mean.title.endswith(f", layer {layer + 1}, mean of all heads")
            for head in range(2):
                one = sentence.map(kind, layer, head)
                assert np.array_equal(one.weights, stack.weights[layer, head])
                assert one.title.endswith(f", layer {layer + 1}, head {head + 1}")
    assert np.array_equal(sentence.map("encoder").weights, sentence.map("encoder", 1).weights)
    assert "<svg" in sentence._repr_html_()
    with pytest.raises(DataError, match="there is no layer 3: the model has 2 layers"):
        sentence.map(layer=2)
    with pytest.raises(DataError, match="there is no head 9: the model has 2 heads"):
        sentence.map(head=8)


def test_kinds_that_a_model_does_not_have_are_an_error(tmp_path, tiny_config, tokenizers):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, tiny_decoder_only())
    [sentence] = Translator(directory).attention("my dog", "mein Hund").parts
    assert sentence.map().title.startswith("decoder self-attention, layer 2")
    with pytest.raises(DataError, match="the model has no cross-attention"):
        sentence.map("cross")


def test_a_long_line_has_one_attention_map_per_part(copying_model):
    translator, text = Translator(copying_model), "water " * 40
    line = translator.attention(text)
    assert len(line.parts) > 1
    assert line.target == translator.translate([text])[0]
    assert " ".join(part.source for part in line.parts) == text.strip()
    assert line._repr_html_().count("<g transform") == len(line.parts)
    [whole] = translator.attention("water " * 10, "water " * 12).parts  # a reference is not split
    assert whole.target == "water " * 12
    with pytest.raises(DataError, match="but the model has 127"):
        translator.attention(text, "water " * 200)
    with pytest.raises(DataError, match="pieces, but an attention map can have only 1,000"):
        translator.attention(text, "water " * 2000)  # too many weights, for any model


def test_attention_of_an_ensemble_is_refused(copying_model):
    translator = Translator(copying_model, ensemble=[copying_model])
    with pytest.raises(EngineError, match="ensemble"):
        translator.attention("water")


def test_a_blank_line_has_no_attention(copying_model):
    for text in ("", " "):
        line = Translator(copying_model).attention(text)
        assert (line.source, line.target, line.parts) == (text, "", ())


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


@pytest.mark.parametrize("width", [24, 40, 80])
def test_a_wide_map_is_divided_into_blocks(width):
    n = 30
    pieces = [f"▁w{i}" for i in range(n)]
    attention_map = AttentionMap("s", "t", pieces, pieces, np.eye(n))
    rows = [*render_text(attention_map, width)]
    assert all(cell_len(row) <= width for row in rows)
    blocks = "\n".join(rows).split("\n\n")
    assert len(blocks) == -(-2 * n // ((width - 5) // 2 * 2)) + 1  # the last block is the legend
    assert sum(row.count("██") for row in rows if "≥" not in row) == n


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


def run_attention(model: Path, *arguments: object) -> Result:
    return CliRunner().invoke(app, ["attention", str(model), *map(str, arguments)])


def test_the_command_prints_the_selected_map(tiny_trained):
    arguments = ["my dog", "--reference", "mein Hund", "--kind", "decoder", "--layer", 1]
    result = run_attention(tiny_trained, *arguments, "--head", 2)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:3] == ["my dog", "mein Hund", "(decoder self-attention, layer 1, head 2)"]
    assert run_attention(tiny_trained, *arguments).stdout.splitlines()[2].endswith("all heads)")


def test_a_narrow_terminal_gets_a_narrow_map(tiny_trained, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    result = run_attention(tiny_trained, "my dog finds the tree the house", "--kind", "encoder")
    assert max(cell_len(line) for line in result.stdout.splitlines()[4:]) <= 30


@pytest.mark.parametrize("suffix", ["html", "svg", "png"])
def test_the_command_writes_pages_and_pictures(suffix, tiny_trained, tmp_path):
    if suffix == "png":
        pytest.importorskip("matplotlib", reason="matplotlib draws PNG pictures")
    path = tmp_path / f"map.{suffix}"
    result = run_attention(tiny_trained, "my dog", "water", "--output", path)
    assert (result.exit_code, result.stdout) == (0, "")
    content = path.read_bytes()
    start = {"html": b"<!DOCTYPE html>", "svg": b"<svg ", "png": b"\x89PNG"}[suffix]
    assert content.startswith(start)
    assert run_attention(tiny_trained, "water", "--output", path).exit_code == 0  # overwrites
    assert path.read_bytes() != content


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["my dog", "--output", "map.pdf"], 2, "must end in .html, .svg or .png"),
        (["my dog", "--output", "map.html", "--head", "1"], 2, "omit --kind, --layer and --head"),
        (["my dog", "--kind", "self"], 2, "must be one of cross, decoder, encoder"),
        (["my dog", "--layer", "0"], 2, "--layer"),
        (["my dog", "water", "--reference", "Wasser"], 2, "requires exactly one TEXT"),
        (["my dog", "--layer", "7"], 1, "there is no layer 7: the model has 2 layers"),
        (["my dog", "--head", "3"], 1, "there is no head 3: the model has 2 heads"),
        (["", "--output", "map.svg"], 1, "there is no text to translate"),
        (["my dog", "--output", "taken.html"], 1, "already exists and is not an mtcli report"),
        (["my dog", "--output", "taken.svg"], 1, "already exists and is not an mtcli report"),
        (["my dog", "--output", "taken.PNG"], 1, "already exists and is not an mtcli report"),
        (["my dog", "--output", "none/../taken.html/map.svg"], 1, "cannot write"),
    ],
)
def test_incorrect_usage_is_reported(arguments, code, message, tiny_trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    taken = [tmp_path / f"taken.{suffix}" for suffix in ("html", "svg", "PNG")]
    for path in taken:
        path.write_text("a file of the user")
    result = run_attention(tiny_trained, *arguments)
    assert result.exit_code == code
    assert message in " ".join(re.sub("[│╭╮╰╯─]", "", result.stderr).split())
    assert {path.read_text() for path in taken} == {"a file of the user"}


def test_a_missing_renderer_is_reported(tiny_trained, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run_attention(tiny_trained, "my dog", "--output", tmp_path / "map.png")
    assert result.exit_code == 1
    assert "PNG pictures require matplotlib" in result.stderr
    assert "pip install 'mtcli[png]'" in result.stderr
