import ast
import re
from pathlib import Path

import pytest

import mtcli
from mtcli.counts import format_count

# A count in front of a plural noun, without a fixed minimum above 1.
PLURAL = re.compile(
    r"^ (?:training |dev |source |target )?(?:pairs|lines|steps|models|files)\b(?![/:])"
)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 pairs"), (1, "1 pair"), (2, "2 pairs"), (1200, "1,200 pairs"), (1.5, "1.5 pairs")],
)
def test_only_one_is_singular(number, text):
    assert format_count(number, "pair") == text


@pytest.mark.parametrize(("number", "text"), [(1.0, "1 minute"), (30.0, "30 minutes")])
def test_a_whole_float_has_no_fraction(number, text):
    assert format_count(number, "minute") == text


def plurals(text: ast.JoinedStr) -> list[str]:
    """Return the parts of an f-string that consist of a plural noun after a variable."""
    parts = [ast.Constant(""), *text.values]
    return [
        after.value
        for before, value, after in zip(parts, parts[1:], parts[2:], strict=False)
        if isinstance(value, ast.FormattedValue)
        and isinstance(value.value, ast.Attribute | ast.Name | ast.Call)
        and not ast.unparse(value.value).isupper()  # a constant above 1
        and isinstance(after, ast.Constant)
        and PLURAL.match(after.value)
        and not (isinstance(before, ast.Constant) and before.value.endswith("of "))
    ]


def test_messages_do_not_write_a_plural_after_a_count():
    """A message such as f"{n} pairs" would print "1 pairs"."""
    found = []  # "1 of 1 lines" is accepted
    for path in Path(mtcli.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found += [f"{path.name}:{node.lineno}{text}" for text in plurals(node)]
    assert not found, "\n".join(found)
