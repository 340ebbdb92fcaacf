"""The road from recurrence to attention: every architecture, the same data, size and minutes.

    python benchmarks/architectures.py --train train.en train.de --dev dev.en dev.de
        --test test.en test.de --out DIRECTORY [--minutes 4] [--like CONFIG] [--only NAME ...]

Each system is trained by `mtcli train` with one thread on a core of its own, `--at-once` of them
at a time. Widths are chosen so that all have about as many parameters as the transformer of
--like. Translation is with the torch engine, beam 4, one thread. What is finished in --out is not
done again. Writes results.json, table.md and, if matplotlib is there, chart.svg.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

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
)
N_LENGTHS = 5  # parts of the test set, from short to long sources


def main() -> None:
    """Train what is missing, measure it, and write what was seen."""
    options = parse_options()
    if options.measure:
        print(json.dumps(measure(options.measure, *options.test)))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    base = load_config(options.like, [("data.train", list(map(str, options.train)))])
    names = options.only or list(SYSTEMS)
    cores: Queue[int] = Queue()
    for core in sorted(os.sched_getaffinity(0))[: options.at_once]:
        cores.put(core)

    def run(name: str) -> dict[str, Any]:
        core = cores.get()
        try:
            return result(name, base, options, core)
        finally:
            cores.put(core)

    with ThreadPoolExecutor(options.at_once) as pool:
        results = list(pool.map(run, names))
    (options.out / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    text = table(results)
    (options.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    draw(results, options.out / "chart.svg")


def parse_options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("train", "dev", "test"):
        parser.add_argument(f"--{name}", nargs=2, type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--like", type=Path, default=ROOT / "configs" / "demo.yaml")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--measure", type=Path, help="a model; used by this program itself")
    return parser.parse_args()


def result(name: str, base: Config, options: argparse.Namespace, core: int) -> dict[str, Any]:
    """All that is known of a system in the end; kept beside its model."""
    out: Path = options.out / name.replace(",", "").replace(" ", "-").lower()
    known = out.with_suffix(".json")
    if known.exists():
        found: dict[str, Any] = json.loads(known.read_text(encoding="utf-8"))
        return found
    config = sized(base, SYSTEMS[name])
    memory = train(config, out, options, core)
    found = {
        "name": name,
        "model": config.model.summary(),
        "n_parameters": config.model.n_parameters(*[config.tokenizer.vocab_size] * 2),
        "memory": memory,
        **speed(out / "log.jsonl"),
        **measured(out, options, core),
    }
    known.write_text(json.dumps(found), encoding="utf-8")
    print(f"{name}: BLEU {found['bleu']:.2f}", flush=True)
    return found


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


def train(config: Config, out: Path, options: argparse.Namespace, core: int) -> int:
    """Train a system; the most memory it needed, in bytes."""
    path = out.with_suffix(".yaml")
    tree = config.model_dump(mode="json")
    tree["train"] |= {"minutes": options.minutes, "validate_every": 200, "validate_pairs": 200}
    path.write_text(json.dumps(tree), encoding="utf-8")  # JSON is YAML
    command = ["train", *map(str, options.train), "--config", str(path), "--out", str(out)]
    command += ["--dev", *map(str, options.dev), "--quiet"]
    process = start(["-m", "mtcli", *command], core)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{out.name}: training has failed")
    return usage.ru_maxrss * 1024


def measured(out: Path, options: argparse.Namespace, core: int) -> dict[str, Any]:
    """How well and how fast the model translates, measured in a process of its own."""
    arguments = [__file__, "--measure", str(out), "--test", *map(str, options.test)]
    process = start(arguments, core, stdout=subprocess.PIPE)
    text, _ = process.communicate()
    if process.returncode:
        sys.exit(f"{out.name}: translating has failed")
    facts: dict[str, Any] = json.loads(text)
    return facts


def start(arguments: list[str], core: int, **more: Any) -> "subprocess.Popen[bytes]":
    """A Python program with one thread on one core."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        **more,
    )


def measure(model: Path, source: Path, target: Path) -> dict[str, Any]:
    """BLEU of all and of each length, and sentences per second."""
    from mtcli import EngineOptions, Translator
    from mtcli.evaluation import bleu

    lines, references = (path.read_text(encoding="utf-8").splitlines() for path in (source, target))
    translator = Translator(model, engine=EngineOptions(engine="torch"))
    translator.translate(lines[:20], beam_size=4)
    began = time.perf_counter()
    found = translator.translate(lines, beam_size=4)
    seconds = time.perf_counter() - began
    score = bleu(found, references)
    order = sorted(range(len(lines)), key=lambda i: len(lines[i].split()))
    by_length = []
    for part in parts(order, N_LENGTHS):
        lengths = [len(lines[i].split()) for i in part]
        value = bleu([found[i] for i in part], [references[i] for i in part]).value
        by_length.append({"words": [min(lengths), max(lengths)], "bleu": value})
    return {
        "bleu": score.value,
        "signature": score.signature,
        "by_length": by_length,
        "sentences_per_second": len(lines) / seconds,
    }


def parts(items: Sequence[int], n: int) -> Iterable[Sequence[int]]:
    """`items` in n parts of like size, in their order."""
    bounds = [round(i * len(items) / n) for i in range(n + 1)]
    return [items[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]


def speed(log: Path) -> dict[str, Any]:
    """Steps, and tokens per second of a run."""
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    return {
        "steps": steps[-1]["step"],
        "tokens_per_second": statistics.median(e["n_tokens"] / e["seconds"] for e in steps),
    }


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
