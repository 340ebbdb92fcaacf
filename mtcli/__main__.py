"""`python -m mtcli` is `mtcli`."""

from mtcli.cli import main

main()
