"""Recurrent models: attention scores, input feeding, deferred gradients."""

from dataclasses import replace

import pytest
import torch

from conftest import tiny_rnn_config
from mtcli.models import build_model
from mtcli.models.rnn import LuongAttention
from mtcli.models.rnn_cells import DeferredMatrix
from mtcli.tokenizer import DEFAULT_SPECIAL_IDS

pytestmark = pytest.mark.cpu

V, D = 12, 16
SOURCE = torch.tensor([[5, 6, 7, 8], [9, 10, DEFAULT_SPECIAL_IDS.pad, DEFAULT_SPECIAL_IDS.pad]])
TARGET = torch.tensor([[2, 4, 5, 6, 7], [2, 8, 9, 3, DEFAULT_SPECIAL_IDS.pad]])
SCORES = ["dot", "scaled_dot", "bilinear", "additive"]


def score_by_hand(
    attention: LuongAttention, score: str, h: torch.Tensor, m: torch.Tensor
) -> torch.Tensor:
    """Return the attention score of decoder state `h` and encoder state `m`, both [D]."""
    match score:
        case "dot":
            return h @ m
        case "scaled_dot":
            return h @ m / D**0.5
        case "bilinear":
            return h @ attention.to_keys.weight @ m
        case _:
            additive = attention.additive
            query = additive.to_queries.weight @ h + additive.to_queries.bias
            return additive.to_score @ torch.tanh(query + attention.to_keys.weight @ m)


@pytest.mark.parametrize("score", SCORES)
def test_attention_computes_the_named_score(score):
    torch.manual_seed(0)
    attention = LuongAttention(D, score)
    hidden, encoded = torch.randn(2, 3, D), torch.randn(2, 4, D)
    mask = torch.tensor([[[True] * 4], [[True] * 2 + [False] * 2]])
    attend = attention.bind(attention.project(encoded, mask))
    weights, vectors = attend.weights(hidden), attend(hidden)
    matrix = torch.cat([attention.to_values.weight, attention.to_output.weight], dim=1)  # [D, 2D]
    for b, n in enumerate([4, 2]):
        for t in range(3):
            scores = [
                score_by_hand(attention, score, hidden[b, t], encoded[b, s]) for s in range(n)
            ]
            expected = torch.stack(scores).softmax(dim=0)
            torch.testing.assert_close(weights[b, t, :n], expected)
            assert weights[b, t, n:].eq(0).all()
            both = torch.cat([expected @ encoded[b, :n], hidden[b, t]])
            torch.testing.assert_close(vectors[b, t], torch.tanh(matrix @ both))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("attention", ["none", *SCORES])
def test_without_attention_only_the_last_encoder_state_matters(cell, attention):
    torch.manual_seed(0)
    model = build_model(tiny_rnn_config(cell=cell, attention=attention), V, V).eval()
    before = model(SOURCE, TARGET)

    def disturb(_module, _inputs, output):
        hidden, last = output
        return hidden._replace(data=hidden.data + torch.randn_like(hidden.data)), last

    model.encoder[-1].register_forward_hook(disturb)
    assert torch.equal(model(SOURCE, TARGET), before) == (attention == "none")
    assert (model.alignment(SOURCE, TARGET) is None) == (attention == "none")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("attention", SCORES)
def test_input_feeding_with_zero_weights_equals_no_input_feeding(cell, attention):
    """The step-by-step loop gives the same outputs and gradients as torch's layers."""
    torch.manual_seed(0)
    shape = {"cell": cell, "attention": attention, "n_decoder_layers": 3, "dropout": 0.0}
    fed = build_model(tiny_rnn_config(**shape), V, V)
    plain = build_model(tiny_rnn_config(**shape, input_feeding=False), V, V)
    torch.nn.init.zeros_(fed.to_gates.weight)
    plain.load_state_dict(fed.state_dict(), strict=False)
    torch.testing.assert_close(fed(SOURCE, TARGET), plain(SOURCE, TARGET))
    torch.testing.assert_close(fed.alignment(SOURCE, TARGET), plain.alignment(SOURCE, TARGET))
    gradients = {}
    for name, model in (("fed", fed), ("plain", plain)):
        torch.nn.functional.cross_entropy(
            model(SOURCE, TARGET).flatten(0, 1), TARGET.flatten()
        ).backward()
        gradients[name] = {key: value.grad for key, value in model.named_parameters()}
    assert gradients["fed"].pop("to_gates.weight").abs().max() > 0
    torch.testing.assert_close(gradients["fed"], gradients["plain"])


def test_output_depends_on_the_fed_attention_vector():
    torch.manual_seed(0)
    model = build_model(tiny_rnn_config(), V, V).eval()
    state = model.encode(SOURCE)
    other = replace(state, attention_vector=torch.ones_like(state.attention_vector))
    assert not torch.allclose(model.decode(TARGET, state)[0], model.decode(TARGET, other)[0])


@pytest.mark.parametrize("n", [(), (2,)], ids=["one matrix", "one matrix per sentence"])
def test_deferred_gradient_equals_the_sum_over_all_steps(n):
    torch.manual_seed(0)
    shapes = [(*n, 5, 5), (*n, 4, 5), (5,)]
    # Use float64: gradients are sums of hundreds of products, and float32 errors would add up.
    leaves = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    matrix, first, bias = leaves
    found = []
    for product in (DeferredMatrix(matrix), lambda x, addend: addend + x @ matrix.mT):
        x, total = first, 0.0
        for _ in range(3):
            x = product(product(x, bias), x).tanh()
            total = total + x.sum()
        found += [torch.autograd.grad(total, leaves, retain_graph=True) for _ in range(2)]
    for gradients in found[:-1]:
        torch.testing.assert_close(gradients, found[-1])


def test_frozen_matrices_get_no_gradient():
    model = build_model(tiny_rnn_config(), V, V)
    model.decoder.requires_grad_(False)
    model(SOURCE, TARGET).sum().backward()
    assert all(parameter.grad is None for parameter in model.decoder.parameters())
    assert model.to_gates.weight.grad is not None


@pytest.mark.parametrize("is_fed", [False, True])
def test_dropout_is_active_on_embeddings_between_layers_and_on_outputs(is_fed):
    config = tiny_rnn_config(dropout=0.5, input_feeding=is_fed, n_decoder_layers=2)
    model = build_model(config, V, V).train()
    calls = []
    model.dropout.register_forward_hook(lambda _module, _inputs, output: calls.append(output))
    state = model.encode(SOURCE)
    assert len(calls) == config.n_encoder_layers
    assert not torch.equal(model.encode(SOURCE).memory.keys, state.memory.keys)
    calls.clear()
    model.decode_hidden(TARGET, state)
    n_between = TARGET.size(1) if is_fed else 1
    assert len(calls) == 1 + n_between + 1


def test_lstm_starts_with_open_forget_gates_and_orthogonal_recurrent_weights():
    model = build_model(tiny_rnn_config(), V, V)
    for layer in [*model.encoder, *model.decoder]:
        width = layer.hidden_size
        bias = layer.bias_ih_l0 + layer.bias_hh_l0
        assert bias[width : 2 * width].eq(1).all()
        recurrent = layer.weight_hh_l0[:width]
        torch.testing.assert_close(recurrent @ recurrent.mT, torch.eye(width))


def test_half_precision_approximates_float32():
    model = build_model(tiny_rnn_config(dropout=0.0), V, V)
    exact = model(SOURCE, TARGET)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(SOURCE, TARGET)
    found.float().square().sum().backward()
    torch.testing.assert_close(found.float(), exact, atol=0.1, rtol=0.1)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
