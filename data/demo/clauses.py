"""Choose the words of clauses, and of sentences with several clauses."""

from dataclasses import replace

from complements import ComplementChooser
from lexicon import Conjunction, Lexicon, Noun, Pronoun, Verb
from patterns import ClauseSpec, Pattern
from phrases import PhraseChooser
from sampler import RejectedError, Sampler
from trees import (
    Adverbial,
    Clause,
    Fixed,
    Link,
    Name,
    NounPhrase,
    Phrase,
    PrepositionPhrase,
    Relative,
    Sentence,
)
from verbs import ClauseContext, VerbChooser

ASKED = {
    "when": Fixed("when", "wann"),
    "why": Fixed("why", "warum"),
    "where": Fixed("where", "wo"),
    "where_to": Fixed("where", "wohin"),
}
FIXED_ADVERBS = {"please": Fixed("please", "bitte"), "yet": Fixed("yet", "noch")}
NO_WHICH = ("family", "resource", "music")  # classes that "which" cannot precede
WORN = ("wear", "put on", "take off")  # the object is plural if the subject is: they wear hats
NEEDS_OBJECT = ("transitive", "dative", "receiver", "prepositional", "placing", "pleasing")


class ClauseChooser:
    """Chooses the words of clauses and sentences."""

    def __init__(self, lexicon: Lexicon, sampler: Sampler) -> None:
        """Store the lexicon and the sampler."""
        self.lexicon = lexicon
        self.sampler = sampler
        self.phrases = PhraseChooser(lexicon, sampler)
        self.verbs = VerbChooser(lexicon, sampler)
        self.complements = ComplementChooser(lexicon, sampler, self.phrases)

    def sentence(self, pattern: Pattern) -> Sentence:
        """Return a sentence with this pattern; raise `RejectedError` if the words do not fit."""
        opening, links = None, []
        if pattern.opening:
            clause = self.clause(pattern.opening, ClauseContext())
            opening = Link(self.lexicon.conjunctions[pattern.opening.by], clause)
        main = self.clause(
            pattern.main, ClauseContext(previous=opening.clause if opening else None)
        )
        clause = main
        for spec in pattern.then:
            conjunction = self._conjunction(spec.by, clause)
            clause = self.clause(spec, ClauseContext(previous=clause))
            links.append(Link(conjunction, clause))
        return Sentence(main, opening, tuple(links), pattern.name)

    def _conjunction(self, name: str, main: Clause) -> Conjunction:
        if name in ("that", "whether") and name not in main.verb.reports:
            raise RejectedError
        return self.lexicon.conjunctions[name]

    def clause(self, spec: ClauseSpec, context: ClauseContext) -> Clause:
        """Return a clause for `spec`; raise `RejectedError` if the words do not fit."""
        tense = self.lexicon.tenses[self.sampler.pick(spec.tense)]
        verb = self.verbs.choose(spec, tense, context)
        subject = self._subject(spec, verb, context)
        clause = Clause(verb, tense, subject, is_negated=spec.negated, mood=spec.mood)
        clause = replace(clause, front=context.role or spec.front)
        clause = self._with_objects(clause, spec, context)
        clause = self._with_complement(clause, spec, context)
        for slot in spec.add:
            clause = self._with_adverbial(clause, slot)
        return self._with_relative(clause, spec) if spec.relative else clause

    def _nouns(self, names: tuple[str, ...]) -> tuple[Noun, ...]:
        return self.lexicon.nouns_of(names)

    def _takes_people(self, names: tuple[str, ...]) -> bool:
        return self.lexicon.noun("man") in self._nouns(names)

    def _subject(self, spec: ClauseSpec, verb: Verb, context: ClauseContext) -> Phrase | None:
        if spec.mood == "command":
            return None
        if context.role == "subject":
            return context.relative
        kind = self.sampler.pick(spec.subject)
        match kind:
            case "it" | "this":
                return self.lexicon.pronouns[kind]
            case "who" | "gap":
                return self._asked_subject(verb)
            case "speaker":
                return self.lexicon.pronouns[self.sampler.pick(("I", "we"))]
            case "same":
                return self._same_subject(verb, context)
            case "object":
                return self.phrases.pronoun_for(context.previous.direct)
        subject = self._new_subject(kind, spec, verb)
        if context.previous and _may_corefer(subject, context.previous.subject):
            raise RejectedError
        return subject

    def _new_subject(self, kind: str, spec: ClauseSpec, verb: Verb) -> Phrase:
        if kind == "definite_person":
            return self._definite_person(verb)
        is_movable = kind in ("movable", "movable_a")
        if is_movable or (spec.complement and kind not in ("pronoun", "name")):
            return self.complements.subject(kind, spec.complement or "place", verb)
        is_person = verb.subject[0] in ("person", "adult", "child")
        is_definite = spec.negated or verb.stative or spec.mood == "question" or not is_person
        use = "described" if is_definite else "subject"
        return self.phrases.person(kind, verb.subject, use)

    def _asked_subject(self, verb: Verb) -> Phrase:
        if not self._takes_people(verb.subject):
            raise RejectedError
        return self.lexicon.pronouns["who"]

    def _definite_person(self, verb: Verb) -> Phrase:
        noun = self.phrases.noun(("adult", "child"))
        if noun not in self._nouns(verb.subject):
            raise RejectedError
        return NounPhrase(noun, self.lexicon.determiners["the"], self.sampler.chance(0.25))

    def _same_subject(self, verb: Verb, context: ClauseContext) -> Phrase:
        subject = context.previous.subject
        if isinstance(subject, NounPhrase) and subject.noun not in self._nouns(verb.subject):
            raise RejectedError
        if isinstance(subject, Name | Pronoun) and not self._takes_people(verb.subject):
            raise RejectedError
        return self.phrases.pronoun_for(subject)

    def _with_objects(self, clause: Clause, spec: ClauseSpec, context: ClauseContext) -> Clause:
        verb = clause.verb
        if verb.receiver:
            use = "negated" if clause.is_negated else "object"
            receiver = self._person_or_thing(verb.receiver, clause.subject, use)
            clause = replace(clause, receiver=receiver)
        if verb.frame not in NEEDS_OBJECT or not verb.object:
            return clause
        if context.role == "direct":
            return replace(clause, direct=context.relative)
        if verb.optional and spec.object == ("noun",) and self.sampler.chance(0.25):
            return clause
        direct = self._direct(self.sampler.pick(spec.object), clause, context)
        return replace(clause, direct=direct)

    def _direct(self, kind: str, clause: Clause, context: ClauseContext) -> Phrase:
        match kind:
            case "who" | "what":
                return self.lexicon.pronouns[kind]
            case "pronoun":
                return self.phrases.other_pronoun(clause.subject)
            case "same_object":
                return self.phrases.pronoun_for(context.previous.direct)
            case "same_subject":
                return self.phrases.pronoun_for(context.previous.subject)
            case "which" | "how_many":
                return self._asked_object(kind, clause)
            case "definite":
                return self._definite(clause)
        return self._new_object(kind, clause)

    def _new_object(self, kind: str, clause: Clause) -> Phrase:
        verb, use = clause.verb, self._use(kind, clause)
        if verb.bare_object:
            return NounPhrase(self.phrases.noun(verb.object), self.lexicon.determiners["the"])
        if kind == "noun" and self._takes_people(verb.object):
            return self._person_or_thing(verb.object, clause.subject, use)
        is_plural = _is_plural(clause.subject) if verb.lemma in WORN else verb.plural or None
        return self.phrases.noun_phrase(
            self._other_noun(clause), use, owner_of=clause.subject, is_plural=is_plural
        )

    def _use(self, kind: str, clause: Clause) -> str:
        """Return the key of the direct object in the determiner tables."""
        if kind in ("a", "described"):
            return kind
        if clause.verb.generic or clause.mood == "command":
            return "generic"
        if clause.is_negated and not clause.verb.owning:
            return "negated"
        return "owning" if clause.verb.owning else "object"

    def _asked_object(self, kind: str, clause: Clause) -> NounPhrase:
        noun = self.phrases.noun(clause.verb.object)
        is_plural = kind == "how_many" or noun.word_class == "shoes"
        if noun.word_class in NO_WHICH or (is_plural and not noun.has_plural):
            raise RejectedError
        return NounPhrase(noun, self.lexicon.determiners[kind], is_plural or not noun.has_singular)

    def _definite(self, clause: Clause) -> NounPhrase:
        noun = self._other_noun(clause)
        if noun.word_class == "family":
            raise RejectedError
        is_plural = noun.has_plural and (noun.word_class == "shoes" or self.sampler.chance(0.2))
        return NounPhrase(noun, self.lexicon.determiners["the"], is_plural)

    def _other_noun(self, clause: Clause) -> Noun:
        noun = self.phrases.noun(clause.verb.object)
        if isinstance(clause.subject, NounPhrase | Relative) and clause.subject.noun == noun:
            raise RejectedError
        return noun

    def _person_or_thing(self, names: tuple[str, ...], subject: Phrase | None, use: str) -> Phrase:
        """Return a pronoun, a name or a noun phrase; `use` applies to nouns that are not people."""
        kind = self.sampler.pick(("pronoun", "name", "noun", "noun", "noun"))
        if kind == "pronoun":
            return self.phrases.other_pronoun(subject)
        if kind == "name" and not isinstance(subject, Name):
            return self.phrases.name()
        noun = self.phrases.noun(names)
        if isinstance(subject, NounPhrase | Relative) and subject.noun == noun:
            raise RejectedError
        if noun in self._nouns(("person",)):
            use = "described" if use == "negated" else "person"
        return self.phrases.noun_phrase(noun, use, owner_of=subject)

    def _with_complement(self, clause: Clause, spec: ClauseSpec, context: ClauseContext) -> Clause:
        verb = clause.verb
        if context.role == "complement":
            complement = self.phrases.place_before(context.relative, "at")
        elif spec.complement:
            named = context.previous.direct if spec.subject == ("object",) else clause.subject
            complement = self.complements.choose(spec.complement, named)
        elif "where" in spec.add or not (verb.at or verb.to):
            return clause
        else:
            complement = self.phrases.place(verb.at or verb.to, "at" if verb.at else "to")
        return replace(clause, complement=complement)

    def _with_adverbial(self, clause: Clause, slot: str) -> Clause:
        verb = clause.verb
        if slot in ASKED:
            name = "where_to" if slot == "where" and verb.to else slot
            added = Adverbial("asked", ASKED[name])
            return replace(clause, adverbials=(*clause.adverbials, added), front="asked")
        match slot:
            case "time":
                added = self.phrases.time(clause.tense, verb)
            case "clock":
                clock = self.phrases.clock()
                added = Adverbial("time", Fixed(f"at {clock.english}", f"um {clock.german}"))
            case "place":
                added = Adverbial("place", self.phrases.place(verb.where, "at"))
            case "company" | "benefit":
                added = self._person_adverbial(slot, clause)
            case "please" | "yet":
                added = Adverbial(slot, FIXED_ADVERBS[slot])
            case _:
                place = "frequency" if slot == "perfect_adverb" else slot
                added = self.phrases.adverb(slot, place, verb)
        return replace(clause, adverbials=(*clause.adverbials, added))

    def _person_adverbial(self, slot: str, clause: Clause) -> Adverbial:
        english, german = ("with", "mit") if slot == "company" else ("for", "für")
        case = self.lexicon.grammar["cases"][german]
        person = self._person_or_thing(("person",), clause.subject, "person")
        return Adverbial(slot, PrepositionPhrase(english, german, case, person))

    def _with_relative(self, clause: Clause, spec: ClauseSpec) -> Clause:
        part = getattr(clause, spec.relative.of)
        if not isinstance(part, NounPhrase):
            raise RejectedError
        is_person = part.noun in self._nouns(("person",))
        pronoun = Relative(part.noun, part.is_plural, is_person)
        context = ClauseContext(clause, pronoun, spec.relative.role)
        relative = self.clause(spec.relative.clause, context)
        return replace(clause, **{spec.relative.of: replace(part, relative=relative)})


def _is_plural(phrase: Phrase | None) -> bool:
    if isinstance(phrase, Pronoun):
        return phrase.lemma in ("we", "they")
    return isinstance(phrase, NounPhrase | Relative) and phrase.is_plural


def _may_corefer(first: Phrase | None, second: Phrase | None) -> bool:
    """Return whether a reader could assume that two phrases have the same referent."""
    if isinstance(first, NounPhrase) and isinstance(second, NounPhrase):
        return first.noun == second.noun
    return first == second
