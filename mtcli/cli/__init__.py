"""The command line: parse, call one function, print. No torch is imported before a command runs."""

from mtcli.cli import evaluate, model, train, translate  # noqa: F401  (each adds its commands)
from mtcli.cli.base import app

__all__ = ["app"]
