"""Measure the CPU time and memory use of `mtcli evaluate`.

python benchmarks/evaluate.py scoring REFERENCE [--lines N] [--rounds N]
python benchmarks/evaluate.py model MODEL SOURCE REFERENCE [--rounds N]

`scoring` repeats the lines in REFERENCE, creates a system output by dropping and swapping words,
and compares mtcli with the sacrebleu command on BLEU, chrF, chrF++ and TER with confidence
intervals. mtcli needs one run, and the sacrebleu command needs two. `model` compares
`mtcli evaluate` with `mtcli translate` followed by scoring the output file. The programs alternate,
and the reported ratio is the median over all rounds.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mtcli.data.lines import read_lines

MTCLI = [sys.executable, "-m", "mtcli"]
SACREBLEU = [sys.executable, "-m", "sacrebleu"]
METRICS = ("bleu", "chrf", "chrf++", "ter")


@dataclass(frozen=True)
class Usage:
    """CPU time, peak memory use and output of a process."""

    cpu_seconds: float
    peak_megabytes: float
    output: str


def measure(command: list[object]) -> Usage:
    """Run `command`; return its CPU time, peak resident memory and output."""
    with tempfile.TemporaryFile("w+") as output:
        arguments = [str(part) for part in command]
        process = subprocess.Popen(arguments, stdout=output, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{' '.join(arguments)} failed")
        output.seek(0)
        text = output.read()
    return Usage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, text)


def total(usages: list[Usage]) -> Usage:
    """Return the total CPU time, the highest peak memory use and the joined output."""
    return Usage(
        sum(usage.cpu_seconds for usage in usages),
        max(usage.peak_megabytes for usage in usages),
        "".join(usage.output for usage in usages),
    )


def write_texts(reference: Path, n_lines: int, directory: Path) -> tuple[Path, Path]:
    """Write a reference with `n_lines` lines and a system output; return both paths."""
    lines = list(read_lines(reference))
    random_ = random.Random(1)
    paths = directory / "output", directory / "reference"
    with paths[0].open("w") as output, paths[1].open("w") as target:
        for i in range(n_lines):
            # Shuffle the words of repeated lines so that all lines differ.
            words = lines[i % len(lines)].split()
            if i >= len(lines):
                random_.shuffle(words)
            target.write(f"{' '.join(words)}\n")
            kept = [word for word in words if random_.random() > 0.1]
            for j in range(len(kept) - 1):
                if random_.random() < 0.1:
                    kept[j], kept[j + 1] = kept[j + 1], kept[j]
            output.write(f"{' '.join(kept)}\n")
    return paths


def compare_scoring(arguments: argparse.Namespace) -> None:
    """Compare mtcli with two runs of the sacrebleu command."""
    with tempfile.TemporaryDirectory() as name:
        output, reference = write_texts(arguments.reference, arguments.lines, Path(name))
        ours = [*MTCLI, "evaluate", "--hypothesis", output, reference]
        ours += [part for metric in METRICS for part in ("--metric", metric)]
        theirs = [*SACREBLEU, reference, "-i", output, "--confidence", "-f", "text", "-w", "2"]
        runs = [["-m", "bleu", "chrf", "ter"], ["-m", "chrf", "--chrf-word-order", "2"]]
        rounds = []
        for i in range(arguments.rounds):
            pair = [
                lambda: measure(ours),
                lambda: total([measure([*theirs, *options]) for options in runs]),
            ]
            order = (0, 1) if i % 2 == 0 else (1, 0)
            found = {index: pair[index]() for index in order}
            rounds.append((found[0], found[1]))
    print(f"{arguments.lines:,} lines, {arguments.rounds} rounds\n")
    print_rounds("mtcli", "sacrebleu, two runs", rounds)
    print(rounds[0][0].output, rounds[0][1].output, sep="\n")


def compare_model(arguments: argparse.Namespace) -> None:
    """Compare `mtcli evaluate` with `mtcli translate` followed by scoring the output file."""
    model, source, reference = arguments.model, arguments.source, arguments.reference
    with tempfile.TemporaryDirectory() as name:
        output = Path(name) / "output"
        together = [*MTCLI, "evaluate", model, source, reference, "--quiet"]
        apart = [
            [*MTCLI, "translate", model, source, "--output", output, "--quiet"],
            [*MTCLI, "evaluate", "--hypothesis", output, reference, "--quiet"],
        ]
        rounds = []
        for i in range(arguments.rounds):
            pair = [lambda: measure(together), lambda: total([measure(step) for step in apart])]
            order = (0, 1) if i % 2 == 0 else (1, 0)
            found = {index: pair[index]() for index in order}
            if found[0].output != found[1].output:
                raise SystemExit("the scores differ")
            rounds.append((found[0], found[1]))
    print_rounds("mtcli evaluate", "mtcli translate, then score", rounds)


def print_rounds(ours: str, theirs: str, rounds: list[tuple[Usage, Usage]]) -> None:
    """Print the medians of both programs and of their ratio."""
    print("| program | CPU seconds, median | peak MB |")
    print("| --- | ---: | ---: |")
    for i, name in enumerate((ours, theirs)):
        seconds = statistics.median(pair[i].cpu_seconds for pair in rounds)
        print(f"| {name} | {seconds:.2f} | {max(p[i].peak_megabytes for p in rounds):,.0f} |")
    ratios = [first.cpu_seconds / second.cpu_seconds for first, second in rounds]
    listed = ", ".join(f"{ratio:.3f}" for ratio in sorted(ratios))
    print(f"\nratio: {statistics.median(ratios):.3f} ({listed})")


def main() -> None:
    """Parse the arguments and run one of the comparisons."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    scoring = commands.add_parser("scoring")
    scoring.add_argument("reference", type=Path)
    scoring.add_argument("--lines", type=int, default=100_000)
    scoring.add_argument("--rounds", type=int, default=3)
    scoring.set_defaults(run=compare_scoring)
    model = commands.add_parser("model")
    model.add_argument("model", type=Path)
    model.add_argument("source", type=Path)
    model.add_argument("reference", type=Path)
    model.add_argument("--rounds", type=int, default=9)
    model.set_defaults(run=compare_model)
    arguments = parser.parse_args()
    arguments.run(arguments)


main()
