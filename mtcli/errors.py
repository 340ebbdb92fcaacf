"""The errors a user can cause and repair. Everything else is a bug and keeps its traceback."""

# What helps against damaged files.
COPY_AGAIN = "copy the model again from an intact source, or retrain it with --fresh"


class MtcliError(Exception):
    """What went wrong, where, and (as `hint`) what to do about it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  hint: {self.hint}" if self.hint else message


class Interrupted(KeyboardInterrupt):
    """A signal that ends the program at once; `message`, if any, is printed."""

    def __init__(self, signal: int, message: str = "") -> None:
        super().__init__(message)
        self.signal = signal

    @property
    def exit_code(self) -> int:
        """The exit code of shells for a program that a signal has ended."""
        return 128 + self.signal


class ConfigError(MtcliError):
    """The configuration file or a --set override is not usable."""


class OptionsError(ConfigError, ValueError):
    """A search or sampling option is out of range."""


class DataError(MtcliError):
    """A corpus, a tokenizer file or standard input is not usable."""


class CheckpointError(MtcliError):
    """A run directory is missing, incomplete, or made by an incompatible version."""


class EngineError(MtcliError):
    """A model cannot be executed in the way that was asked for."""
