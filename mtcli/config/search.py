"""Search, sampling and engine options, with the limits of their values.

`SearchConfig`, the command line and the Python API all use these definitions. The options are plain
dataclasses, so that `mtcli translate` does not import pydantic.
"""

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

from mtcli.errors import OptionsError

FORMATS = ("text", "tsv", "jsonl")
ENGINES = ("auto", "ctranslate2", "torch")
ATTENTION_KINDS = ("cross", "decoder", "encoder")
QUANTIZATIONS = ("int8", "int16", "float32", "float16", "bfloat16")
_MAX_INT = 2**31 - 1


class Limits(NamedTuple):
    """Smallest and largest allowed value of an option."""

    low: float
    high: float


SEARCH_LIMITS: dict[str, Limits] = {
    "beam_size": Limits(1, 1000),
    "n_best": Limits(1, 1000),
    "length_penalty": Limits(0, 10),
    "max_length": Limits(1, _MAX_INT),
    "max_length_ratio": Limits(0.01, 1000),
    "no_repeat_ngram": Limits(0, _MAX_INT),
    "repetition_penalty": Limits(0.01, 100),
}
SAMPLING_LIMITS: dict[str, Limits] = {
    "temperature": Limits(0.01, 100),
    "top_k": Limits(0, _MAX_INT),
    "top_p": Limits(0.001, 1),
}
_INTEGERS = {"beam_size", "n_best", "max_length", "no_repeat_ngram", "top_k"}


@dataclass(frozen=True)
class Sampling:
    """Options for sampling pieces from the model's distribution, instead of beam search."""

    temperature: float = 1.0  # divides the logits; values below 1 sharpen the distribution
    top_k: int = 0  # sample from the k most probable pieces; 0 means all pieces
    top_p: float = 1.0  # sample from the most probable pieces up to this total probability

    def __post_init__(self) -> None:
        for name, limits in SAMPLING_LIMITS.items():
            _check(name, getattr(self, name), limits)


@dataclass(frozen=True)
class SearchOptions:
    """Options for beam search and sampling, and the details to return with each translation."""

    beam_size: int = 4
    n_best: int = 1
    length_penalty: float = 1.0
    max_length: int = 256
    max_length_ratio: float | None = None
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    sampling: Sampling | None = None
    with_scores: bool = True  # greedy search is faster without scores
    with_alignment: bool = False

    def __post_init__(self) -> None:
        for name, limits in SEARCH_LIMITS.items():
            value = getattr(self, name)
            if name != "max_length_ratio" or value is not None:
                _check(name, value, limits)
        if self.n_best > self.beam_size and not self.sampling:
            raise OptionsError(
                f"n_best={self.n_best} is larger than beam_size={self.beam_size}",
                hint="raise beam_size to at least n_best",
            )
        if self.n_best > 1 and self.sampling and self.sampling.top_k == 1:
            raise OptionsError(
                f"n_best={self.n_best} with top_k=1 gives {self.n_best} identical samples",
                hint="set n_best to 1, or raise top_k",
            )

    def limit(self, n_source: int, n_prefix: int = 0) -> int:
        """Return the maximum length of a translation in pieces, including the prefix.

        Lengths derived from the source or the prefix are rounded up to multiples of eight, so that
        sources of similar length have the same limit and can share a batch.
        """
        ratio = self.max_length_ratio
        free = self.max_length if ratio is None else _round_up_to_eight(ratio * n_source)
        return min(self.max_length, free) + _round_up_to_eight(n_prefix)


def _check(name: str, value: Any, limits: Limits) -> None:
    check_number(name, value, limits, is_integer=name in _INTEGERS)


def check_number(name: str, value: Any, limits: Limits, *, is_integer: bool) -> None:
    """Raise `OptionsError` if `value` has the wrong type or is outside `limits`."""
    kind = Integral if is_integer else Real
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    if not is_number:
        expected = "an integer" if is_integer else "a number"
        raise OptionsError(f"{name}={value!r} is not {expected}")
    if not limits.low <= value <= limits.high:  # also rejects NaN
        raise OptionsError(f"{name}={value} is not between {limits.low} and {limits.high}")


def _round_up_to_eight(number: float) -> int:
    return 8 * math.ceil(number / 8)


@dataclass(frozen=True)
class EngineOptions:
    """Options of the engine that runs the model."""

    engine: str = "auto"
    device: str = "auto"
    quantization: str | None = None  # None: int8 on a CPU, float16 on a GPU
    threads: int | None = None  # None: one per core
    shortlist: bool | None = None  # None: the default chosen at the end of training
    seed: int | None = None  # sampling seed; the same seed and input give the same samples
