"""Combinations of words that the training text never shows: half of dev and test does."""

from collections.abc import Iterator
from zlib import crc32

from lexicon import Tense
from trees import Clause, Description, NounPhrase, Relative, Sentence, clauses, noun_phrases

# One in this many combinations is held out.
ONE_IN = 10
VERB_FINAL = ("subordinate", "relative")


def is_held_out(combination: str) -> bool:
    """Whether a combination is kept out of training: decided by its name, by nothing else."""
    return crc32(combination.encode()) % ONE_IN == 0


def held_out_combinations(sentence: Sentence) -> list[str]:
    """Return the combinations in a sentence that training must not show."""
    return [name for name in combinations(sentence) if is_held_out(name)]


def combinations(sentence: Sentence) -> Iterator[str]:
    """Yield the names of the combinations of words and structures in a sentence."""
    for clause, kind in clauses(sentence):
        yield from _of_clause(clause, kind)


def _of_clause(clause: Clause, kind: str) -> Iterator[str]:
    verb = clause.verb.lemma
    if kind == "infinitive":
        yield f"verb+structure: {verb} + infinitive with zu"
    elif kind in VERB_FINAL:
        yield f"verb+structure: {verb} + {_form(clause.tense)} in a {kind} clause"
    if isinstance(clause.direct, NounPhrase | Relative):
        yield f"verb+object: {verb} + {clause.direct.noun.lemma}"
    for phrase in noun_phrases(clause):
        if phrase.adjective:
            yield f"adjective+noun: {phrase.adjective.lemma} + {phrase.noun.lemma}"
        if phrase.relative:
            yield from _of_clause(phrase.relative, "relative")
    if isinstance(clause.complement, Description) and isinstance(clause.subject, NounPhrase):
        yield f"adjective+noun: {clause.complement.adjective.lemma} + {clause.subject.noun.lemma}"


def _form(tense: Tense) -> str:
    return tense.german if tense.german in ("present", "perfect") else "modal"
