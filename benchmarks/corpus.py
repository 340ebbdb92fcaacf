"""Measure the time and memory use of `mtcli train` until its first step, by corpus size.

    python benchmarks/corpus.py train.en train.de [--pairs 5000000] [--rounds 3] [--other CHECKOUT]

The large corpus consists of lines from SOURCE and TARGET in random order, each with a random
number. All runs use an existing SentencePiece model, because vocabulary training is measured
separately. The baseline only reads both files and encodes all lines with SentencePiece on all
cores. Memory use is the private memory (RssAnon) of all processes, sampled every 10 ms.

With --other, time and memory use for 20,000 pairs are compared with those of another checkout.
"""

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

CONFIG = """\
data: {train: [source, target]}
tokenizer: {vocab_size: 8000}
model: {d_model: 64, n_heads: 2, n_encoder_layers: 1, n_decoder_layers: 1}
train: {steps: 100, validate_every: 100}
"""
BASELINE = """\
import os, sys, sentencepiece
processor = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
for name in sys.argv[2:]:
    with open(name, encoding="utf-8", newline="\\n") as file:
        while lines := [line.rstrip("\\n") for line in file.readlines(1_000_000)]:
            processor.encode(lines, num_threads=len(os.sched_getaffinity(0)))
"""
SMALL, COMPARED = 5_000, 20_000  # corpus sizes in pairs


@dataclass(frozen=True)
class Start:
    """Time and memory use of a run until its first step."""

    seconds: float
    memory: float  # peak private memory in MB
    vocabulary_memory: float  # peak private memory during vocabulary training in MB


def main() -> None:
    """Run all measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--other", type=Path, help="checkout of another version")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        large = make_corpus(options.source, options.target, options.pairs, folder / "large")
        small = make_corpus(options.source, options.target, SMALL, folder / "small")
        model = train_sentencepiece(small, folder)
        (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
        measure_large(large, small, model, folder, options.rounds)
        if options.other:
            pairs = make_corpus(options.source, options.target, COMPARED, folder / "compared")
            compare_versions(pairs, folder, options.other, options.rounds)


def measure_large(
    large: list[str], small: list[str], model: Path, folder: Path, rounds: int
) -> None:
    """Print the startup time, relative to the baseline, and the memory use for a large corpus."""
    own = ["--set", f"tokenizer.model={model}"]
    baselines, cold, warm = [], [], []
    for _ in range(rounds):
        baselines.append(time_baseline(large, model))
        shutil.rmtree(folder / "cache", ignore_errors=True)
        cold.append(start_run([*large, *own, "--cache", str(folder / "cache")], folder))
        warm.append(start_run([*large, *own, "--cache", str(folder / "cache")], folder))
    base, first = statistics.median(baselines), statistics.median(s.seconds for s in cold)
    print(f"baseline (read, encode): {base:.1f} s")
    print(f"command to first step: {first:.1f} s, {first / base:.2f} times the baseline")
    print(f"with a warm cache: {statistics.median(s.seconds for s in warm):.1f} s")
    few = start_run([*small, *own], folder)
    memory = max(s.memory for s in cold)
    print(f"memory: {memory:.0f} MB, {memory - few.memory:.0f} MB more than {SMALL:,} pairs")
    vocabulary = start_run(large, folder).vocabulary_memory
    print(f"memory while the vocabulary is trained: {vocabulary:.0f} MB")


def compare_versions(pairs: list[str], folder: Path, other: Path, rounds: int) -> None:
    """Print time and memory use with two text files, for this checkout and the other one."""
    here, there = [], []
    for _ in range(rounds):
        here.append(start_run(pairs, folder))
        there.append(start_run(pairs, folder, other))
    for label, starts in (("this version", here), ("other version", there)):
        seconds = statistics.median(start.seconds for start in starts)
        memory = statistics.median(start.memory for start in starts)
        print(f"{COMPARED:,} pairs, {label}: {seconds:.2f} s, {memory:.0f} MB")


def make_corpus(source: Path, target: Path, n_pairs: int, prefix: Path) -> list[str]:
    """Write `n_pairs` distinct pairs; return the names of both files."""
    sides = [path.read_text(encoding="utf-8").split("\n")[:-1] for path in (source, target)]
    names = [f"{prefix}.source", f"{prefix}.target"]
    generator = random.Random(1)
    with (
        Path(names[0]).open("w", encoding="utf-8") as sources,
        Path(names[1]).open("w", encoding="utf-8") as targets,
    ):
        for _ in range(n_pairs):
            row, number = generator.randrange(len(sides[0])), generator.randrange(100_000)
            sources.write(f"{sides[0][row]} {number}\n")
            targets.write(f"{sides[1][row]} {number}\n")
    return names


def train_sentencepiece(files: list[str], folder: Path) -> Path:
    """Train a SentencePiece model of 4,000 pieces; return its file."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        input=",".join(files),
        model_prefix=str(folder / "pieces"),
        vocab_size=4_000,
        byte_fallback=True,
        minloglevel=2,
    )
    return folder / "pieces.model"


def time_baseline(files: list[str], model: Path) -> float:
    """Return the seconds that it takes to read the files and encode all lines."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", BASELINE, str(model), *files], check=True)
    return time.perf_counter() - start


def start_run(arguments: list[str], folder: Path, checkout: Path | None = None) -> Start:
    """Start a run and kill it after its first step."""
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    options = ["--out", str(out), "--config", str(folder / "config.yaml"), "--verbose"]
    root = checkout or Path(__file__).parent.parent
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "mtcli", "train", *arguments, *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert process.stderr
    samples: list[tuple[float, float]] = []
    threading.Thread(target=sample_memory, args=(process, samples), daemon=True).start()
    vocabulary_from = vocabulary_to = start
    for line in process.stderr:
        now = time.perf_counter()
        if line.startswith("data: "):
            vocabulary_from = now
        if line.startswith("vocabulary: "):
            vocabulary_to = now
        if line.startswith("step 1/"):
            break
    else:
        raise SystemExit(f"the run failed: {' '.join(arguments)}")
    seconds = time.perf_counter() - start
    process.kill()
    process.wait()
    in_vocabulary = [m for t, m in samples if vocabulary_from <= t <= vocabulary_to]
    return Start(seconds, max(m for _, m in samples), max(in_vocabulary, default=0.0))


def sample_memory(process: subprocess.Popen[str], samples: list[tuple[float, float]]) -> None:
    """Add the time and memory use of a process and its children to `samples` until it ends."""
    while process.poll() is None:
        total = sum(map(_private_memory, _process_tree(process.pid)))
        samples.append((time.perf_counter(), total / 1e3))
        time.sleep(0.01)


def _process_tree(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    except OSError:
        return []
    return [pid, *(p for child in children for p in _process_tree(int(child)))]


def _private_memory(pid: int) -> int:
    """Return RssAnon in kB; 0 if the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    return int(status.partition("RssAnon:")[2].split()[0]) if "RssAnon:" in status else 0


if __name__ == "__main__":
    main()
