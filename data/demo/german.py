"""German inflection: nouns, articles, adjectives, pronouns and verbs."""

import re

from lexicon import Adjective, Determiner, Lexicon, Noun, Pronoun, Verb
from marks import marks_of, unmarked
from trees import Name, NounPhrase, Phrase, PrepositionPhrase, Relative

CASES = ("nominative", "accusative", "dative", "genitive")
PERSONS = ("ich", "du", "er", "wir", "sie")

# Rows: case; columns: masculine, feminine, neuter, plural.
DEFINITE = {
    "nominative": ("der", "die", "das", "die"),
    "accusative": ("den", "die", "das", "die"),
    "dative": ("dem", "der", "dem", "den"),
    "genitive": ("des", "der", "des", "der"),
}
STRONG = {
    "nominative": ("er", "e", "es", "e"),
    "accusative": ("en", "e", "es", "e"),
    "dative": ("em", "er", "em", "en"),
    "genitive": ("es", "er", "es", "er"),
}
EIN = STRONG | {"nominative": ("", "e", "", "e"), "accusative": ("en", "e", "", "e")}
WEAK_ADJECTIVE = {
    "nominative": ("e", "e", "e", "en"),
    "accusative": ("en", "e", "e", "en"),
    "dative": ("en",) * 4,
    "genitive": ("en",) * 4,
}
MIXED_ADJECTIVE = WEAK_ADJECTIVE | {
    "nominative": ("er", "e", "es", "en"),
    "accusative": ("en", "e", "es", "en"),
}
STRONG_ADJECTIVE = STRONG | {"genitive": ("en", "er", "en", "er")}
RELATIVE = DEFINITE | {"dative": ("dem", "der", "dem", "denen")}

ADJECTIVE_ENDINGS = {
    "definite": WEAK_ADJECTIVE,
    "der": WEAK_ADJECTIVE,
    "ein": MIXED_ADJECTIVE,
    "strong": STRONG_ADJECTIVE,
    "none": STRONG_ADJECTIVE,
}


def column(noun: Noun, is_plural: bool) -> int:
    """Return the column of a noun in the tables above."""
    return 3 if is_plural else "mfn".index(noun.gender)


def decline(noun: Noun, case: str, is_plural: bool) -> str:
    """Return the declined noun."""
    if is_plural:
        needs_n = case == "dative" and not noun.german_plural.endswith(("n", "s"))
        return noun.german_plural + ("n" if needs_n else "")
    if noun.is_weak and case != "nominative":
        return noun.german_plural  # den Jungen, dem Nachbarn: weak nouns have two forms
    if case == "genitive" and noun.gender != "f":
        return noun.genitive or noun.german + ("es" if _needs_es(noun.german) else "s")
    return noun.german


def _needs_es(word: str) -> bool:
    has_one_syllable = len(re.findall("[aeiouyäöü]+", word.lower())) == 1
    return has_one_syllable or word.endswith(("s", "ß", "z", "x"))


def article(determiner: Determiner, case: str, col: int) -> str:
    """Return the determiner with its ending."""
    match determiner.pattern:
        case "definite":
            return marks_of(determiner.german) + DEFINITE[case][col]
        case "der" | "strong":
            return determiner.german + STRONG[case][col]
        case "ein":
            return determiner.german + EIN[case][col]
        case _:
            return ""


def inflect(adjective: Adjective, pattern: str, case: str, col: int) -> str:
    """Return the adjective with its ending after a determiner of this pattern."""
    stem = adjective.de.split("/")[-1]
    ending = ADJECTIVE_ENDINGS[pattern][case][col]
    return stem + (ending[1:] if stem.endswith("e") else ending)


