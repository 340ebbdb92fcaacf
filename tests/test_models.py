"""Properties of all architectures and of the components of transformers."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's convention)
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import shipped_config, tiny_decoder_only, tiny_model_config, tiny_rnn_config
from mtcli import models
from mtcli.config.sections import ARCHITECTURES
from mtcli.config.transformers import DecoderOnlyConfig, TransformerConfig
from mtcli.models import build_model
from mtcli.models.attention import Attention
from mtcli.models.masks import AttentionMask
from mtcli.models.positions import AlibiAttention, RelativeAttention, build_self_dot_product
from mtcli.tokenizer import DEFAULT_SPECIAL_IDS, IGNORE_INDEX, SpecialIds
from mtcli.training.loss import summed_loss

pytestmark = pytest.mark.cpu

PAD, V = DEFAULT_SPECIAL_IDS.pad, 12

# To run all tests on a new architecture or option, add one line here.
MODELS = {
    "pre-norm": tiny_model_config(),
    "post-norm": tiny_model_config(norm="post"),
    "learned positions": tiny_model_config(positions="learned", max_positions=16),
    "post-norm, learned": tiny_model_config(norm="post", positions="learned", max_positions=16),
    "tied target": tiny_model_config(tied_embeddings="target"),
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
    "one key-value head": tiny_model_config(n_kv_heads=1),
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
    "lstm, no attention": tiny_rnn_config(attention="none"),
    "lstm, dot": tiny_rnn_config(attention="dot"),
    "lstm, scaled dot": tiny_rnn_config(attention="scaled_dot", input_feeding=False),
    "lstm, bilinear": tiny_rnn_config(attention="bilinear"),
    "lstm, bilinear, no feeding": tiny_rnn_config(attention="bilinear", input_feeding=False),
    "lstm, additive": tiny_rnn_config(attention="additive"),
    "lstm, additive, no feeding": tiny_rnn_config(attention="additive", input_feeding=False),
    "lstm, one layer": tiny_rnn_config(n_encoder_layers=1, n_decoder_layers=1),
    "lstm, unequal depths": tiny_rnn_config(n_encoder_layers=1, n_decoder_layers=3),
    "lstm, tied target": tiny_rnn_config(tied_embeddings="target"),
    "lstm, not tied": tiny_rnn_config(tied_embeddings="none"),
    "gru, no attention": tiny_rnn_config(cell="gru", attention="none"),
    "gru, dot, no feeding": tiny_rnn_config(cell="gru", attention="dot", input_feeding=False),
    "gru, scaled dot": tiny_rnn_config(cell="gru", attention="scaled_dot"),
    "gru, bilinear": tiny_rnn_config(cell="gru", n_encoder_layers=3, n_decoder_layers=1),
    "gru, additive, not tied": tiny_rnn_config(
        cell="gru", attention="additive", tied_embeddings="none"
    ),
}


def positions_of(config) -> str:
    """Return the type of position encoding, or "recurrent" for an RNN."""
    return getattr(config, "positions", "recurrent")


@pytest.fixture(params=MODELS)
def config(request):
    return MODELS[request.param]


@pytest.fixture
def model(config):
    torch.manual_seed(0)
    return build_model(config, V, V).eval()


@pytest.fixture
def source():
    return torch.tensor([[5, 6, 7, 8], [9, 10, PAD, PAD]])


@pytest.fixture
def target():
    return torch.tensor([[2, 4, 5, 6, 7], [2, 8, 9, 3, PAD]])


def test_step_by_step_decoding_equals_teacher_forcing(model, source, target):
    state, steps = model.encode(source), []
    for position in range(target.size(1)):
        logits, state = model.decode(target[:, position : position + 1], state)
        steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), model(source, target))


@pytest.mark.parametrize("n_first", [1, 2, 4])
def test_decoding_in_two_parts_equals_decoding_at_once(model, source, target, n_first):
    first, state = model.decode(target[:, :n_first], model.encode(source))
    second, _ = model.decode(target[:, n_first:], state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), model(source, target))


def test_the_output_does_not_depend_on_future_tokens(model, source, target):
    changed = target.clone()
    changed[:, 3:] = 11
    before, after = model(source, target), model(source, changed)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


def test_padding_does_not_change_the_output_for_a_sentence(model, source, target):
    alone = model(source[1:, :2], target[1:])
    batched = model(source, target)[1:]
    torch.testing.assert_close(alone, batched)


@pytest.mark.parametrize("config", [tiny_model_config(), tiny_decoder_only(), tiny_rnn_config()])
def test_the_padding_id_comes_from_the_tokenizer(config, source, target):
    """A model with a different padding id ignores that id and reads id 0 as a token."""
    model = build_model(config, V, V, SpecialIds(pad=11)).eval()
    other = source.where(source != PAD, 11)
    torch.testing.assert_close(model(other, target)[1:], model(other[1:, :2], target[1:]))
    assert not torch.allclose(model(source, target)[1:], model(source[1:, :2], target[1:]))


def test_selecting_state_rows_selects_output_rows(model, source, target):
    _, state = model.decode(target[:, :2], model.encode(source))
    rows = torch.tensor([1, 0, 1])
    expected, _ = model.decode(target[:, 2:3], state)
    selected, _ = model.decode(target[rows, 2:3], state.select(rows))
    torch.testing.assert_close(selected, expected[rows])


def test_decoding_does_not_change_an_earlier_state(model, source, target):
    """Two continuations of one state are independent, even if their caches share memory."""
    _, state = model.decode(target[:, :1], model.encode(source))
    _, state = model.decode(target[:, 1:2], state)
    _, first = model.decode(target[:, 2:3], state)
    model.decode(target[:, 3:4].flip(0), state)  # a different continuation of `state`
    logits, _ = model.decode(target[:, 3:4], first)
    torch.testing.assert_close(logits, model(source, target[:, :4])[:, 3:])


def test_output_depends_on_every_source_token_and_its_position(config, model, source, target):
    before = model(source, target)[0]
    for position in range(source.size(1)):
        changed = source.clone()
        changed[0, position] = 11
        assert not torch.allclose(model(changed, target)[0], before)
    swapped = source[:, [1, 0, 2, 3]]
    ignores_order = positions_of(config) == "none"
    assert torch.allclose(model(swapped, target)[0], before, atol=1e-6) == ignores_order


def test_gradients_reach_every_parameter(model, source, target):
    model(source, target).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # Key biases shift all scores of a query equally, which does not change the softmax.
        if not name.endswith("to_keys.bias"):
            assert parameter.grad.abs().max() > 1e-9, name


def test_reordering_rows_of_a_sentence_equals_selecting_them(model, source, target):
    """`reorder` does not copy the source, which all rows of a sentence share."""
    twice = torch.tensor([0, 0, 1, 1])
    _, state = model.decode(target[:, :2].repeat(2, 1), model.encode(source).select(twice))
    rows = torch.tensor([1, 0, 3, 3])
    reordered, _ = model.decode(target[twice, 2:3], state.reorder(rows))
    selected, _ = model.decode(target[twice, 2:3], state.select(rows))
    torch.testing.assert_close(reordered, selected)


def test_dropout_is_active_only_in_training(source, target):
    config = tiny_model_config(dropout=0.5, attention_dropout=0.2, activation_dropout=0.2)
    model = build_model(config, V, V)
    assert not torch.equal(model.train()(source, target), model(source, target))
    assert torch.equal(model.eval()(source, target), model(source, target))


@pytest.mark.parametrize("kind", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_is_active_in_encoder_and_decoder(source, target, kind):
    model = build_model(tiny_model_config(**{"dropout": 0.0, kind: 0.5}), V, V).train()
    memories = [model.encode(source).memory[0].keys for _ in range(2)]
    assert not torch.equal(*memories)
    state = model.encode(source)
    assert not torch.equal(model.decode(target, state)[0], model.decode(target, state)[0])


def test_dropout_is_active_on_source_and_target_embeddings(source, target):
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
def test_activation_matches_its_name(name, values):
    feed_forward = build_model(tiny_model_config(activation=name), V, V).encoder[0].feed_forward
    found = feed_forward.activation(torch.tensor([-1.0, 0.0, 1.0]))
    torch.testing.assert_close(found, torch.tensor(values), atol=1e-4, rtol=0)


def test_tied_embeddings_share_one_matrix():
    sizes = {}
    for tied in ("all", "target", "none"):
        model = build_model(tiny_model_config(tied_embeddings=tied), V, V)
        sizes[tied] = sum(parameter.numel() for parameter in model.parameters())
    assert sizes["target"] - sizes["all"] == sizes["none"] - sizes["target"] == V * 16


def count_parameters(c: TransformerConfig, vocab_size: int) -> int:
    """Return the number of parameters of the paper's architecture (section 3)."""
    d, ff = c.d_model, c.d_feed_forward
    attention = 4 * (d * d + d)
    feed_forward = d * ff + ff + ff * d + d
    norm = 2 * d
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return vocab_size * d + c.n_encoder_layers * encoder + c.n_decoder_layers * decoder


