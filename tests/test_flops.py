"""The planned FLOPs equal those that torch counts in a forward and a backward pass."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear
from torch.utils.flop_counter import FlopCounterMode

from mtcli.config.load import load_config
from mtcli.models import build_model
from mtcli.planning.estimate import Workload, step_flops
from test_models import MODELS

B, S, T, V = 3, 7, 9, 50
# Relative positions add small products; a window is computed in blocks; the last layer of a
# decoder-only model needs no gradients for the source.
TOLERANCES = {"relative": 0.06, "window": 0.06, "window, relative": 0.4, "decoder-only": 0.1}
NAMES = [name for name in MODELS if not name.startswith(("lstm", "gru"))]


def tolerance(name: str) -> float:
    return max((t for part, t in TOLERANCES.items() if part in name), default=1e-9)


def counted_flops(config) -> int:
    model = build_model(config, V, V)
    source, target = torch.randint(4, V, (B, S)), torch.randint(4, V, (B, T))
    # The math backend consists of products that torch can count.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        terms = model.loss_terms(source, target, target)
        sum(linear(hidden, model.output_weight).sum() for hidden, _ in terms).backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("name", NAMES)
def test_planned_flops_equal_counted_flops(name):
    settings = {"tokenizer.vocab_size": V, "data.batch_tokens": 10_000}
    config = load_config(None, [("data.train", ["a.en", "a.de"]), *settings.items()])
    config = config.model_copy(update={"model": MODELS[name]})
    planned = step_flops(config, Workload(S, T, n_pairs=B))
    assert planned == pytest.approx(counted_flops(MODELS[name]), rel=tolerance(name))
