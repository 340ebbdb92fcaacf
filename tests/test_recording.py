"""Recorded attention weights equal those of the forward pass, for all architectures."""

import pytest
import torch

from mtcli.config.transformers import DecoderOnlyConfig
from mtcli.models import build_model
from mtcli.models.attention import Attention
from mtcli.models.positions import DotProductAttention, RelativeAttention
from mtcli.models.recording import AttentionRecorder
from test_models import MODELS, PAD, V

pytestmark = pytest.mark.cpu

SOURCE = torch.tensor([[5, 6, 7, 8, 9, 4], [9, 10, 4, PAD, PAD, PAD]])
TARGET = torch.tensor([[2, 4, 5, 6, 7], [2, 8, 9, 3, PAD]])
IS_TOKEN = SOURCE != PAD
WITH_ATTENTION = [
    name for name, config in MODELS.items() if getattr(config, "attention", "") != "none"
]
TRANSFORMERS = [name for name in WITH_ATTENTION if MODELS[name].arch != "rnn"]


def random_model(name: str):
    torch.manual_seed(0)
    return build_model(MODELS[name], V, V).eval()


def is_decoder_only(name: str) -> bool:
    return isinstance(MODELS[name], DecoderOnlyConfig)


@torch.inference_mode()
def recorded(name: str):
    return random_model(name).attention_weights(SOURCE, TARGET)


def reproduced_output(attention, x, memory, mask, weights):
    """Return the output of an attention module, computed from its weights [B, H, T, S]."""
    _, _, values = attention._prepare_heads(x, memory, mask)
    context = weights @ values
    if isinstance(attention.relation, RelativeAttention):
        limit = attention.relation.max_distance
        vectors = attention.relation.of_values[mask.distances.clamp(-limit, limit) + limit]
        context = context + torch.einsum("bhts,tse->bhte", weights, vectors)
    return attention.to_output(context.transpose(1, 2).flatten(2))


def padded_left(weights, dims):
    """Move the padding of a batch of weights to the left, where decoder-only models have it."""
    rows = [
        torch.roll(row, [n_padding] * len(dims), dims=dims)
        for row, n_padding in zip(weights, (~IS_TOKEN).sum(dim=1).tolist(), strict=True)
    ]
    return torch.stack(rows)


@pytest.mark.parametrize("name", TRANSFORMERS)
@torch.inference_mode()
def test_recorded_weights_reproduce_the_output_of_every_attention_module(name):
    model, calls = random_model(name), []
    modules = [module for module in model.modules() if isinstance(module, Attention)]
    for module in modules:
        module.register_forward_hook(lambda *call: calls.append((call[0], *call[1][:3], call[2])))
    weights = model.attention_weights(SOURCE, TARGET)
    expected = []
    if is_decoder_only(name):
        n = SOURCE.size(1)
        to_source, to_target = weights.decoder.tensor_split([n], dim=-1)
        decoder = torch.cat([padded_left(to_source, [-1]), to_target], dim=-1)
        expected += zip(calls, padded_left(weights.encoder, [-1, -2]).unbind(dim=1), strict=False)
        expected += zip(calls[len(modules) :], decoder.unbind(dim=1), strict=True)
    else:
        n_encoder = weights.encoder.size(1)
        expected += zip(calls, weights.encoder.unbind(dim=1), strict=False)
        expected += zip(calls[n_encoder::2], weights.decoder.unbind(dim=1), strict=True)
        expected += zip(calls[n_encoder + 1 :: 2], weights.cross.unbind(dim=1), strict=True)
    assert len(expected) == len(calls) >= len(modules)
    is_token = padded_left(IS_TOKEN, [0]) if is_decoder_only(name) else IS_TOKEN
    for (module, x, memory, mask, output), layer in expected:
        found = reproduced_output(module, x, memory, mask, layer)
        is_source = output.size(1) == SOURCE.size(1)  # padding may attend to anything
        rows = is_token if is_source else torch.ones(output.shape[:2], dtype=torch.bool)
        torch.testing.assert_close(found[rows], output[rows])


@pytest.mark.parametrize("name", [name for name in WITH_ATTENTION if MODELS[name].arch == "rnn"])
@torch.inference_mode()
def test_recorded_weights_reproduce_the_attention_vectors_of_a_recurrent_model(name):
    model = random_model(name)
    state = model.encode(SOURCE)
    hidden, vectors, _ = model._decode_steps(TARGET, state)
    weights = model.attention_weights(SOURCE, TARGET).cross
    assert weights.shape == (2, 1, 1, 5, 6)
    context = weights[:, 0, 0] @ state.memory.values
    expected = (context + model.attention.to_output(hidden)).tanh()
    torch.testing.assert_close(vectors, expected)


