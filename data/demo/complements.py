"""Choose complements of `be`: adjectives, comparisons, professions, ages and places."""

from lexicon import Adjective, Lexicon, Noun, Verb
from phrases import PhraseChooser
from sampler import RejectedError, Sampler
from trees import Complement, Description, Fixed, Name, NounPhrase, Phrase, Relative

FEELINGS = {
    "glad": ("happy", "satisfied"),
    "upset": ("sad", "tired", "nervous", "angry"),
    "trouble": ("sad", "tired", "nervous", "angry", "ill", "alone"),
}
NOT_BECOME = ("young", "old", "new")
AGED = ("child", "son", "daughter", "brother", "sister", "nephew", "niece")
PROFESSIONS = (
    "teacher", "doctor", "nurse", "baker", "farmer", "policeman", "saleswoman", "waitress",
    "actress", "painter", "writer", "engineer", "lawyer", "gardener", "hairdresser",
)  # fmt: skip
THIS_IS = (
    "family", "friend", "colleague", "neighbour", "clothing", "small", "thing", "reading",
    "vehicle", "building", "institution", "song", "image", "issue",
)  # fmt: skip
COMPARED = (
    "pet", "farm_animal", "fruit", "clothing", "reading", "vehicle", "transport", "building",
    "institution", "room", "surface", "performance", "device", "writing", "tower", "waterside",
    "wild_animal",
)  # fmt: skip
DEFINITE_THINGS = (
    "clothing", "shoes", "reading", "writing", "vehicle", "device", "baked", "cooked_mass",
    "image", "small", "thing", "building", "film", "fruit",
)  # fmt: skip
DEFINITE_PLACES = (
    "house", "flat", "hotel", "village", "town", "room", "sofa", "bench", "armchair",
    "restaurant", "office", "hospital", "café",
)  # fmt: skip


