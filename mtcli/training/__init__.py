"""From a configuration to a model directory."""

from mtcli.training.run import train_run

__all__ = ["train_run"]
