"""What all commands share: the errors' way to the user, and options of the same meaning."""

import errno
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mtcli.cli.team import wait_for_turn
from mtcli.errors import Interrupted, MtcliError

INTERRUPTED = 130  # exit code after Ctrl-C


class ErrorsAsMessages(TyperGroup):
    """The one place where a user's mistake becomes a message instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors go to stderr."""
        try:
            return super().invoke(ctx)
        except MtcliError as error:
            _complain(str(error))
            raise typer.Exit(code=1) from error
        except Interrupted as error:
            if str(error) and os.environ.get("RANK", "0") == "0":
                typer.echo(str(error), err=True)
            raise typer.Exit(code=error.exit_code) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(code=INTERRUPTED) from error
        except BrokenPipeError as error:
            # `mtcli ... | head` has read enough; nobody is left to write to at exit, either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(code=0) from error
        except OSError as error:
            if not _is_of_a_file(error):
                raise  # a bug, with its traceback
            place = f"{error.filename}: " if error.filename else ""
            _complain(f"{place}{error.strerror or error}")
            raise typer.Exit(code=1) from error


# What writing to an open file can report: the system does not add the file's name.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EBADF}
_SYSTEM_ERRORS = {errno.ENOMEM, errno.EAGAIN, errno.ESTALE, errno.ETIMEDOUT}


def _is_of_a_file(error: OSError) -> bool:
    """Return whether the user can do something about `error`.

    It names a file, or it comes from writing results or from the state of the system.
    """
    return error.filename is not None or error.errno in _DISK_ERRORS | _SYSTEM_ERRORS


def _complain(message: str) -> None:
    wait_for_turn()
    color = None if os.environ.get("NO_COLOR") else typer.colors.RED
    typer.secho(f"error: {message}", fg=color, err=True)


app = typer.Typer(
    cls=ErrorsAsMessages,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    epilog="Start with: mtcli train train.en train.de --out my-model",
)

ModelDirectory = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Directory that `mtcli train` has made.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Errors only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="One line for every step.")]


@app.callback(invoke_without_command=True)
def version_option(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Two text files become a translator of your own."""
    if version:
        from mtcli import __version__

        typer.echo(f"mtcli {__version__}")
        raise typer.Exit
