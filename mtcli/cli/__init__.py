"""The command line. Each command parses options, calls a library function and prints the result.

torch is imported late, so that commands start fast.
"""

from mtcli.cli.base import app

# Each module registers its commands: `mtcli --help` lists them in this order.
# isort: off
from mtcli.cli import train, translate, evaluate, compare, score  # noqa: F401
from mtcli.cli import check, attention, manage  # noqa: F401
# isort: on

__all__ = ["app"]
