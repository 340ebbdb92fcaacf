"""Error messages for values that pydantic rejects."""

import re
from collections.abc import Mapping
from typing import Any

_PREFIX = "Input should be "
_EXPECTED = {
    "a valid integer": "an integer",
    "a valid number": "a number",
    "a valid string": "text",
    "a valid boolean": "true or false",
    "a valid list": "a list",
    "a valid tuple": "a list",
    "a valid dictionary": "a mapping",
}


def explain_value(details: Mapping[str, Any]) -> str:
    """Return why pydantic rejects a value, such as "must be greater than 0 (got -1)"."""
    message, got = str(details["msg"]), details.get("input")
    if not message.startswith(_PREFIX):
        return f"{message} (got {got!r})"
    # The rest, such as ", unable to parse string as an integer", repeats the same reason.
    expected = re.split(", unable to |, got ", message.removeprefix(_PREFIX))[0]
    return f"must be {_EXPECTED.get(expected, expected)} (got {got!r})"
