"""Lexicon of the demo corpus, read from the YAML files in this directory."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import yaml

HERE = Path(__file__).parent
GENDERS = {"der": "m", "die": "f", "das": "n"}


@dataclass(frozen=True, eq=False)  # compare by identity
class Noun:
    """A noun with its inflection in both languages."""

    lemma: str
    english_plural: str
    german: str
    german_plural: str
    gender: str
    word_class: str
    is_mass: bool = False
    is_weak: bool = False
    genitive: str = ""

    @property
    def has_singular(self) -> bool:
        """Whether the noun has a singular form; `parents` does not."""
        return self.german != "-"

    @property
    def has_plural(self) -> bool:
        """Whether the noun has a plural form."""
        return self.german_plural != "-"


@dataclass(frozen=True, eq=False)  # compare by identity
class Adjective:
    """An adjective, the nouns it can modify, and its comparative if it has one."""

    lemma: str
    de: str
    of: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()
    state: bool = False


@dataclass(frozen=True, eq=False)  # compare by identity
class Verb:
    """A verb in one sense; verbs.yaml explains the keys."""

    lemma: str
    frame: str
    de: str
    perfect: str
    en: str
    past: str = ""
    participle: str = ""
    ing: str = ""
    particle: str = ""
    marker: str = ""
    receiver_marker: str = ""
    ich: str = ""
    du: str = ""
    er: str = ""
    command: str = ""
    prefix: str = ""
    be: bool = False
    reflexive: bool = False
    preterite: bool = False
    preposition: str = ""
    case: str = "accusative"
    noun: str = ""
    no_noun: str = ""
    subject: tuple[str, ...] = ()
    object: tuple[str, ...] = ()
    receiver: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    at: tuple[str, ...] = ()
    to: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    optional: bool = False
    stative: bool = False
    noprogressive: bool = False
    nocommand: bool = False
    involuntary: bool = False
    once: bool = False
    seldom: bool = False
    company: bool = False
    punctual: bool = False
    plural: bool = False
    bare_object: bool = False
    generic: bool = False
    owning: bool = False


@dataclass(frozen=True)
class Determiner:
    """A determiner; `pattern` names its German endings."""

    lemma: str
    english: tuple[str, str]
    german: str
    pattern: str


@dataclass(frozen=True)
class Pronoun:
    """A pronoun: English (subject, object) and German (nominative, accusative, dative) forms."""

    lemma: str
    english: tuple[str, ...]
    german: tuple[str, ...]
    person: str
    possessive: str = ""


@dataclass(frozen=True)
class Tense:
    """Construction of a tense or modal in both languages; see grammar.yaml."""

    lemma: str
    german: str
    time: str
    english: str = ""
    form: str = "base"
    tail: str = ""
    preterite: bool = False


@dataclass(frozen=True)
class Conjunction:
    """A conjunction; `kind` determines the German word order."""

    lemma: str
    en: str
    de: str
    kind: str


@dataclass(frozen=True)
class Lexicon:
    """All words and their semantic classes."""

    nouns: tuple[Noun, ...]
    adjectives: tuple[Adjective, ...]
    verbs: tuple[Verb, ...]
    grammar: dict = field(repr=False)
    adverbs: dict = field(repr=False)

    @cached_property
    def determiners(self) -> dict[str, Determiner]:
        """Determiners by their English word."""
        table = self.grammar["determiners"]
        return {
            name: Determiner(name, tuple(entry["en"]), entry["de"], entry["pattern"])
            for name, entry in table.items()
        }

    @cached_property
    def pronouns(self) -> dict[str, Pronoun]:
        """Pronouns by their English word; `it` has a suffix for the gender of its antecedent."""
        table = self.grammar["pronouns"]
        return {
            name: Pronoun(
                name, tuple(entry["en"]), tuple(entry["de"]), entry["person"],
                entry.get("possessive", ""),
            )
            for name, entry in table.items()
        }  # fmt: skip

    @cached_property
    def tenses(self) -> dict[str, Tense]:
        """Tenses and modals by name."""
        return {name: Tense(name, **entry) for name, entry in self.grammar["tenses"].items()}

    @cached_property
    def conjunctions(self) -> dict[str, Conjunction]:
        """Conjunctions by name."""
        table = self.grammar["conjunctions"]
        return {name: Conjunction(name, **entry) for name, entry in table.items()}

    @cached_property
    def _nouns_by_class(self) -> dict[str, tuple[Noun, ...]]:
        table: dict[str, list[Noun]] = {}
        for noun in self.nouns:
            table.setdefault(noun.lemma, []).append(noun)
            if noun.word_class != noun.lemma:
                table.setdefault(noun.word_class, []).append(noun)
        return {name: tuple(nouns) for name, nouns in table.items()}

    @cached_property
    def _nouns_cache(self) -> dict[tuple[str, ...], tuple[Noun, ...]]:
        return {}

    def nouns_of(self, names: tuple[str, ...]) -> tuple[Noun, ...]:
        """Return the nouns in the named groups, classes or lemmas, in a fixed order."""
        if names not in self._nouns_cache:
            self._nouns_cache[names] = self._find_nouns(names)
        return self._nouns_cache[names]

    def _find_nouns(self, names: tuple[str, ...]) -> tuple[Noun, ...]:
        found: dict[Noun, None] = {}
        for name in names:
            if name in self.grammar["groups"]:
                members = self.nouns_of(tuple(self.grammar["groups"][name]))
            else:
                members = self._nouns_by_class[name]
            found.update(dict.fromkeys(members))
        return tuple(found)

    def noun(self, lemma: str) -> Noun:
        """Return the noun with this English lemma."""
        return self.nouns_of((lemma,))[0]

    def verb(self, lemma: str) -> Verb:
        """Return the verb with this English lemma."""
        return next(verb for verb in self.verbs if verb.lemma == lemma)

    def adjective(self, lemma: str) -> Adjective:
        """Return the adjective with this English lemma."""
        return next(adjective for adjective in self.adjectives if adjective.lemma == lemma)

    @cached_property
    def adjectives_of(self) -> dict[Noun, tuple[Adjective, ...]]:
        """Adjectives that can modify each noun."""
        table: dict[Noun, list[Adjective]] = {noun: [] for noun in self.nouns}
        for adjective in self.adjectives:
            for noun in self.nouns_of(adjective.of):
                table[noun].append(adjective)
        return {noun: tuple(adjectives) for noun, adjectives in table.items()}


def read_yaml(name: str) -> dict:
    """Return the content of a YAML file in this directory."""
    return yaml.safe_load((HERE / name).read_text(encoding="utf-8"))


def _parse_noun(key: str, line: str, word_class: str) -> Noun:
    lemma, _, plural = key.partition("/")
    article_and_singular, german_plural, *rest = (part.strip() for part in line.split(","))
    article, german = article_and_singular.split()
    return Noun(
        lemma=plural if lemma == "-" else lemma,
        english_plural=plural or _english_plural(lemma),
        german=german,
        german_plural="-" if german_plural == "mass" else german_plural,
        gender=GENDERS[article],
        word_class=word_class,
        is_mass=german_plural == "mass",
        is_weak=rest == ["weak"],
        genitive=rest[0] if rest and rest != ["weak"] else "",
    )


def _english_plural(lemma: str) -> str:
    if lemma.endswith("y") and lemma[-2] not in "aeou":
        return lemma[:-1] + "ies"
    return lemma + ("es" if lemma.endswith(("s", "x", "ch", "sh")) else "s")


def _nouns(table: dict) -> Iterator[Noun]:
    for word_class, entries in table.items():
        for key, line in entries.items():
            yield _parse_noun(key, line, word_class)


def _verbs(table: dict) -> Iterator[Verb]:
    for frame, entries in table.items():
        for lemma, entry in entries.items():
            values = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
            case = "dative" if frame == "dative" else "accusative"
            yield Verb(lemma=lemma, frame=frame, **{"en": lemma, "case": case, **values})


def _adjectives(table: dict) -> Iterator[Adjective]:
    for lemma, entry in table.items():
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
        yield Adjective(lemma=lemma, **values)


def load_lexicon() -> Lexicon:
    """Return the lexicon, read from the YAML files."""
    return Lexicon(
        nouns=tuple(_nouns(read_yaml("nouns.yaml"))),
        adjectives=tuple(_adjectives(read_yaml("adjectives.yaml"))),
        verbs=tuple(_verbs(read_yaml("verbs.yaml"))),
        grammar=read_yaml("grammar.yaml"),
        adverbs=read_yaml("adverbs.yaml"),
    )
