"""Compare training steps by precision, by threads and workers, and beside another process.

    python benchmarks/precision.py train.en train.de [--rounds 5]

Muon, 4+3 layers, feed-forward four times the width, 4,000 pieces. Widths 256 and 192 use batches of
4,096 tokens, width 160 uses 3,072. All variants run in turn in every round. With one thread, speed
is tokens per CPU second; with two threads, it is tokens per second of wall-clock time. "Beside
another process" means that a process of the same priority runs an endless loop. The peak is the
speed of a product of two 2,048 x 2,048 float32 matrices on one core. FLOPs of the optimizer do
not count.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from train import HERE, PEAK, Worker, flops_per_token, write_ids

SPINNER = "while True: pass"
N_STEPS = 6  # per variant and round
WIDTHS = {256: (4, 4096), 192: (6, 4096), 160: (5, 3072)}  # heads and tokens per batch


@dataclass(frozen=True)
class Variant:
    """Settings of a row in the table."""

    width: int
    precision: str
    threads: int = 1
    workers: int = 1
    orthogonalization: str = "gram"
    is_loaded: bool = False  # beside another process

    def __str__(self) -> str:
        parts = [f"width {self.width}", self.precision]
        parts += ["plain Newton-Schulz"] if self.orthogonalization == "plain" else []
        parts += [f"{self.workers} workers"] if self.workers > 1 else [f"threads: {self.threads}"]
        return ", ".join([*parts, *(["beside another process"] if self.is_loaded else [])])

    def settings(self) -> str:
        """Return the settings of the worker as JSON."""
        n_heads, batch_tokens = WIDTHS[self.width]
        model = {"d_model": self.width, "n_heads": n_heads}
        model |= {"n_encoder_layers": 4, "n_decoder_layers": 3}
        train = {"optimizer": "muon", "learning_rate": 4e-3, "precision": self.precision}
        train |= {"workers": self.workers, "orthogonalization": self.orthogonalization}
        values = {"model": model, "train": train}
        return json.dumps({**values, "threads": self.threads, "batch_tokens": batch_tokens})


PRECISIONS = ("float32", "bfloat16")
VARIANTS = [
    *(Variant(width, precision) for width in WIDTHS for precision in PRECISIONS),
    *(Variant(160, precision, orthogonalization="plain") for precision in PRECISIONS),
    *(
        Variant(160, precision, 2, workers, is_loaded=is_loaded)
        for is_loaded in (False, True)
        for workers in (1, 2)
        for precision in PRECISIONS
    ),
]


def main() -> None:
    """Run all variants and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ids = Path(folder) / "ids.npz"
        corpus = write_ids(options.source, options.target, ids, vocab_size=4000)
        flops = {width: flops_per_token(corpus, width, (4, 3), 4000) for width in WIDTHS}
        script = str(HERE / "training_ours.py")
        workers = {
            variant: Worker([sys.executable, script, str(ids), variant.settings()], "0,1")
            for variant in VARIANTS
        }
        probe = Worker([sys.executable, "-c", PEAK], "1")
        for worker in workers.values():
            worker.train(N_STEPS)  # warm up
        rounds = [measure_round(workers, probe) for _ in range(options.rounds)]
    print_table(rounds, flops)


def measure_round(
    workers: dict[Variant, Worker], probe: Worker
) -> dict[Variant | str, dict[str, float]]:
    """Return the measurements of all variants."""
    row: dict[Variant | str, dict[str, float]] = {"peak": {"flops": float(probe.ask("go"))}}
    for variant, worker in workers.items():
        spinner = subprocess.Popen([sys.executable, "-c", SPINNER]) if variant.is_loaded else None
        try:
            row[variant] = worker.train(N_STEPS)
        finally:
            if spinner:
                spinner.kill()
                spinner.wait()
    row["peak"]["flops"] = max(row["peak"]["flops"], float(probe.ask("go")))
    print({str(v): round(speed(row, v)) for v in workers}, flush=True)
    return row


def speed(row: dict[Variant | str, dict[str, float]], variant: Variant) -> float:
    """Return the tokens per second: CPU time with one thread, wall-clock time with two."""
    measured = row[variant]
    return measured["tokens"] / measured["seconds" if variant.threads == 1 else "elapsed"]


def print_table(
    rounds: list[dict[Variant | str, dict[str, float]]], flops: dict[int, float]
) -> None:
    """Print medians over the rounds."""
    print("| variant | tokens/s | speedup of bfloat16 | share of the float32 peak | memory |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for variant in VARIANTS:
        base = replace(variant, precision="float32")
        tokens = statistics.median(speed(row, variant) for row in rounds)
        ratio = statistics.median(speed(row, variant) / speed(row, base) for row in rounds)
        share = statistics.median(
            speed(row, variant) * flops[variant.width] / row["peak"]["flops"] for row in rounds
        )
        memory = max(row[variant]["memory"] for row in rounds) / 1e9
        print(f"| {variant} | {tokens:,.0f} | {ratio:.2f} | {share:.0%} | {memory:.2f} GB |")


if __name__ == "__main__":
    main()