@pytest.mark.parametrize(("name", "millions"), [("base", 63), ("big", 214)])
def test_shipped_configs_have_the_sizes_of_the_paper(name, millions):
    config = shipped_config(f"transformer-{name}").model
    with torch.device("meta"):
        model = build_model(config, 37_000, 37_000)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert n_parameters == count_parameters(config, 37_000)
    assert round(n_parameters / 1e6) == millions


def test_sinusoids_match_the_paper():
    model = build_model(tiny_model_config(), V, V)
    table = model.source_positions(torch.zeros(50, 16), torch.arange(50))
    for position, i in [(0, 0), (7, 0), (7, 3), (49, 7)]:
        angle = position / 10_000 ** (2 * i / 16)
        assert table[position, i] == pytest.approx(math.sin(angle), abs=1e-5)
        assert table[position, 8 + i] == pytest.approx(math.cos(angle), abs=1e-5)
    later = model.source_positions(torch.zeros(10, 16), torch.arange(40, 50))
    torch.testing.assert_close(later, table[40:])


def test_config_predicts_the_number_of_parameters(config):
    with torch.device("meta"):
        model = build_model(config, V, V + 3 * (config.tied_embeddings != "all"))
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    sizes = V, V + 3 * (config.tied_embeddings != "all")
    assert config.n_parameters(*sizes) == n_parameters


