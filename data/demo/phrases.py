"""Choose noun phrases, pronouns, places and times."""

from collections.abc import Sequence
from dataclasses import replace

from lexicon import Lexicon, Noun, Pronoun, Tense, Verb
from sampler import RejectedError, Sampler
from trees import Adverbial, Fixed, Name, NounPhrase, Phrase, PrepositionPhrase, Relative

POSSESSIVES = ("my", "your", "his", "her", "our", "their")
PERSONAL = ("I", "you", "he", "she", "we", "they")
NO_ANTECEDENT = ("girl", "child")  # das Mädchen: es in grammar, but often sie in usage
ONLY_BARE = ("resource", "music")
ONLY_ONE = ("sea", "zoo", "heating", "station", "airport", "harbour")
# Strangers and public things take no possessive; OWNED lists the exceptions in these classes.
UNOWNED = (
    "adult", "boy", "girl", "pupil", "wild_animal", "institution", "stop", "outdoors", "waterside",
    "structure", "transport", "castle", "tower", "factory", "word", "film", "concert", "tree",
)  # fmt: skip
OWNED = (
    "friend", "neighbour", "guest", "teacher", "doctor", "colleague", "boss", "lawyer", "office",
    "garden", "school",
)  # fmt: skip
BELONGING = ("friend", "colleague", "boss")
OWNABLE = ("clothing", "vehicle", "small", "thing", "reading", "flat", "house", "device", "pet")
PARTS = ("door", "window", "roof", "wall", "gate")
PARTED = ("house", "castle", "school", "church", "hotel", "kitchen", "factory", "museum")

# Weights of determiners by use: in a subject, in an object, after a preposition of place.
SINGULAR = {
    "person": {"the": 6, "a": 3, "this": 1, "possessive": 3},
    "described": {"the": 8, "this": 2, "possessive": 3},
    "subject": {"the": 10, "a": 2, "this": 2, "possessive": 2, "every": 0.4},
    "object": {"the": 7, "a": 7, "this": 2, "possessive": 4},
    "generic": {"the": 5, "this": 3, "possessive": 3},
    "negated": {"the": 6, "a": 5, "this": 2, "possessive": 3},
    "owning": {"a": 1},
    "a": {"a": 1},
    "definite": {"the": 1},
    "place": {"the": 9, "possessive": 1},
    "predicate": {"a": 5, "possessive": 4, "the": 2},
}
PLURAL = {
    "person": {"the": 5, "this": 1, "possessive": 2, "number": 1},
    "described": {"the": 8, "this": 2, "possessive": 3},
    "subject": {"the": 6, "this": 2, "possessive": 2, "number": 3, "many": 1, "all": 1, "some": 1},
    "object": {"the": 4, "bare": 4, "number": 5, "possessive": 2, "this": 1, "some": 2, "many": 2},
    "generic": {"the": 3, "bare": 5, "this": 2, "possessive": 2},
    "negated": {"the": 4, "bare": 3, "this": 2, "possessive": 2},
    "owning": {"number": 2, "many": 1},
    "a": {"bare": 1},
    "definite": {"the": 1},
    "place": {"the": 1},
}
MASS = {
    "described": {"the": 4, "this": 1, "possessive": 1},
    "subject": {"the": 4, "this": 1, "possessive": 1},
    "object": {"the": 3, "bare": 6, "possessive": 1, "this": 1},
    "generic": {"bare": 4, "this": 1, "the": 1},
    "negated": {"the": 3, "bare": 4, "possessive": 1},
    "owning": {"bare": 1},
    "a": {"bare": 1},
    "definite": {"the": 1},
    "place": {"the": 1},
}


