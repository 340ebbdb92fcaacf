"""Int8 matrix multiplication does not saturate on CPUs that sum products in 16 bits."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mtcli.config.search import EngineOptions, SearchOptions
from mtcli.export.quantization import quantize_rows
from mtcli.model_dir.directory import weights_info
from mtcli.model_dir.weights import load_model, save_weights
from mtcli.models.base import parameters_of
from mtcli.translation.engines import open_engine
from mtcli.translation.engines.base import Source
from test_export import random_model

FINITE = st.floats(-(2.0**99), 2.0**99, width=32)
MATRICES = arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=FINITE)


@given(MATRICES)
def test_sums_of_two_adjacent_products_fit_in_16_bits(weight):
    quantized = quantize_rows(weight)[0].astype(np.int64)
    for part in (np.maximum(quantized, 0), np.minimum(quantized, 0)):
        sums = 255 * (part[:, :-1] + part[:, 1:])
        assert (np.abs(sums) < 2**15).all()


@given(MATRICES)
def test_the_rounding_error_is_at_most_half_a_step(weight):
    quantized, scale = quantize_rows(weight)
    error = np.abs(quantized - weight.astype(np.float64) * scale[:, None])
    assert (error <= 0.5 + 1e-4).all()


def test_each_row_uses_at_least_half_of_the_int8_range():
    weight = np.random.default_rng(0).normal(size=(50, 256)).astype(np.float32)
    quantized, _ = quantize_rows(weight)
    assert (np.abs(quantized.astype(int)).max(axis=1) >= 64).all()


@pytest.fixture
def saturating_model(tmp_path, tiny_config, tokenizers):
    """Return a model whose output layer has the largest products that int8 allows."""
    directory = random_model(tmp_path / "m", tiny_config, tokenizers, tied_embeddings="none")
    loaded = load_model(directory, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        loaded.model.decoder_norm.weight.zero_()
        loaded.model.decoder_norm.bias.fill_(1.0)  # the bias becomes the input of the output layer
        rows = loaded.model.to_logits.weight
        rows.copy_(1 - 0.02 * torch.rand(rows.shape, generator=generator))
        rows[:-8] *= 0.1
        rows[-8:] *= torch.linspace(0.3, 1.0, 8)[
            :, None
        ]  # the eight best pieces, with distinct scores
    save_weights(directory, parameters_of(loaded.model), weights_info(directory))
    return directory


def test_int8_scores_are_close_to_float32_scores_for_the_largest_weights(saturating_model):
    options = SearchOptions(beam_size=8, n_best=8, max_length=1)
    scores = []
    for quantization in ("float32", "int8"):
        engine_options = EngineOptions(engine="ctranslate2", quantization=quantization)
        engine = open_engine(saturating_model, engine_options).engine
        [best] = engine.search([Source(("▁the",))], options, 1)
        scores.append({tuple(h.pieces): h.score for h in best})
    exact, rounded = scores
    assert list(rounded) == list(exact)
    assert list(rounded.values()) == pytest.approx(list(exact.values()), abs=0.2)
