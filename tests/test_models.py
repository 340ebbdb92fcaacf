import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (torch's own name for it)
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import shipped_config, tiny_decoder_only, tiny_model_config, tiny_rnn_config
from mtcli import models
from mtcli.config import ARCHITECTURES, DecoderOnlyConfig, TransformerConfig
from mtcli.feed import IGNORED
from mtcli.loss import summed_loss
from mtcli.models import build_model
from mtcli.models.attention import Attention
from mtcli.models.relations import Alibi, Relative, self_relation
from mtcli.models.view import View
from mtcli.tokenizer import PAD_ID

pytestmark = pytest.mark.cpu

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
    "lstm, no attention": tiny_rnn_config(attention="none"),
    "lstm, dot": tiny_rnn_config(attention="dot"),
    "lstm, scaled dot": tiny_rnn_config(attention="scaled_dot", input_feeding=False),
    "lstm, bilinear": tiny_rnn_config(attention="bilinear"),
    "lstm, bilinear, not fed": tiny_rnn_config(attention="bilinear", input_feeding=False),
    "lstm, additive": tiny_rnn_config(attention="additive"),
    "lstm, additive, not fed": tiny_rnn_config(attention="additive", input_feeding=False),
    "lstm, one layer": tiny_rnn_config(n_encoder_layers=1, n_decoder_layers=1),
    "lstm, unequal depths": tiny_rnn_config(n_encoder_layers=1, n_decoder_layers=3),
    "lstm, tied two ways": tiny_rnn_config(tied_embeddings="target"),
    "lstm, not tied": tiny_rnn_config(tied_embeddings="none"),
    "gru, no attention": tiny_rnn_config(cell="gru", attention="none"),
    "gru, dot, not fed": tiny_rnn_config(cell="gru", attention="dot", input_feeding=False),
    "gru, scaled dot": tiny_rnn_config(cell="gru", attention="scaled_dot"),
    "gru, bilinear": tiny_rnn_config(cell="gru", n_encoder_layers=3, n_decoder_layers=1),
    "gru, additive, not tied": tiny_rnn_config(
        cell="gru", attention="additive", tied_embeddings="none"
    ),
}


def positions_of(config) -> str:
    """How the model knows where pieces stand; a recurrent one reads one after the other."""
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


def test_every_word_of_the_source_and_its_place_matter(config, model, source, target):
    before = model(source, target)[0]
    for position in range(source.size(1)):
        changed = source.clone()
        changed[0, position] = 11
        assert not torch.allclose(model(changed, target)[0], before)
    swapped = source[:, [1, 0, 2, 3]]
    does_not_matter = positions_of(config) == "none"
    assert torch.allclose(model(swapped, target)[0], before, atol=1e-6) == does_not_matter


def test_gradients_reach_every_parameter(model, source, target):
    model(source, target).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # Keys' biases shift all scores of a query alike, which softmax does not see.
        if not name.endswith("to_keys.bias"):
            assert parameter.grad.abs().max() > 1e-9, name


def test_reordering_rows_of_a_sentence_is_selecting_them(model, source, target):
    """But the source, which is the same for all of them, stays where it is."""
    twice = torch.tensor([0, 0, 1, 1])
    _, state = model.decode(target[:, :2].repeat(2, 1), model.encode(source).select(twice))
    rows = torch.tensor([1, 0, 3, 3])
    reordered, _ = model.decode(target[twice, 2:3], state.reorder(rows))
    selected, _ = model.decode(target[twice, 2:3], state.select(rows))
    torch.testing.assert_close(reordered, selected)


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
        residual.dropout.share = 0.0
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


def test_the_number_of_parameters_is_known_before_there_is_a_model(config):
    with torch.device("meta"):
        model = build_model(config, V, V + 3 * (config.tied_embeddings != "all"))
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    sizes = V, V + 3 * (config.tied_embeddings != "all")
    assert config.n_parameters(*sizes) == n_parameters


