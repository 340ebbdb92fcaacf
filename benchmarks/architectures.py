"""Compare all architectures with the same data, model size and training time.

    python benchmarks/architectures.py --train train.en train.de --dev dev.en dev.de
        --test test.en test.de --out DIRECTORY [--minutes 4] [--like CONFIG] [--only NAME ...]

The script chooses the widths so that all systems have about as many parameters as the transformer
in --like.

1. All systems take turns training for a few steps, in one thread. The measured speed determines how
   many steps fit into --minutes for each system, regardless of later load on the machine.
2. `mtcli train` trains each system for that number of steps, in one thread on a separate core. It
   trains --at-once systems at a time.
3. All systems take turns translating the test set: torch engine, beam 4, one thread.

Results that are already in --out are reused, so different --minutes or files require another --out.
The script writes results.json, table.md and, if matplotlib is installed, chart.svg.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from typing import Any

from rich.progress import track

from mtcli.config.load import load_config, with_overrides
from mtcli.config.sections import ARCHITECTURES, Config

ROOT = Path(__file__).parent.parent
RNN = {"arch": "rnn", "n_encoder_layers": 2, "n_decoder_layers": 2}
PREFIX = {"arch": "decoder_only"}
MODERN = {
    "norm_kind": "rms",
    "activation": "swish",
    "gated": True,
    "positions": "rotary",
    "qk_norm": True,
    "n_kv_heads": 2,
    "biases": False,
}

SYSTEMS: dict[str, dict[str, Any]] = {
    "RNN, no attention": {**RNN, "attention": "none"},
    "RNN, dot": {**RNN, "attention": "dot", "input_feeding": False},
    "RNN, additive": {**RNN, "attention": "additive", "input_feeding": False},
    "RNN, bilinear, input feeding": {**RNN, "attention": "bilinear", "input_feeding": True},
    "transformer": {},
    "transformer, post-norm": {"norm": "post"},
    "transformer, no positions": {"positions": "none"},
    "transformer, learned": {"positions": "learned"},
    "transformer, relative": {"positions": "relative"},
    "transformer, rotary": {"positions": "rotary"},
    "transformer, ALiBi": {"positions": "alibi"},
    "transformer, SwiGLU and all": MODERN,
    "transformer, deep encoder": {"n_encoder_layers": 8, "n_decoder_layers": 1},
    "transformer, window 4": {"window": 4, "positions": "relative"},
    "decoder-only, prefix": PREFIX,
    "decoder-only, causal, both": {**PREFIX, "source_attention": "causal", "loss_on": "both"},
}
CHARTED = (  # systems in the chart of BLEU by length
    "RNN, no attention",
    "RNN, dot",
    "RNN, bilinear, input feeding",
    "decoder-only, prefix",
    "transformer",
    "transformer, relative",
)
N_LENGTHS = 5  # number of parts, by source length, that the test set is split into
N_TIMED_STEPS = 24
N_ROUNDS = 3  # number of times that each system translates the test set


def main() -> None:
    """Train the missing systems, measure all systems, and write the results."""
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    files = [
        ("data.train", list(map(str, options.train))),
        ("data.dev", list(map(str, options.dev))),
    ]
    base = load_config(options.like, files)
    systems = {name: match_size(base, SYSTEMS[name]) for name in options.only or SYSTEMS}
    speeds = load_or_make(options.out / "paces.json", systems, lambda: time_steps(systems))
    cores: Queue[int] = Queue()
    for core in sorted(os.sched_getaffinity(0))[: options.at_once]:
        cores.put(core)

    def train_system(name: str) -> dict[str, Any]:
        core = cores.get()
        steps = int(options.minutes * 60 / speeds[name]["seconds"])
        try:
            return train(systems[name], steps, model_path(options.out, name), core)
        finally:
            cores.put(core)

    with ThreadPoolExecutor(options.at_once) as pool:
        runs = dict(zip(systems, pool.map(train_system, systems), strict=True))
    models = {name: model_path(options.out, name) for name in systems}
    scores = load_or_make(
        options.out / "qualities.json", systems, lambda: score(models, *options.test)
    )
    results = [{"name": name, **speeds[name], **runs[name], **scores[name]} for name in systems]
    write_json(options.out / "results.json", results)
    text = format_table(results)
    (options.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    draw_chart(results, options.out / "chart.svg")


def parse_options() -> argparse.Namespace:
    """Return the command-line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("train", "dev", "test"):
        parser.add_argument(f"--{name}", nargs=2, type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--like", type=Path, default=ROOT / "configs" / "demo.yaml")
    parser.add_argument("--only", nargs="*", choices=SYSTEMS, metavar="NAME")
    parser.add_argument("--at-once", type=int, default=2)
    return parser.parse_args()


def model_path(out: Path, name: str) -> Path:
    """Return the model directory of a system."""
    return out / name.replace(",", "").replace(" ", "-").lower()


def load_or_make(
    path: Path, keys: Iterable[str], make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Return the object in `path` if it has all `keys`; otherwise, make the object and save it."""
    tree: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if not tree.keys() >= set(keys):
        tree = make()
        write_json(path, tree)
    return tree


def write_json(path: Path, tree: Any) -> None:
    """Write `tree` as indented JSON."""
    path.write_text(json.dumps(tree, indent=1), encoding="utf-8")


def match_size(base: Config, changes: dict[str, Any]) -> Config:
    """Return `base` with `changes`, at the width that matches its parameter count most closely."""
    vocab_size = base.tokenizer.vocab_size
    n_parameters = base.model.n_parameters(vocab_size, vocab_size)
    architecture = ARCHITECTURES[changes.get("arch", "transformer")]
    common = base.model.model_dump(include={"dropout", "tied_embeddings"})
    if "n_heads" in architecture.model_fields:
        common["n_heads"] = 4

    def with_width(width: int) -> Config:
        size = architecture.settings_for_size(width, n_encoder_layers=2, n_decoder_layers=2)
        return with_overrides(base, [("model", {**common, **size, **changes})])

    def difference(config: Config) -> int:
        return abs(config.model.n_parameters(vocab_size, vocab_size) - n_parameters)

    return min(map(with_width, range(32, 1025, 8)), key=difference)


def time_steps(systems: dict[str, Config]) -> dict[str, Any]:
    """Return the seconds per step and tokens per second of each system, from interleaved runs."""
    import torch

    from mtcli.data.batches import DataPosition
    from mtcli.data.cache import DataCache
    from mtcli.distributed import SINGLE
    from mtcli.hardware import tuned_allocator
    from mtcli.training.loop import fit
    from mtcli.training.preparation import Preparation
    from mtcli.training.run_state import RunContext, build_run

    torch.set_num_threads(1)
    first = next(iter(systems.values()))
    with TemporaryDirectory() as directory:
        data = Preparation(first, DataCache(Path(directory))).dataset(print)
    context = RunContext(Path(), torch.device("cpu"), SINGLE, lambda _: None)
    runs = {name: build_run(config, context, data) for name, config in systems.items()}
    with closing(next(iter(runs.values())).groups_from(DataPosition())) as batches:
        groups = list(islice(batches, N_TIMED_STEPS + 1))
    loops = {name: fit(run.train_step, groups) for name, run in runs.items()}
    seconds = dict.fromkeys(systems, 0.0)
    n_tokens = 0
    with tuned_allocator():
        for _ in track(range(len(groups)), "timing steps"):
            for name, loop in loops.items():
                start = time.perf_counter()
                step = next(loop)
                if step.number > 1:  # the first step is a warm-up
                    seconds[name] += time.perf_counter() - start
            n_tokens += step.n_tokens if step.number > 1 else 0
    return {
        name: {
            "n_parameters": run.n_parameters,
            "seconds": seconds[name] / N_TIMED_STEPS,
            "tokens_per_second": n_tokens / seconds[name],
        }
        for name, run in runs.items()
    }


def train(config: Config, steps: int, out: Path, core: int) -> dict[str, Any]:
    """Train a system on one core; return the number of steps and the peak memory use."""
    result_path = out.with_suffix(".json")
    if not result_path.exists():
        settings = {"steps": steps, "validate_every": 200, "validate_pairs": 200}
        changed = with_overrides(
            config, [(f"train.{key}", value) for key, value in settings.items()]
        )
        path = out.with_suffix(".yaml")
        write_json(path, changed.model_dump(mode="json"))  # JSON is also YAML
        process = subprocess.Popen(
            [sys.executable, "-m", "mtcli", "train", "--config", path, "--out", out, "--quiet"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"{out.name}: training failed")
        write_json(result_path, {"steps": steps, "memory": usage.ru_maxrss * 1024})
        print(f"trained {out.name}", flush=True)
    result: dict[str, Any] = json.loads(result_path.read_text(encoding="utf-8"))
    return result


def score(models: dict[str, Path], source: Path, target: Path) -> dict[str, Any]:
    """Return BLEU, BLEU by source length and the translation speed of each model."""
    from mtcli import EngineOptions, Translator
    from mtcli.evaluation.scores import compute_scores

    lines, references = (
        path.read_text(encoding="utf-8").removesuffix("\n").split("\n") for path in (source, target)
    )
    engine = EngineOptions(engine="torch", threads=1)
    translators = {name: Translator(path, engine=engine) for name, path in models.items()}
    speeds: dict[str, list[float]] = {name: [] for name in models}
    translations: dict[str, list[str]] = {}
    for _ in track(range(N_ROUNDS), "translating"):
        for name, translator in translators.items():
            start = time.perf_counter()
            translations[name] = translator.translate(lines, beam_size=4)
            speeds[name].append(len(lines) / (time.perf_counter() - start))
    order = sorted(range(len(lines)), key=lambda i: len(lines[i].split()))

    def score_rows(name: str, rows: Sequence[int]) -> Any:
        selected = [references[i] for i in rows]
        return compute_scores([translations[name][i] for i in rows], [selected])["bleu"]

    def score_part(name: str, rows: Sequence[int]) -> dict[str, Any]:
        words = [len(lines[rows[0]].split()), len(lines[rows[-1]].split())]
        return {"words": words, "bleu": score_rows(name, rows).value}

    return {
        name: {
            "bleu": score_rows(name, order).value,
            "signature": score_rows(name, order).signature,
            "by_length": [score_part(name, rows) for rows in split(order, N_LENGTHS)],
            "sentences_per_second": statistics.median(speeds[name]),
        }
        for name in models
    }


def split(items: Sequence[int], n_parts: int) -> Iterable[Sequence[int]]:
    """Split `items` into contiguous parts of similar size."""
    bounds = [round(i * len(items) / n_parts) for i in range(n_parts + 1)]
    return [items[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]


def format_table(results: list[dict[str, Any]]) -> str:
    """Return the results as a Markdown table."""
    lengths = ["{}-{}".format(*part["words"]) for part in results[0]["by_length"]]
    header = ["system", "parameters", "BLEU", *(f"{words} words" for words in lengths)]
    header += ["tokens/s training", "steps", "sentences/s", "memory"]
    rows = [header, ["---", *["---:"] * (len(header) - 1)]]
    for result in results:
        rows.append(
            [
                result["name"],
                f"{result['n_parameters'] / 1e6:.2f} M",
                f"**{result['bleu']:.1f}**",
                *(f"{part['bleu']:.1f}" for part in result["by_length"]),
                f"{result['tokens_per_second']:,.0f}",
                f"{result['steps']:,}",
                f"{result['sentences_per_second']:.0f}",
                f"{result['memory'] / 1e9:.2f} GB",
            ]
        )
    text = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"{text}\n{results[0]['signature']}\n"


def draw_chart(results: list[dict[str, Any]], path: Path) -> None:
    """Draw BLEU for all systems as bars, and BLEU by length for `CHARTED` as lines."""
    try:
        import matplotlib
    except ImportError:
        print("skipping chart.svg: matplotlib is missing; run: pip install 'mtcli[benchmarks]'")
        return
    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "mtcli", "font.size": 9, "svg.fonttype": "path"}
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(11, 4.6), width_ratios=(1, 1.1), layout="constrained"
    )
    colors = {name: pyplot.cm.viridis(i / len(CHARTED)) for i, name in enumerate(CHARTED)}
    names = [result["name"] for result in results]
    bars = left.barh(
        names, [result["bleu"] for result in results], color=[colors.get(n, "0.75") for n in names]
    )
    left.bar_label(bars, fmt="%.1f", padding=2)
    left.invert_yaxis()
    left.set_title("BLEU after the same training time")
    left.spines[["top", "right"]].set_visible(False)
    for result in results:
        if result["name"] not in CHARTED:
            continue
        labels = ["{}-{}".format(*part["words"]) for part in result["by_length"]]
        values = [part["bleu"] for part in result["by_length"]]
        right.plot(labels, values, marker="o", color=colors[result["name"]], label=result["name"])
    right.set_title("BLEU by source length (words)")
    right.set_ylim(bottom=0)
    right.grid(axis="y", alpha=0.3)
    right.spines[["top", "right"]].set_visible(False)
    if right.lines:
        right.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
