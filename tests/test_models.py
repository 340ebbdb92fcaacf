import math

import pytest
import torch

from conftest import shipped_config, tiny_decoder_only, tiny_model_config
from mtcli.config import TransformerConfig
from mtcli.models import build_model
from mtcli.tokenizer import PAD_ID

PAD, V = PAD_ID, 12

# One line here tests a new architecture or option against all the laws below.
MODELS = {
    "pre-norm": tiny_model_config(),
    "post-norm": tiny_model_config(norm="post"),
    "learned positions": tiny_model_config(positions="learned", max_positions=16),
    "post-norm, learned": tiny_model_config(norm="post", positions="learned", max_positions=16),
    "tied two ways": tiny_model_config(tied_embeddings="target"),
    "not tied": tiny_model_config(tied_embeddings="none"),
    "gelu": tiny_model_config(activation="gelu"),
    "swish": tiny_model_config(activation="swish"),
    "unequal depths": tiny_model_config(n_encoder_layers=3, n_decoder_layers=1),
    "no positions": tiny_model_config(positions="none"),
    "relative positions": tiny_model_config(positions="relative", max_distance=2),
    "rotary positions": tiny_model_config(positions="rotary"),
    "alibi": tiny_model_config(positions="alibi"),
    "rms norm": tiny_model_config(norm_kind="rms"),
    "swiglu": tiny_model_config(activation="swish", gated=True),
    "gated relu": tiny_model_config(gated=True),
    "query-key norm": tiny_model_config(qk_norm=True),
    "one head of keys": tiny_model_config(n_kv_heads=1),
    "no biases": tiny_model_config(biases=False),
    "deep norm": tiny_model_config(norm="post", deep_norm=True),
    "window": tiny_model_config(window=1),
    "window, relative": tiny_model_config(window=1, positions="relative"),
    "window, rotary": tiny_model_config(window=1, positions="rotary"),
    "window, alibi": tiny_model_config(window=1, positions="alibi"),
    "modern": tiny_model_config(
        norm_kind="rms",
        activation="swish",
        gated=True,
        positions="rotary",
        qk_norm=True,
        n_kv_heads=1,
        biases=False,
    ),
    "decoder-only": tiny_decoder_only(),
    "decoder-only, causal": tiny_decoder_only(source_attention="causal"),
    "decoder-only, loss on both": tiny_decoder_only(source_attention="causal", loss_on="both"),
    "decoder-only, learned": tiny_decoder_only(positions="learned", max_positions=32),
    "decoder-only, relative": tiny_decoder_only(positions="relative", max_distance=2),
    "decoder-only, rotary": tiny_decoder_only(positions="rotary"),
    "decoder-only, alibi": tiny_decoder_only(positions="alibi"),
    "decoder-only, no positions": tiny_decoder_only(positions="none"),
    "decoder-only, window": tiny_decoder_only(window=3),
    "decoder-only, causal window": tiny_decoder_only(window=3, source_attention="causal"),
    "decoder-only, post-norm": tiny_decoder_only(norm="post", deep_norm=True),
    "decoder-only, not tied": tiny_decoder_only(tied_embeddings="none"),
}


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(0)
    return build_model(MODELS[request.param], V, V).eval()


@pytest.fixture
def source():
    return torch.tensor([[5, 6, 7, 8], [9, 10, PAD, PAD]])


@pytest.fixture
def target():
    return torch.tensor([[2, 4, 5, 6, 7], [2, 8, 9, 3, PAD]])


def test_decoding_step_by_step_equals_teacher_forcing(model, source, target):
    state, steps = model.encode(source), []
    for position in range(target.size(1)):
        logits, state = model.decode(target[:, position : position + 1], state)
        steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), model(source, target))


@pytest.mark.parametrize("cut", [1, 2, 4])
def test_decoding_in_two_parts_equals_decoding_at_once(model, source, target, cut):
    first, state = model.decode(target[:, :cut], model.encode(source))
    second, _ = model.decode(target[:, cut:], state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), model(source, target))


def test_the_future_does_not_leak(model, source, target):
    changed = target.clone()
    changed[:, 3:] = 11
    before, after = model(source, target), model(source, changed)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


def test_padding_does_not_change_a_sentence(model, source, target):
    alone = model(source[1:, :2], target[1:])
    batched = model(source, target)[1:]
    torch.testing.assert_close(alone, batched)


def test_selecting_rows_of_the_state_selects_rows_of_the_future(model, source, target):
    _, state = model.decode(target[:, :2], model.encode(source))
    rows = torch.tensor([1, 0, 1])
    direct, _ = model.decode(target[:, 2:3], state)
    selected, _ = model.decode(target[rows, 2:3], state.select(rows))
    torch.testing.assert_close(selected, direct[rows])