class German:
    """German phrases and verb forms; the lexicon provides irregular forms."""

    def __init__(self, lexicon: Lexicon) -> None:
        """Store the lexicon."""
        self.lexicon = lexicon

    def phrase(self, phrase: Phrase, case: str) -> str:
        """Return the declined phrase without its relative clause."""
        match phrase:
            case Pronoun():
                return phrase.german[CASES.index(case)]
            case Name():
                return phrase.text
            case Relative():
                return phrase.mark + RELATIVE[case][column(phrase.noun, phrase.is_plural)]
            case _:
                return self._noun_phrase(phrase, case)

    def _noun_phrase(self, phrase: NounPhrase, case: str) -> str:
        noun, determiner = phrase.noun, phrase.determiner
        col = column(noun, phrase.is_plural)
        pattern = determiner.pattern
        words = [article(determiner, case, col)]
        if isinstance(phrase.owner, Name):
            words, pattern = [phrase.owner.text + "s"], "none"
        if phrase.number:
            words.append(phrase.number.german)
        if phrase.adjective:
            words.append(inflect(phrase.adjective, pattern, case, col))
        words.append(decline(noun, case, phrase.is_plural))
        if isinstance(phrase.owner, NounPhrase):
            words.append(self._noun_phrase(phrase.owner, "genitive"))
        return " ".join(word for word in words if word)

    def preposition_phrase(self, part: PrepositionPhrase) -> str:
        """Return the preposition and its phrase, contracted if possible: im, zur."""
        text = f"{part.german} {self.phrase(part.phrase, part.case)}"
        phrase = part.phrase
        # A relative clause needs the full article: von dem Haus, das wir gekauft haben.
        is_plain = isinstance(phrase, NounPhrase) and not phrase.relative
        if is_plain and phrase.determiner.pattern == "definite":
            preposition, word, *rest = text.split(" ")
            contractions = self.lexicon.grammar["contractions"]
            short = contractions.get(unmarked(f"{preposition} {word}"))
            marks = marks_of(preposition) + marks_of(word)
            return " ".join([marks + short, *rest]) if short else text
        return text

    def person(self, phrase: Phrase | None) -> str:
        """Return the grammatical person of a verb with this subject."""
        match phrase:
            case None:
                return "du"
            case Pronoun():
                return phrase.person
            case Name():
                return "er"
            case _:
                return "sie" if phrase.is_plural else "er"

    def auxiliary(self, infinitive: str, person: str, form: str) -> str:
        """Return a form of sein, haben, werden or a modal from the grammar tables."""
        return self.lexicon.grammar["paradigms"][infinitive][form][PERSONS.index(person)]

    def present(self, verb: Verb, person: str) -> str:
        """Return the present form of a verb, without its separable prefix."""
        if verb.de in self.lexicon.grammar["paradigms"]:
            return self.auxiliary(verb.de, person, "present")
        stem = re.sub("(?<=[lr])n$|en$", "", verb.de)
        e = "e" if _needs_e(stem) else ""
        match person:
            case "ich":
                return verb.ich or stem + "e"
            case "du":
                return verb.du or self._second_person(verb, stem, e)
            case "er":
                return verb.er or stem + e + "t"
            case _:
                return verb.de

    def _second_person(self, verb: Verb, stem: str, e: str) -> str:
        if verb.er:
            stem, e = verb.er.removesuffix("t"), ""
        return stem + ("t" if stem.endswith(("s", "ß", "z", "x")) else e + "st")

    def command(self, verb: Verb) -> str:
        """Return the informal singular imperative."""
        stem = re.sub("(?<=[lr])n$|en$", "", verb.de)
        return verb.command or stem + ("e" if _needs_e(stem) else "")


def _needs_e(stem: str) -> bool:
    # arbeit-e-t, find-e-t, zeichn-e-t: the e makes the ending audible or pronounceable.
    return stem.endswith(("t", "d")) or bool(re.search("([^aeiouäöürlhmn]|ch)[nm]$", stem))


def infinitive(verb: Verb) -> str:
    """Return the infinitive with its prefix: aufmachen."""
    return verb.prefix + verb.de


def zu_infinitive(verb: Verb) -> str:
    """Return the infinitive with zu: aufzumachen, zu lesen."""
    return f"{verb.prefix}zu{verb.de}" if verb.prefix else f"zu {verb.de}"
