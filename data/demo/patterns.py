"""The sentence patterns, read from patterns.yaml."""

from dataclasses import dataclass

from lexicon import read_yaml

ORDINARY_FRAMES = (
    "transitive", "dative", "receiver", "prepositional", "intransitive",
    "position", "motion", "placing", "pleasing",
)  # fmt: skip


@dataclass(frozen=True)
class RelativeSpec:
    """Which phrase has a relative clause, and what it is inside that clause."""

    of: str
    role: str
    clause: "ClauseSpec"


@dataclass(frozen=True)
class ClauseSpec:
    """What a pattern says about one clause; the keys are explained at the head of patterns.yaml."""

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
    """One kind of sentence."""

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
