"""Choose the source and target fields: table columns, JSON keys or dataset features."""

from collections.abc import Sequence
from dataclasses import dataclass

from mtcli.data.formats.base import Location
from mtcli.data.formats.languages import choose_languages, is_language_code
from mtcli.errors import DataError

NESTED = "translation"  # field of Hugging Face datasets that contains one field per language
_PAIRS = (("source", "target"), ("src", "tgt"), ("src", "trg"))


@dataclass(frozen=True)
class FieldChoice:
    """Names of the source and target fields."""

    source: str
    target: str
    is_nested: bool = False  # both are inside the field `translation`

    def __str__(self) -> str:
        parent = f"{NESTED}." if self.is_nested else ""
        return f"{parent}{self.source} and {parent}{self.target}"


def choose_fields(
    names: Sequence[str], location: Location, nested: Sequence[str] = (), kind: str = "column"
) -> FieldChoice:
    """Return the source and target fields. `nested` lists the fields inside `translation`.

    The candidates, in order of precedence, are the selected fields, the fields named after the
    languages, the fields called source and target, the only two fields named after any language,
    and the only two fields. If there are no such fields, raise `DataError`.
    """
    choice = _selected(names, nested, location, kind)
    for candidates, is_nested in ((names, False), (nested, True)):
        choice = choice or _by_language(candidates, location, is_nested=is_nested)
    choice = choice or named_pair(names)
    languages = location.languages
    if not choice and not (languages.source and languages.target):
        fields = nested or names
        # A field called id is probably an identifier, not Indonesian.
        likely = [field for field in fields if is_language_code(field) and field != "id"]
        codes = choose_languages(likely, languages)
        codes = codes or choose_languages(fields, languages)
        choice = FieldChoice(*codes, is_nested=bool(nested)) if codes else None
    if choice:
        return choice
    known = [code for code in (languages.source, languages.target) if code]
    wanted = f" for {' and '.join(known)}" if known else ""
    raise unclear_fields([*names, *nested], location, f"cannot determine the {kind}s{wanted}", kind)


def _selected(
    names: Sequence[str], nested: Sequence[str], location: Location, kind: str
) -> FieldChoice | None:
    if not location.selection:
        return None
    pair = check_two(location)
    for candidates, is_nested in ((names, False), (nested, True)):
        if all(name in candidates for name in pair):
            return FieldChoice(*pair, is_nested=is_nested)
    missing = next(name for name in pair if name not in names)
    raise unclear_fields([*names, *nested], location, f"no {kind} {missing}", kind)


def _by_language(
    names: Sequence[str], location: Location, *, is_nested: bool
) -> FieldChoice | None:
    if not (location.languages.source and location.languages.target):
        return None
    pair = choose_languages(names, location.languages)
    return FieldChoice(*pair, is_nested=is_nested) if pair else None


def named_pair(names: Sequence[str]) -> FieldChoice | None:
    """Return the fields called source and target, src and tgt, or src and trg; else None."""
    originals = {name.lower(): name for name in names}
    for source, target in _PAIRS:
        if source in originals and target in originals:
            return FieldChoice(originals[source], originals[target])
    return None


def check_two(location: Location) -> tuple[str, str]:
    """Return the two selected names; raise `DataError` if there are not exactly two."""
    if len(location.selection) != 2:
        raise DataError(
            f"{location}: the selection #{','.join(location.selection)} must have two names",
            hint=f"select source and target: {location.name}#SOURCE,TARGET",
        )
    return location.selection[0], location.selection[1]


def unclear_fields(
    names: Sequence[str], location: Location, problem: str, kind: str = "column"
) -> DataError:
    """Return an error that reports missing or ambiguous fields and lists all fields."""
    codes = [name for name in names if is_language_code(name) and name != "id"]
    example = next((",".join(n[:2]) for n in (codes, names) if len(n) > 1), "en,de")
    return DataError(
        f"{location}: {problem}; its {kind}s are {', '.join(names)}",
        hint=f"select source and target: {location.name}#{example}",
    )
