"""Choose verbs that fit the specification, tense and context of a clause."""

from dataclasses import dataclass

from lexicon import Lexicon, Tense, Verb
from patterns import ClauseSpec
from sampler import Sampler
from trees import Clause, NounPhrase, Relative

STATIVE_TENSES = ("present", "past")
UNWILLED_TENSES = ("present", "progressive", "past", "perfect", "will")
SAME = ("same_object", "same_subject")
WISHES = ("to", "in_order_to")


@dataclass(frozen=True)
class ClauseContext:
    """Context of a clause: the previous clause, or the relative pronoun and its role."""

    previous: Clause | None = None
    relative: Relative | None = None
    role: str = ""


class VerbChooser:
    """Chooses verbs for clauses."""

    def __init__(self, lexicon: Lexicon, sampler: Sampler) -> None:
        """Store the lexicon and the sampler."""
        self.lexicon = lexicon
        self.sampler = sampler
        self._candidates_cache: dict[tuple[int, str], list[Verb]] = {}

    def choose(self, spec: ClauseSpec, tense: Tense, context: ClauseContext) -> Verb:
        """Return a verb for a clause; raise `RejectedError` if none fits."""
        verbs = [
            verb
            for verb in self._candidates(spec, tense)
            if self._takes_relative(verb, context)
            and self._takes_same(verb, spec.object[0], context)
        ]
        return self.sampler.pick_rare(verbs, "verb")

    def _candidates(self, spec: ClauseSpec, tense: Tense) -> list[Verb]:
        """Return the verbs that fit the specification and the tense in any context."""
        key = (id(spec), tense.lemma)
        if key not in self._candidates_cache:
            self._candidates_cache[key] = [
                verb
                for verb in self.lexicon.verbs
                if (verb.lemma in spec.verbs if spec.verbs else verb.frame in spec.frames)
                and self._allows(verb, spec, tense)
                and all(self._allows_slot(verb, slot) for slot in spec.add)
                and self._takes_kind(verb, spec.object[0])
            ]
        return self._candidates_cache[key]

    def _allows(self, verb: Verb, spec: ClauseSpec, tense: Tense) -> bool:
        """Return whether the verb can have the tense, mood and adverbials of the clause."""
        is_wish = spec.mood == "command" or spec.by in WISHES
        is_human = "person" in verb.subject or "adult" in verb.subject
        asks_for_person = {"who", "gap"} & {*spec.subject, *spec.object}
        return not (
            (verb.stative and (spec.event or is_wish or tense.lemma not in STATIVE_TENSES))
            or (verb.noprogressive and tense.lemma == "progressive")
            or (verb.involuntary and tense.lemma not in UNWILLED_TENSES)
            or (is_wish and verb.involuntary and not (spec.negated and is_human))
            or (spec.willed and verb.involuntary)
            or (spec.mood == "command" and verb.nocommand)
            or (verb.frame == "pleasing" and asks_for_person)
            or (verb.once and "frequency" in spec.add)
            or (verb.once and tense.lemma == "present" and "time" in spec.add)
        )

    def _allows_slot(self, verb: Verb, slot: str) -> bool:
        adverbs = self.lexicon.adverbs
        match slot:
            case "time" | "frequency" | "when":
                return not verb.stative
            case "place":
                return bool(verb.where)
            case "where":
                return bool(verb.where or verb.at or verb.to or verb.lemma == "be")
            case "company":
                return verb.company
            case "clock":
                return verb.punctual
            case "benefit":
                return verb.lemma in adverbs["benefit_verbs"]
            case "manner" | "means":
                return any(verb.lemma in entry["verbs"] for entry in adverbs[slot].values())
        return True

    def _takes_relative(self, verb: Verb, context: ClauseContext) -> bool:
        """Return whether the verb fits the previous clause and the relative pronoun, if any."""
        before = context.previous.verb.lemma if context.previous else ""
        if before == verb.lemma or (before == "begin to" and verb.punctual):
            return False
        if context.relative is None:
            return True
        if verb.frame == "pleasing" and context.role == "subject":
            return False
        roles = {"subject": verb.subject, "direct": verb.object, "complement": verb.at}
        names = (name for name in roles[context.role] if not self._is_proper(name))
        return context.relative.noun in self.lexicon.nouns_of(tuple(names))

    def _is_proper(self, name: str) -> bool:
        grammar = self.lexicon.grammar
        return name in grammar["fixed_places"] or name in grammar["proper_places"]

    def _takes_kind(self, verb: Verb, kind: str) -> bool:
        """Return whether the verb can have an object of this kind."""
        if kind == "noun":
            return True
        if kind in ("pronoun", "who"):
            return self._takes_people(verb)
        if not verb.object or verb.bare_object:
            return False
        if kind in SAME:
            return True
        if verb.frame in ("placing", "pleasing"):
            return False
        is_plain = not verb.preposition and verb.case == "accusative" and not verb.generic
        return kind == "definite" or (is_plain and not self._takes_people(verb))

    def _takes_same(self, verb: Verb, kind: str, context: ClauseContext) -> bool:
        """Return whether the object can refer to the subject or object of the previous clause."""
        if kind not in SAME:
            return True
        before = context.previous
        previous = before.direct if kind == "same_object" else before.subject
        is_noun = isinstance(previous, NounPhrase)
        return is_noun and previous.noun in self.lexicon.nouns_of(verb.object)

    def _takes_people(self, verb: Verb) -> bool:
        return self.lexicon.noun("man") in self.lexicon.nouns_of(verb.object)
