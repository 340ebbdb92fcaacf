"""Conversion of sacreBLEU's errors to `DataError`.

On an error, sacreBLEU logs messages and calls `sys.exit`, or raises an exception.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from mtcli.errors import DataError


@contextmanager
def convert_errors(problem: str, *, hint: str | None = None) -> Iterator[None]:
    """Run the block with sacreBLEU's errors converted to `DataError` messages about `problem`."""
    messages: list[str] = []
    handler = _MessageList(messages)
    logger = logging.getLogger("sacrebleu")
    logger.addHandler(handler)  # also keeps the messages off stderr
    try:
        yield
    except (Exception, SystemExit) as error:
        reason = "; ".join(messages) if isinstance(error, SystemExit) else str(error)
        raise DataError(f"{problem}: {reason.strip() or repr(error)}", hint=hint) from error
    finally:
        logger.removeHandler(handler)


class _MessageList(logging.Handler):
    """Log handler that collects errors in a list."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.ERROR)
        self.messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        """Add the message of `record`."""
        self.messages.append(record.getMessage())