def test_alignment_rows_are_probabilities_and_exclude_padding(config, model, source, target):
    weights = model.alignment(source, target)
    if weights is None:
        assert config.attention == "none"
        return
    assert weights.shape == (2, 5, 4)
    assert (weights >= 0).all()
    total = weights.sum(dim=-1)
    if isinstance(config, DecoderOnlyConfig) and config.window:
        total = total[:, : config.window]  # later positions cannot attend to the source
    torch.testing.assert_close(total, torch.ones_like(total))
    assert (weights[1, :, 2:] == 0).all()
    alone = model.alignment(source[1:, :2], target[1:])
    torch.testing.assert_close(alone, weights[1:, :, :2])


def test_every_architecture_has_a_config_section():
    assert models.MODELS.keys() == ARCHITECTURES.keys()


def test_decoding_in_parts_gives_the_same_gradients(model, source, target):
    model.eval()
    found = []
    for parts in ([5], [2, 1, 2]):
        state, logits = model.encode(source), []
        for part in target.split(parts, dim=1):
            part_logits, state = model.decode(part, state)
            logits.append(part_logits)
        model.zero_grad()
        torch.cat(logits, dim=1).square().sum().backward()
        found.append({name: p.grad for name, p in model.named_parameters()})
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_approximates_float32(model, source, target, dtype):
    model.eval()
    exact = model(source, target)
    with torch.autocast("cpu", dtype):
        rough = model(source, target)
        rough.float().sum().backward()
    assert (rough.float() - exact).abs().max() < 0.1 * exact.abs().max()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize(
    ("config", "fullgraph"),
    [
        (tiny_model_config(), True),
        (tiny_decoder_only(), True),
        # Blockwise attention is not compiled.
        (tiny_model_config(window=1, positions="relative"), False),
    ],
    ids=["transformer", "decoder-only", "window"],
)
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # raised inside torch
def test_torch_compiles_transformers(config, fullgraph, source, target):
    model = build_model(config, V, V).eval()
    compiled = torch.compile(model.loss_terms, dynamic=True, fullgraph=fullgraph, backend="eager")
    for ids in (source, source[:, :3]):
        [(hidden, _)] = compiled(ids, target, target)
        torch.testing.assert_close(hidden, model.loss_terms(ids, target, target)[0][0])