def test_what_it_looks_at_are_rows_of_probabilities_and_never_padding(
    config, model, source, target
):
    weights = model.alignment(source, target)
    if weights is None:
        assert config.attention == "none"
        return
    assert weights.shape == (2, 5, 4)
    assert (weights >= 0).all()
    total = weights.sum(dim=-1)
    if isinstance(config, DecoderOnlyConfig) and config.window:
        total = total[:, : config.window]  # what is further away does not see the source
    torch.testing.assert_close(total, torch.ones_like(total))
    assert (weights[1, :, 2:] == 0).all()
    alone = model.alignment(source[1:, :2], target[1:])
    torch.testing.assert_close(alone, weights[1:, :, :2])


def test_every_architecture_has_a_section_of_its_own():
    assert models.ARCHITECTURES.keys() == ARCHITECTURES.keys()


def test_gradients_are_the_same_in_parts_as_at_once(model, source, target):
    model.eval()
    found = []
    for parts in ([5], [2, 1, 2]):
        state, logits = model.encode(source), []
        for part in target.split(parts, dim=1):
            said, state = model.decode(part, state)
            logits.append(said)
        model.zero_grad()
        torch.cat(logits, dim=1).square().sum().backward()
        found.append({name: p.grad for name, p in model.named_parameters()})
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_nearly_the_same(model, source, target, dtype):
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
    ("config", "is_whole"),
    [
        (tiny_model_config(), True),
        pytest.param(tiny_decoder_only(), True, marks=pytest.mark.long),
        # Attention in blocks is not compiled.
        pytest.param(
            tiny_model_config(window=1, positions="relative"), False, marks=pytest.mark.long
        ),
    ],
    ids=["transformer", "decoder-only", "window"],
)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # by torch, of itself
def test_torch_can_compile_it(config, is_whole, source, target):
    model = build_model(config, V, V).eval()
    compiled = torch.compile(model.lessons, dynamic=True, fullgraph=is_whole, backend="eager")
    for words in (source, source[:, :3]):
        [(vectors, _)] = compiled(words, target, target)
        torch.testing.assert_close(vectors, model.lessons(words, target, target)[0][0])


def test_a_model_can_memorize_ten_sentences(model):
    """All need fewer than 70 steps."""
    torch.manual_seed(0)
    source = torch.randint(4, V, (10, 5))
    target = torch.cat([torch.full((10, 1), 2), torch.randint(4, V, (10, 4))], dim=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300):
        lessons = model.lessons(source, target[:, :-1], target[:, 1:])
        losses = [summed_loss(x, model.output_weight, words, 0.0) for x, words in lessons]
        if losses[0] < 0.1 * target[:, 1:].numel():
            return
        optimizer.zero_grad()
        sum(losses).backward()
        optimizer.step()
    raise AssertionError(f"the loss is still {losses[0]:.2f}")


PLACELESS = [name for name, config in MODELS.items() if positions_of(config) == "none"]
RELATIVE = ["relative", "rotary", "alibi"]


@pytest.mark.parametrize("name", PLACELESS)
def test_without_positions_a_permuted_source_is_a_permuted_encoding(name):
    torch.manual_seed(0)
    model = build_model(MODELS[name], V, V).eval()
    source, order = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([3, 0, 4, 1, 2])
    for before, after in zip(
        encoding(model, source), encoding(model, source[:, order]), strict=True
    ):
        torch.testing.assert_close(after, before[:, :, order])


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", *RELATIVE])
def test_with_positions_it_is_not(positions):
    torch.manual_seed(0)
    model = build_model(tiny_model_config(positions=positions), V, V).eval()
    source, order = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([3, 0, 4, 1, 2])
    [before, *_], [after, *_] = encoding(model, source), encoding(model, source[:, order])
    assert not torch.allclose(after, before[:, :, order], atol=1e-3)


@pytest.mark.parametrize("shift", [1, 7, 100])
@pytest.mark.parametrize("positions", RELATIVE)
def test_relative_positions_do_not_change_when_everything_shifts(positions, shift):
    """Behind so much that may not be looked at, everything is as it would be without it."""
    torch.manual_seed(0)
    relation = self_relation(tiny_model_config(positions=positions))
    queries, keys, values = torch.randn(3, 2, 2, 5, 8).unbind()
    expected = mixed(relation, queries, keys, values, shift=0)
    torch.testing.assert_close(mixed(relation, queries, keys, values, shift), expected)


