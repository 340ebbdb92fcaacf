"""Training events: the data for displays, the log, TensorBoard and the report.

`log.jsonl` stores the fields of `Notice`, `StepDone`, `Validated`, `RolledBack` and `Finished`
under their names, so do not rename them. Only `Validated.scores` has another form in the log (see
`log.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

MAIN_METRIC = "bleu"  # shown where there is room for only one score


@dataclass(frozen=True)
class Score:
    """Value of a metric, with the signature that makes it reproducible."""

    metric: str  # with its parameters: "BLEU", "chrF2"
    value: float
    signature: str
    margin: float | None = None  # half the width of the 95% confidence interval
    mean: float | None = None  # mean of the resampled scores, which sacreBLEU prints

    def __str__(self) -> str:
        margin = f" ± {self.margin:.2f}" if self.margin is not None else ""
        return f"{self.metric} {self.value:.2f}{margin}  [{self.signature}]"


Scores = Mapping[str, Score]  # by name of the metric: "bleu", "chrf"


@dataclass(frozen=True)
class SetScores:
    """Scores on one of several dev sets."""

    name: str
    loss: float
    scores: Scores


@dataclass(frozen=True)
class Notice:
    """A message for the user: a choice, a count or a warning."""

    text: str


@dataclass(frozen=True)
class StepDone:
    """One update of the weights."""

    step: int
    steps: int  # total steps of the run
    epoch: int
    loss: float  # nats per target token, with label smoothing
    learning_rate: float  # of Muon if the run uses it, otherwise of AdamW
    n_words: int  # target tokens
    n_tokens: int  # source and target positions, without padding
    n_positions: int  # with padding
    seconds: float
    memory: int = 0  # peak memory use so far in bytes, on the GPU if there is one


@dataclass(frozen=True)
class Sample:
    """A dev sentence with its reference and its translation."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class Validated:
    """Results of a validation on one dev set, or on several combined by `train.dev_rule`."""

    step: int
    loss: float  # nats per target token, without label smoothing
    scores: Scores
    is_best: bool
    seconds: float
    samples: tuple[Sample, ...] = ()
    sets: tuple[SetScores, ...] = ()  # one entry per dev set; empty if there is only one


@dataclass(frozen=True)
class RolledBack:
    """Training diverged and resumes from an earlier state with a lower learning rate."""

    step: int  # step at which training diverged
    to_step: int
    reason: str
    factor: float  # multiplies the learning rates after the rollback


@dataclass(frozen=True)
class Resumed:
    """A stopped or killed run resumes. Not logged."""

    step: int  # last step of the checkpoint
    history: tuple[StepDone | Validated | RolledBack, ...] = ()  # events in the log up to `step`


@dataclass(frozen=True)
class Stopped:
    """Training stopped on request; the same command resumes it. Not logged."""

    step: int
    signal: int  # signal number; 0: time limit (--stop-after)


@dataclass(frozen=True)
class Activity:
    """Work other than training steps has started. Not logged."""

    text: str  # "exporting to CTranslate2"
    is_routine: bool = False  # part of the training loop, such as a validation


@dataclass(frozen=True)
class Preparing:
    """Progress in reading or encoding a corpus. Not logged."""

    activity: str  # "reading", "encoding"
    n_pairs: int  # pairs processed so far
    share: float | None  # completed fraction of the work; None: unknown
    seconds: float  # since the start of the activity


@dataclass(frozen=True)
class Finished:
    """The model is complete."""

    step: int
    best_step: int
    bleu: float
    signature: str
    reason: str
    weights: str  # origin: "step 1200", "the mean of steps 800, 1000 and 1200"
    data: str = ""  # digest of the training and dev pairs
    sets: Mapping[str, float] = field(default_factory=dict)  # BLEU by dev set, if several


Event = (
    Notice | StepDone | Validated | RolledBack | Resumed | Stopped | Activity | Preparing | Finished
)