def test_a_state_is_a_value_that_what_comes_after_it_does_not_change(model, source, target):
    """Two futures of the same past know nothing of each other, though they may share memory."""
    _, state = model.decode(target[:, :1], model.encode(source))
    _, state = model.decode(target[:, 1:2], state)
    _, first = model.decode(target[:, 2:3], state)
    model.decode(target[:, 3:4].flip(0), state)  # another future of the same past
    logits, _ = model.decode(target[:, 3:4], first)
    torch.testing.assert_close(logits, model(source, target[:, :4])[:, 3:])


def test_every_word_of_the_source_and_its_place_matter(model, source, target):
    before = model(source, target)[0]
    for position in range(source.size(1)):
        changed = source.clone()
        changed[0, position] = 11
        assert not torch.allclose(model(changed, target)[0], before)
    swapped = source[:, [1, 0, 2, 3]]
    does_not_matter = getattr(model.config, "positions", "") == "none"
    assert torch.allclose(model(swapped, target)[0], before, atol=1e-6) == does_not_matter


def test_gradients_reach_every_parameter(model, source, target):
    model(source, target).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # Keys' biases shift all scores of a query alike, which softmax does not see.
        if not name.endswith("to_keys.bias"):
            assert parameter.grad.abs().max() > 1e-9, name


def test_dropout_acts_in_training_only(source, target):
    config = tiny_model_config(dropout=0.5, attention_dropout=0.2, activation_dropout=0.2)
    model = build_model(config, V, V)
    assert not torch.equal(model.train()(source, target), model(source, target))
    assert torch.equal(model.eval()(source, target), model(source, target))


@pytest.mark.parametrize("place", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_acts_in_the_encoder_and_in_the_decoder(source, target, place):
    model = build_model(tiny_model_config(**{"dropout": 0.0, place: 0.5}), V, V).train()
    memories = [model.encode(source).memory[0].keys for _ in range(2)]
    assert not torch.equal(*memories)
    state = model.encode(source)
    assert not torch.equal(model.decode(target, state)[0], model.decode(target, state)[0])


def test_the_embeddings_of_source_and_target_are_dropped_out_too(source, target):
    model = build_model(tiny_model_config(dropout=0.5), V, V).train()
    for residual in (module for module in model.modules() if hasattr(module, "is_pre_norm")):
        residual.dropout.p = 0.0
    assert not torch.equal(model.encode(source).memory[0].keys, model.encode(source).memory[0].keys)
    state = model.encode(source)
    assert not torch.equal(model.decode(target, state)[0], model.decode(target, state)[0])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("relu", [0.0, 0.0, 1.0]),
        ("gelu", [-0.1587, 0.0, 0.8413]),
        ("swish", [-0.2689, 0.0, 0.7311]),
    ],
)
def test_activations_are_what_they_are_called(name, values):
    activation = build_model(tiny_model_config(activation=name), V, V).encoder[0].feed_forward
    found = activation.activation(torch.tensor([-1.0, 0.0, 1.0]))
    torch.testing.assert_close(found, torch.tensor(values), atol=1e-4, rtol=0)


def test_tied_embeddings_are_one_matrix():
    sizes = {}
    for tied in ("all", "target", "none"):
        model = build_model(tiny_model_config(tied_embeddings=tied), V, V)
        sizes[tied] = sum(parameter.numel() for parameter in model.parameters())
    assert sizes["target"] - sizes["all"] == sizes["none"] - sizes["target"] == V * 16


def closed_formula(c: TransformerConfig, vocab_size: int) -> int:
    """Parameters of the paper's architecture (section 3), counted by hand."""
    d, ff = c.d_model, c.d_feed_forward
    attention = 4 * (d * d + d)
    feed_forward = d * ff + ff + ff * d + d
    norm = 2 * d
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return vocab_size * d + c.n_encoder_layers * encoder + c.n_decoder_layers * decoder


@pytest.mark.parametrize(("name", "millions"), [("base", 63), ("big", 214)])
def test_the_sizes_of_the_paper(name, millions):
    config = shipped_config(f"transformer-{name}").model
    with torch.device("meta"):
        model = build_model(config, 37_000, 37_000)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert n_parameters == closed_formula(config, 37_000)
    assert round(n_parameters / 1e6) == millions


def test_sinusoids_are_those_of_the_paper():
    model = build_model(tiny_model_config(), V, V)
    table = model.source_positions(torch.zeros(50, 16), torch.arange(50))
    for place, i in [(0, 0), (7, 0), (7, 3), (49, 7)]:
        angle = place / 10_000 ** (2 * i / 16)
        assert table[place, i] == pytest.approx(math.sin(angle), abs=1e-5)
        assert table[place, 8 + i] == pytest.approx(math.cos(angle), abs=1e-5)
    later = model.source_positions(torch.zeros(10, 16), torch.arange(40, 50))
    torch.testing.assert_close(later, table[40:])
