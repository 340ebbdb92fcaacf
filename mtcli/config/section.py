"""What all sections of a configuration have in common, and the numbers in them."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _is_not_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("YAML reads no, yes, on and off as booleans; this is to be a number")
    return value


Whole = Annotated[int, BeforeValidator(_is_not_boolean)]
Real = Annotated[float, BeforeValidator(_is_not_boolean)]
Beta = Annotated[Real, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A part of the configuration: immutable, typed, closed to unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )
