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
        sys.exit(130)
    except SystemExit as exit_:
        _leave(exit_.code)
        raise
    except Exception:
        if not _is_one_of_many():
            raise
        traceback.print_exc()
        _leave(1)


def _is_one_of_many() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def _leave(code: str | int | None) -> None:
    """End a process of torchrun at once: tidying up could wait for others that are dead."""
    if _is_one_of_many():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
