"""Operating-system errors: a message if the user can fix the cause, otherwise a traceback."""

import errno

import pytest
import typer
from typer.testing import CliRunner

from mtcli.cli.base import ErrorBoundary


def run_failing_command(error: BaseException):
    app = typer.Typer(cls=ErrorBoundary, pretty_exceptions_enable=False)

    @app.command()
    def fail() -> None:
        raise error

    @app.command()
    def other() -> None:
        pass

    return CliRunner().invoke(app, ["fail"])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EACCES, "Permission denied", "model/x"), "model/x: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
    ],
)
def test_a_file_error_is_reported_without_a_traceback(error, message):
    result = run_failing_command(error)
    assert result.exit_code == 1
    assert result.stderr == f"error: {message}\n"


@pytest.mark.parametrize(
    "error",
    [
        OSError("raised by a library"),
        OSError(errno.EINVAL, "Invalid argument"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    ],
)
def test_any_other_system_error_keeps_its_traceback(error):
    assert run_failing_command(error).exception is error