def mixed(relation, queries, keys, values, shift):
    """Self-attention of positions that begin at `shift`; before it there is padding."""
    n = queries.size(2)
    words = torch.arange(shift + n) >= shift
    view = View(n, shift + n, queries.device, words.expand(2, -1), start=shift, is_causal=True)
    keys = F.pad(relation.turned(keys, shift), (0, 0, shift, 0))
    values = F.pad(values, (0, 0, shift, 0))
    return relation.mix(relation.turned(queries, shift), keys, values, view)


@pytest.mark.parametrize("positions", ["sinusoidal", *RELATIVE])
@pytest.mark.parametrize("build", [tiny_model_config, tiny_decoder_only])
@pytest.mark.parametrize("is_cut", [False, True], ids=["as it is", "cut into blocks"])
def test_a_window_that_covers_everything_is_full_attention(
    build, positions, is_cut, source, target, monkeypatch
):
    """As it is, such a window leaves nothing to be done; here blocks are made all the same."""
    both = []
    for window in (None, 9):
        torch.manual_seed(0)
        both.append(build_model(build(positions=positions, window=window), V, V).eval())
    n_cut = 0

    def cut(view):
        nonlocal n_cut
        n_cut += view.window is not None
        return view.window is not None

    if is_cut:
        monkeypatch.setattr(View, "is_long", property(cut))
    torch.testing.assert_close(*(model(source, target) for model in both))
    assert bool(n_cut) == is_cut


@settings(max_examples=60, deadline=None)
@given(
    positions=st.sampled_from(["none", *RELATIVE]),
    n_known=st.integers(0, 9),
    n_new=st.integers(1, 13),
    window=st.integers(1, 5),
    is_causal=st.booleans(),
    has_padding=st.booleans(),
)
def test_attention_in_blocks_is_attention_with_a_mask(
    positions, n_known, n_new, window, is_causal, has_padding
):
    n_known = n_known if is_causal else 0  # an encoder reads everything at once
    n = n_known + n_new
    config = tiny_model_config(positions=positions, window=window, max_distance=3)
    attention = Attention(config, self_relation(config))
    lengths = torch.tensor([n, max(1, n - 3)])
    words = torch.arange(n) < lengths[:, None] if has_padding else None
    x = torch.randn(2, n, 16)
    view = View(n_new, n, x.device, words, n_known, is_causal, window)
    seen = attention.key_values(x)
    local = attention(x[:, n_known:], seen, view)
    expected = in_one_piece(attention, x[:, n_known:], seen, view)
    is_word = words[:, n_known:] if has_padding else torch.ones(2, n_new, dtype=torch.bool)
    torch.testing.assert_close(local[is_word], expected[is_word])


def in_one_piece(attention, x, seen, view):
    weights = attention.weights(x, seen, view)  # [B, H, T, S]
    is_far = view.distances.abs() > view.window
    assert (weights[:, :, is_far] == 0).all()
    if view.is_causal:
        assert (weights[:, :, view.distances < 0] == 0).all()
    queries, keys, values = attention._compared(x, seen, view)
    mixed = attention.relation.mix(queries, keys, values, view)
    return attention.to_output(mixed.transpose(1, 2).flatten(2))


def encoding(model, source):
    """What is kept of the source, per layer [B, H, S, E]."""
    state = model.encode(source)
    kept = state.memory if hasattr(state, "memory") else [past.seen for past in state.past]
    return [kv.values for kv in kept]


def test_relative_positions_are_those_of_shaw():
    """Each product by itself, as the paper writes it."""
    torch.manual_seed(0)
    relation = Relative(d_head=4, max_distance=2)
    queries, keys, values = torch.randn(3, 1, 1, 6, 4).unbind()
    view = View(6, 6, queries.device)
    found = relation.mix(queries, keys, values, view)[0, 0]
    for i in range(6):
        numbers = [min(2, max(-2, i - j)) + 2 for j in range(6)]
        scores = [
            queries[0, 0, i] @ (keys[0, 0, j] + relation.of_keys[numbers[j]]) for j in range(6)
        ]
        weights = (torch.stack(scores) / 2).softmax(dim=0)
        means = values[0, 0] + relation.of_values[numbers]
        torch.testing.assert_close(found[i], weights @ means)


