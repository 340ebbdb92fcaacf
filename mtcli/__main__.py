"""`python -m mtcli` is `mtcli`."""

import os
import sys
import traceback


def main() -> None:
    """Run the command line; Ctrl-C is quiet from the first moment on."""
    try:
        from mtcli.cli import app

        app()
    except KeyboardInterrupt:
        _leave(130)
        sys.exit(130)
    except SystemExit as exit_:
        _leave(exit_.code)
        raise
    except Exception:
        if not _is_one_of_many():
            raise
        from mtcli.cli.team import wait_for_turn

        wait_for_turn(1)
        traceback.print_exc()
        _leave(1)


def _is_one_of_many() -> bool:
    """Whether others work with this process. (`mtcli.distributed` imports torch to say so.)"""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def _leave(code: str | int | None) -> None:
    """End one of many processes at once: tidying up could wait for others that are dead."""
    if _is_one_of_many():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(bool(code)))


if __name__ == "__main__":
    main()
