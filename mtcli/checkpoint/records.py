"""Dataclasses from JSON that somebody else may have written."""

import math
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

T = TypeVar("T")


def read_record(kind: type[T], facts: object) -> T:
    """Return the dataclass `kind` with `facts` as its fields.

    Raise `ValueError` if a field is missing, unknown or of the wrong type. Fields of types other
    than bool, int, float, str and their unions with None are not checked.
    """
    if not isinstance(facts, dict):
        raise ValueError(f"expected an object, got {type(facts).__name__}")
    hints = get_type_hints(kind)
    required = {
        field.name
        for field in fields(kind)  # type: ignore[arg-type]
        if field.default is MISSING and field.default_factory is MISSING
    }
    if not required <= facts.keys() <= hints.keys():
        names = sorted(map(str, (required - facts.keys()) | (facts.keys() - hints.keys())))
        raise ValueError(f"missing or unknown: {', '.join(names)}")
    for name, value in facts.items():
        if not _fits(value, hints[name]):
            raise ValueError(f"{name} has the wrong type")
    return kind(**facts)


def _fits(value: object, hint: Any) -> bool:
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
        except OverflowError:  # an integer that is too large for a float
            return False
    return type(value) in kinds
