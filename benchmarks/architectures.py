"""The road from recurrence to attention: every architecture, the same data, size and minutes.

    python benchmarks/architectures.py --train train.en train.de --dev dev.en dev.de
        --test test.en test.de --out DIRECTORY [--minutes 4] [--like CONFIG] [--only NAME ...]

Widths are chosen so that all have about as many parameters as the transformer of --like. First
all of them make a few training steps in turns, in one thread: that tells how many steps each can
make in --minutes, whatever else slows the machine down later. So many are made by `mtcli train`,
in one thread on a core of its own, --at-once of them at a time. In the end all translate the test
set in turns: torch engine, beam 4, one thread. What is finished in --out is not done again: other
minutes or files need another --out.
Writes results.json, table.md and, if matplotlib is there, chart.svg.
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
from typing import Any

from rich.progress import track

from mtcli.config import ARCHITECTURES, Config, load_config, overlaid

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
ROAD = (  # what the chart's lines show
    "RNN, no attention",
    "RNN, dot",
    "RNN, bilinear, input feeding",
    "decoder-only, prefix",
    "transformer",
    "transformer, relative",
)
N_LENGTHS = 5  # parts of the test set, from short to long sources
N_TRIED = 24  # steps that each makes in turns with the others, before
N_ROUNDS = 3  # of translating


def main() -> None:
    """Train what is missing, measure it, and write what was seen."""
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    files = [
        ("data.train", list(map(str, options.train))),
        ("data.dev", list(map(str, options.dev))),
    ]
    base = load_config(options.like, files)
    systems = {name: sized(base, SYSTEMS[name]) for name in options.only or SYSTEMS}
    paces = kept(options.out / "paces.json", systems, lambda: tried(systems))
    cores: Queue[int] = Queue()
    for core in sorted(os.sched_getaffinity(0))[: options.at_once]:
        cores.put(core)

    def trained(name: str) -> dict[str, Any]:
        core = cores.get()
        steps = int(options.minutes * 60 / paces[name]["seconds"])
        try:
            return train(systems[name], steps, model_path(options.out, name), core)
        finally:
            cores.put(core)

    with ThreadPoolExecutor(options.at_once) as pool:
        runs = dict(zip(systems, pool.map(trained, systems), strict=True))
    models = {name: model_path(options.out, name) for name in systems}
    qualities = kept(
        options.out / "qualities.json", systems, lambda: measured(models, *options.test)
    )
    results = [{"name": name, **paces[name], **runs[name], **qualities[name]} for name in systems]
    write_json(options.out / "results.json", results)
    text = table(results)
    (options.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    draw(results, options.out / "chart.svg")


def parse_options() -> argparse.Namespace:
    """What was asked for."""
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
    """Where a system becomes a model."""
    return out / name.replace(",", "").replace(" ", "-").lower()


def kept(path: Path, keys: Iterable[str], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `make` returns for each of `keys`, or has returned when it made `path` for them."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if not found.keys() >= set(keys):
        found = make()
        write_json(path, found)
    return found


def write_json(path: Path, tree: Any) -> None:
    """Write `tree` for programs, and for people who look."""
    path.write_text(json.dumps(tree, indent=1), encoding="utf-8")


def sized(base: Config, changes: dict[str, Any]) -> Config:
    """The system with the width that makes it about as large as `base`."""
    vocab_size = base.tokenizer.vocab_size
    wanted = base.model.n_parameters(vocab_size, vocab_size)
    architecture = ARCHITECTURES[changes.get("arch", "transformer")]
    common = base.model.model_dump(include={"dropout", "tied_embeddings"})
    if "n_heads" in architecture.model_fields:
        common["n_heads"] = 4

    def with_width(width: int) -> Config:
        size = architecture.of_size(width, n_encoder_layers=2, n_decoder_layers=2)
        return overlaid(base, [("model", {**common, **size, **changes})])

    def difference(config: Config) -> int:
        return abs(config.model.n_parameters(vocab_size, vocab_size) - wanted)

    return min(map(with_width, range(32, 1025, 8)), key=difference)


def tried(systems: dict[str, Config]) -> dict[str, Any]:
    """Seconds of a training step of each system, and tokens a second: all in turns."""
    import torch

    from mtcli.distributed import ALONE
    from mtcli.feed import Position
    from mtcli.training.loop import fit
    from mtcli.training.machine import cheap_steps
    from mtcli.training.preparation import learn_pieces, prepare, read_pairs
    from mtcli.training.setup import Place, build_run

    torch.set_num_threads(1)
    first = next(iter(systems.values()))
    pairs = read_pairs(first, print)
    data = prepare(pairs, learn_pieces(pairs, first, print), first, print)
    place = Place(Path(), torch.device("cpu"), ALONE, lambda _: None)
    runs = {name: build_run(config, place, data) for name, config in systems.items()}
    with closing(next(iter(runs.values())).steps_from(Position())) as feed:
        groups = list(islice(feed, N_TRIED + 1))
    courses = {name: fit(run.learner, groups) for name, run in runs.items()}
    seconds = dict.fromkeys(systems, 0.0)
    n_tokens = 0
    with cheap_steps():
        for _ in track(range(len(groups)), "steps in turns"):
            for name, course in courses.items():
                began = time.perf_counter()
                step = next(course)
                if step.number > 1:  # the first one warms up
                    seconds[name] += time.perf_counter() - began
            n_tokens += step.n_tokens if step.number > 1 else 0
    return {
        name: {
            "n_parameters": run.n_parameters,
            "seconds": seconds[name] / N_TRIED,
            "tokens_per_second": n_tokens / seconds[name],
        }
        for name, run in runs.items()
    }


def train(config: Config, steps: int, out: Path, core: int) -> dict[str, Any]:
    """Train a system on a core of its own; how many steps, and the most memory it needed."""
    known = out.with_suffix(".json")
    if not known.exists():
        settings = {"steps": steps, "validate_every": 200, "validate_pairs": 200}
        changed = overlaid(config, [(f"train.{key}", value) for key, value in settings.items()])
        path = out.with_suffix(".yaml")
        path.write_text(json.dumps(changed.model_dump(mode="json")), encoding="utf-8")  # also YAML
        process = subprocess.Popen(
            [sys.executable, "-m", "mtcli", "train", "--config", path, "--out", out, "--quiet"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"{out.name}: training has failed")
        write_json(known, {"steps": steps, "memory": usage.ru_maxrss * 1024})
        print(f"{out.name} is trained", flush=True)
    facts: dict[str, Any] = json.loads(known.read_text(encoding="utf-8"))
    return facts


def measured(models: dict[str, Path], source: Path, target: Path) -> dict[str, Any]:
    """Of each model BLEU of all and of each length, and sentences per second: all in turns."""
    from mtcli import EngineOptions, Translator
    from mtcli.evaluation import bleu

    lines, references = (
        path.read_text(encoding="utf-8").removesuffix("\n").split("\n") for path in (source, target)
    )
    engine = EngineOptions(engine="torch", threads=1)
    translators = {name: Translator(path, engine=engine) for name, path in models.items()}
    speeds: dict[str, list[float]] = {name: [] for name in models}
    found: dict[str, list[str]] = {}
    for _ in track(range(N_ROUNDS), "translating in turns"):
        for name, translator in translators.items():
            began = time.perf_counter()
            found[name] = translator.translate(lines, beam_size=4)
            speeds[name].append(len(lines) / (time.perf_counter() - began))
    order = sorted(range(len(lines)), key=lambda i: len(lines[i].split()))

    def score(name: str, part: Sequence[int]) -> Any:
        return bleu([found[name][i] for i in part], [references[i] for i in part])

    def of_length(name: str, part: Sequence[int]) -> dict[str, Any]:
        words = [len(lines[part[0]].split()), len(lines[part[-1]].split())]
        return {"words": words, "bleu": score(name, part).value}

    return {
        name: {
            "bleu": score(name, order).value,
            "signature": score(name, order).signature,
            "by_length": [of_length(name, part) for part in parts(order, N_LENGTHS)],
            "sentences_per_second": statistics.median(speeds[name]),
        }
        for name in models
    }


def parts(items: Sequence[int], n: int) -> Iterable[Sequence[int]]:
    """`items` in n parts of like size, in their order."""
    bounds = [round(i * len(items) / n) for i in range(n + 1)]
    return [items[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]


def table(results: list[dict[str, Any]]) -> str:
    """What was seen, in Markdown."""
    lengths = ["{}-{}".format(*part["words"]) for part in results[0]["by_length"]]
    head = ["system", "parameters", "BLEU", *(f"{words} words" for words in lengths)]
    head += ["tokens/s training", "steps", "sentences/s", "memory"]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    for one in results:
        rows.append(
            [
                one["name"],
                f"{one['n_parameters'] / 1e6:.2f} M",
                f"**{one['bleu']:.1f}**",
                *(f"{part['bleu']:.1f}" for part in one["by_length"]),
                f"{one['tokens_per_second']:,.0f}",
                f"{one['steps']:,}",
                f"{one['sentences_per_second']:.0f}",
                f"{one['memory'] / 1e9:.2f} GB",
            ]
        )
    text = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"{text}\n{results[0]['signature']}\n"


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """BLEU of all systems as bars, and of the road by length as lines."""
    try:
        import matplotlib
    except ImportError:
        print("no chart: pip install 'mtcli[benchmarks]'")
        return
    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "mtcli", "font.size": 9, "svg.fonttype": "path"}
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(11, 4.6), width_ratios=(1, 1.1), layout="constrained"
    )
    colors = {name: pyplot.cm.viridis(i / len(ROAD)) for i, name in enumerate(ROAD)}
    names = [one["name"] for one in results]
    bars = left.barh(
        names, [one["bleu"] for one in results], color=[colors.get(n, "0.75") for n in names]
    )
    left.bar_label(bars, fmt="%.1f", padding=2)
    left.invert_yaxis()
    left.set_title("BLEU after the same minutes")
    left.spines[["top", "right"]].set_visible(False)
    for one in results:
        if one["name"] not in ROAD:
            continue
        labels = ["{}-{}".format(*part["words"]) for part in one["by_length"]]
        values = [part["bleu"] for part in one["by_length"]]
        right.plot(labels, values, marker="o", color=colors[one["name"]], label=one["name"])
    right.set_title("BLEU by the length of the source (words)")
    right.set_ylim(bottom=0)
    right.grid(axis="y", alpha=0.3)
    right.spines[["top", "right"]].set_visible(False)
    if right.lines:
        right.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
