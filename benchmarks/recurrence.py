"""Compare the training speed of recurrent decoders with that of a plain nn.LSTM.

    python benchmarks/recurrence.py train.en train.de [--rounds 7] [--batches 8]

The script measures the embedding, decoder, output layer and loss, forward and backward, without an
encoder or an optimizer. It measures mtcli's decoders with every attention score, with and without
input feeding. The baseline is an nn.LSTM without attention, with the same width, layers, output
layer and loss. All decoders have width 256, 2 layers, 8,000 pieces with tied embeddings, dropout
0.1 (in the baseline, only on embeddings and output) and about 4,096 tokens per batch. They process
each batch in turn, in one thread. The results, in tokens per CPU second, are medians over all
rounds except the first, which is a warm-up.
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

from mtcli.config.corpora import CorpusSource
from mtcli.config.rnn import RnnConfig
from mtcli.config.tokenizer import TokenizerConfig
from mtcli.data.batches import Batch, BatchStream
from mtcli.data.corpus import read_corpus
from mtcli.data.encoding import encode
from mtcli.hardware import tuned_allocator
from mtcli.models.layers import Dropout, ScaledEmbedding
from mtcli.models.rnn import Rnn, RnnState
from mtcli.tokenizer import DEFAULT_SPECIAL_IDS, train_tokenizers
from mtcli.training.loss import summed_loss

WIDTH, LAYERS, VOCABULARY, DROPOUT = 256, 2, 8000, 0.1
Decode = Callable[[Batch, Tensor], Tensor]  # batch and encoded source [B, S, D] -> [B, T, D]


@dataclass(frozen=True)
class Decoder:
    """A function from a batch to hidden states, and the output matrix for their logits."""

    decode: Decode
    output_weight: nn.Parameter
    module: nn.Module

    def seconds(self, batch: Batch, encoded: Tensor) -> float:
        """Return the CPU time of one forward and backward pass."""
        encoded = encoded.clone().requires_grad_()
        start = time.process_time()
        hidden = self.decode(batch, encoded)
        loss = summed_loss(hidden, self.output_weight, batch.labels, 0.1)
        loss.backward()
        self.module.zero_grad()
        return time.process_time() - start


class PlainLstm(nn.Module):
    """Baseline: an LSTM decoder without attention or input feeding."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding = ScaledEmbedding(size, WIDTH)
        self.dropout = Dropout(DROPOUT)
        self.layers = nn.LSTM(WIDTH, WIDTH, LAYERS, batch_first=True)

    def forward(self, target: Tensor) -> Tensor:
        """Return the hidden states [B, T, D] for ids [B, T]."""
        x, _ = self.layers(self.dropout(self.embedding(target)))
        return self.dropout(x)


def build_baseline(size: int) -> Decoder:
    """Return the baseline for a vocabulary of `size` pieces."""
    module = PlainLstm(size)
    return Decoder(lambda batch, _: module(batch.target_in), module.embedding.weight, module)


def build_decoder(size: int, cell: str, attention: str, *, is_fed: bool) -> Decoder:
    """Return one of mtcli's decoders; projecting the encoded source is part of the measurement."""
    shape = {"d_model": WIDTH, "n_decoder_layers": LAYERS, "dropout": DROPOUT, "cell": cell}
    config = RnnConfig(arch="rnn", attention=attention, input_feeding=is_fed, **shape)
    model = Rnn(config, size, size)

    def decode(batch: Batch, encoded: Tensor) -> Tensor:
        mask = (batch.source != DEFAULT_SPECIAL_IDS.pad)[:, None]
        memory = model.attention.project(encoded, mask) if model.attention else None
        zeros = encoded.new_zeros(len(encoded), WIDTH)
        cells = ((zeros,) * model.decoder[0].n_states,) * LAYERS
        return model.decode_hidden(batch.target_in, RnnState(memory, cells, zeros))[0]

    return Decoder(decode, model.output_weight, model)


def main() -> None:
    """Print a table of the speed of each decoder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    pairs = read_corpus(CorpusSource.parse([options.source, options.target]), print)
    tokenizers = train_tokenizers(
        pairs.source, pairs.target, TokenizerConfig(vocab_size=VOCABULARY)
    )
    size = len(tokenizers.source)
    corpus = encode(pairs, tokenizers, 128, print)
    groups = islice(BatchStream(corpus, 4096, 1).groups(), options.batches)
    decoders = {"plain nn.LSTM": build_baseline(size)}
    for cell, attention in [
        *(("lstm", score) for score in ("none", "dot", "scaled_dot", "bilinear", "additive")),
        ("gru", "bilinear"),
    ]:
        for is_fed in (False, True) if attention != "none" else (False,):
            name = f"{cell}, {attention}{', input feeding' if is_fed else ''}"
            decoders[name] = build_decoder(size, cell, attention, is_fed=is_fed)
    report(decoders, [batch for group in groups for batch in group.batches], options.rounds)


def report(decoders: dict[str, Decoder], batches: list[Batch], n_rounds: int) -> None:
    """Measure all decoders in turn, and print the medians over the rounds."""
    n_tokens = sum(int((batch.target_in != DEFAULT_SPECIAL_IDS.pad).sum()) for batch in batches)
    encodings = [torch.randn(*batch.source.shape, WIDTH) for batch in batches]
    rounds = []
    for number in range(n_rounds + 1):
        seconds = dict.fromkeys(decoders, 0.0)
        for batch, encoded in zip(batches, encodings, strict=True):
            for name, decoder in decoders.items():
                seconds[name] += decoder.seconds(batch, encoded)
        if number:
            rounds.append(seconds)
    print("| decoder | target tokens per CPU second | ratio to nn.LSTM |")
    print("| --- | --- | --- |")
    for name in decoders:
        speed = statistics.median(n_tokens / row[name] for row in rounds)
        ratio = statistics.median(row["plain nn.LSTM"] / row[name] for row in rounds)
        print(f"| {name} | {speed:,.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    with tuned_allocator():
        main()
