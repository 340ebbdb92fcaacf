"""Kill a run at random moments, and one at every write; see whether it makes a difference.

    python benchmarks/kill.py [--kills 50]

The run is small, but has all that has a memory or draws lots: dropout, subword sampling, word
dropout, accumulation, early stopping, averages. A killed run is started again by the same call.
Its final weights and its log (times aside) are compared byte for byte with an undisturbed run's.
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
from mtcli.config import Config, load_config
from test_killed import EVERYTHING


def main() -> None:
    """Print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    n_kills = parser.parse_args().kills
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        config = _config(place)
        assert killing.attempt(config, place / "undisturbed")
        expected = killing.result(place / "undisturbed")
        _at_random(config, place / "random", n_kills)
        print(f"{n_kills} kills at random moments of one run:", _same(place / "random", expected))
        n_writes, n_same = _at_every_write(config, place / "write", expected)
        print(f"one kill at each of its {n_writes} writes: {n_same} of {n_writes} identical")


def _config(place: Path) -> Config:
    files = [place / "train.en", place / "train.de"]
    for path, lines in zip(files, zip(*tiny_pairs(), strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    train = ("data.train", [str(path) for path in files])
    return load_config(None, [train, *TINY_SETTINGS.items(), *EVERYTHING.items()])


def _at_random(config: Config, directory: Path, n_kills: int) -> None:
    """Lives long enough to get on, short enough to need all the kills."""
    lives = random.Random(1)
    for _ in range(n_kills):
        if killing.attempt(config, directory, seconds=lives.uniform(0.05, 1.2)):
            shutil.rmtree(directory)  # it came to its end too soon: once more
    assert killing.attempt(config, directory)


def _at_every_write(config: Config, directory: Path, expected: object) -> tuple[int, int]:
    at_write, n_same = 1, 0
    while not killing.attempt(config, directory, at_write=at_write):
        assert killing.attempt(config, directory)
        n_same += killing.result(directory) == expected
        shutil.rmtree(directory)
        at_write += 1
    return at_write - 1, n_same


def _same(directory: Path, expected: object) -> str:
    return "identical" if killing.result(directory) == expected else "DIFFERENT"


if __name__ == "__main__":
    main()
