"""Typer application, error boundary, and arguments shared by several commands."""

import errno
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from mtcli.cli.launcher import delay_by_rank
from mtcli.errors import Interrupted, MtcliError, UsageError

INTERRUPTED = 130  # exit code after Ctrl-C
WRONG_USAGE = 2  # exit code, the same as for Typer's own errors
INPUT_OUTPUT = "Input and output"
_PLAIN_INDENT = 6  # columns
_MIN_TABLE_WIDTH = 72  # columns; Typer's help table truncates long option names if it is narrower

# Errors from writing to an open file. In this case, `OSError` does not contain the file name.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EBADF}
_SYSTEM_ERRORS = {errno.ENOMEM, errno.EAGAIN, errno.ESTALE, errno.ETIMEDOUT}


class ErrorBoundary(TyperGroup):
    """Command group that prints user errors as messages; bugs keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command, and convert user errors to a message and an exit code."""
        try:
            return super().invoke(ctx)
        except MtcliError as error:
            print_error(str(error))
            code = WRONG_USAGE if isinstance(error, UsageError) else 1
            raise typer.Exit(code=code) from error
        except Interrupted as error:
            if str(error) and os.environ.get("RANK", "0") == "0":
                typer.echo(str(error), err=True)
            raise typer.Exit(code=error.exit_code) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(code=INTERRUPTED) from error
        except BrokenPipeError as error:
            # The reader of the pipe, such as `head`, has exited. Flushing at exit must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(code=0) from error
        except OSError as error:
            if not _is_user_error(error):
                raise
            file = f"{error.filename}: " if error.filename else ""
            print_error(f"{file}{error.strerror or error}")
            raise typer.Exit(code=1) from error

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, as plain text if the terminal is narrow."""
        if shutil.get_terminal_size().columns < _MIN_TABLE_WIDTH:
            _use_plain_text(self, formatter)
        super().format_help(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the command list of the plain-text help; Typer would truncate the descriptions."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, (command.help or "").partition("\n")[0]) for name, command in commands if command
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows, col_max=max(len(name) for name, _ in rows))


class Command(TyperCommand):
    """Command whose help is plain text instead of a table if the terminal is narrow."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, as plain text if the terminal is narrow."""
        if shutil.get_terminal_size().columns < _MIN_TABLE_WIDTH:
            _use_plain_text(self, formatter)
        super().format_help(ctx, formatter)


def _use_plain_text(command: TyperCommand | TyperGroup, formatter: Any) -> None:
    """Make the help of `command` plain text, with each description below its option."""
    command.rich_markup_mode = None
    formatter.write_dl = partial(formatter.write_dl, col_max=_PLAIN_INDENT)


def print_error(message: str) -> None:
    """Print `message` to stderr, only once if several processes fail with the same error."""
    delay_by_rank()
    color = None if os.environ.get("NO_COLOR") else typer.colors.RED
    typer.secho(f"error: {message}", fg=color, err=True)


def _is_user_error(error: OSError) -> bool:
    """Return whether `error` is about a file, the disk or system resources, not a bug in mtcli."""
    return error.filename is not None or error.errno in _DISK_ERRORS | _SYSTEM_ERRORS


app = typer.Typer(
    cls=ErrorBoundary,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Example: mtcli train train.en train.de --out my-model",
)

ModelDirectory = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model directory written by `mtcli train`.")
]
SourceLang = Annotated[
    str | None,
    typer.Option(
        metavar="CODE",
        help="Language code of the source, such as en or pt-BR.",
        show_default="from the corpus or the model",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
TargetLang = Annotated[
    str | None,
    typer.Option(
        metavar="CODE",
        help="Language code of the target.",
        show_default="from the corpus or the model",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        metavar="LANG",
        help="Target language, for models with several target languages.",
        show_default="the model's only target language",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
Tag = Annotated[
    str | None,
    typer.Option(
        metavar="TAG",
        help="Tag to prepend to every source, for models trained with tags.",
        show_default="none",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
OutputDirectory = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Directory to write the model to.",
        rich_help_panel=INPUT_OUTPUT,
    ),
]


def threads_option(panel: str) -> Any:
    """Return the option --threads, shown in `panel`."""
    return typer.Option(
        metavar="N",
        min=1,
        max=256,
        help="Number of CPU threads.",
        show_default="one per core",
        rich_help_panel=panel,
    )


Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Print only results and errors.", rich_help_panel=INPUT_OUTPUT
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Print one line per training step.", rich_help_panel=INPUT_OUTPUT
    ),
]


@app.callback(invoke_without_command=True)
def version_option(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Train, use and evaluate neural machine translation models."""
    if version:
        from mtcli import __version__

        typer.echo(f"mtcli {__version__}")
        raise typer.Exit
