"""Alignment heads: the choice at the end of training, the saved choice, and its export."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from conftest import tiny_decoder_only, tiny_model_config, tiny_rnn_config
from mtcli.config.alignment import AlignmentHeads
from mtcli.config.search import EngineOptions, SearchOptions
from mtcli.data.encoding import EncodedCorpus, RaggedArray
from mtcli.errors import CheckpointError
from mtcli.export.ct2_spec import model_spec
from mtcli.export.tensors import encoder_decoder_stacks, move_heads_first
from mtcli.model_dir.directory import WeightsInfo, weights_info
from mtcli.model_dir.integrity import load_arrays
from mtcli.model_dir.weights import load_model, load_weights, save_weights
from mtcli.models.base import State, TranslationModel
from mtcli.models.recording import AttentionWeights
from mtcli.tokenizer import load_tokenizers
from mtcli.training.alignment_heads import choose_alignment_heads
from mtcli.translation.alignment import align_words
from mtcli.translation.engines import open_engine
from mtcli.translation.engines.base import Source
from test_export import random_model

pytestmark = pytest.mark.cpu

EOS, FIRST = 3, 4


class DiagonalModel(TranslationModel[State]):
    """Fake model whose target position t attends to source position t + shift[layer][head].

    A shift of 0 is right for a corpus of copies. None means uniform attention.
    """

    def __init__(self, shifts):
        super().__init__()
        self.shifts = shifts
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def encode(self, source):
        raise NotImplementedError

    def decode(self, target, state):
        raise NotImplementedError

    def attention_weights(self, source, target):
        n = source.size(1)
        positions = torch.arange(target.size(1))

        def head(shift):
            if shift is None:
                return torch.full((target.size(1), n), 1 / n)
            return torch.nn.functional.one_hot((positions + shift) % n, n).float()

        layers = torch.stack([torch.stack([head(s) for s in heads]) for heads in self.shifts])
        return AttentionWeights(cross=layers.expand(len(source), *layers.shape))


def copies(n_rows: int, seed: int) -> EncodedCorpus:
    """Return pairs with equal source and target; lengths vary, and no token is repeated."""
    generator = np.random.default_rng(seed)
    rows = [
        [*generator.permutation(np.arange(FIRST, FIRST + 20))[: 3 + i % 7], EOS]
        for i in range(n_rows)
    ]
    side = RaggedArray(
        np.concatenate(rows).astype(np.uint16), np.cumsum([0, *map(len, rows)]).astype(np.int64)
    )
    return EncodedCorpus(side, side)


@pytest.mark.parametrize(
    ("shifts", "expected"),
    [
        ([[-1, 0], [-1, -2]], AlignmentHeads(0, (1,))),
        ([[-1, -2], [0, -2]], AlignmentHeads(1, (0,))),
        ([[-1] * 5, [-1, 0, -2, 0, -1]], AlignmentHeads(1, (0, 1, 3))),  # 4 heads would be worse
        ([[0, 0], [0, 0]], AlignmentHeads(1, (0, 1))),  # all heads of the last layer
        ([[0, 0], [0, -1]], AlignmentHeads(0, (0, 1))),  # two good heads instead of one
        ([[0, -1], [0, None]], AlignmentHeads(1, (0, 1))),  # uniform attention is harmless
    ],
)
def test_heads_that_agree_with_model_1_are_chosen(shifts, expected):
    choice = choose_alignment_heads(DiagonalModel(shifts), copies(300, 0), [copies(40, 1)])
    assert choice.heads == expected
    assert choice.n_agreeing > 0.9 * choice.n_links > 100
    assert f"layer {expected.layer + 1}" in choice.summary()


def shifted(corpus: EncodedCorpus) -> EncodedCorpus:
    """Return the pairs with the first target piece moved to the end."""
    rows = [[*row[1:-1], row[0], EOS] for row in map(corpus.target.__getitem__, range(len(corpus)))]
    values = np.concatenate(rows).astype(np.uint16)
    return EncodedCorpus(corpus.source, RaggedArray(values, corpus.target.offsets))


def test_all_dev_sets_choose_the_heads_with_equal_weight():
    model, train = DiagonalModel([[0], [1]]), copies(300, 0)
    same, other = copies(250, 1), shifted(copies(250, 2))
    alone = [choose_alignment_heads(model, train, [dev_set]) for dev_set in (same, other)]
    assert [choice.heads.layer for choice in alone] == [0, 1]
    both = choose_alignment_heads(model, train, [same, other])
    first = np.arange(100)
    first_halves = [
        choose_alignment_heads(
            model, train, [EncodedCorpus(dev.source.select(first), dev.target.select(first))]
        )
        for dev in (same, other)
    ]
    assert both.n_links == sum(choice.n_links for choice in first_halves)
    small = shifted(copies(5, 2))  # the other dev set fills the rest
    mixed = choose_alignment_heads(model, train, [small, same])
    assert mixed.heads.layer == 0
    assert mixed.n_links > both.n_links * 0.95
    assert choose_alignment_heads(model, train, [small, same]) == mixed


def test_the_choice_does_not_depend_on_the_random_state(tmp_path, tiny_config, tokenizers):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers)
    model, found = load_model(directory, torch.device("cpu")).model, []
    for seed in range(2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        found.append(choose_alignment_heads(model, copies(300, 0), [copies(250, 1)]))
    assert found[0] == found[1]


def test_there_is_no_choice_without_several_heads_or_links():
    train, dev = copies(300, 0), copies(40, 1)
    assert choose_alignment_heads(DiagonalModel([[0]]), train, [dev]) is None
    model = DiagonalModel([[0, 1]])
    model.attention_weights = lambda *_: None
    assert choose_alignment_heads(model, train, [dev]) is None
    unknown = EncodedCorpus(
        RaggedArray(dev.source.values + 100 * (dev.source.values > EOS), dev.source.offsets),
        dev.target,
    )
    assert choose_alignment_heads(DiagonalModel([[0, 1]]), train, [unknown]) is None


def test_training_saves_its_choice(tiny_trained):
    chosen = weights_info(tiny_trained).alignment
    assert chosen is not None
    assert load_model(tiny_trained, torch.device("cpu")).model.alignment_heads == chosen
    log = (tiny_trained / "log.jsonl").read_text(encoding="utf-8")
    assert f"alignment: layer {chosen.layer + 1}, heads " in log
    assert "agrees with IBM Model 1 on" in log


def with_choice(directory, layer, heads):
    """Save a choice of alignment heads in a model directory."""
    info = replace(weights_info(directory), alignment=AlignmentHeads(layer, tuple(heads)))
    save_weights(directory, load_weights(directory), info)
    return directory


SHAPES = {
    "pre-norm": tiny_model_config(n_heads=4),
    "deep norm": tiny_model_config(n_heads=4, norm="post", deep_norm=True),
    "two key-value heads": tiny_model_config(n_heads=4, n_kv_heads=2),
    "no biases, rotary": tiny_model_config(n_heads=4, biases=False, positions="rotary"),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("heads", [(1,), (0, 3), (1, 2, 3), (0, 1, 2, 3)])
def test_engines_give_the_same_alignment_with_chosen_heads(
    shape, heads, tmp_path, tiny_config, tokenizers
):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, SHAPES[shape])
    options = SearchOptions(beam_size=1, max_length=12, with_alignment=True)
    sources = [
        Source(tuple(tokenizers.source.tokenize(line))) for line in ("my dog finds", "the tree")
    ]
    before = attentions(directory, "torch", sources, options)
    with_choice(directory, 0, heads)
    by_torch = attentions(directory, "torch", sources, options)
    by_ct2 = attentions(directory, "ctranslate2", sources, options)
    assert [best.pieces for best in by_torch] == [best.pieces for best in by_ct2]
    assert [best.pieces for best in by_torch] == [best.pieces for best in before]
    for source, ours, theirs, default in zip(sources, by_torch, by_ct2, before, strict=True):
        weights, expected = torch.tensor(ours.attention), torch.tensor(theirs.attention)
        assert weights.numel()
        torch.testing.assert_close(weights, expected, atol=1e-5, rtol=0)
        assert not torch.allclose(weights, torch.tensor(default.attention), atol=1e-4)
        links = [align_words(source.pieces, t.pieces, t.attention) for t in (ours, theirs)]
        assert links[0] == links[1]


def attentions(directory, engine, sources, options):
    quantization = "float32" if engine == "ctranslate2" else None
    engine_options = EngineOptions(engine=engine, device="cpu", quantization=quantization)
    found = open_engine(directory, engine_options).engine.search(sources, options, 12)
    return [best for [best] in found]


def test_moving_heads_changes_their_order_only():
    config = tiny_model_config(n_heads=4)
    _, decoder = encoder_decoder_stacks(config)
    prefix = "decoder.1.cross_attention."
    names = [f"{prefix}{name}" for name in ("to_queries.weight", "to_keys.bias")]
    column = np.arange(16, dtype=np.float32)
    weights = {
        names[0]: np.tile(column[:, None], 16),
        names[1]: column,
        f"{prefix}to_output.weight": np.tile(column, (16, 1)),
        f"{prefix}to_output.bias": column,
        "decoder.0.cross_attention.to_keys.bias": column,
    }
    moved = move_heads_first(weights, decoder, AlignmentHeads(1, (1, 3)), config.d_head)
    order = [*range(4, 8), *range(12, 16), *range(4), *range(8, 12)]
    assert moved[names[1]].tolist() == order
    assert moved[names[0]][:, 0].tolist() == order
    assert moved[f"{prefix}to_output.weight"][0].tolist() == order
    for name in (f"{prefix}to_output.bias", "decoder.0.cross_attention.to_keys.bias"):
        assert moved[name].tolist() == column.tolist()


def test_a_model_without_a_choice_is_exported_with_its_default(tmp_path, tiny_config, tokenizers):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers)
    assert weights_info(directory).alignment is None
    config, vocabulary = tiny_model_config(), tokenizers.source.vocabulary
    weights = load_arrays(directory)
    spec = model_spec(config, weights, (vocabulary, vocabulary), n_positions=32)
    assert (spec.decoder.alignment_layer, spec.decoder.alignment_heads) == (1, 0)
    expected = weights["decoder.1.cross_attention.to_queries.weight"]
    assert np.array_equal(spec.decoder.layer[1].attention.linear[0].weight, expected)


def test_a_new_choice_replaces_the_export(tmp_path, tiny_config, tokenizers):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers)
    source = [Source(tuple(load_tokenizers(directory).source.tokenize("my dog")))]
    options = SearchOptions(beam_size=1, max_length=12, with_alignment=True)
    [before] = attentions(directory, "ctranslate2", source, options)
    with_choice(directory, 0, (1,))
    [after] = attentions(directory, "ctranslate2", source, options)
    assert before.pieces == after.pieces
    assert not np.allclose(before.attention, after.attention, atol=1e-4)


def test_a_decoder_only_model_uses_the_chosen_heads(tmp_path, tiny_config, tokenizers):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, tiny_decoder_only())
    ids, inputs = torch.tensor([[5, 6, 7, EOS]]), torch.tensor([[2, 8, 9]])
    model = load_model(with_choice(directory, 0, (1,)), torch.device("cpu")).model
    with torch.inference_mode():
        weights = model.attention_weights(ids, inputs)
        expected = weights.to_source[:, 0, 1]
        expected = expected / expected.sum(dim=-1, keepdim=True)
        torch.testing.assert_close(model.alignment(ids, inputs), expected)
    assert weights.alignment == AlignmentHeads(0, (1,))


@pytest.mark.parametrize(
    ("model", "layer", "heads"),
    [
        (tiny_model_config(), 2, (0,)),
        (tiny_model_config(), 0, (2,)),
        (tiny_rnn_config(), 0, (0,)),
    ],
)
def test_heads_that_the_model_does_not_have_are_an_error(
    model, layer, heads, tmp_path, tiny_config, tokenizers
):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, model)
    with_choice(directory, layer, heads)
    with pytest.raises(CheckpointError, match="does not have the alignment heads"):
        open_engine(directory, EngineOptions(device="cpu"))


@pytest.mark.parametrize(
    "value",
    [{"layer": 0}, {"layer": 0, "heads": []}, {"layer": 0, "heads": ["1"]}, [0, [1]],
     {"layer": -1, "heads": [0]}, {"layer": 0, "heads": [1, 1]}, {"layer": 0, "heads": [-1]},
     {"layer": "0", "heads": [0]}, {"layer": 0, "heads": [0], "more": 1}, 7],
)  # fmt: skip
def test_an_invalid_choice_is_an_error(value, tmp_path, tiny_config, tokenizers, monkeypatch):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers)
    metadata = WeightsInfo.to_metadata
    monkeypatch.setattr(
        WeightsInfo, "to_metadata", lambda info: {**metadata(info), "alignment": value}
    )
    save_weights(directory, load_weights(directory), weights_info(directory))
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        weights_info(directory)
