"""The training step beside Hugging Face's: tokens per CPU second, share of the peak, memory.

    python benchmarks/train.py train.en train.de --hugging-face PYTHON [--rounds 7] [--core 1]

One thread on one core for each; the same sentences, the same model (3+3 layers, width 256,
feed-forward 1024, 4 heads, 8,000 pieces tied, dropout and label smoothing 0.1, Adam, float32),
about 4,096 tokens a batch. The programs take turns, and so does a matrix product that shows what
the core can do at that moment; ratios are medians over the rounds. PYTHON has transformers.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from mtcli.config import TokenizerConfig
from mtcli.data import EncodedCorpus, encode, read_corpus
from mtcli.tokenizer import train_tokenizers

HERE = Path(__file__).parent
STEPS = 8  # of each program in a round
PEAK = """
import sys, time, torch
torch.set_num_threads(1)
a, b = torch.randn(2, 2048, 2048)
for line in sys.stdin:
    best = 0.0
    for _ in range(8):
        began = time.process_time()
        a @ b
        best = max(best, 2 * 2048**3 / (time.process_time() - began))
    print(best, flush=True)
"""


class Peer:
    """A program that trains when asked to."""

    def __init__(self, command: list[str], core: int) -> None:
        self.process = subprocess.Popen(
            ["taskset", "-c", str(core), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, text: str) -> str:
        """Its answer."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def train(self) -> dict[str, float]:
        """What some steps took."""
        answer: dict[str, float] = json.loads(self.ask(str(STEPS)))
        return answer


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--hugging-face", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--core", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        ids = Path(place) / "ids.npz"
        corpus = write_ids(options.source, options.target, ids)
        peers = {
            "mtcli": Peer([sys.executable, str(HERE / "training_ours.py"), str(ids)], options.core)
        }
        if options.hugging_face:
            script = str(HERE / "training_hugging_face.py")
            for kind in ("random", "grouped"):
                command = [options.hugging_face, script, str(ids), kind]
                peers[f"Hugging Face, {kind}"] = Peer(command, options.core)
        probe = Peer([sys.executable, "-c", PEAK], options.core)
        report(take_turns(peers, probe, options.rounds), flops_per_token(corpus))


def write_ids(source: Path, target: Path, path: Path) -> EncodedCorpus:
    """Learn 8,000 pieces and write all pairs in them."""
    pairs = read_corpus(source, target, print)
    tokenizers = train_tokenizers(pairs.source, pairs.target, TokenizerConfig(vocab_size=8000))
    corpus = encode(pairs, tokenizers, 128, print)
    np.savez(
        path,
        source=corpus.source.flat,
        source_starts=corpus.source.starts,
        target=corpus.target.flat,
        target_starts=corpus.target.starts,
        vocab_size=len(tokenizers.source),
    )
    return corpus


def flops_per_token(corpus: EncodedCorpus) -> float:
    """Useful floating point operations of a step for each source or target token on average.

    Forward and twice as much backward; two for each weight that a token meets, and attention.
    """
    width, inner, layers, size = 256, 1024, 3, 8000
    source, target = corpus.source.lengths(), corpus.target.lengths()
    attention, feed_forward = 4 * width**2, 2 * width * inner
    a_source = (
        layers * (attention + feed_forward) + layers * 2 * width**2
    )  # keys, values to look at
    a_target = layers * (attention + 2 * width**2 + feed_forward) + width * size
    looks = layers * 2 * width * (source**2 + source * target + target * (target + 1) / 2)
    total = 3 * 2 * (a_source * source.sum() + a_target * target.sum() + looks.sum())
    return float(total / (source.sum() + target.sum()))


def take_turns(
    peers: dict[str, Peer], probe: Peer, n_rounds: int
) -> list[dict[str, dict[str, float]]]:
    """What each took in each round; the first round, in which all warm up, is left out."""
    rounds = []
    for number in range(n_rounds + 1):
        row = {"peak": {"flops": float(probe.ask("go"))}}
        row |= {name: peer.train() for name, peer in peers.items()}
        row["peak"]["flops"] = max(row["peak"]["flops"], float(probe.ask("go")))
        if number:
            rounds.append(row)
            speeds = {name: f"{speed(row, name):,.0f}" for name in peers}
            print(number, speeds, f"peak {row['peak']['flops'] / 1e9:.1f} GFLOP/s", flush=True)
    return rounds


def speed(row: dict[str, dict[str, float]], name: str) -> float:
    """Real tokens per CPU second."""
    return row[name]["tokens"] / row[name]["seconds"]


def report(rounds: list[dict[str, dict[str, float]]], flops: float) -> None:
    """Medians over the rounds."""
    print(
        "| program | tokens per CPU second | mtcli is | padding | share of the peak | peak memory |"
    )
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
