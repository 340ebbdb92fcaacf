"""Benchmarks of `mtcli check`: shifted corpora, artificial damage, time and memory use.

python benchmarks/check.py shifts --multi30k DIR [--trials 20]
python benchmarks/check.py damage --multi30k DIR
python benchmarks/check.py speed --multi30k DIR [--pairs 1000000]

DIR contains train.en, train.de, test_2016_flickr.en and test_2016_flickr.de.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Callable
from pathlib import Path

from mtcli.data.quality.analysis import Analysis, analyze
from mtcli.data.quality.findings import KINDS
from mtcli.data.quality.overlap import OverlapIndex
from mtcli.data.quality.stored_pairs import StoredPairs

DEMO = Path(__file__).parent.parent / "data" / "demo"
MAX_DISTANCE = 20  # maximum number of lines between the reported and the true position
SHIFTED = 500  # number of lines in a shift that ends before the end of the corpus
DAMAGED_SHARE = 0.01

Pairs = tuple[list[str], list[str]]
Damage = Callable[[int], tuple[str, str]]


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file."""
    return path.read_bytes().decode().split("\n")[:-1]


def read_pairs(stem: Path) -> Pairs:
    """Return the English and German lines of a corpus."""
    return read_lines(Path(f"{stem}.en")), read_lines(Path(f"{stem}.de"))


def encipher(lines: list[str], seed: int) -> list[str]:
    """Replace each letter with a letter from another script."""
    letters = sorted({c for line in lines for c in line.lower() if c.isalpha()})
    other = [chr(code) for code in (*range(0x10D0, 0x10F1), *range(0x0531, 0x0557))]
    random.Random(seed).shuffle(other)
    table = {ord(letter): other[i] for i, letter in enumerate(letters)}
    return [line.lower().translate(table) for line in lines]


def check(pairs: Pairs, overlap: OverlapIndex | None = None) -> Analysis:
    """Analyze a corpus as `mtcli check` does."""
    return analyze(StoredPairs.of(zip(*pairs, strict=True)), overlap, lambda *_: None)


def shift(pairs: Pairs, start: int, end: int | None, side: int) -> Pairs:
    """Delete line `start` from one side and line `end` (default: the last) from the other."""
    copy = list(pairs[0]), list(pairs[1])
    del copy[side][start]
    if end is None:
        copy[1 - side].pop()
    else:
        del copy[1 - side][end]
    return copy


def shuffle(pairs: Pairs, rng: random.Random) -> Pairs:
    """Return the pairs in random order."""
    order = list(range(len(pairs[0])))
    rng.shuffle(order)
    return [pairs[0][i] for i in order], [pairs[1][i] for i in order]


def shift_trials(name: str, pairs: Pairs, n_trials: int) -> None:
    """Print how many shifts were found, and how many clean corpora caused a false alarm."""
    rng = random.Random(17)
    n_lines = len(pairs[0])
    found = {"to the end": 0, f"for {SHIFTED} lines": 0}
    n_alarms = 0
    for trial in range(n_trials):
        # After the first trial, use the same pairs in random order as a new clean corpus.
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
    """Print a table of the shifts that were found."""
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
    name = "Multi30k, 29,000 lines, target in another script"
    shift_trials(name, enciphered, options.trials)


def run_damage(options: argparse.Namespace) -> None:
    """Damage 1% of the lines with one kind of damage at a time; print a table of the results."""
    test = read_pairs(options.multi30k / "test_2016_flickr")
    print("| corpus | damage | finding | seeded | found | other lines newly flagged |")
    print("| --- | --- | --- | ---: | ---: | ---: |")
    multi30k, demo = read_pairs(options.multi30k / "train"), read_pairs(DEMO / "train")
    enciphered = encipher(multi30k[0], 4), multi30k[1]
    index = OverlapIndex(zip(*test, strict=True))
    for name, pairs, kinds in (
        ("demo", demo, Damages(demo, test, set(damaged_rows(demo))).kinds()),
        ("Multi30k", multi30k, Damages(multi30k, test, set(damaged_rows(multi30k))).kinds()),
        (
            "Multi30k, source in another script",
            enciphered,
            third_language(enciphered, multi30k[0]),
        ),
    ):
        before = _flagged(check(pairs, index))
        for label, (kind, damage) in kinds.items():
            rows = damaged_rows(pairs)
            copy = list(pairs[0]), list(pairs[1])
            for row in rows:
                copy[0][row], copy[1][row] = damage(row)
            analysis = check(copy, index)
            found = set(analysis.rows.get(kind, ())) & set(rows)
            others = _flagged(analysis) - before - set(rows)
            share = 100 * len(others) / (len(pairs[0]) - len(rows))
            print(
                f"| {name} | {label} | `{kind}` | {len(rows)} | {len(found)} "
                f"({100 * len(found) / len(rows):.1f}%) | {len(others)} ({share:.2f}%) |",
                flush=True,
            )