@pytest.mark.parametrize("name", WITH_ATTENTION)
def test_weights_of_a_position_sum_to_one(name):
    for weights in recorded(name).by_kind().values():
        assert weights.ndim == 5
        assert (weights >= 0).all()
        total = weights.sum(dim=-1)
        torch.testing.assert_close(total, torch.ones_like(total))


@pytest.mark.parametrize("name", WITH_ATTENTION)
def test_masked_positions_have_exactly_zero_weight(name):
    config, weights = MODELS[name], recorded(name)
    n, m = SOURCE.size(1), TARGET.size(1)
    window = getattr(config, "window", None) or n + m
    source_rows, source_columns = IS_TOKEN[:, :, None], IS_TOKEN[:, None]
    distances = torch.arange(n)[:, None] - torch.arange(n)
    target_distances = torch.arange(m)[:, None] - torch.arange(m)
    causal = (target_distances >= 0) & (target_distances <= window)
    if weights.encoder is not None:
        allowed = source_columns & (distances.abs() <= window)
        if is_decoder_only(name) and config.source_attention == "causal":
            allowed = allowed & (distances >= 0)
        check_support(weights.encoder, allowed, source_rows.expand_as(allowed))
    if is_decoder_only(name):
        lengths = IS_TOKEN.sum(dim=1)
        from_source = lengths[:, None, None] + torch.arange(m)[:, None] - torch.arange(n)
        allowed = torch.cat(
            [source_columns & (from_source <= window), causal.expand(2, m, m)], dim=-1
        )
        check_support(weights.decoder, allowed)
    elif weights.decoder is not None:
        check_support(weights.decoder, causal.expand(2, m, m))
    if weights.cross is not None:
        check_support(weights.cross, source_columns.expand(2, m, n))


def check_support(weights, allowed, rows=None):
    """Check that weights [B, L, H, T, S] are positive exactly where attention is allowed."""
    is_checked = torch.ones_like(allowed) if rows is None else rows
    for layer in weights.unbind(dim=1):
        for head in layer.unbind(dim=1):
            assert torch.equal((head > 0)[is_checked], allowed[is_checked])


@pytest.mark.parametrize("name", WITH_ATTENTION)
@torch.inference_mode()
def test_padding_does_not_change_recorded_weights(name):
    model = random_model(name)
    both, alone = recorded(name), model.attention_weights(SOURCE[1:, :3], TARGET[1:])
    n = 3
    for kind, weights in alone.by_kind().items():
        batched = both.by_kind()[kind][1:]
        if kind == "decoder" and is_decoder_only(name):
            batched = torch.cat([batched[..., :n], batched[..., SOURCE.size(1) :]], dim=-1)
        rows, columns = weights.shape[-2:]
        torch.testing.assert_close(batched[..., :rows, :columns], weights)


@pytest.mark.parametrize("name", WITH_ATTENTION)
@torch.inference_mode()
def test_recording_changes_neither_the_logits_nor_the_model(name):
    model = random_model(name)
    before, modules = model(SOURCE, TARGET), [dict(vars(module)) for module in model.modules()]
    model.attention_weights(SOURCE, TARGET)
    assert torch.equal(model(SOURCE, TARGET), before)
    for module, attributes in zip(model.modules(), modules, strict=True):
        assert vars(module).keys() == attributes.keys()
        assert not module._forward_hooks
    if MODELS[name].arch != "rnn":
        recorder = AttentionRecorder(m for m in model.modules() if isinstance(m, Attention))
        hidden, _ = model.decode_hidden(TARGET, model.encode(SOURCE, recorder), recorder)
        assert torch.equal(hidden @ model.output_weight.T, before)


@pytest.mark.parametrize("name", ["pre-norm", "window", "decoder-only"])
def test_no_weights_are_computed_without_a_recorder(name, monkeypatch):
    def refuse(*_):
        raise AssertionError("weights were computed")

    monkeypatch.setattr(DotProductAttention, "weights", refuse)
    model = random_model(name)
    model(SOURCE, TARGET)
    with pytest.raises(AssertionError, match="weights were computed"):
        model.attention_weights(SOURCE, TARGET)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in WITH_ATTENTION])
def test_a_model_without_attention_has_no_weights(name):
    assert random_model(name).attention_weights(SOURCE, TARGET) is None