def test_a_model_can_memorize_ten_sentences(model):
    """All models need fewer than 70 steps."""
    torch.manual_seed(0)
    source = torch.randint(4, V, (10, 5))
    target = torch.cat([torch.full((10, 1), 2), torch.randint(4, V, (10, 4))], dim=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300):
        loss_terms = model.loss_terms(source, target[:, :-1], target[:, 1:])
        losses = [summed_loss(x, model.output_weight, labels, 0.0) for x, labels in loss_terms]
        if losses[0] < 0.1 * target[:, 1:].numel():
            return
        optimizer.zero_grad()
        sum(losses).backward()
        optimizer.step()
    raise AssertionError(f"the loss is still {losses[0]:.2f}")


UNORDERED = [name for name, config in MODELS.items() if positions_of(config) == "none"]
RELATIVE = ["relative", "rotary", "alibi"]


@pytest.mark.parametrize("name", UNORDERED)
def test_without_positions_permuting_the_source_permutes_its_encoding(name):
    torch.manual_seed(0)
    model = build_model(MODELS[name], V, V).eval()
    source, order = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([3, 0, 4, 1, 2])
    for before, after in zip(
        encoding(model, source), encoding(model, source[:, order]), strict=True
    ):
        torch.testing.assert_close(after, before[:, :, order])


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", *RELATIVE])
def test_with_positions_permuting_the_source_changes_its_encoding(positions):
    torch.manual_seed(0)
    model = build_model(tiny_model_config(positions=positions), V, V).eval()
    source, order = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([3, 0, 4, 1, 2])
    [before, *_], [after, *_] = encoding(model, source), encoding(model, source[:, order])
    assert not torch.allclose(after, before[:, :, order], atol=1e-3)


@pytest.mark.parametrize("shift", [1, 7, 100])
@pytest.mark.parametrize("positions", RELATIVE)
def test_shifting_all_positions_does_not_change_relative_attention(positions, shift):
    torch.manual_seed(0)
    dot_product = build_self_dot_product(tiny_model_config(positions=positions))
    queries, keys, values = torch.randn(3, 2, 2, 5, 8).unbind()
    expected = attend_shifted(dot_product, queries, keys, values, shift=0)
    found = attend_shifted(dot_product, queries, keys, values, shift)
    torch.testing.assert_close(found, expected)


def attend_shifted(dot_product, queries, keys, values, shift):
    """Return the self-attention of positions that start at `shift`, after left padding."""
    n = queries.size(2)
    is_token = (torch.arange(shift + n) >= shift).expand(2, -1)
    mask = AttentionMask(n, shift + n, queries.device, is_token, start=shift, is_causal=True)
    keys = F.pad(dot_product.rotate(keys, shift), (0, 0, shift, 0))
    values = F.pad(values, (0, 0, shift, 0))
    return dot_product.attend(dot_product.rotate(queries, shift), keys, values, mask)


@pytest.mark.parametrize("positions", ["sinusoidal", *RELATIVE])
@pytest.mark.parametrize("build", [tiny_model_config, tiny_decoder_only])
@pytest.mark.parametrize("in_blocks", [False, True], ids=["default", "in blocks"])
def test_a_window_that_covers_everything_equals_full_attention(
    build, positions, in_blocks, source, target, monkeypatch
):
    """By default, sentences this short are not split into blocks, so one variant forces a split."""
    both = []
    for window in (None, 9):
        torch.manual_seed(0)
        both.append(build_model(build(positions=positions, window=window), V, V).eval())
    n_blockwise = 0

    def has_window(mask):
        nonlocal n_blockwise
        n_blockwise += mask.window is not None
        return mask.window is not None

    if in_blocks:
        monkeypatch.setattr(AttentionMask, "is_blockwise", property(has_window))
    torch.testing.assert_close(*(model(source, target) for model in both))
    assert bool(n_blockwise) == in_blocks


