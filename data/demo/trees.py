"""Trees that represent the meaning of a sentence for both languages."""

from collections.abc import Iterator
from dataclasses import dataclass

from lexicon import Adjective, Conjunction, Determiner, Noun, Pronoun, Tense, Verb


@dataclass(frozen=True)
class Name:
    """A personal name; `pronoun` is he or she."""

    text: str
    pronoun: str


@dataclass(frozen=True)
class Relative:
    """A relative pronoun and its antecedent."""

    noun: Noun
    is_plural: bool
    is_person: bool
    mark: str = ""


@dataclass(frozen=True)
class Fixed:
    """Uninflected words in both languages."""

    english: str
    german: str


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner, adjective, number, owner and relative clause."""

    noun: Noun
    determiner: Determiner
    is_plural: bool = False
    adjective: Adjective | None = None
    number: Fixed | None = None
    owner: "NounPhrase | Name | None" = None
    relative: "Clause | None" = None


Phrase = NounPhrase | Pronoun | Name | Relative


@dataclass(frozen=True)
class PrepositionPhrase:
    """A phrase with its preposition in both languages."""

    english: str
    german: str
    case: str
    phrase: Phrase


@dataclass(frozen=True)
class Description:
    """A predicate adjective, optionally with a degree word or a comparison.

    `than` without a degree is a comparative; `than` with the degree "as" expresses equality.
    """

    adjective: Adjective
    degree: Fixed | None = None
    than: Phrase | None = None
    mark: str = ""  # for "than" or the second "as"


@dataclass(frozen=True)
class Adverbial:
    """An adverb or adverbial phrase; `slot` determines its position."""

    slot: str
    content: Fixed | PrepositionPhrase


Complement = PrepositionPhrase | Description | Fixed | NounPhrase


@dataclass(frozen=True)
class ClauseMarks:
    """Marks of the words that belong to the verb of a clause; `marks.py` explains marks."""

    verb: str = ""
    helper: str = ""  # auxiliary or modal verb
    part: str = ""  # particle, prefix, reflexive pronoun, or noun of the verb
    preposition: str = ""  # preposition of the object
    negation: str = ""
    to: str = ""  # "to" or "zu" before an infinitive


@dataclass(frozen=True)
class Clause:
    """A verb with its arguments and adverbials; `front` names the part before the verb."""

    verb: Verb
    tense: Tense
    subject: Phrase | None
    direct: Phrase | None = None
    receiver: Phrase | None = None
    complement: Complement | None = None
    adverbials: tuple[Adverbial, ...] = ()
    is_negated: bool = False
    mood: str = "statement"
    front: str = "subject"
    marks: ClauseMarks = ClauseMarks()


@dataclass(frozen=True)
class Link:
    """A conjunction and its clause."""

    conjunction: Conjunction
    clause: Clause


@dataclass(frozen=True)
class Sentence:
    """A main clause, an optional subordinate clause before it, and the clauses after it."""

    main: Clause
    opening: Link | None = None
    links: tuple[Link, ...] = ()
    pattern: str = ""


def clauses(sentence: Sentence) -> Iterator[tuple[Clause, str]]:
    """Yield the clauses of a sentence, each with the kind of its conjunction."""
    yield sentence.main, ""
    for link in (*((sentence.opening,) if sentence.opening else ()), *sentence.links):
        yield link.clause, link.conjunction.kind


def noun_phrases(clause: Clause) -> Iterator[NounPhrase]:
    """Yield the noun phrases of a clause and the noun phrases that own them."""
    contents = (adverbial.content for adverbial in clause.adverbials)
    inner = (
        part.phrase
        for part in (clause.complement, *contents)
        if isinstance(part, PrepositionPhrase)
    )
    than = clause.complement.than if isinstance(clause.complement, Description) else None
    parts = (clause.subject, clause.direct, clause.receiver, clause.complement, than, *inner)
    for part in parts:
        if isinstance(part, NounPhrase):
            yield part
            if isinstance(part.owner, NounPhrase):
                yield part.owner


def is_pronoun(phrase: object) -> bool:
    """Return whether a phrase is a personal pronoun, which comes early in German."""
    return isinstance(phrase, Pronoun) and phrase.lemma not in ("who", "what", "this")
