"""`python -m mtcli` is `mtcli`."""

import os
import sys


def main() -> None:
    """Run the command line."""
    try:
        _start_quietly()
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
        import traceback

        from mtcli.cli.team import wait_for_turn

        wait_for_turn(1)
        traceback.print_exc()
        _leave(1)


def _start_quietly() -> None:
    """Let Ctrl-C end the program without a traceback while it is still loading modules.

    A KeyboardInterrupt inside an import is not reliable: extension modules replace it by errors of
    their own, and Python ignores it in the callbacks of an import.
    """
    import atexit
    import signal
    from types import FrameType

    from mtcli.signals import is_importing

    def handle(number: int, frame: FrameType | None) -> None:
        if is_importing(frame):
            os._exit(128 + number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, handle)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)  # quiet at the end, too


def _is_one_of_many() -> bool:
    """Whether others work with this process. (`mtcli.distributed` imports torch to say so.)"""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def _leave(code: str | int | None) -> None:
    """End the process at once if tidying up could wait or crash.

    One of many processes could wait for others that are dead. Python crashes if a thread of
    `run_interruptibly` comes back from C++ while it exits.
    """
    from mtcli.signals import is_working

    if is_working() or _is_one_of_many():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(bool(code)))


if __name__ == "__main__":
    main()
