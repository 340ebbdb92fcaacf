"""What an engine is asked for: plain values, so that a translation need not wait for a config."""

import math
from dataclasses import dataclass

FORMATS = ("text", "tsv", "jsonl")
ENGINES = ("auto", "ctranslate2", "torch")
QUANTIZATIONS = ("int8", "int16", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Sampling:
    """Draw each piece at random from what the model thinks of it, instead of searching."""

    temperature: float = 1.0  # below 1 bolder towards the likely, above 1 flatter
    top_k: int = 0  # draw from so many of the most likely pieces; 0: from all
    top_p: float = 1.0  # draw from the most likely pieces that have this probability together


@dataclass(frozen=True)
class SearchOptions:
    """How a translation is looked for, and what is told of it."""

    beam_size: int = 4
    n_best: int = 1
    length_penalty: float = 1.0
    max_length: int = 256
    max_length_ratio: float | None = None
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    sampling: Sampling | None = None
    with_scores: bool = True  # greedy search is faster without
    with_alignment: bool = False

    def __post_init__(self) -> None:
        if self.n_best > self.beam_size and not self.sampling:
            raise ValueError(f"n_best={self.n_best} needs a beam_size of at least as much")

    def limit(self, n_source: int, n_prefix: int = 0) -> int:
        """The longest translation of a source of so many pieces, a given prefix included.

        It comes in steps of eight, so that sources of like length can be searched together and
        still each has a limit of its own.
        """
        ratio = self.max_length_ratio
        free = self.max_length if ratio is None else _up_to_eight(ratio * n_source)
        return min(self.max_length, free) + _up_to_eight(n_prefix)


def _up_to_eight(n: float) -> int:
    return 8 * math.ceil(n / 8)


@dataclass(frozen=True)
class EngineOptions:
    """Which engine runs a model, and with what."""

    engine: str = "auto"
    device: str = "auto"
    quantization: str | None = None  # None: int8 on a CPU, float16 on a GPU
    threads: int | None = None  # None: one for every core
    shortlist: bool | None = None  # None: if training found that it costs nothing
    seed: int | None = None  # of sampling: the same seed and file give the same samples
    is_interactive: bool = False  # all threads for one sentence, instead of one each for many
