"""Held-out combinations of words: never in training, but in half of dev and test."""

from collections.abc import Iterator
from zlib import crc32

from lexicon import Tense
from trees import Clause, Description, NounPhrase, Relative, Sentence, clauses, noun_phrases

ONE_IN = 10  # one in ten combinations is held out
VERB_FINAL = ("subordinate", "relative")


def is_held_out(combination: str) -> bool:
    """Return whether a combination is held out. The result depends only on its name."""
    return crc32(combination.encode()) % ONE_IN == 0


def held_out_combinations(sentence: Sentence) -> list[str]:
    """Return the held-out combinations in a sentence."""
    return [name for name in combinations(sentence) if is_held_out(name)]


def combinations(sentence: Sentence) -> Iterator[str]:
    """Yield the names of the combinations of words and structures in a sentence."""
    for clause, kind in clauses(sentence):
        yield from _clause_combinations(clause, kind)


def _clause_combinations(clause: Clause, kind: str) -> Iterator[str]:
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
            yield from _clause_combinations(phrase.relative, "relative")
    if isinstance(clause.complement, Description) and isinstance(clause.subject, NounPhrase):
        yield f"adjective+noun: {clause.complement.adjective.lemma} + {clause.subject.noun.lemma}"


def _form(tense: Tense) -> str:
    return tense.german if tense.german in ("present", "perfect") else "modal"
