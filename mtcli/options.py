"""What an engine is asked for: plain values, so that a translation need not wait for a config."""

import math
from dataclasses import dataclass

FORMATS = ("text", "tsv", "jsonl")
ENGINES = ("auto", "ctranslate2", "torch")
QUANTIZATIONS = ("int8", "int16", "float32", "float16", "bfloat16")
_MANY = 2**31 - 1


@dataclass(frozen=True)
class Sampling:
    """Draw each piece at random from what the model thinks of it, instead of searching."""

    temperature: float = 1.0  # below 1 keeps to the likely, above 1 is wilder
    top_k: int = 0  # draw from so many of the most likely pieces; 0: from all
    top_p: float = 1.0  # draw from the most likely pieces that have this probability together

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0.01, 100)
        _check("top_k", self.top_k, 0, _MANY)
        _check("top_p", self.top_p, 0.001, 1)


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
        _check("beam_size", self.beam_size, 1, 1000)
        _check("n_best", self.n_best, 1, 1000)
        _check("length_penalty", self.length_penalty, 0, 10)
        _check("max_length", self.max_length, 1, _MANY)
        _check("max_length_ratio", self.max_length_ratio or 1, 0.01, 1000)
        _check("no_repeat_ngram", self.no_repeat_ngram, 0, _MANY)
        _check("repetition_penalty", self.repetition_penalty, 0.01, 100)
        if self.n_best > self.beam_size and not self.sampling:
            raise ValueError(f"n_best={self.n_best} needs a beam_size of at least as much")
        if self.n_best > 1 and self.sampling and self.sampling.top_k == 1:
            raise ValueError("with top_k=1 all samples are the same; n_best has to be 1, too")

    def limit(self, n_source: int, n_prefix: int = 0) -> int:
        """The longest translation of a source of so many pieces, a given prefix included.

        What depends on the source or the prefix comes in steps of eight, so that sources of like
        length can be searched together and still each has a limit of its own.
        """
        ratio = self.max_length_ratio
        free = self.max_length if ratio is None else _up_to_eight(ratio * n_source)
        return min(self.max_length, free) + _up_to_eight(n_prefix)


def _check(name: str, value: float, least: float, most: float) -> None:
    """Refuse what is out of range, and what is not a number."""
    if not least <= value <= most:
        raise ValueError(f"{name}={value} is not between {least} and {most}")


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
