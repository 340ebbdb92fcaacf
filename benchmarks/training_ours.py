"""mtcli worker for benchmarks/train.py and benchmarks/precision.py.

The arguments are a file of token ids and the settings as JSON. For each number on stdin, the worker
trains for that many steps.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from answering import answer

from mtcli.config.sections import TrainConfig
from mtcli.config.transformers import TransformerConfig
from mtcli.data.batches import BatchStream
from mtcli.data.encoding import EncodedCorpus, RaggedArray
from mtcli.data.prefetch import prefetch
from mtcli.hardware import tuned_allocator
from mtcli.models import build_model
from mtcli.training.loop import fit
from mtcli.training.optimizers import build_optimizers
from mtcli.training.step import LossModule, TrainStep

ANCHOR = {"d_model": 256, "n_heads": 4, "n_encoder_layers": 3, "n_decoder_layers": 3}


def main() -> None:
    """Train on the token ids in the file named by the first argument."""
    arrays = np.load(Path(sys.argv[1]))
    settings = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    corpus = EncodedCorpus(
        RaggedArray(arrays["source"], arrays["source_starts"]),
        RaggedArray(arrays["target"], arrays["target_starts"]),
    )
    size = int(arrays["vocab_size"])
    torch.set_num_threads(settings.get("threads", 1))
    torch.manual_seed(1)
    model_settings = settings.get("model", ANCHOR)
    defaults = {"d_feed_forward": 4 * model_settings["d_model"], "dropout": 0.1}
    config = TransformerConfig(**{**defaults, **model_settings})
    train_settings = {"optimizer": "adamw", "learning_rate": 5e-4, **settings.get("train", {})}
    options = TrainConfig(**{**train_settings, "steps": 100_000})
    model = build_model(config, size, size)
    train_step = TrainStep(LossModule(model, 0.1), build_optimizers(model, options), options)
    batch_tokens = settings.get("batch_tokens", 4096)
    train_step.start_workers()
    steps = fit(train_step, prefetch(BatchStream(corpus, batch_tokens, 1).groups()))

    def train(n_steps: int) -> tuple[int, int, float]:
        done = [next(steps) for _ in range(n_steps)]
        n_tokens = sum(step.n_tokens for step in done)
        return n_tokens, sum(step.n_positions for step in done), done[-1].loss

    answer(train)


if __name__ == "__main__":
    with tuned_allocator():
        main()
