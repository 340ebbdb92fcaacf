"""How a run gets on: its numbers, smoothed over the latest steps."""

import math
from dataclasses import dataclass

from mtcli.report.events import StepDone

_LEAST_SHARE = 0.05  # of a new step in the mean: about the last twenty count


@dataclass
class Pace:
    """Means over the latest steps that were seen, and over nothing but steps.

    Validations and pauses do not count; of an earlier part of the run only the losses do.
    """

    loss: float = math.nan
    seconds: float = math.nan  # per step
    n_tokens: float = math.nan  # per step
    n_positions: float = math.nan  # per step, padding included
    n_seen: int = 0
    n_losses: int = 0

    def see(self, step: StepDone) -> None:
        """Take one more step into account."""
        self.see_loss(step.loss)
        # The first step warms up or compiles: it counts only until there is another.
        share = max(_LEAST_SHARE, 1 / max(1, self.n_seen))
        self.seconds = _moved(self.seconds, step.seconds, share)
        self.n_tokens = _moved(self.n_tokens, step.n_tokens, share)
        self.n_positions = _moved(self.n_positions, step.n_positions, share)
        self.n_seen += 1

    def see_loss(self, loss: float) -> None:
        """Take the loss of one more step into account, and nothing else of it."""
        self.n_losses += 1
        self.loss = _moved(self.loss, loss, max(_LEAST_SHARE, 1 / self.n_losses))

    @property
    def tokens_per_second(self) -> float:
        """Source and target tokens without padding."""
        return self.n_tokens / self.seconds if self.seconds else 0.0

    @property
    def padding(self) -> float:
        """Share of the positions that hold nothing."""
        return 1 - self.n_tokens / self.n_positions if self.n_positions else 0.0

    def seconds_left(self, step: StepDone) -> float:
        """Time that the steps after `step` will take if they are like the latest ones."""
        return (step.steps - step.step) * self.seconds


def _moved(old: float, new: float, share: float) -> float:
    """`old` a part of the way to `new`; what is not a number leaves no trace."""
    if not math.isfinite(new):
        return old
    return new if share == 1 or math.isnan(old) else old + share * (new - old)
