"""The training step of mtcli, for benchmarks/train.py: each line of stdin asks for some steps."""

import sys
from pathlib import Path

import numpy as np
import torch
from answering import answer

from mtcli.config import TrainConfig, TransformerConfig
from mtcli.data import EncodedCorpus
from mtcli.data.corpus import Ragged
from mtcli.feed import Feed, prepared_ahead
from mtcli.models import build_model
from mtcli.optim import build_optimizers
from mtcli.training.learner import Learner, Objective
from mtcli.training.loop import fit
from mtcli.training.machine import cheap_steps


def main() -> None:
    """Train with the ids of the file that is named, and tell what it took."""
    arrays = np.load(Path(sys.argv[1]))
    corpus = EncodedCorpus(
        Ragged(arrays["source"], arrays["source_starts"]),
        Ragged(arrays["target"], arrays["target_starts"]),
    )
    size = int(arrays["vocab_size"])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    shape = TransformerConfig(
        d_model=256,
        n_heads=4,
        n_encoder_layers=3,
        n_decoder_layers=3,
        d_feed_forward=1024,
        dropout=0.1,
    )
    options = TrainConfig(optimizer="adamw", learning_rate=5e-4, steps=100_000)
    model = build_model(shape, size, size)
    learner = Learner(Objective(model, 0.1), build_optimizers(model, options), options)
    steps = fit(learner, prepared_ahead(Feed(corpus, 4096, 1).groups()))

    def train(n_steps: int) -> tuple[int, int, float]:
        made = [next(steps) for _ in range(n_steps)]
        n_tokens = sum(step.n_tokens for step in made)
        return n_tokens, sum(step.n_positions for step in made), made[-1].loss

    answer(train)


if __name__ == "__main__":
    with cheap_steps():
        main()