def damaged_rows(pairs: Pairs) -> list[int]:
    """Return the rows to damage."""
    n_pairs = len(pairs[0])
    return random.Random(5).sample(range(n_pairs // 10, n_pairs), round(DAMAGED_SHARE * n_pairs))


def _flagged(analysis: Analysis) -> set[int]:
    """Return the rows with problems."""
    rows = {int(r) for k, rows in analysis.rows.items() if KINDS[k].is_problem for r in rows}
    for segment in analysis.misaligned:
        rows |= set(range(segment.start, segment.end))
    return rows


class Damages:
    """Kinds of damage, as functions that return a damaged version of the pair in a row."""

    def __init__(self, pairs: Pairs, test: Pairs, rows: set[int]) -> None:
        self._source, self._target = pairs
        self._intact = [row for row in range(len(pairs[0])) if row not in rows]
        self._test = [pair for pair in zip(*test, strict=True) if len(pair[0].split()) > 5]
        self._in_script = encipher(self._target, 3)
        self._rng = random.Random(6)

    def kinds(self) -> dict[str, tuple[str, Damage]]:
        """Return the expected finding and the damaging function for each kind of damage."""
        recoded = "für".encode().decode("cp1252")
        return {
            "repeats an earlier pair": ("duplicates", self._repeat_pair),
            "target is the source": ("copies", lambda i: (self._source[i],) * 2),
            "target is blank": ("one_sided", lambda i: (self._source[i], " ")),
            "both sides are blank": ("blank", lambda _: ("", "")),
            "target is six lines joined": ("length_ratio", self._join_lines),
            "target in another script": ("wrong_script", self._encipher),
            "target is another English line": ("wrong_language", self._other_source),
            "mojibake (UTF-8 read as Windows-1252)": ("damaged", lambda i: self._add(i, recoded)),
            "U+FFFD": ("damaged", lambda i: self._add(i, "\ufffd")),
            "control character": ("control", lambda i: self._add(i, "\x07")),
            "repeated phrase": ("repeated", lambda i: self._add(i, " ha ha" * 10 + " ")),
            "pair of the test set": ("test_exact", lambda _: self._rng.choice(self._test)),
            "pair of the test set, one word changed": ("test_near", self._near_test),
        }

    def _repeat_pair(self, row: int) -> tuple[str, str]:
        earlier = self._intact[: bisect(self._intact, row)]
        other = self._rng.choice(earlier)
        return self._source[other], self._target[other]

    def _join_lines(self, row: int) -> tuple[str, str]:
        return self._source[row], " ".join(self._rng.choices(self._target, k=6))

    def _encipher(self, row: int) -> tuple[str, str]:
        return self._source[row], self._in_script[row]

    def _other_source(self, row: int) -> tuple[str, str]:
        return self._source[row], self._rng.choice(self._source)

    def _add(self, row: int, text: str) -> tuple[str, str]:
        line = self._target[row]
        place = self._rng.randrange(len(line) + 1)
        return self._source[row], line[:place] + text + line[place:]

    def _near_test(self, _: int) -> tuple[str, str]:
        source, target = self._rng.choice(self._test)
        return self._change_word(source), self._change_word(target)

    def _change_word(self, line: str) -> str:
        words = line.split()
        words[self._rng.randrange(len(words))] = "Wort"
        return " ".join(words)


def third_language(pairs: Pairs, lines: list[str]) -> dict[str, tuple[str, Damage]]:
    """Return a kind of damage that replaces targets with `lines` in a third language."""
    rng = random.Random(7)
    return {
        "target is an English line": (
            "wrong_language",
            lambda row: (pairs[0][row], rng.choice(lines)),
        )
    }


def write_varied(pairs: Pairs, n_pairs: int, directory: Path) -> list[str]:
    """Write `n_pairs` random pairs that each start with an invented name; return the paths."""
    rng = random.Random(1)
    names = [f"{a}{b}" for a in ("Ba", "Do", "Ka", "Lu", "Mo", "Ro") for b in ("ban", "dor", "fel")]
    paths = [directory / "large.en", directory / "large.de"]
    with paths[0].open("w", encoding="utf-8") as sources, paths[1].open("w", encoding="utf-8") as t:
        for _ in range(n_pairs):
            row = rng.randrange(len(pairs[0]))
            name = f"{rng.choice(names)} {rng.choice(names)} {rng.randrange(10_000)}"
            sources.write(f"{name}: {pairs[0][row]}\n")
            t.write(f"{name}: {pairs[1][row]}\n")
    return [str(path) for path in paths]


def tree_memory(process: int) -> int:
    """Return the memory use of a process and its children in kB (PSS: shared pages count once)."""
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
    """Print the time and memory use of `mtcli check` on a large corpus."""
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
    """Parse the arguments and run one of the benchmarks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("benchmark", choices=("shifts", "damage", "speed"))
    parser.add_argument("--multi30k", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    options = parser.parse_args()
    {"shifts": run_shifts, "damage": run_damage, "speed": run_speed}[options.benchmark](options)


if __name__ == "__main__":
    main()