def test_alibi_falls_with_the_distance_at_the_paces_of_the_paper():
    relation = Alibi(tiny_model_config(d_model=32, n_heads=8).slopes())
    view = View(4, 4, torch.device("cpu"), is_causal=True)
    bias = relation._bias(view)
    slopes = [2.0**-i for i in range(1, 9)]
    for head, slope in enumerate(slopes):
        row = bias.reshape(8, 4, 4)[head, 3]
        torch.testing.assert_close(row, torch.tensor([-3.0, -2.0, -1.0, 0.0]) * slope)
    assert (bias.reshape(8, 4, 4)[:, 0, 1:] == -torch.inf).all()


def test_grouped_heads_share_keys_and_values():
    torch.manual_seed(0)
    config = tiny_model_config(n_heads=4, n_kv_heads=2)
    attention = Attention(config, self_relation(config))
    x = torch.randn(2, 5, 16)
    seen = attention.key_values(x)
    assert seen.keys.shape == (2, 2, 5, 4)
    weights = attention.weights(x, seen, View(5, 5, x.device))
    queries, keys, _ = attention._compared(x, seen, View(5, 5, x.device))
    for head in range(4):
        scores = queries[:, head] @ seen.keys[:, head // 2].mT / 2
        torch.testing.assert_close(weights[:, head], scores.softmax(dim=-1))
    assert keys.shape == (2, 4, 5, 4)


def test_deep_norm_begins_with_maps_as_small_as_the_paper_says():
    torch.manual_seed(0)
    shape = {"d_model": 64, "d_feed_forward": 64, "norm": "post", "deep_norm": True}
    model = build_model(tiny_model_config(**shape, n_encoder_layers=3, n_decoder_layers=2), V, V)
    language_model = build_model(tiny_decoder_only(**shape), V, V)
    for layer, gain in (
        (model.encoder[0], 0.87 / (3**4 * 2) ** (1 / 16)),
        (model.decoder[1], (12 * 2) ** (-1 / 4)),
        (language_model.layers[0], (8 * 3) ** (-1 / 4)),
    ):
        maps = {name: m for name, m in layer.named_modules() if isinstance(m, torch.nn.Linear)}
        assert len(maps) >= 6
        for name, linear in maps.items():
            bound = (6 / (64 + 64)) ** 0.5 * (1.0 if name.endswith(("queries", "keys")) else gain)
            assert linear.weight.detach().abs().max().item() == pytest.approx(bound, rel=0.01)


def test_gradients_reach_the_bottom_of_a_deep_stack():
    """More of them than without DeepNorm."""
    torch.manual_seed(0)
    norms = {}
    for is_deep in (False, True):
        config = tiny_model_config(norm="post", deep_norm=is_deep, n_encoder_layers=60)
        model = build_model(config, V, V)
        source = torch.randint(4, V, (4, 9))
        loss = model(source, source).square().mean()
        loss.backward()
        first, last = model.encoder[0], model.encoder[-1]
        gradients = [layer.feed_forward.to_inner.weight.grad.norm() for layer in (first, last)]
        norms[is_deep] = float(gradients[0] / gradients[1])
    assert norms[False] < norms[True]


def test_deep_norm_weighs_the_sum_so_far_as_the_paper_says():
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
        after = layer.self_residual.after(x, y)
        torch.testing.assert_close(after, F.layer_norm(expected * x + y, (16,)))


def test_to_learn_the_source_is_to_guess_each_piece_from_those_before_it():
    torch.manual_seed(0)
    config = tiny_decoder_only(source_attention="causal", loss_on="both")
    model = build_model(config, V, V).eval()
    source = torch.tensor([[5, 6, 7, 3], [8, 3, PAD, PAD]])
    target = torch.tensor([[2, 9], [2, 10]])
    (_, labels), (vectors, pieces) = model.lessons(source, target, target)
    assert labels is target
    assert pieces.tolist() == [[6, 7, 3], [IGNORED, IGNORED, 3]]
    for row, n_read, column in ((0, 1, 0), (0, 3, 2), (1, 1, 2)):
        alone = model.encode(source[row : row + 1, :n_read]).source
        torch.testing.assert_close(vectors[row, column], alone[0, -1])
