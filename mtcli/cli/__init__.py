"""Command-line interface. A command parses options, calls the library and prints the result.

Commands import torch only when they need it, so that they start quickly.
"""

from mtcli.cli.base import app

# Importing a module registers its commands. `mtcli --help` lists them in the order of import.
# isort: off
from mtcli.cli import train, translate, evaluate, compare, score  # noqa: F401
from mtcli.cli import check, attention, manage  # noqa: F401
# isort: on

__all__ = ["app"]
