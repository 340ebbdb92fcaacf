"""Kill runs at random times and at every write, and compare the results byte for byte.

    python benchmarks/kill.py [--kills 50] [--mixed]

The run is small, but uses all features that have state or randomness: dropout, subword sampling,
word dropout, gradient accumulation, early stopping and weight averages. With --mixed, it also mixes
two corpora with weights, tags and directions, and has two dev sets.

A killed run is restarted with the same call. The final weights and the log (without times) are
compared with those of an uninterrupted run.
"""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import killing
from conftest import TINY_SETTINGS, tiny_pairs
from mtcli.config.load import load_config
from mtcli.config.sections import Config
from test_killed import STATEFUL_SETTINGS
from test_mixing import mixed_corpora


def main() -> None:
    """Run both experiments and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--mixed", action="store_true")
    options = parser.parse_args()
    n_kills = options.kills
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = _config(folder, is_mixed=options.mixed)
        assert killing.attempt(config, folder / "uninterrupted")
        expected = killing.result(folder / "uninterrupted")
        _kill_at_random(config, folder / "random", n_kills)
        verdict = _compare(folder / "random", expected)
        print(f"{n_kills} kills at random times in one run: {verdict}")
        n_writes, n_identical = _kill_at_every_write(config, folder / "write", expected)
        print(f"one kill at each of {n_writes} writes: {n_identical} of {n_writes} identical")


def _config(folder: Path, *, is_mixed: bool) -> Config:
    files = [folder / "train.en", folder / "train.de"]
    for path, lines in zip(files, zip(*tiny_pairs(), strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    names = [str(path) for path in files]
    train = mixed_corpora(names) if is_mixed else names
    settings = {"data.train": train, **TINY_SETTINGS, **STATEFUL_SETTINGS}
    return load_config(None, settings.items())


def _kill_at_random(config: Config, directory: Path, n_kills: int) -> None:
    # Choose times that are long enough to make progress, but too short to finish the run.
    generator = random.Random(1)
    for _ in range(n_kills):
        if killing.attempt(config, directory, seconds=generator.uniform(0.05, 1.2)):
            shutil.rmtree(directory)  # the run finished too early: start again
    assert killing.attempt(config, directory)


def _kill_at_every_write(config: Config, directory: Path, expected: object) -> tuple[int, int]:
    at_write, n_identical = 1, 0
    while not killing.attempt(config, directory, at_write=at_write):
        assert killing.attempt(config, directory)
        n_identical += killing.result(directory) == expected
        shutil.rmtree(directory)
        at_write += 1
    return at_write - 1, n_identical


def _compare(directory: Path, expected: object) -> str:
    return "identical" if killing.result(directory) == expected else "DIFFERENT"


if __name__ == "__main__":
    main()