@settings(max_examples=60, deadline=None)
@given(
    positions=st.sampled_from(["none", *RELATIVE]),
    n_cached=st.integers(0, 9),
    n_new=st.integers(1, 13),
    window=st.integers(1, 5),
    is_causal=st.booleans(),
    has_padding=st.booleans(),
)
def test_blockwise_attention_equals_masked_attention(
    positions, n_cached, n_new, window, is_causal, has_padding
):
    n_cached = n_cached if is_causal else 0  # an encoder has no cache
    n = n_cached + n_new
    config = tiny_model_config(positions=positions, window=window, max_distance=3)
    attention = Attention(config, build_self_dot_product(config))
    lengths = torch.tensor([n, max(1, n - 3)])
    is_token = torch.arange(n) < lengths[:, None] if has_padding else None
    x = torch.randn(2, n, 16)
    mask = AttentionMask(n_new, n, x.device, is_token, n_cached, is_causal, window)
    memory = attention.key_values(x)
    found = attention(x[:, n_cached:], memory, mask)
    expected = attend_without_blocks(attention, x[:, n_cached:], memory, mask)
    rows = is_token[:, n_cached:] if has_padding else torch.ones(2, n_new, dtype=torch.bool)
    torch.testing.assert_close(found[rows], expected[rows])


def attend_without_blocks(attention, x, memory, mask):
    weights = attention.weights(x, memory, mask)  # [B, H, T, S]
    is_far = mask.distances.abs() > mask.window
    assert (weights[:, :, is_far] == 0).all()
    if mask.is_causal:
        assert (weights[:, :, mask.distances < 0] == 0).all()
    queries, keys, values = attention._prepare_heads(x, memory, mask)
    context = attention.relation.attend(queries, keys, values, mask)
    return attention.to_output(context.transpose(1, 2).flatten(2))


def encoding(model, source):
    """Return the attention values [B, H, S, E] of the source in each layer."""
    state = model.encode(source)
    if hasattr(state, "memory"):
        return [key_values.values for key_values in state.memory]
    return [cache.key_values.values for cache in state.cache]


def test_relative_attention_matches_the_equations_of_shaw_et_al():
    """The expected values follow equations 3 and 4 of the paper, one product at a time."""
    torch.manual_seed(0)
    dot_product = RelativeAttention(d_head=4, max_distance=2)
    queries, keys, values = torch.randn(3, 1, 1, 6, 4).unbind()
    mask = AttentionMask(6, 6, queries.device)
    found = dot_product.attend(queries, keys, values, mask)[0, 0]
    for i in range(6):
        indices = [min(2, max(-2, i - j)) + 2 for j in range(6)]
        scores = [
            queries[0, 0, i] @ (keys[0, 0, j] + dot_product.of_keys[indices[j]]) for j in range(6)
        ]
        weights = (torch.stack(scores) / 2).softmax(dim=0)
        shifted_values = values[0, 0] + dot_product.of_values[indices]
        torch.testing.assert_close(found[i], weights @ shifted_values)


def test_alibi_bias_decreases_with_distance_at_the_slopes_of_the_paper():
    dot_product = AlibiAttention(tiny_model_config(d_model=32, n_heads=8).slopes())
    mask = AttentionMask(4, 4, torch.device("cpu"), is_causal=True)
    bias = dot_product._bias(mask)
    slopes = [2.0**-i for i in range(1, 9)]
    for head, slope in enumerate(slopes):
        row = bias.reshape(8, 4, 4)[head, 3]
        torch.testing.assert_close(row, torch.tensor([-3.0, -2.0, -1.0, 0.0]) * slope)
    assert (bias.reshape(8, 4, 4)[:, 0, 1:] == -torch.inf).all()