class PhraseChooser:
    """Chooses noun phrases that make sense."""

    def __init__(self, lexicon: Lexicon, sampler: Sampler) -> None:
        """Store the lexicon and the sampler."""
        self.lexicon = lexicon
        self.sampler = sampler

    def noun(self, names: Sequence[str]) -> Noun:
        """Return a noun from the given classes."""
        return self.sampler.pick_rare(self.lexicon.nouns_of(tuple(names)), "noun")

    def person(self, kind: str, names: Sequence[str], use: str) -> Phrase:
        """Return a pronoun, a name or a noun phrase for a subject."""
        adult = self.lexicon.noun("man")
        if adult not in self.lexicon.nouns_of(tuple(names)):
            kind = "noun" if kind in ("pronoun", "name") else kind
        match kind:
            case "pronoun":
                return self.lexicon.pronouns[self.sampler.pick(PERSONAL)]
            case "name":
                return self.name()
            case _:
                return self.noun_phrase(self.noun(names), use)

    def name(self) -> Name:
        """Return the name of a person."""
        pronoun = self.sampler.pick(("he", "she"))
        return Name(self.sampler.pick_rare(self.lexicon.grammar["names"][pronoun], "name"), pronoun)

    def noun_phrase(
        self, noun: Noun, use: str, *, owner_of: Phrase | None = None, is_plural: bool | None = None
    ) -> NounPhrase:
        """Return a noun phrase; a possessive may refer to `owner_of`."""
        if is_plural is None:
            is_plural = self.sampler.chance(0.3)
        is_plural = (is_plural and noun.has_plural) or _is_always_plural(noun)
        kind = self._determiner_kind(noun, use, is_plural)
        number = None
        if kind == "number":
            number, kind = self._number(), "bare"
        if kind == "possessive":
            kind = self._possessive(owner_of)
        phrase = NounPhrase(noun, self.lexicon.determiners[kind], is_plural, number=number)
        if noun.word_class == "family" and use != "owning":
            return phrase
        return self._with_adjective_or_owner(phrase, use)

    def _determiner_kind(self, noun: Noun, use: str, is_plural: bool) -> str:
        if noun.word_class == "family" and use != "owning":
            return "possessive"
        if noun.word_class in ONLY_BARE:
            return "bare"
        if noun.lemma in ONLY_ONE:
            return "the"
        table = PLURAL if is_plural else MASS if noun.is_mass else SINGULAR
        kind = self.sampler.pick_weighted(table[use])
        if kind == "possessive" and self._is_unowned(noun):
            return "the"
        if noun.lemma in BELONGING and kind in ("the", "this") and use != "definite":
            return "possessive"
        return "the" if kind == "number" and _is_always_plural(noun) else kind

    def _is_unowned(self, noun: Noun) -> bool:
        nouns_of = self.lexicon.nouns_of
        return noun in nouns_of(UNOWNED) and noun not in nouns_of(OWNED)

    def _possessive(self, owner_of: Phrase | None) -> str:
        if owner_of is not None and self.sampler.chance(0.75):
            pronoun = self.pronoun_for(owner_of)
            if pronoun.possessive:
                return pronoun.possessive
        return self.sampler.pick(POSSESSIVES)

    def _number(self) -> Fixed:
        numbers = self.lexicon.adverbs["numbers"]
        names = list(numbers)[:4] if self.sampler.chance(0.6) else list(numbers)
        english = self.sampler.pick_rare(names, "number")
        return Fixed(english, numbers[english])

    def _with_adjective_or_owner(self, phrase: NounPhrase, use: str) -> NounPhrase:
        adjectives = self.lexicon.adjectives_of[phrase.noun]
        is_definite = phrase.determiner.lemma == "the"
        if is_definite and use != "place" and self.sampler.chance(0.12):
            return self._with_owner(phrase)
        probability = 0.25 if use == "place" else 0.45
        if (
            adjectives
            and phrase.noun.word_class not in ONLY_BARE
            and self.sampler.chance(probability)
        ):
            return replace(phrase, adjective=self.sampler.pick_rare(adjectives, "adjective"))
        return phrase

    def _with_owner(self, phrase: NounPhrase) -> NounPhrase:
        noun = phrase.noun
        if noun.lemma in PARTS:
            owner = self.noun_phrase(self.noun(PARTED), "definite", is_plural=False)
            return replace(phrase, owner=replace(owner, owner=None))
        if noun not in self.lexicon.nouns_of(OWNABLE):
            return phrase
        if self.sampler.chance(0.5):
            return replace(phrase, owner=self.name())
        owner = self.noun_phrase(self.noun(("person",)), "definite", is_plural=False)
        return replace(phrase, owner=replace(owner, owner=None))

    def pronoun_for(self, phrase: Phrase) -> Pronoun:
        """Return the pronoun that refers to a phrase."""
        pronouns = self.lexicon.pronouns
        match phrase:
            case Pronoun():
                return phrase
            case Name():
                return pronouns[phrase.pronoun]
            case NounPhrase() if phrase.determiner.lemma == "every":
                raise RejectedError
            case NounPhrase() if phrase.is_plural:
                return pronouns["they"]
            case NounPhrase() if phrase.noun.lemma in NO_ANTECEDENT or phrase.relative:
                raise RejectedError
            case NounPhrase() if phrase.noun in self.lexicon.nouns_of(("person",)):
                return pronouns["he" if phrase.noun.gender == "m" else "she"]
            case NounPhrase():
                return pronouns[f"it_{phrase.noun.gender}"]
        raise RejectedError

    def other_pronoun(self, subject: Phrase | None) -> Pronoun:
        """Return an object pronoun that cannot refer to the subject."""
        excluded: tuple[str, ...] = ("you",) if subject is None else ()
        if isinstance(subject, Pronoun):
            same = {"I": ("I", "we"), "we": ("I", "we"), "you": ("you",)}
            excluded = same.get(subject.lemma, ())
        return self.lexicon.pronouns[self.sampler.pick([p for p in PERSONAL if p not in excluded])]

    def time(self, tense: Tense, verb: Verb) -> Adverbial:
        """Return a time adverbial that fits the tense and the verb."""
        tables = self.lexicon.adverbs["time"]
        times, memorable = tables[tense.time], tables.get(f"{tense.time}_memorable", {})
        if verb.seldom:
            times = memorable or times
        elif verb.lemma in self.lexicon.adverbs["memorable_verbs"]:
            times = times | memorable
        english = self.sampler.pick_rare(list(times), "time")
        return Adverbial("time", Fixed(english, times[english]))

    def clock(self) -> Fixed:
        """Return a time of day, without its preposition: half past three is halb vier."""
        hours = list(self.lexicon.adverbs["hours"].items())
        index = int(self.sampler.pick(range(12)))
        (english, german), (later, german_later) = hours[index], hours[(index + 1) % 12]
        styles = (
            (f"{english} o'clock", f"{'ein' if german == 'eins' else german} Uhr"),
            (f"half past {english}", f"halb {german_later}"),
            (f"a quarter past {english}", f"Viertel nach {german}"),
            (f"a quarter to {later}", f"Viertel vor {german_later}"),
            (f"ten past {english}", f"zehn nach {german}"),
            (f"five to {later}", f"fünf vor {german_later}"),
        )
        return Fixed(*self.sampler.pick(styles))

    def adverb(self, table: str, slot: str, verb: Verb) -> Adverbial:
        """Return an adverb from the given table that fits the verb."""
        entries = self.lexicon.adverbs[table]
        suitable = [
            english
            for english, german in entries.items()
            if (isinstance(german, str) or verb.lemma in german["verbs"])
            and not (german == "noch nie" and verb.punctual)
        ]
        english = self.sampler.pick_rare(suitable, slot)
        german = entries[english]
        return Adverbial(slot, Fixed(english, german if isinstance(german, str) else german["de"]))

    def place(self, names: Sequence[str], direction: str) -> Fixed | PrepositionPhrase:
        """Return a location (direction `at`) or a destination (`to`)."""
        grammar = self.lexicon.grammar
        candidates: list[Noun | Fixed] = []
        for name in names:
            if name in grammar["fixed_places"]:
                candidates.append(Fixed(*grammar["fixed_places"][name][direction]))
            elif name in grammar["proper_places"]:
                english, german = ("in", "in") if direction == "at" else ("to", "nach")
                for place, ort in grammar["proper_places"][name].items():
                    candidates.append(Fixed(f"{english} {place}", f"{german} {ort}"))
            else:
                candidates.extend(self.lexicon.nouns_of((name,)))
        chosen = self.sampler.pick_rare(candidates, "place")
        if isinstance(chosen, Fixed):
            return chosen
        return self.place_before(self.noun_phrase(chosen, "place", is_plural=False), direction)

    def place_before(self, phrase: NounPhrase | Relative, direction: str) -> PrepositionPhrase:
        """Return the phrase with the English and German prepositions that its noun takes."""
        grammar, noun = self.lexicon.grammar, phrase.noun
        locations = grammar["locations"]
        english, german = (locations.get(noun.lemma) or locations[noun.word_class])[direction]
        usual = "dative" if direction == "at" else "accusative"
        return PrepositionPhrase(english, german, grammar["cases"].get(german, usual), phrase)

    def nearby(self, names: Sequence[str]) -> PrepositionPhrase:
        """Return a place beside, behind, under or in front of something."""
        noun, grammar = self.noun(names), self.lexicon.grammar
        is_low = noun.lemma in grammar["not_under"]
        relations = [name for name in grammar["relations"] if name != "under" or not is_low]
        english = self.sampler.pick(relations)
        phrase = self.noun_phrase(noun, "place", is_plural=False)
        return PrepositionPhrase(english, grammar["relations"][english], "dative", phrase)


def _is_always_plural(noun: Noun) -> bool:
    return not noun.has_singular or noun.word_class == "shoes"
