"""Bars of `mtcli check`: shifted corpora, seeded damage, time and memory.

python benchmarks/check.py shifts --multi30k DIR [--trials 20]
python benchmarks/check.py damage --multi30k DIR
python benchmarks/check.py speed --multi30k DIR [--pairs 1000000]

DIR has train.en, train.de, test_2016_flickr.en and test_2016_flickr.de.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from mtcli.data.quality.analysis import Analysis, analyze
from mtcli.data.quality.overlap import OverlapIndex
from mtcli.data.quality.stored_pairs import StoredPairs

DEMO = Path(__file__).parent.parent / "data" / "demo"
MAX_DISTANCE = 20  # lines between the named and the true place
SHIFTED = 500  # lines of a shift that ends again
DAMAGED_SHARE = 0.01

Pairs = tuple[list[str], list[str]]


def read_lines(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1]


def read_pairs(stem: Path) -> Pairs:
    return read_lines(Path(f"{stem}.en")), read_lines(Path(f"{stem}.de"))


def encipher(lines: list[str], seed: int) -> list[str]:
    """Replace each letter by a letter of another script."""
    letters = sorted({c for line in lines for c in line.lower() if c.isalpha()})
    other = [chr(code) for code in (*range(0x10D0, 0x10F1), *range(0x0531, 0x0557))]
    random.Random(seed).shuffle(other)
    table = {ord(letter): other[i] for i, letter in enumerate(letters)}
    return [line.lower().translate(table) for line in lines]


def check(pairs: Pairs, overlap: OverlapIndex | None = None) -> Analysis:
    return analyze(StoredPairs.of(zip(*pairs, strict=True)), overlap, lambda *_: None)


def shift(pairs: Pairs, start: int, end: int | None, side: int) -> Pairs:
    """Delete line `start` of one side and, on the other side, line `end` or the last line."""
    copy = list(pairs[0]), list(pairs[1])
    del copy[side][start]
    if end is None:
        copy[1 - side].pop()
    else:
        del copy[1 - side][end]
    return copy


def shuffle(pairs: Pairs, rng: random.Random) -> Pairs:
    order = list(range(len(pairs[0])))
    rng.shuffle(order)
    return [pairs[0][i] for i in order], [pairs[1][i] for i in order]


def shift_trials(name: str, pairs: Pairs, n_trials: int) -> None:
    """Print how many shifts were found, and how many clean corpora raised an alarm."""
    rng = random.Random(17)
    n_lines = len(pairs[0])
    found = {"to the end": 0, f"for {SHIFTED} lines": 0}
    n_alarms = 0
    for trial in range(n_trials):
        # A random order of the same pairs is another clean corpus.
        n_alarms += bool(check(shuffle(pairs, rng) if trial else pairs).misaligned)
        for label in found:
            last = n_lines * 9 // 10 - (SHIFTED if label.startswith("for") else 0)
            start = rng.randrange(n_lines // 10, last)
            end = start + SHIFTED if label.startswith("for") else None
            segments = check(shift(pairs, start, end, side=trial % 2)).misaligned
            is_found = len(segments) == 1 and abs(segments[0].start - start) <= MAX_DISTANCE
            if is_found and end is not None:
                is_found = abs(segments[0].end - end) <= MAX_DISTANCE
            found[label] += is_found
            if not is_found:
                print(f"  missed: {label}, line {start + 1}: {segments}", flush=True)
    shifts = " | ".join(f"{n} of {n_trials}" for n in found.values())
    print(f"| {name} | {shifts} | {n_alarms} of {n_trials} |", flush=True)


def run_shifts(options: argparse.Namespace) -> None:
    multi30k = read_pairs(options.multi30k / "train")
    demo = read_pairs(DEMO / "train")
    print(f"| corpus | found: shift to the end | shift of {SHIFTED} lines | false alarms |")
    print("| --- | ---: | ---: | ---: |")
    cut = demo[0][:4000], demo[1][:4000]
    shift_trials("demo corpus, 4,000 lines", cut, options.trials)
    shift_trials(
        "demo corpus, 4,000 lines, target in another script",
        (cut[0], encipher(cut[1], 1)),
        options.trials,
    )
    shift_trials("Multi30k, 29,000 lines", multi30k, options.trials)
    enciphered = multi30k[0], encipher(multi30k[1], 2)
    shift_trials("Multi30k, target in another script", enciphered, options.trials)


def run_damage(options: argparse.Namespace) -> None:
    """Damage 1 % of the lines in each way, one way at a time; print a table of the results."""
    test = read_pairs(options.multi30k / "test_2016_flickr")
    print("| corpus | damage | finding | seeded | found | other lines newly flagged |")
    print("| --- | --- | --- | ---: | ---: | ---: |")
    multi30k, demo = read_pairs(options.multi30k / "train"), read_pairs(DEMO / "train")
    enciphered = encipher(multi30k[0], 4), multi30k[1]
    index = OverlapIndex(zip(*test, strict=True))
    for name, pairs, kinds in (
        ("demo", demo, damages(demo, test)),
        ("Multi30k", multi30k, damages(multi30k, test)),
        ("Multi30k, source in another script", enciphered, third_language(multi30k[0])),
    ):
        before = _flagged(check(pairs, index))
        for label, (kind, damage) in kinds.items():
            rng = random.Random(5)
            rows = rng.sample(range(len(pairs[0])), round(DAMAGED_SHARE * len(pairs[0])))
            copy = list(pairs[0]), list(pairs[1])
            for row in rows:
                copy[0][row], copy[1][row] = damage(pairs, row, rng)
            analysis = check(copy, index)
            found = set(analysis.rows.get(kind, ())) & set(rows)
            others = _flagged(analysis) - before - set(rows)
            share = 100 * len(others) / (len(pairs[0]) - len(rows))
            print(
                f"| {name} | {label} | `{kind}` | {len(rows)} | {len(found)} "
                f"({100 * len(found) / len(rows):.1f}%) | {len(others)} ({share:.2f}%) |",
                flush=True,
            )


def _flagged(analysis: Analysis) -> set[int]:
    """Return the rows with problems."""
    from mtcli.data.quality.findings import KINDS

    rows = {int(r) for k, rows in analysis.rows.items() if KINDS[k].is_problem for r in rows}
    for segment in analysis.misaligned:
        rows |= set(range(segment.start, segment.end))
    return rows


Damage = Callable[[Pairs, int, random.Random], tuple[str, str]]


def damages(pairs: Pairs, test: Pairs) -> dict[str, tuple[str, Damage]]:
    """Return each kind of damage: the finding that must report it, and a function."""
    n_lines = len(pairs[0])
    in_script = encipher(pairs[1], 3)

    def other_row(row: int, rng: random.Random) -> int:
        return (row + rng.randrange(1, n_lines)) % n_lines

    def change_word(line: str, rng: random.Random) -> str:
        words = line.split()
        words[rng.randrange(len(words))] = "Wort"
        return " ".join(words)

    def near_test(p: Pairs, row: int, rng: random.Random) -> tuple[str, str]:
        i = rng.choice([i for i in range(len(test[0])) if len(test[0][i].split()) > 5])
        return change_word(test[0][i], rng), change_word(test[1][i], rng)

    def insert(line: str, text: str, rng: random.Random) -> str:
        place = rng.randrange(len(line) + 1)
        return line[:place] + text + line[place:]

    def repeat_pair(p: Pairs, row: int, rng: random.Random) -> tuple[str, str]:
        i = other_row(row, rng)
        return p[0][i], p[1][i]

    def copy_test(p: Pairs, row: int, rng: random.Random) -> tuple[str, str]:
        i = rng.randrange(len(test[0]))
        return test[0][i], test[1][i]

    return {
        "duplicate of another pair": ("duplicates", repeat_pair),
        "target is the source": ("copies", lambda p, i, r: (p[0][i], p[0][i])),
        "target is blank": ("one_sided", lambda p, i, r: (p[0][i], " ")),
        "both sides are blank": ("blank", lambda p, i, r: ("", "")),
        "target is six lines joined": (
            "length_ratio",
            lambda p, i, r: (p[0][i], " ".join(p[1][other_row(i, r)] for _ in range(6))),
        ),
        "target is in another script": ("wrong_script", lambda p, i, r: (p[0][i], in_script[i])),
        "target is another English line": (
            "wrong_language",
            lambda p, i, r: (p[0][i], p[0][other_row(i, r)]),
        ),
        "mojibake (UTF-8 read as Windows-1252)": (
            "damaged",
            lambda p, i, r: (p[0][i], insert(p[1][i], "für".encode().decode("cp1252"), r)),
        ),
        "U+FFFD": ("damaged", lambda p, i, r: (p[0][i], insert(p[1][i], "\ufffd", r))),
        "control character": ("control", lambda p, i, r: (insert(p[0][i], "\x07", r), p[1][i])),
        "repeated phrase": ("repeated", lambda p, i, r: (p[0][i], p[1][i] + " ha ha" * 10)),
        "pair of the test set": ("test_exact", copy_test),
        "pair of the test set, one word changed": ("test_near", near_test),
    }


def third_language(lines: list[str]) -> dict[str, tuple[str, Damage]]:
    """Return a damage with lines in a language that neither side has."""

    def replace(p: Pairs, row: int, rng: random.Random) -> tuple[str, str]:
        return p[0][row], rng.choice(lines)

    return {"target is an English line": ("wrong_language", replace)}


def write_varied(pairs: Pairs, n_pairs: int, directory: Path) -> list[str]:
    """Write `n_pairs` pairs: random lines with two made-up names in front."""
    rng = random.Random(1)
    names = [a + b for a in "Ba Do Fe Gi Ka Lu Mo Ne Pa Ro".split() for b in "ban dor fel".split()]
    paths = [directory / "large.en", directory / "large.de"]
    with paths[0].open("w", encoding="utf-8") as sources, paths[1].open("w", encoding="utf-8") as t:
        for _ in range(n_pairs):
            row = rng.randrange(len(pairs[0]))
            name = f"{rng.choice(names)} {rng.choice(names)} {rng.randrange(10_000)}"
            sources.write(f"{name}: {pairs[0][row]}\n")
            t.write(f"{name}: {pairs[1][row]}\n")
    return [str(path) for path in paths]


def tree_memory(process: int) -> int:
    """Return the memory of a process and its children in kB; shared pages count once (PSS)."""
    total = 0
    children = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True)
    for number in (process, *map(int, children.stdout.split())):
        try:
            text = Path(f"/proc/{number}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(x.split()[1]) for x in text.splitlines() if x.startswith("Pss:"))
    return total


def run_speed(options: argparse.Namespace) -> None:
    """Print time and memory of `mtcli check` on a large corpus."""
    with tempfile.TemporaryDirectory() as directory:
        pairs = read_pairs(options.multi30k / "train")
        names = write_varied(pairs, options.pairs, Path(directory))
        test = f"{options.multi30k}/test_2016_flickr.{{en,de}}"
        command = [sys.executable, "-m", "mtcli", "check", *names, "--against", test, "--json"]
        before, start = os.times(), time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        peak = 0
        while process.poll() is None:
            peak = max(peak, tree_memory(process.pid))
            time.sleep(0.5)
        wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user
    cpu -= before.children_system
    print(
        f"{options.pairs:,} pairs: exit code {process.returncode}, {wall:.1f} s wall-clock time, "
        f"{cpu:.1f} s CPU time of all processes, peak memory {peak / 1024:,.0f} MB (PSS)"
    )


def main() -> None:
    """Run one of the benchmarks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("benchmark", choices=("shifts", "damage", "speed"))
    parser.add_argument("--multi30k", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    options = parser.parse_args()
    {"shifts": run_shifts, "damage": run_damage, "speed": run_speed}[options.benchmark](options)


if __name__ == "__main__":
    main()
