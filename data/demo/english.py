"""English inflection and word order."""

import re
from dataclasses import dataclass

from lexicon import Lexicon, Pronoun, Verb
from marks import PATTERN, capitalize, mark
from trees import (
    Adverbial,
    Clause,
    Description,
    Fixed,
    Link,
    Name,
    NounPhrase,
    Phrase,
    PrepositionPhrase,
    Relative,
    Sentence,
)

BE = {"ich": ("am", "was"), "er": ("is", "was")}
AFTER_OBJECTS = ("complement", "company", "means", "benefit", "manner", "place", "time", "yet")
POSSESSORS = ("adult", "child", "family")


@dataclass(frozen=True)
class VerbChain:
    """Verb group: the finite verb, and the rest, which follows "not" in a negated clause."""

    finite: str
    rest: str = ""


def third_person(base: str) -> str:
    """Return the third person singular: reads, watches, tries, goes."""
    if base == "have":
        return "has"
    if base.endswith("y") and base[-2] not in "aeou":
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(("s", "sh", "ch", "x", "o")) else "s")


def past(verb: Verb) -> str:
    """Return the simple past."""
    return verb.past or verb.en + ("d" if verb.en.endswith("e") else "ed")


def participle(verb: Verb) -> str:
    """Return the past participle."""
    return verb.participle or past(verb)


def ing(verb: Verb) -> str:
    """Return the -ing form."""
    return verb.ing or (verb.en.removesuffix("e") if verb.en[-2:] != "ee" else verb.en) + "ing"