def test_grouped_heads_share_keys_and_values():
    torch.manual_seed(0)
    config = tiny_model_config(n_heads=4, n_kv_heads=2)
    attention = Attention(config, build_self_dot_product(config))
    x = torch.randn(2, 5, 16)
    memory, mask = attention.key_values(x), AttentionMask(5, 5, x.device)
    assert memory.keys.shape == (2, 2, 5, 4)
    weights = attention.weights(x, memory, mask)
    queries, keys, _ = attention._prepare_heads(x, memory, mask)
    for head in range(4):
        scores = queries[:, head] @ memory.keys[:, head // 2].mT / 2
        torch.testing.assert_close(weights[:, head], scores.softmax(dim=-1))
    assert keys.shape == (2, 4, 5, 4)


def test_deep_norm_initializes_weights_with_the_gains_of_the_paper():
    torch.manual_seed(0)
    shape = {"d_model": 64, "d_feed_forward": 64, "norm": "post", "deep_norm": True}
    model = build_model(tiny_model_config(**shape, n_encoder_layers=3, n_decoder_layers=2), V, V)
    language_model = build_model(tiny_decoder_only(**shape), V, V)
    for layer, gain in (
        (model.encoder[0], 0.87 / (3**4 * 2) ** (1 / 16)),
        (model.decoder[1], (12 * 2) ** (-1 / 4)),
        (language_model.layers[0], (8 * 3) ** (-1 / 4)),
    ):
        linears = {name: m for name, m in layer.named_modules() if isinstance(m, torch.nn.Linear)}
        assert len(linears) >= 6
        for name, linear in linears.items():
            bound = (6 / (64 + 64)) ** 0.5 * (1.0 if name.endswith(("queries", "keys")) else gain)
            assert linear.weight.detach().abs().max().item() == pytest.approx(bound, rel=0.01)


def test_deep_norm_increases_the_gradients_of_the_first_layer():
    torch.manual_seed(0)
    ratios = {}
    for deep_norm in (False, True):
        config = tiny_model_config(norm="post", deep_norm=deep_norm, n_encoder_layers=60)
        model = build_model(config, V, V)
        source = torch.randint(4, V, (4, 9))
        loss = model(source, source).square().mean()
        loss.backward()
        first, last = model.encoder[0], model.encoder[-1]
        gradients = [layer.feed_forward.to_inner.weight.grad.norm() for layer in (first, last)]
        ratios[deep_norm] = float(gradients[0] / gradients[1])
    assert ratios[False] < ratios[True]


def test_deep_norm_scales_the_residual_as_in_the_paper():
    torch.manual_seed(0)
    config = tiny_model_config(norm="post", deep_norm=True, n_encoder_layers=3, n_decoder_layers=2)
    model = build_model(config, V, V).eval()
    language_model = build_model(tiny_decoder_only(norm="post", deep_norm=True), V, V).eval()
    for layer, expected in (
        (model.encoder[0], 0.81 * (3**4 * 2) ** (1 / 16)),
        (model.decoder[1], (3 * 2) ** (1 / 4)),
        (language_model.layers[2], (2 * 3) ** (1 / 4)),
    ):
        x, y = torch.randn(2, 1, 5, 16)
        found = layer.self_residual.add_output(x, y)
        torch.testing.assert_close(found, F.layer_norm(expected * x + y, (16,)))


def test_source_loss_predicts_each_piece_from_the_pieces_before_it():
    torch.manual_seed(0)
    config = tiny_decoder_only(source_attention="causal", loss_on="both")
    model = build_model(config, V, V).eval()
    source = torch.tensor([[5, 6, 7, 3], [8, 3, PAD, PAD]])
    target = torch.tensor([[2, 9], [2, 10]])
    (_, labels), (hidden, source_labels) = model.loss_terms(source, target, target)
    assert labels is target
    assert source_labels.tolist() == [[6, 7, 3], [IGNORE_INDEX, IGNORE_INDEX, 3]]
    for row, n_pieces, column in ((0, 1, 0), (0, 3, 2), (1, 1, 2)):
        alone = model.encode(source[row : row + 1, :n_pieces]).source_hidden
        torch.testing.assert_close(hidden[row, column], alone[0, -1])
