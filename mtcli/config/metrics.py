"""Options for metrics and significance tests, with the limits of their values.

The command line and the Python API use these definitions. The options are plain dataclasses, so
that `mtcli --help` imports neither sacreBLEU nor pydantic.
"""

from dataclasses import dataclass
from typing import Any

from mtcli.config.search import Limits, check_number
from mtcli.errors import OptionsError

METRIC_NAMES = ("bleu", "chrf", "chrf++", "ter")  # the keys of `METRICS` in evaluation/scores.py
DEFAULT_METRICS = ("bleu", "chrf")
# sacreBLEU's names. flores101, flores200, spm and spBLEU-1K download a SentencePiece model.
BLEU_TOKENIZERS = (
    *("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"),
    *("flores101", "flores200", "spm", "spBLEU-1K"),
)
SMOOTH_METHODS = ("exp", "floor", "add-k", "none")
TEST_METHODS = ("bootstrap", "randomization")
DEFAULT_SEED = 12345  # sacreBLEU's default
DEFAULT_RESAMPLES = 1000  # sacreBLEU's default for confidence intervals and the bootstrap test
DEFAULT_SHUFFLES = 10_000  # sacreBLEU's default for approximate randomization

METRIC_LIMITS: dict[str, Limits] = {
    "smooth_value": Limits(0, 1000),
    "chrf_char_order": Limits(1, 20),
    "chrf_word_order": Limits(0, 20),
    "chrf_beta": Limits(1, 100),
    "resamples": Limits(0, 1_000_000),
    "trials": Limits(1, 1_000_000),
    "seed": Limits(0, 2**32 - 1),
}


@dataclass(frozen=True)
class MetricOptions:
    """Metrics to compute, and the options that change their scores and signatures."""

    metrics: tuple[str, ...] = DEFAULT_METRICS
    tokenize: str | None = None  # BLEU tokenizer; None: depends on the target language
    lowercase: bool = False  # for BLEU and chrF; TER ignores case by default
    smooth_method: str = "exp"
    smooth_value: float | None = None  # for floor and add-k; None: sacreBLEU's default
    chrf_char_order: int = 6
    chrf_word_order: int = 0  # chrF++ always uses 2
    chrf_beta: int = 2
    chrf_whitespace: bool = False
    chrf_eps_smoothing: bool = False
    ter_case_sensitive: bool = False
    ter_asian_support: bool = False
    ter_no_punct: bool = False
    ter_normalized: bool = False
    resamples: int = DEFAULT_RESAMPLES  # for confidence intervals; 0 disables them
    seed: int = DEFAULT_SEED

    def __post_init__(self) -> None:
        for name in self.metrics:
            check_choice("metric", name, (*METRIC_NAMES, "comet"))
        if not self.metrics:
            raise OptionsError("no metric is given", hint=f"choose from {', '.join(METRIC_NAMES)}")
        check_choice("tokenize", self.tokenize, (*BLEU_TOKENIZERS, None))
        check_choice("smooth_method", self.smooth_method, SMOOTH_METHODS)
        if self.smooth_value is not None and self.smooth_method not in ("floor", "add-k"):
            raise OptionsError(
                f"smooth_value={self.smooth_value} requires smooth_method=floor or add-k"
            )
        for name in METRIC_LIMITS.keys() - {"trials"}:
            if name != "smooth_value" or self.smooth_value is not None:
                _check_number(name, getattr(self, name))


@dataclass(frozen=True)
class TestOptions:
    """Options for the paired significance test that compares systems."""

    __test__ = False  # pytest must not collect this class

    method: str = "bootstrap"
    trials: int | None = None  # None: 1,000 for bootstrap, 10,000 for randomization
    seed: int = DEFAULT_SEED

    def __post_init__(self) -> None:
        check_choice("test", self.method, TEST_METHODS)
        if self.trials is not None:
            _check_number("trials", self.trials)
        _check_number("seed", self.seed)

    @property
    def n_trials(self) -> int:
        """Number of resamples or shuffles."""
        default = DEFAULT_RESAMPLES if self.method == "bootstrap" else DEFAULT_SHUFFLES
        return self.trials or default


def check_choice(name: str, value: Any, known: tuple[str | None, ...]) -> None:
    """Raise `OptionsError` if `value` is not one of `known`."""
    if value not in known:
        names = ", ".join(choice for choice in known if choice is not None)
        raise OptionsError(f"{name}={value} is unknown: must be one of {names}")


def _check_number(name: str, value: Any) -> None:
    check_number(name, value, METRIC_LIMITS[name], is_integer=name != "smooth_value")
