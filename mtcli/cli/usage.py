"""Errors in the command line that name the options as the user typed them."""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

from mtcli.errors import MtcliError, OptionsError


def reject_options(typed: Mapping[str, Any], required: str) -> None:
    """Raise `BadParameter` if an option is set (not None) that has no effect without `required`."""
    names = [option_name(name) for name, value in typed.items() if value is not None]
    if names:
        verb = "requires" if len(names) == 1 else "require"
        raise typer.BadParameter(f"{', '.join(names)} {verb} {required}")


@contextmanager
def name_options_in_errors(typed: Collection[str]) -> Iterator[None]:
    """Run the block; its errors name the options that the user typed instead of Python names."""
    try:
        yield
    except OptionsError as error:
        raise typer.BadParameter(_with_options(str(error), typed)) from error
    except MtcliError as error:
        error.args = (_with_options(str(error.args[0]), typed), *error.args[1:])
        error.hint = _with_options(error.hint, typed) if error.hint else None
        raise


def _with_options(text: str, typed: Collection[str]) -> str:
    """Return `text` with names as options: "beam_size=4" becomes "--beam-size 4"."""
    for name in typed:
        text = re.sub(rf"(?<![\w.-]){name}=", f"{option_name(name)} ", text)
        text = re.sub(rf"(?<![\w.-]){name}\b", option_name(name), text)
    return text


def option_name(name: str) -> str:
    """Return the option for a parameter: "--beam-size" for "beam_size"."""
    return f"--{name.replace('_', '-')}"
