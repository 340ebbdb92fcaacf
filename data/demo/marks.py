"""Marks: private-use characters before a word that identify the part of the tree it expresses.

The realizers treat marks as part of a word. A tree without marks gives the text of the corpus. A
tree with marks gives the same text with marks, and `alignment.py` reads the alignment from them.
"""

import re

FIRST, LAST = "\ue000", "\uf8ff"
PATTERN = f"[{FIRST}-{LAST}]"  # matches one mark
_LEADING = re.compile(f"{PATTERN}*")
_ANY = re.compile(PATTERN)


def mark(marks: str, text: str) -> str:
    """Return `text` with marks before each word; punctuation has no marks."""
    if not marks:
        return text
    return " ".join(
        marks + word if any(char.isalnum() for char in word) else word for word in text.split(" ")
    )


def marks_of(text: str) -> str:
    """Return the marks at the start of `text`."""
    return _LEADING.match(text).group()


def all_marks(text: str) -> list[str]:
    """Return all marks in `text`."""
    return _ANY.findall(text)


def unmarked(text: str) -> str:
    """Return `text` without marks."""
    return _ANY.sub("", text)


def capitalize(text: str) -> str:
    """Return `text` with a capital letter at its start and after each period or question mark."""
    text = re.sub(rf"(?<=[.?] )({PATTERN}*)(\w)", lambda m: m[1] + m[2].upper(), text)
    n = len(marks_of(text))
    return text[:n] + text[n].upper() + text[n + 1 :]
