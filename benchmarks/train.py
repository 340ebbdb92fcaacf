"""Compare the training steps of mtcli and Hugging Face: speed, FLOP utilization, memory use.

    python benchmarks/train.py train.en train.de --hugging-face PYTHON [--rounds 7] [--core 1]

Each program uses one thread on one core and trains the same model on the same sentences: 3+3
layers, width 256, feed-forward 1024, 4 heads, 8,000 pieces with tied embeddings, dropout and label
smoothing 0.1, Adam, float32, about 4,096 tokens per batch. The programs run in turn. A matrix
multiplication before and after them measures the current peak speed of the core. Ratios are medians
over the rounds. PYTHON is an interpreter with transformers installed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from mtcli.config.corpora import CorpusSource
from mtcli.config.tokenizer import TokenizerConfig
from mtcli.data.corpus import read_corpus
from mtcli.data.encoding import EncodedCorpus, encode
from mtcli.tokenizer import train_tokenizers

HERE = Path(__file__).parent
N_STEPS = 8  # steps of each program per round
PEAK = """
import sys, time, torch
torch.set_num_threads(1)
a, b = torch.randn(2, 2048, 2048)
for line in sys.stdin:
    best = 0.0
    for _ in range(8):
        start = time.process_time()
        a @ b
        best = max(best, 2 * 2048**3 / (time.process_time() - start))
    print(best, flush=True)
"""


class Worker:
    """A program that answers each line of its input with one line of output."""

    def __init__(self, command: list[str], cores: str) -> None:
        self.process = subprocess.Popen(
            ["taskset", "-c", cores, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, text: str) -> str:
        """Send a line and return the answer."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def train(self, n_steps: int = N_STEPS) -> dict[str, float]:
        """Train for `n_steps`; return time, tokens, positions and memory use."""
        measured: dict[str, float] = json.loads(self.ask(str(n_steps)))
        return measured


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--hugging-face", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--core", default="1")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ids = Path(folder) / "ids.npz"
        corpus = write_ids(options.source, options.target, ids)
        workers = {
            "mtcli": Worker(
                [sys.executable, str(HERE / "training_ours.py"), str(ids)], options.core
            )
        }
        if options.hugging_face:
            script = str(HERE / "training_hugging_face.py")
            for kind in ("random", "grouped"):
                command = [options.hugging_face, script, str(ids), kind]
                workers[f"Hugging Face, {kind}"] = Worker(command, options.core)
        probe = Worker([sys.executable, "-c", PEAK], options.core)
        print_table(run_rounds(workers, probe, options.rounds), flops_per_token(corpus))


def write_ids(source: Path, target: Path, path: Path, vocab_size: int = 8000) -> EncodedCorpus:
    """Train a vocabulary and write the ids of all pairs."""
    pairs = read_corpus(CorpusSource.parse([source, target]), print)
    tokenizers = train_tokenizers(
        pairs.source, pairs.target, TokenizerConfig(vocab_size=vocab_size)
    )
    corpus = encode(pairs, tokenizers, 128, print)
    np.savez(
        path,
        source=corpus.source.values,
        source_starts=corpus.source.offsets,
        target=corpus.target.values,
        target_starts=corpus.target.offsets,
        vocab_size=len(tokenizers.source),
    )
    return corpus


def flops_per_token(
    corpus: EncodedCorpus,
    d_model: int = 256,
    n_layers: tuple[int, int] = (3, 3),
    vocab_size: int = 8000,
) -> float:
    """Return the mean number of floating-point operations per token, without padding.

    Each token needs two operations per weight, plus attention. The backward pass costs twice as
    much as the forward pass.
    """
    n_encoder, n_decoder = n_layers
    source, target = corpus.source.lengths(), corpus.target.lengths()
    projections, feed_forward = 4 * d_model**2, 8 * d_model**2
    cross_projections = 2 * d_model**2  # source: keys and values; target: queries and outputs
    per_source = n_encoder * (projections + feed_forward) + n_decoder * cross_projections
    per_target = n_decoder * (projections + cross_projections + feed_forward) + d_model * vocab_size
    n_scores = n_encoder * source**2 + n_decoder * (source * target + target * (target + 1) / 2)
    attention = 2 * d_model * n_scores
    total = 3 * 2 * (per_source * source.sum() + per_target * target.sum() + attention.sum())
    return float(total / (source.sum() + target.sum()))


def run_rounds(
    workers: dict[str, Worker], probe: Worker, n_rounds: int
) -> list[dict[str, dict[str, float]]]:
    """Return the measurements from each round, without the warm-up round."""
    rounds = []
    for number in range(n_rounds + 1):
        row = {"peak": {"flops": float(probe.ask("go"))}}
        row |= {name: worker.train() for name, worker in workers.items()}
        row["peak"]["flops"] = max(row["peak"]["flops"], float(probe.ask("go")))
        if number:
            rounds.append(row)
            speeds = {name: f"{speed(row, name):,.0f}" for name in workers}
            print(number, speeds, f"peak {row['peak']['flops'] / 1e9:.1f} GFLOP/s", flush=True)
    return rounds


def speed(row: dict[str, dict[str, float]], name: str) -> float:
    """Return the tokens per CPU second, without padding."""
    return row[name]["tokens"] / row[name]["seconds"]


def print_table(rounds: list[dict[str, dict[str, float]]], flops: float) -> None:
    """Print a table of medians over the rounds; the speedup is that of mtcli over the program."""
    print("| program | tokens per CPU second | speedup | padding | share of peak | peak memory |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in (name for name in rounds[0] if name != "peak"):
        speeds = statistics.median(speed(row, name) for row in rounds)
        ratio = statistics.median(speed(row, "mtcli") / speed(row, name) for row in rounds)
        share = statistics.median(speed(row, name) * flops / row["peak"]["flops"] for row in rounds)
        padding = 1 - sum(r[name]["tokens"] for r in rounds) / sum(
            r[name]["positions"] for r in rounds
        )
        memory = max(row[name]["memory"] for row in rounds) / 1e9
        cells = name, f"{speeds:,.0f}", f"{ratio:.2f} times", f"{padding:.1%}", f"{share:.1%}"
        print("|", " | ".join(cells), f"| {memory:.2f} GB |")


if __name__ == "__main__":
    main()
