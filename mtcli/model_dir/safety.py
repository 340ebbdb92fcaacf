"""Checks for model directories from untrusted sources.

`check_contained` rejects entries that point outside the directory. `read_record` converts JSON to a
dataclass and verifies the type of each field.
"""

import math
import stat
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from mtcli.errors import CheckpointError
from mtcli.model_dir.layout import CHECKPOINTS, EXPORT, TENSORBOARD

_SUBDIRECTORIES = (CHECKPOINTS, EXPORT, TENSORBOARD, "cache")  # those that mtcli creates


def check_contained(directory: Path) -> None:
    """Raise `CheckpointError` if a file in a model directory points outside the directory.

    Symbolic links must point to regular files in the directory, but `directory` itself may be a
    link. FIFOs, devices and sockets are rejected without opening them, because opening could block.
    """
    root = directory.resolve()
    for path in _entries(directory):
        problem = _problem(path, root)
        if problem:
            raise CheckpointError(
                f"{path} {problem}",
                hint="replace it with a copy of the file or directory, or remove it",
            )


def _entries(directory: Path) -> Iterator[Path]:
    """Yield all entries of a model directory and of the subdirectories that mtcli uses."""
    for path in _children(directory):
        yield path
        if path.name in _SUBDIRECTORIES:  # the caller has rejected links to directories
            yield from _children(path)


def _children(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []  # callers report a missing directory themselves
    except OSError as error:
        raise CheckpointError(f"cannot read {directory}: {error.strerror}") from error


def _problem(path: Path, root: Path) -> str:
    """Return the reason to reject an entry, or an empty string."""
    try:
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode):
            is_allowed = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
            return "" if is_allowed else "is neither a file nor a directory"
        target = path.resolve()
        if not target.is_relative_to(root):
            return "is a symbolic link that points outside the model directory"
        if target.exists() and not target.is_file():
            return "is a symbolic link to something other than a file"
    except FileNotFoundError:
        return ""  # the entry no longer exists
    except (OSError, RuntimeError) as error:  # RuntimeError: link loops, in Python < 3.13
        return f"cannot be examined: {error}"
    return ""


T = TypeVar("T")


def read_record(kind: type[T], values: object) -> T:
    """Return an instance of the dataclass `kind` with the fields in `values`.

    Raise `ValueError` if a field is missing, unknown or of the wrong type. Only the types bool,
    int, float, str, their unions with None, and mappings from str to float are checked.
    """
    if not isinstance(values, dict):
        raise ValueError(f"expected a JSON object, got {type(values).__name__}")
    hints = get_type_hints(kind)
    required = {
        field.name
        for field in fields(kind)  # type: ignore[arg-type]
        if field.default is MISSING and field.default_factory is MISSING
    }
    if not required <= values.keys() <= hints.keys():
        names = sorted(map(str, (required - values.keys()) | (values.keys() - hints.keys())))
        raise ValueError(f"missing or unknown fields: {', '.join(names)}")
    for name, value in values.items():
        if not _has_type(value, hints[name]):
            raise ValueError(f"{name} has the wrong type")
    return kind(**values)


def _has_type(value: object, hint: Any) -> bool:
    if hint == Mapping[str, float]:
        return isinstance(value, dict) and all(_has_type(v, float) for v in value.values())
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if value is None:
        return NoneType in kinds
    if not any(kind in (bool, int, float, str) for kind in kinds):
        return True
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, int | float) and float in kinds:
        try:
            return math.isfinite(value)
        except OverflowError:  # the integer is too large for a float
            return False
    return type(value) in kinds
