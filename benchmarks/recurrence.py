"""The recurrent decoder beside one without attention: tokens per CPU second of training.

    python benchmarks/recurrence.py train.en train.de [--rounds 7] [--batches 8]

Embedding, decoder, output and loss, forward and backward, without encoder and optimizer: ours,
with each score and with and without input feeding, beside a plain nn.LSTM of the same width and
as many layers, with the same output and loss, which looks at nothing. Width 256, 2 layers, 8,000
pieces tied, dropout 0.1 (the plain one: on embeddings and output only), about 4,096 tokens a batch.
All read the same batches, batch by batch in turns, in one thread; ratios are medians over the
rounds, of which the first, in which all warm up, is left out.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn

from mtcli.config import RnnConfig, TokenizerConfig
from mtcli.data import encode, read_corpus
from mtcli.feed import Batch, Feed
from mtcli.loss import summed_loss
from mtcli.models.layers import Dropout, ScaledEmbedding
from mtcli.models.rnn import Rnn, RnnState
from mtcli.tokenizer import PAD_ID, train_tokenizers
from mtcli.training.machine import cheap_steps

WIDTH, LAYERS, VOCABULARY, DROPOUT = 256, 2, 8000, 0.1
Vectors = Callable[[Batch, Tensor], Tensor]  # of a batch and its encoded source [B, S, D]


@dataclass(frozen=True)
class Contestant:
    """Something that makes vectors of a batch, and the matrix that makes logits of them."""

    vectors: Vectors
    weight: nn.Parameter
    module: nn.Module

    def seconds(self, batch: Batch, memory: Tensor) -> float:
        """CPU time of one forward and backward pass."""
        memory = memory.clone().requires_grad_()
        began = time.process_time()
        loss = summed_loss(self.vectors(batch, memory), self.weight, batch.labels, 0.1)
        loss.backward()
        self.module.zero_grad()
        return time.process_time() - began


class Plain(nn.Module):
    """The decoder that ours is measured against."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding = ScaledEmbedding(size, WIDTH)
        self.dropout = Dropout(DROPOUT)
        self.layers = nn.LSTM(WIDTH, WIDTH, LAYERS, batch_first=True)

    def forward(self, target: Tensor) -> Tensor:
        """The vectors [B, T, D] of ids [B, T]."""
        x, _ = self.layers(self.dropout(self.embedding(target)))
        return self.dropout(x)


def plain(size: int) -> Contestant:
    """No attention, nothing fed."""
    module = Plain(size)
    return Contestant(lambda batch, _: module(batch.target_in), module.embedding.weight, module)


def ours(size: int, cell: str, attention: str, *, is_fed: bool) -> Contestant:
    """The decoder of mtcli; what it makes of the encoded source for itself is measured, too."""
    shape = {"d_model": WIDTH, "n_decoder_layers": LAYERS, "dropout": DROPOUT, "cell": cell}
    config = RnnConfig(arch="rnn", attention=attention, input_feeding=is_fed, **shape)
    model = Rnn(config, size, size)

    def vectors(batch: Batch, memory: Tensor) -> Tensor:
        mask = (batch.source != PAD_ID)[:, None]
        seen = model.attention.seen(memory, mask) if model.attention else None
        nothing = memory.new_zeros(len(memory), WIDTH)
        states = ((nothing,) * model.decoder[0].n_states,) * LAYERS
        return model.read(batch.target_in, RnnState(seen, states, nothing))[0]

    return Contestant(vectors, model.output_weight, model)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    pairs = read_corpus(options.source, options.target, print)
    tokenizers = train_tokenizers(
        pairs.source, pairs.target, TokenizerConfig(vocab_size=VOCABULARY)
    )
    size = len(tokenizers.source)
    corpus = encode(pairs, tokenizers, 128, print)
    groups = islice(Feed(corpus, 4096, 1).groups(), options.batches)
    contestants = {"plain nn.LSTM": plain(size)}
    for cell, attention in [
        *(("lstm", score) for score in ("none", "dot", "scaled_dot", "bilinear", "additive")),
        ("gru", "bilinear"),
    ]:
        for is_fed in (False, True) if attention != "none" else (False,):
            name = f"{cell}, {attention}{', input feeding' if is_fed else ''}"
            contestants[name] = ours(size, cell, attention, is_fed=is_fed)
    report(contestants, [batch for group in groups for batch in group.batches], options.rounds)


def report(contestants: dict[str, Contestant], batches: list[Batch], n_rounds: int) -> None:
    """Take turns, and print medians over the rounds."""
    tokens = sum(int((batch.target_in != PAD_ID).sum()) for batch in batches)
    memories = [torch.randn(*batch.source.shape, WIDTH) for batch in batches]
    rounds = []
    for number in range(n_rounds + 1):
        seconds = dict.fromkeys(contestants, 0.0)
        for batch, memory in zip(batches, memories, strict=True):
            for name, contestant in contestants.items():
                seconds[name] += contestant.seconds(batch, memory)
        if number:
            rounds.append(seconds)
    print("| decoder | target tokens per CPU second | of the plain one's |")
    print("| --- | --- | --- |")
    for name in contestants:
        speed = statistics.median(tokens / row[name] for row in rounds)
        ratio = statistics.median(row["plain nn.LSTM"] / row[name] for row in rounds)
        print(f"| {name} | {speed:,.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    with cheap_steps():
        main()