class English:
    """Realizes trees as English sentences."""

    def __init__(self, lexicon: Lexicon) -> None:
        """Store the lexicon."""
        self.lexicon = lexicon

    def sentence(self, sentence: Sentence) -> str:
        """Return the sentence with capitalization and punctuation."""
        words = []
        if sentence.opening:
            opening = sentence.opening
            words = [opening.conjunction.en, self.clause(opening.clause), ","]
        words.append(self.clause(sentence.main))
        words.extend(self.link(link) for link in sentence.links)
        asks = "question" in (sentence.main.mood, *(link.clause.mood for link in sentence.links))
        is_closed = any(link.conjunction.lemma == "question_mark" for link in sentence.links)
        return _polish(" ".join(words), "?" if asks and not is_closed else ".")

    def link(self, link: Link) -> str:
        """Return the conjunction and its clause."""
        if link.conjunction.kind == "infinitive":
            verb = mark(link.clause.marks.verb, link.clause.verb.en)
            words = self._after_verb(link.clause, verb, "")
            return f"{link.conjunction.en} {words}"
        return f"{link.conjunction.en} {self.clause(link.clause)}"

    def clause(self, clause: Clause) -> str:
        """Return a finite clause."""
        if clause.mood == "command":
            return self._command(clause)
        if clause.mood == "existence":
            return self._existence(clause)
        is_inverted = clause.mood == "question" and clause.front != "subject"
        chain = _marked_chain(self._chain(clause, is_inverted), clause)
        subject = self.phrase(clause.subject, "subject")
        front = self._front(clause)
        frequency = self._slot(clause, "frequency")
        negation = mark(clause.marks.negation, "not") if clause.is_negated else ""
        if is_inverted:
            start = [front, chain.finite, subject, negation, frequency]
        elif chain.rest or _is_be(clause):
            start = [front, subject, chain.finite, negation, frequency]
        else:
            start = [front, subject, frequency, chain.finite]
        words = [*start, self._after_verb(clause, chain.rest, clause.front)]
        return " ".join(word for word in words if word)

    def phrase(self, phrase: Phrase | None, role: str) -> str:
        """Return the phrase as a subject or an object."""
        match phrase:
            case None:
                return ""
            case Pronoun():
                return phrase.english[0 if role == "subject" else 1]
            case Name():
                return phrase.text
            case Relative():
                is_who = phrase.is_person and role == "subject"
                return phrase.mark + ("who" if is_who else "that")
            case _:
                return self._noun_phrase(phrase)

    def _noun_phrase(self, phrase: NounPhrase) -> str:
        noun = phrase.noun
        words = [phrase.determiner.english[phrase.is_plural] or ""]
        if _is_possessor(phrase.owner):
            words = [_genitive(self.phrase(phrase.owner, "object"))]
        words.append(phrase.number.english if phrase.number else "")
        words.append(phrase.adjective.lemma if phrase.adjective else "")
        words.append(noun.english_plural if phrase.is_plural else noun.lemma)
        if phrase.owner and not _is_possessor(phrase.owner):
            words.append(f"of {self.phrase(phrase.owner, 'object')}")
        if phrase.relative:
            words.append(self.clause(phrase.relative))
        return " ".join(word for word in words if word)

    def _command(self, clause: Clause) -> str:
        marks = clause.marks
        negation = f"{mark(marks.helper, 'do')} {mark(marks.negation, 'not')}"
        start = [self._slot(clause, "please"), negation if clause.is_negated else ""]
        words = [*start, self._after_verb(clause, mark(marks.verb, clause.verb.en), "")]
        return " ".join(word for word in words if word)

    def _existence(self, clause: Clause) -> str:
        be = _marked_chain(self._chain(clause, False), clause).finite
        rest = self._after_verb(clause, "", "")
        return f"there {be} {self.phrase(clause.subject, 'object')} {rest}"

    def _chain(self, clause: Clause, is_inverted: bool) -> VerbChain:
        verb, tense = clause.verb, clause.tense
        person = _person(clause.subject)
        uses_do = is_inverted or clause.is_negated
        if tense.english.startswith("do:"):
            return _main_verb_chain(tense.english[3:], f"{tense.tail} {verb.en}", person, uses_do)
        match tense.english:
            case "":
                return _simple(verb, tense.lemma == "past", person, uses_do)
            case "be":
                return VerbChain(BE.get(person, ("are", ""))[0], ing(verb))
            case "have":
                return VerbChain("has" if person == "er" else "have", participle(verb))
        return VerbChain(tense.english, f"{tense.tail} {verb.en}".strip())

    def _front(self, clause: Clause) -> str:
        match clause.front:
            case "direct":
                return self.phrase(clause.direct, "object")
            case "receiver":
                return self.phrase(clause.receiver, "object")
            case "complement":
                return self._complement(clause)
            case "" | "subject":
                return ""
        return self._slot(clause, clause.front)

    def _after_verb(self, clause: Clause, main: str, front: str) -> str:
        """Return the main verb and the rest of the clause, without the fronted part."""
        words = [main, *self._objects(clause, front)]
        for slot in AFTER_OBJECTS:
            if slot == front:
                continue
            if slot == "complement" and clause.complement:
                words.append(self._complement(clause))
            words.append(self._slot(clause, slot))
        return " ".join(word for word in words if word)

    def _objects(self, clause: Clause, front: str) -> list[str]:
        verb = clause.verb
        direct = "" if front == "direct" else self.phrase(clause.direct, "object")
        receiver = "" if front == "receiver" else self.phrase(clause.receiver, "object")
        is_pronoun = isinstance(clause.direct, Pronoun) and bool(direct)
        if receiver and (verb.receiver_marker or is_pronoun):
            return [direct, f"to {receiver}"]  # "explains the rule to her", "gives it to her"
        marks = clause.marks
        # German has a reflexive pronoun instead of a particle: sit down = sich setzen.
        particle = mark(marks.verb if verb.reflexive else marks.part, verb.particle)
        if verb.particle and isinstance(clause.direct, Pronoun | NounPhrase) and _is_short(clause):
            return [direct, particle]
        *words, preposition = verb.marker.split(" ")  # such as "interested in"
        marker = [*(mark(marks.verb, word) for word in words), mark(marks.preposition, preposition)]
        return [particle, " ".join(marker) if clause.direct else "", receiver, direct]

    def _complement(self, clause: Clause) -> str:
        match clause.complement:
            case Description() as part:
                return self._description(part)
            case PrepositionPhrase() as part if isinstance(part.phrase, Relative):
                return f"{part.english} {part.phrase.mark}which"
            case PrepositionPhrase() as part:
                return f"{part.english} {self.phrase(part.phrase, 'object')}"
            case Fixed() as part:
                return part.english
            case part:
                return self.phrase(part, "object")

    def _description(self, part: Description) -> str:
        degree = part.degree.english + " " if part.degree else ""
        plain = degree + part.adjective.lemma
        if part.than is None:
            return plain
        than = self.phrase(part.than, "object")
        if degree:
            return f"{plain} {part.mark}as {than}"
        return f"{part.adjective.compare[0]} {part.mark}than {than}"

    def _slot(self, clause: Clause, slot: str) -> str:
        found = [adverbial for adverbial in clause.adverbials if adverbial.slot == slot]
        return self._adverbial(found[0]) if found else ""

    def _adverbial(self, adverbial: Adverbial) -> str:
        content = adverbial.content
        if isinstance(content, Fixed):
            return content.english
        return f"{content.english} {self.phrase(content.phrase, 'object')}"


