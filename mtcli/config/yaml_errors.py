"""PyYAML errors, in a module that does not import pydantic."""

import yaml

# Exceptions that PyYAML raises, including those for values such as `!!int ""` or 2020-13-01.
YAML_ERRORS = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError)


def describe_yaml_error(error: Exception) -> str:
    """Return one line with the position and the cause of a YAML error."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())
