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
    learning_rate: float  # of the first optimizer: Muon's, or AdamW's if it is the only one
    n_words: int
    n_tokens: int  # source and target positions that are not padding
    n_positions: int  # padding included
    seconds: float
    memory: int = 0  # bytes: the most that has been in use so far, on the GPU if there is one


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
    chrf: float
    signature: str  # of the BLEU
    is_best: bool
    seconds: float
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True)
class RolledBack:
    """Training had diverged; it goes on from an earlier state with a smaller learning rate."""

    step: int  # that diverged
    to_step: int  # where it goes on
    reason: str
    factor: float  # by which the learning rates are now multiplied


@dataclass(frozen=True)
class Resumed:
    """A run that was stopped or killed goes on."""

    step: int  # after which
    past: tuple[StepDone | Validated | RolledBack, ...] = ()  # as far as it is logged


@dataclass(frozen=True)
class Stopped:
    """Training was asked to stop; the same command goes on from here."""

    step: int
    signal: int  # by which it was asked; 0: its time was up (--stop-after)


@dataclass(frozen=True)
class Activity:
    """Work other than training steps has begun. Displays show it; the log does not."""

    text: str  # "exporting to CTranslate2"
    is_routine: bool = False  # part of the training loop, such as a validation


@dataclass(frozen=True)
class Finished:
    """The model is complete."""

    step: int
    best_step: int
    bleu: float
    signature: str
    reason: str
    weights: str  # whose they are: "step 1200", "the mean of steps 800, 1000 and 1200"
    data: str = ""  # fingerprint of the pairs it has learned from


Event = Notice | StepDone | Validated | RolledBack | Resumed | Stopped | Activity | Finished
