"""`python -m mtcli` is `mtcli`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C is quiet from the first moment on."""
    try:
        from mtcli.cli import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
