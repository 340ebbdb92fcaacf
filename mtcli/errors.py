"""Errors that the user can fix. Any other exception is a bug and keeps its traceback."""

# Hint for damaged model files.
COPY_AGAIN = "copy the model again from an intact source, or retrain it with --fresh"


class MtcliError(Exception):
    """An error that the user can fix; `hint` explains how."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  hint: {self.hint}" if self.hint else message


class Interrupted(KeyboardInterrupt):
    """Raised when a signal ends the program immediately. The message, if any, is printed."""

    def __init__(self, signal: int, message: str = "") -> None:
        super().__init__(message)
        self.signal = signal

    @property
    def exit_code(self) -> int:
        """Exit code that shells use for a program ended by this signal."""
        return 128 + self.signal


class ConfigError(MtcliError):
    """The configuration file or a --set override is invalid."""


class UsageError(ConfigError):
    """The command line is invalid, regardless of the files' contents; the exit code is 2."""


class OptionsError(UsageError, ValueError):
    """An option for search, sampling, metrics or reports is invalid."""


class DataError(MtcliError):
    """A corpus, a test set or other input cannot be used."""


class CheckpointError(MtcliError):
    """A model directory or one of its files cannot be read, written or used."""


class EngineError(MtcliError):
    """The model cannot run with the requested engine or options."""
