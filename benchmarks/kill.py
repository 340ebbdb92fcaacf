"""Kill runs at random times and at every write, and compare the results byte for byte.

    python benchmarks/kill.py [--kills 50] [--mixed] [--workers 1] [--first-write 1]

The run is small, but uses all features that have state or randomness: dropout, subword sampling,
word dropout, gradient accumulation, early stopping and weight averages. With --mixed, it also mixes
two corpora with weights, tags and directions, and has two dev sets.

A killed run is restarted with the same call. The final weights and the log (without times) are
compared with those of an uninterrupted run. --workers is the number of runs at a time in the second
part; --first-write skips the writes that an earlier call has tested.
"""

import argparse
import itertools
import random
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
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
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--first-write", type=int, default=1)
    options = parser.parse_args()
    n_kills = options.kills
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = _config(folder, is_mixed=options.mixed)
        assert killing.attempt(config, folder / "uninterrupted")
        expected = killing.result(folder / "uninterrupted")
        if n_kills:
            _kill_at_random(config, folder / "random", n_kills)
            verdict = _compare(folder / "random", expected)
            print(f"{n_kills} kills at random times in one run: {verdict}", flush=True)
        sweep = WriteSweep(config, folder, expected, options.first_write)
        sweep.run(options.workers)
        tested = sorted(sweep.verdicts)
        n_identical = sum(sweep.verdicts.values())
        print(
            f"one kill at each of the writes {tested[0]} to {tested[-1]}: "
            f"{n_identical} of {len(tested)} identical"
        )


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


class WriteSweep:
    """One run per write: it is killed at this write, restarted, and compared."""

    def __init__(self, config: Config, folder: Path, expected: object, first: int) -> None:
        self._config, self._folder, self._expected = config, folder, expected
        self._numbers = itertools.count(first)
        self._is_done = False
        self.verdicts: dict[
            int, bool
        ] = {}  # number of the write -> whether the result is identical

    def run(self, n_workers: int) -> None:
        """Test writes until a run has fewer writes than the number of the next one."""
        with ThreadPoolExecutor(n_workers) as pool:
            list(pool.map(self._work, range(n_workers)))

    def _work(self, _: int) -> None:
        while not self._is_done:
            at_write = next(self._numbers)
            directory = self._folder / f"write-{at_write}"
            if killing.attempt(self._config, directory, at_write=at_write):
                self._is_done = True
            else:
                assert killing.attempt(self._config, directory)
                verdict = _compare(directory, self._expected)
                self.verdicts[at_write] = verdict == "identical"
                print(f"  write {at_write}: {verdict}", flush=True)
            shutil.rmtree(directory)


def _compare(directory: Path, expected: object) -> str:
    return "identical" if killing.result(directory) == expected else "DIFFERENT"


if __name__ == "__main__":
    main()
