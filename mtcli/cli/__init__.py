"""The command line: parse, call one function, print. No torch is imported before a command runs."""

from mtcli.cli.base import app

# Each adds its commands: `mtcli --help` lists them in this order.
# isort: off
from mtcli.cli import train, translate, evaluate, attention, model, config  # noqa: F401
# isort: on

__all__ = ["app"]
