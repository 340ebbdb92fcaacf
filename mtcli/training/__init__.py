"""From a configuration to a model directory."""

from mtcli.training.run import RunOptions, train_run

__all__ = ["RunOptions", "train_run"]