def _person(phrase: Phrase | None) -> str:
    match phrase:
        case Pronoun():
            return phrase.person
        case NounPhrase() | Relative():
            return "sie" if phrase.is_plural else "er"
    return "er"


def _is_be(clause: Clause) -> bool:
    return clause.verb.en == "be"


def _is_short(clause: Clause) -> bool:
    return isinstance(clause.direct, Pronoun) and clause.direct.lemma not in ("who", "what")


def _simple(verb: Verb, is_past: bool, person: str, uses_do: bool) -> VerbChain:
    if verb.en == "be":
        return VerbChain(BE.get(person, ("are", "were"))[is_past])
    if uses_do:
        does = "did" if is_past else "does" if person == "er" else "do"
        return VerbChain(does, verb.en)
    if is_past:
        return VerbChain(past(verb))
    return VerbChain(third_person(verb.en) if person == "er" else verb.en)


def _marked_chain(chain: VerbChain, clause: Clause) -> VerbChain:
    """Return the chain with marks. The last word is the verb; the words before it are helpers."""
    marks = clause.marks
    if not chain.rest:
        return VerbChain(mark(marks.verb, chain.finite))
    *helpers, verb = chain.rest.split(" ")
    rest = [*(mark(marks.helper, word) for word in helpers), mark(marks.verb, verb)]
    return VerbChain(mark(marks.helper, chain.finite), " ".join(rest))


def _main_verb_chain(word: str, rest: str, person: str, uses_do: bool) -> VerbChain:
    is_past = word in ("wanted", "had")
    base = {"wanted": "want", "had": "have"}.get(word, word)
    if uses_do:
        does = "did" if is_past else "does" if person == "er" else "do"
        return VerbChain(does, f"{base} {rest}")
    return VerbChain(third_person(base) if person == "er" and not is_past else word, rest)


def _is_possessor(owner: NounPhrase | Name | None) -> bool:
    return isinstance(owner, Name) or (
        isinstance(owner, NounPhrase) and owner.noun.word_class in POSSESSORS
    )


def _genitive(owner: str) -> str:
    return owner + ("'" if owner.endswith("s") else "'s")


def _polish(text: str, sign: str) -> str:
    text = re.sub(r" +", " ", text)
    text = re.sub(r" ([,.?])", r"\1", text) + sign
    text = re.sub(rf"\b([Aa]) (?={PATTERN}*([aeiou]|honest))", r"\1n ", text)
    return capitalize(re.sub(rf"can ({PATTERN}*)not ", r"\1cannot ", text))
