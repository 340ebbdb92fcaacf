"""The things that happen while a run trains."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Notice:
    """Something a person should know: a choice, a count, an oddity."""

    text: str


@dataclass(frozen=True)
class StepDone:
    """The weights have been updated once."""

    step: int
    steps: int  # how many there will be
    epoch: int
    loss: float  # nats per word, label smoothing included
    learning_rate: float  # of the layers' matrices
    n_words: int
    n_tokens: int
    seconds: float


@dataclass(frozen=True)
class Sample:
    """A dev sentence, what it should become and what it becomes."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class Validated:
    """The model has been measured on the dev set."""

    step: int
    loss: float  # nats per word, without label smoothing
    bleu: float
    signature: str
    is_best: bool
    seconds: float
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True)
class Stopped:
    """Training was asked to stop; the same command goes on from here."""

    step: int
    signal: int  # by which it was asked


@dataclass(frozen=True)
class Finished:
    """The model is complete."""

    step: int
    best_step: int
    bleu: float
    signature: str
    reason: str


Event = Notice | StepDone | Validated | Stopped | Finished
