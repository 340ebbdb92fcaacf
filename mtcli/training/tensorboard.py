"""The course of a run for TensorBoard, if it is installed."""

from pathlib import Path
from typing import Any

from mtcli.errors import ConfigError
from mtcli.report import Event, RolledBack, StepDone, Validated


class TensorBoard:
    """Writes event files; those of a part of the run that is done again are replaced."""

    def __init__(self, directory: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "TensorBoard is not installed", hint="pip install 'mtcli[tensorboard]'"
            ) from error
        self._open: Any = SummaryWriter
        self._directory = directory
        self._writer: Any = None

    def __call__(self, event: Event) -> None:
        """Write what `event` says in numbers."""
        match event:
            case StepDone():
                self._add("train/loss", event.loss, event.step)
                self._add("train/learning rate", event.learning_rate, event.step)
                self._add("train/tokens per second", event.n_tokens / event.seconds, event.step)
                self._add("train/padding", 1 - event.n_tokens / event.n_positions, event.step)
            case Validated():
                for name in ("loss", "bleu", "chrf"):
                    self._add(f"dev/{name}", getattr(event, name), event.step)
                for i, sample in enumerate(event.samples):
                    self._writer.add_text(f"sample {i}", sample.translation, event.step)
                self._writer.flush()
            case RolledBack():
                self.close()  # and open anew where it goes on

    def close(self) -> None:
        """Write all there is."""
        if self._writer:
            self._writer.close()
            self._writer = None

    def _add(self, name: str, value: float, step: int) -> None:
        if self._writer is None:
            self._writer = self._open(str(self._directory), purge_step=step)
        self._writer.add_scalar(name, value, step)
