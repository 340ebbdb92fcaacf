"""One process with one thread, one with two, two with one each: tokens per second of wall clock.

    python benchmarks/processes.py train.en train.de [--rounds 3] [--set KEY=VALUE ...]

Real runs of `mtcli train`, in turns; each is stopped when its log has enough steps. The shape is
that of benchmarks/train.py unless --set says otherwise.
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
WAYS = {
    "1 process, 1 thread": (1, 1),
    "1 process, 2 threads": (1, 2),
    "2 processes, 1 thread each": (2, 1),
}
ENOUGH = 60  # steps; the first ten are not counted


def main() -> None:
    """Print medians, and ratios to one thread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    options = parser.parse_args()
    settings = [*(f"{key}={value}" for key, value in SHAPE.items()), *options.settings]
    speeds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way, (n_processes, n_threads) in WAYS.items():
            speeds[way].append(speed(options.files, settings, n_processes, n_threads))
            print(way, f"{speeds[way][-1]:,.0f}", flush=True)
    alone = speeds["1 process, 1 thread"]
    for way, found in speeds.items():
        ratio = statistics.median(a / b for a, b in zip(found, alone, strict=True))
        print(f"| {way} | {statistics.median(found):,.0f} tokens/s | {ratio:.2f} times |")


def speed(files: list[str], settings: list[str], n_processes: int, n_threads: int) -> float:
    """Tokens per second, from the log of a run."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"
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
        while len(steps) < ENOUGH // 10:
            time.sleep(0.5)
            assert process.poll() is None, "training has ended"
            steps = logged_steps(out / "log.jsonl")
        subprocess.run(["pkill", "-9", "-f", str(out)], check=False)
        process.send_signal(signal.SIGKILL)
        process.wait()
    counted = steps[1:]
    return sum(step["n_tokens"] for step in counted) / sum(step["seconds"] for step in counted)


def logged_steps(path: Path) -> list[dict[str, float]]:
    """The steps that a log tells of."""
    lines = path.read_text().splitlines() if path.exists() else []
    events = [json.loads(line) for line in lines if line.endswith("}")]
    return [event for event in events if event["event"] == "step"]


if __name__ == "__main__":
    main()
