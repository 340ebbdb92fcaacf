"""Compare training recipes at equal cost, and append the results to recipes.jsonl.

    python benchmarks/recipes.py DATA --cpu-minutes 7 [--seeds 1 2 3] [--recipe NAME]... [--test]

DATA is a directory with train, val and test files of Multi30k (train.en, train.de, val.en, ...).
1,000 pairs of the training set are held out as a second test set. All recipes get the same CPU
time: a calibration times a few steps of each recipe, in turn, on one thread, and determines the
number of steps. It does not include the moving average and subword sampling. The runs then have a
fixed number of steps, so other programs on the machine do not influence the result. Runs use one
thread each, two at a time.

Choose between recipes by the dev set and the second test set. --test also scores the test set; use
it only for a finished recipe.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from recipe_list import BASE, RECIPES
from train import HERE, Worker, write_ids

from mtcli.hardware import has_cpu_bfloat16

RESULTS = Path(__file__).parent / "recipes.jsonl"
CALIBRATION_STEPS, CALIBRATION_ROUNDS = 8, 5
N_HELD_OUT = 1_000
SOURCE, TARGET = "en", "de"


def main() -> None:
    """Calibrate, train and evaluate all recipes, then print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--cpu-minutes", type=float, default=7)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--recipe", action="append", choices=RECIPES)
    parser.add_argument("--folder", type=Path, help="directory for the runs; default: temporary")
    parser.add_argument("--reverse", action="store_true", help="translate from de to en")
    parser.add_argument("--pairs", type=int, help="train on the first pairs only")
    parser.add_argument("--test", action="store_true", help="also score the test set")
    options = parser.parse_args()
    names = options.recipe or list(RECIPES)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        files = prepare_files(options, folder)
        steps = calibrate(names, files, folder, options.cpu_minutes * 60)
        print("steps:", steps, flush=True)
        facts = {
            "cpu": cpu_name(),
            "cpu_minutes": options.cpu_minutes,
            "reverse": options.reverse,
            "pairs": options.pairs,
        }

        def run(job: tuple[str, int]) -> dict[str, Any]:
            row = {**facts, **measure(*job, steps[job[0]], files, folder, has_test=options.test)}
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
            return row

        with ThreadPoolExecutor(2) as pool:
            rows = list(pool.map(run, [(name, seed) for seed in options.seeds for name in names]))
    print_table(rows, names)


def prepare_files(options: argparse.Namespace, folder: Path) -> dict[str, list[str]]:
    """Hold out a second test set; return the file names of all sets, source first."""
    languages = (TARGET, SOURCE) if options.reverse else (SOURCE, TARGET)
    order = list(range(len(read_lines(options.data / f"train.{SOURCE}"))))
    random.Random(1).shuffle(order)
    held_out, rest = order[:N_HELD_OUT], sorted(order[N_HELD_OUT:][: options.pairs])
    for language in languages:
        lines = read_lines(options.data / f"train.{language}")
        for name, rows in (("held-out", held_out), ("train", rest)):
            text = "".join(f"{lines[row]}\n" for row in rows)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    [test] = {path.stem for path in options.data.glob("test*")}
    paths = {"train": folder / "train", "held_out": folder / "held-out"}
    paths |= {"dev": options.data / "val", "test": options.data / test}
    return {name: [f"{path}.{lang}" for lang in languages] for name, path in paths.items()}


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file."""
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def calibrate(
    names: list[str], files: dict[str, list[str]], folder: Path, seconds: float
) -> dict[str, int]:
    """Return the number of steps of each recipe that fit into `seconds` of CPU time."""
    source, target = map(Path, files["train"])
    workers = {}
    for name in names:
        settings = {**BASE, **RECIPES[name]}
        size = settings["tokenizer.vocab_size"]
        ids = folder / f"ids-{size}.npz"
        if not ids.exists():
            write_ids(source, target, ids, vocab_size=size)
        sections = {
            section: {
                key.partition(".")[2]: value
                for key, value in settings.items()
                if key.startswith(f"{section}.")
            }
            for section in ("model", "train")
        }
        sections["train"].setdefault("precision", "bfloat16" if has_cpu_bfloat16() else "float32")
        text = json.dumps({**sections, "batch_tokens": settings["data.batch_tokens"]})
        script = str(HERE / "training_ours.py")
        workers[name] = Worker([sys.executable, script, str(ids), text], "0")
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(CALIBRATION_ROUNDS):
        for name, worker in workers.items():
            times[name].append(worker.train(CALIBRATION_STEPS)["seconds"] / CALIBRATION_STEPS)
    for worker in workers.values():
        worker.process.kill()
    return {name: int(seconds / statistics.median(times[name])) for name in names}


def measure(
    name: str,
    seed: int,
    n_steps: int,
    files: dict[str, list[str]],
    folder: Path,
    *,
    has_test: bool,
) -> dict[str, Any]:
    """Train and evaluate one run; return its results."""
    out = folder / f"{name}-{seed}"
    train(name, seed, n_steps, files, out)
    log = read_log(out)
    validated = [event for event in log if event["event"] == "validation"][-1]
    epoch = [event["epoch"] for event in log if event["event"] == "step"][-1]
    row = {
        "recipe": name,
        "settings": RECIPES[name],
        "seed": seed,
        "steps": n_steps,
        "epochs": epoch + 1,
        "dev_loss": validated["loss"],
    }
    sets = ["dev", "held_out", *(["test"] if has_test else [])]
    for kind in sets:
        row[kind] = evaluate(out, files[kind])
    return row


def train(name: str, seed: int, n_steps: int, files: dict[str, list[str]], out: Path) -> None:
    """Train a recipe on one thread, with one validation at the end."""
    settings = {**BASE, **RECIPES[name], "train.seed": seed, "train.steps": n_steps}
    settings["train.validate_every"] = n_steps
    mtcli(
        ["train", *files["train"], "--dev", *files["dev"], "--out", str(out), "--threads", "1"]
        + [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    )


def evaluate(model: Path, files: list[str]) -> float:
    """Return BLEU with beam 5."""
    output = mtcli(["evaluate", str(model), *files, "--beam-size", "5", "--json", "--threads", "1"])
    [system] = json.loads(output)["systems"]
    return float(system["scores"]["bleu"]["value"])


def mtcli(arguments: list[str]) -> str:
    """Run an mtcli command on one thread and return its output."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mtcli", *arguments, "--quiet"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if run.returncode:
        raise SystemExit(run.stderr)
    return run.stdout


def read_log(directory: Path) -> list[dict[str, Any]]:
    """Return the events of a run."""
    return [json.loads(line) for line in read_lines(directory / "log.jsonl")]


def cpu_name() -> str:
    """Return the name of the CPU."""
    lines = read_lines(Path("/proc/cpuinfo"))
    return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))


def print_table(rows: list[dict[str, Any]], names: list[str]) -> None:
    """Print means and spreads over the seeds."""
    columns = [key for key in ("dev_loss", "dev", "held_out", "test") if key in rows[0]]
    print("| recipe | steps |", " | ".join(columns), "|")
    print("| --- | ---: |", " | ".join("---:" for _ in columns), "|")
    for name in names:
        own = [row for row in rows if row["recipe"] == name]
        cells = []
        for key in columns:
            values = [row[key] for row in own]
            spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            digits = 3 if key == "dev_loss" else 2
            cells.append(f"{statistics.mean(values):.{digits}f}{spread}")
        print(f"| {name} | {own[0]['steps']:,} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
