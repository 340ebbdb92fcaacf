"""Entry point of `mtcli` and `python -m mtcli`."""

import os
import sys


def main() -> None:
    """Run the `mtcli` command."""
    try:
        _silence_early_interrupts()
        from mtcli.cli import app

        app(prog_name="mtcli")
    except KeyboardInterrupt:
        _exit_without_cleanup_if_needed(130)
        sys.exit(130)
    except SystemExit as exit_:
        _exit_without_cleanup_if_needed(exit_.code)
        raise
    except Exception:
        if not _is_distributed():
            raise
        import traceback

        from mtcli.cli.launcher import delay_by_rank

        delay_by_rank(1)
        traceback.print_exc()
        _exit_without_cleanup_if_needed(1)


def _silence_early_interrupts() -> None:
    """Install a handler that ends the process without a traceback on Ctrl-C during imports.

    A KeyboardInterrupt inside an import is not reliable: extension modules replace it with other
    errors, and Python ignores it in import callbacks.
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
        # Ctrl-C during exit must not print a traceback, either.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)


def _is_distributed() -> bool:
    """Return whether this is one of several training processes (without importing torch)."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def _exit_without_cleanup_if_needed(code: str | int | None) -> None:
    """Exit at once if the interpreter's cleanup could hang or crash.

    A distributed process could wait for processes that have exited. Python crashes if a thread
    started by `run_interruptibly` returns from C++ during the cleanup.
    """
    from mtcli.signals import has_background_thread

    if has_background_thread() or _is_distributed():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(bool(code)))


if __name__ == "__main__":
    main()
