"""Sentence patterns, read from patterns.yaml."""

from dataclasses import dataclass

from lexicon import read_yaml

ORDINARY_FRAMES = (
    "transitive", "dative", "receiver", "prepositional", "intransitive",
    "position", "motion", "placing", "pleasing",
)  # fmt: skip


@dataclass(frozen=True)
class RelativeSpec:
    """A relative clause: the phrase it modifies, and the role of its relative pronoun."""

    of: str
    role: str
    clause: "ClauseSpec"


@dataclass(frozen=True)
class ClauseSpec:
    """Specification of one clause of a pattern; patterns.yaml explains the keys."""

    tense: tuple[str, ...]
    frames: tuple[str, ...] = ORDINARY_FRAMES
    verbs: tuple[str, ...] = ()
    subject: tuple[str, ...] = ("pronoun", "name", "noun", "noun")
    object: tuple[str, ...] = ("noun",)
    complement: str = ""
    add: tuple[str, ...] = ()
    front: str = "subject"
    mood: str = "statement"
    negated: bool = False
    event: bool = False
    willed: bool = False
    relative: RelativeSpec | None = None
    by: str = ""


@dataclass(frozen=True)
class Pattern:
    """Specification of a sentence."""

    name: str
    weight: float
    main: ClauseSpec
    opening: ClauseSpec | None = None
    then: tuple[ClauseSpec, ...] = ()


def _clause_spec(entry: dict) -> ClauseSpec:
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
    if "relative" in entry:
        relative = entry["relative"]
        clause = _clause_spec(relative["clause"])
        values["relative"] = RelativeSpec(relative["of"], relative["role"], clause)
    return ClauseSpec(**values)


def load_patterns() -> dict[str, Pattern]:
    """Return the patterns by name."""
    return {name: _pattern(name, entry) for name, entry in read_yaml("patterns.yaml").items()}


def _pattern(name: str, entry: dict) -> Pattern:
    then = entry.get("then", [])
    return Pattern(
        name,
        entry["weight"],
        main=_clause_spec(entry["main"]),
        opening=_clause_spec(entry["opening"]) if "opening" in entry else None,
        then=tuple(_clause_spec(one) for one in ([then] if isinstance(then, dict) else then)),
    )
