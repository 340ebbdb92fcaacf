"""Events and consoles for the tests of the displays, the dashboard and the log."""

import io
import re

from rich.console import Console

from mtcli.reporting.events import Finished, Notice, RolledBack, Sample, Score, StepDone, Validated


def make_step(number: int, loss: float = 2.0, seconds: float = 0.01, steps: int = 100) -> StepDone:
    return StepDone(
        step=number,
        steps=steps,
        epoch=0,
        loss=loss,
        learning_rate=0.0125,
        n_words=10,
        n_tokens=20,
        n_positions=25,
        seconds=seconds,
        memory=3_400_000_000,
    )


def make_validation(number: int, bleu: float, *, is_best: bool) -> Validated:
    scores = {"bleu": Score("BLEU", bleu, "s"), "chrf": Score("chrF", 55.5, "")}
    return Validated(number, 1.5, scores, is_best, seconds=1.0, samples=(SAMPLE,))


SAMPLE = Sample("a [bold] man", "ein Mann", "ein Hund")
VALIDATED = make_validation(50, 33.3, is_best=True)
ROLLED_BACK = RolledBack(step=120, to_step=100, reason="the loss is NaN or infinite", factor=0.5)
FINISHED = Finished(
    step=100,
    best_step=50,
    bleu=33.3,
    signature="s",
    reason="all steps done",
    weights="the mean of steps 50 and 100",
)
EVENTS = [Notice("hello [there]"), make_step(1), VALIDATED, make_step(100), FINISHED]


HISTORY = (
    *(make_step(number, steps=500, loss=900 / number) for number in range(10, 101, 10)),
    make_validation(50, 20.0, is_best=True),
    make_validation(100, 19.0, is_best=False),
)


def pipe_console() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=140)


def shown_text(console: Console) -> str:
    """Return the console output without colors and cursor movements."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
