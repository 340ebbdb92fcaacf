"""Errors of the system: a message if the user can do something about it, else a traceback."""

import errno

import pytest
import typer
from typer.testing import CliRunner

from mtcli.cli.base import ErrorsAsMessages


def result_of(error: BaseException):
    app = typer.Typer(cls=ErrorsAsMessages, pretty_exceptions_enable=False)

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
def test_an_error_of_a_file_is_a_message(error, message):
    result = result_of(error)
    assert result.exit_code == 1
    assert result.stderr == f"error: {message}\n"


@pytest.mark.parametrize(
    "error",
    [
        OSError("a library says so"),
        OSError(errno.EINVAL, "Invalid argument"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    ],
)
def test_another_error_of_the_system_is_a_bug_and_keeps_its_traceback(error):
    assert result_of(error).exception is error