class ComplementChooser:
    """Chooses complements, and subjects that fit them."""

    def __init__(self, lexicon: Lexicon, sampler: Sampler, phrases: PhraseChooser) -> None:
        """Store the lexicon, the sampler and the phrase chooser."""
        self.lexicon = lexicon
        self.sampler = sampler
        self.phrases = phrases

    def subject(self, kind: str, complement: str, verb: Verb) -> Phrase:
        """Return a subject that can have this kind of complement."""
        match complement:
            case "state" | "glad" | "upset" | "trouble":
                return self._plain(self.phrases.noun(("person",)), "described")
            case "adjective":
                return self._described(kind)
            case "comparison":
                return self._plain(self.phrases.noun(COMPARED), "definite")
            case "kind":
                return self._plain(self.phrases.noun(("family",)), "subject", is_plural=False)
            case "age":
                return self._plain(self.phrases.noun(AGED), "subject", is_plural=False)
            case "price":
                noun = self.phrases.noun(verb.subject)
                return self.phrases.noun_phrase(noun, "generic", is_plural=False)
            case _:
                return self._movable("a" if kind == "movable_a" else "definite")

    def _described(self, kind: str) -> NounPhrase:
        names = {"definite_thing": DEFINITE_THINGS, "definite_place": DEFINITE_PLACES}.get(kind)
        nouns = self.lexicon.nouns_of(names) if names else self.lexicon.nouns
        described = [noun for noun in nouns if self.lexicon.adjectives_of[noun]]
        is_plural = False if kind == "definite_place" else None
        use = "definite" if names else "described"
        return self._plain(self.sampler.pick_rare(described, "noun"), use, is_plural)

    def _movable(self, use: str) -> NounPhrase:
        names = tuple(self.lexicon.grammar["found_at"])
        noun = self.phrases.noun(names)
        if use == "a":
            use = self.sampler.pick(("a", "a", "owning"))
            phrase = self.phrases.noun_phrase(noun, use)
            if use == "owning" or not self.sampler.chance(0.25):
                return phrase
            no = self.lexicon.determiners["no"]
            return NounPhrase(noun, no, phrase.is_plural)
        return self.phrases.noun_phrase(noun, self.sampler.pick(("definite", "described")))

    def _plain(self, noun: Noun, use: str, is_plural: bool | None = None) -> NounPhrase:
        phrase = self.phrases.noun_phrase(noun, use, is_plural=is_plural)
        return NounPhrase(noun, phrase.determiner, phrase.is_plural, number=phrase.number)

    def choose(self, kind: str, subject: Phrase | None) -> Complement:
        """Return a complement of the given kind that fits the subject or its antecedent."""
        match kind:
            case "adjective" | "merit" | "drawback":
                return self._adjective(kind, subject)
            case "state" | "glad" | "upset" | "trouble":
                return self._state(kind)
            case "comparison":
                return self._comparison(subject)
            case "kind":
                return self._profession(subject)
            case "age" | "price":
                return self._amount(kind)
            case "clock":
                return self.phrases.clock()
            case "place":
                return self._place(subject)
            case "definite":
                noun = self.phrases.noun(DEFINITE_THINGS)
                return NounPhrase(noun, self.lexicon.determiners["the"])
        return self.phrases.noun_phrase(self.phrases.noun(THIS_IS), "predicate", is_plural=False)

    def _adjective(self, kind: str, subject: Phrase | None) -> Description:
        if not isinstance(subject, NounPhrase) or subject.adjective:
            raise RejectedError
        grammar = self.lexicon.grammar
        fitting = {"merit": grammar["merits"], "drawback": grammar["drawbacks"] + grammar["too"]}
        adjectives = [
            adjective
            for adjective in self.lexicon.adjectives_of[subject.noun]
            if adjective.lemma in fitting.get(kind, [adjective.lemma])
        ]
        adjective = self.sampler.pick_rare(adjectives, "adjective")
        return Description(adjective, self._degree(kind, adjective))

    def _degree(self, kind: str, adjective: Adjective) -> Fixed | None:
        can_be_too = adjective.lemma in self.lexicon.grammar["too"] and kind != "merit"
        if kind == "drawback":
            english = "too" if can_be_too else ""
        elif adjective.compare and self.sampler.chance(0.4):
            english = "too" if can_be_too and self.sampler.chance(0.5) else "very"
        else:
            english = ""
        return Fixed(english, self.lexicon.adverbs["degree"][english]) if english else None

    def _state(self, kind: str) -> Description:
        states = [adjective for adjective in self.lexicon.adjectives if adjective.state]
        if kind in FEELINGS:
            states = [adjective for adjective in states if adjective.lemma in FEELINGS[kind]]
        return Description(self.sampler.pick_rare(states, "adjective"))

    def _comparison(self, subject: Phrase | None) -> Description:
        if not isinstance(subject, NounPhrase):
            raise RejectedError
        other = self.phrases.noun((subject.noun.word_class,))
        if other == subject.noun or subject.is_plural:
            raise RejectedError
        shared = self.lexicon.adjectives_of[other]
        both = [a for a in self.lexicon.adjectives_of[subject.noun] if a in shared and a.compare]
        than = NounPhrase(other, subject.determiner, subject.is_plural)
        degree = Fixed("as", "so") if self.sampler.chance(0.3) else None
        return Description(self.sampler.pick_rare(both, "adjective"), degree, than)

    def _profession(self, subject: Phrase | None) -> NounPhrase:
        pronoun = self.phrases.pronoun_for(subject)
        if pronoun.lemma not in ("he", "she"):
            raise RejectedError
        gender = "m" if pronoun.lemma == "he" else "f"
        nouns = [n for n in self.lexicon.nouns_of(PROFESSIONS) if n.gender == gender]
        noun = self.sampler.pick_rare(nouns, "noun")
        if self.sampler.chance(0.5):
            return NounPhrase(noun, self.lexicon.determiners["a_german_bare"])
        adjectives = [
            adjective
            for adjective in self.lexicon.adjectives_of[noun]
            if not adjective.state and adjective.lemma not in NOT_BECOME
        ]
        adjective = self.sampler.pick_rare(adjectives, "adjective")
        return NounPhrase(noun, self.lexicon.determiners["a"], adjective=adjective)

    def _amount(self, kind: str) -> Fixed:
        adverbs = self.lexicon.adverbs
        numbers = adverbs["numbers"] | adverbs["bigger_numbers"]
        names = [n for n in numbers if n != "a hundred" or kind == "price"]
        english = self.sampler.pick_rare(names, kind)
        if kind == "age":
            return Fixed(f"{english} years old", f"{numbers[english]} Jahre alt")
        return Fixed(f"{english} euros", f"{numbers[english]} Euro")

    def _place(self, subject: Phrase | None) -> Complement:
        if not isinstance(subject, NounPhrase) or isinstance(subject, Relative | Name):
            raise RejectedError
        noun, grammar = subject.noun, self.lexicon.grammar
        near = grammar["found_near"].get(noun.lemma) or grammar["found_near"].get(noun.word_class)
        if near and self.sampler.chance(0.5):
            return self.phrases.nearby(near)
        names = grammar["found_at"].get(noun.lemma) or grammar["found_at"][noun.word_class]
        return self.phrases.place(names, "at")
