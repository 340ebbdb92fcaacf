"""Generate the demo corpus: python data/demo/generate.py [--out DIR]."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from alignment import Links, Marker, align, to_pharaoh  # noqa: E402
from clauses import ClauseChooser  # noqa: E402
from english import English  # noqa: E402
from german import German  # noqa: E402
from german_order import GermanOrder  # noqa: E402
from holdout import held_out_combinations  # noqa: E402
from lexicon import Lexicon, load_lexicon  # noqa: E402
from patterns import load_patterns  # noqa: E402
from sampler import RejectedError, Sampler  # noqa: E402
from trees import Sentence  # noqa: E402

SEED = 1
N_TRAIN, N_DEV, N_TEST, N_LONG = 20_000, 500, 500, 200
MIN_WORDS, MAX_WORDS = 3, 16
N_TRIES = 100


@dataclass(frozen=True)
class Pair:
    """A sentence in both languages, and its tree."""

    english: str
    german: str
    sentence: Sentence

    @cached_property
    def has_held_out(self) -> bool:
        """Whether the sentence contains a held-out combination."""
        return bool(held_out_combinations(self.sentence))

    @property
    def n_words(self) -> tuple[int, int]:
        """Numbers of space-separated English and German words."""
        return len(self.english.split()), len(self.german.split())


class Realizer:
    """Realizes trees as sentence pairs."""

    def __init__(self, lexicon: Lexicon) -> None:
        """Create the realizers of both languages."""
        self.english = English(lexicon)
        self.german = GermanOrder(German(lexicon))

    def pair(self, sentence: Sentence) -> Pair:
        """Return the sentence in both languages."""
        return Pair(self.english.sentence(sentence), self.german.sentence(sentence), sentence)

    def alignment(self, sentence: Sentence) -> Links:
        """Return the links between the words of the sentence in both languages."""
        marker = Marker()
        marked = marker.sentence(sentence)
        english, german = self.english.sentence(marked), self.german.sentence(marked)
        return align(english, german, marker.verb_of)


def pairs(weights: dict[str, float], seed: int) -> Iterator[Pair]:
    """Yield an endless stream of pairs, in which sentences may repeat."""
    lexicon, patterns, sampler = load_lexicon(), load_patterns(), Sampler(seed)
    chooser, realizer = ClauseChooser(lexicon, sampler), Realizer(lexicon)
    while True:
        pattern = patterns[sampler.pick_weighted(weights)]
        # Retry with the same pattern: otherwise, patterns with strict conditions would become rare.
        for _ in range(N_TRIES):
            try:
                sentence = chooser.sentence(pattern)
            except RejectedError:
                sampler.discard_uses()
                continue
            sampler.count_uses()
            yield realizer.pair(sentence)
            break


def new_pairs(stream: Iterator[Pair]) -> Iterator[Pair]:
    """Yield the pairs whose English sentence has not occurred before."""
    seen: dict[str, str] = {}
    for pair in stream:
        known = seen.get(pair.english)
        if known is None:
            seen[pair.english] = pair.german
            yield pair
        elif known != pair.german:
            # If a sentence had two translations, the score would depend on chance.
            raise ValueError(f"two translations of {pair.english!r}: {known!r} and {pair.german!r}")


def make_splits() -> dict[str, list[Pair]]:
    """Return train, dev, test and long. Half of dev and test contain held-out combinations."""
    patterns = load_patterns()
    weights = {name: pattern.weight for name, pattern in patterns.items() if pattern.weight}
    n_evaluation = (N_DEV + N_TEST) // 2
    known: list[Pair] = []
    held_out: list[Pair] = []
    for pair in new_pairs(pairs(weights, SEED)):
        if min(pair.n_words) >= MIN_WORDS and max(pair.n_words) <= MAX_WORDS:
            (held_out if pair.has_held_out else known).append(pair)
        if len(known) >= N_TRAIN + n_evaluation and len(held_out) >= n_evaluation:
            break
    evaluation = [pair for both in zip(known[N_TRAIN:], held_out, strict=False) for pair in both]
    return {
        "train": known[:N_TRAIN],
        "dev": evaluation[:N_DEV],
        "test": evaluation[N_DEV : N_DEV + N_TEST],
        "long": _long_pairs([name for name in patterns if name not in weights]),
    }


def _long_pairs(names: list[str]) -> list[Pair]:
    weights = dict.fromkeys(names, 1.0)
    found: list[Pair] = []
    for pair in new_pairs(pairs(weights, SEED + 1)):
        if min(pair.n_words) > MAX_WORDS and not pair.has_held_out:
            found.append(pair)
        if len(found) == N_LONG:
            break
    return found


def write_corpus(directory: Path) -> None:
    """Write all splits to text files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, split in make_splits().items():
        write_split(directory, name, split)


def write_split(directory: Path, name: str, split: list[Pair]) -> None:
    """Write one split: two text files, and the word alignment in Pharaoh format (`.align`).

    The files are written as bytes, so that line endings do not depend on the system.
    """
    realizer = Realizer(load_lexicon())
    links = "".join(to_pharaoh(realizer.alignment(pair.sentence)) + "\n" for pair in split)
    (directory / f"{name}.align").write_bytes(links.encode())
    english = "".join(pair.english + "\n" for pair in split)
    german = "".join(pair.german + "\n" for pair in split)
    (directory / f"{name}.en").write_bytes(english.encode())
    (directory / f"{name}.de").write_bytes(german.encode())


def main() -> None:
    """Parse the command line and write the corpus."""
    parser = argparse.ArgumentParser(description="Write the demo corpus.")
    parser.add_argument("--out", type=Path, default=HERE, help="directory for the text files")
    write_corpus(parser.parse_args().out)


if __name__ == "__main__":
    main()
