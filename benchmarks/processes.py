"""Compare the training speed of processes and threads in tokens per second.

    python benchmarks/processes.py train.en train.de [--rounds 3] [--set KEY=VALUE ...]

The script runs `mtcli train` in turn with one process and one thread, one process and two threads,
and two processes with one thread each. It kills each run when its log has enough steps. The model
has the same shape as in benchmarks/train.py unless --set changes it.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHAPE = {
    "model.d_model": 256,
    "model.n_heads": 4,
    "model.d_feed_forward": 1024,
    "model.n_encoder_layers": 3,
    "model.n_decoder_layers": 3,
    "model.dropout": 0.1,
    "tokenizer.vocab_size": 8000,
    "data.batch_tokens": 4096,
    "train.steps": 10000,
    "train.validate_every": 10000,
}
VARIANTS = {
    "1 process, 1 thread": (1, 1),
    "1 process, 2 threads": (1, 2),
    "2 processes, 1 thread each": (2, 1),
}
N_STEPS = 60  # steps per run; the first ten are not counted


def main() -> None:
    """Print the median speeds and their ratios to the speed of one thread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    options = parser.parse_args()
    settings = [*(f"{key}={value}" for key, value in SHAPE.items()), *options.settings]
    speeds: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(options.rounds):
        for variant, (n_processes, n_threads) in VARIANTS.items():
            speeds[variant].append(measure_speed(options.files, settings, n_processes, n_threads))
            print(variant, f"{speeds[variant][-1]:,.0f}", flush=True)
    baseline = speeds["1 process, 1 thread"]
    for variant, values in speeds.items():
        ratio = statistics.median(a / b for a, b in zip(values, baseline, strict=True))
        print(f"| {variant} | {statistics.median(values):,.0f} tokens/s | {ratio:.2f} times |")


def measure_speed(files: list[str], settings: list[str], n_processes: int, n_threads: int) -> float:
    """Train for `N_STEPS` and return the tokens per second in the log."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "mtcli", "train", *files, "--out", str(out), "--quiet"]
        command += ["--processes", str(n_processes)]
        command += [part for setting in settings for part in ("--set", setting)]
        process = subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": str(n_threads)},
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        steps: list[dict[str, float]] = []
        while len(steps) < N_STEPS // 10:
            time.sleep(0.5)
            assert process.poll() is None, "training ended too early"
            steps = read_steps(out / "log.jsonl")
        subprocess.run(["pkill", "-9", "-f", str(out)], check=False)
        process.send_signal(signal.SIGKILL)
        process.wait()
    counted = steps[1:]
    return sum(step["n_tokens"] for step in counted) / sum(step["seconds"] for step in counted)


def read_steps(path: Path) -> list[dict[str, float]]:
    """Read the step events of a log that may be incomplete."""
    lines = path.read_text().splitlines() if path.exists() else []
    events = [json.loads(line) for line in lines if line.endswith("}")]
    return [event for event in events if event["event"] == "step"]


if __name__ == "__main__":
    main()
