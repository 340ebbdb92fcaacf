"""TensorBoard event files, if TensorBoard is installed."""

from pathlib import Path
from typing import Any

from mtcli.errors import ConfigError
from mtcli.reporting.events import Event, RolledBack, StepDone, Validated


class TensorBoard:
    """Listener that writes event files; the values of a repeated step replace the earlier ones."""

    def __init__(self, directory: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "TensorBoard is not installed", hint="pip install 'mtcli[tensorboard]'"
            ) from error
        self._writer_class: Any = SummaryWriter
        self._directory = directory
        self._writer: Any = None

    def __call__(self, event: Event) -> None:
        """Write the numbers and samples of `event`."""
        match event:
            case StepDone():
                self._add_scalar("train/loss", event.loss, event.step)
                self._add_scalar("train/learning rate", event.learning_rate, event.step)
                speed = event.n_tokens / event.seconds
                self._add_scalar("train/tokens per second", speed, event.step)
                padding = 1 - event.n_tokens / event.n_positions
                self._add_scalar("train/padding", padding, event.step)
            case Validated():
                self._add_scalar("dev/loss", event.loss, event.step)
                for name, score in event.scores.items():
                    self._add_scalar(f"dev/{name}", score.value, event.step)
                for scored in event.sets:
                    self._add_scalar(f"dev {scored.name}/loss", scored.loss, event.step)
                    for name, score in scored.scores.items():
                        self._add_scalar(f"dev {scored.name}/{name}", score.value, event.step)
                for i, sample in enumerate(event.samples):
                    self._writer.add_text(f"sample {i}", sample.translation, event.step)
                self._writer.flush()
            case RolledBack():
                self.close()  # when the next file starts, TensorBoard drops the undone steps

    def close(self) -> None:
        """Flush and close the event file."""
        if self._writer:
            self._writer.close()
            self._writer = None

    def _add_scalar(self, name: str, value: float, step: int) -> None:
        if self._writer is None:
            self._writer = self._writer_class(str(self._directory), purge_step=step)
        self._writer.add_scalar(name, value, step)
