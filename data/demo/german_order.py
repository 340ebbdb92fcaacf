"""German word order: the parts of a clause and the clauses of a sentence."""

import re
from dataclasses import replace

from german import German, infinitive, zu_infinitive
from lexicon import Determiner
from marks import PATTERN, capitalize, mark, marks_of, unmarked
from trees import (
    Adverbial,
    Clause,
    Complement,
    Description,
    Fixed,
    Link,
    Name,
    NounPhrase,
    Phrase,
    PrepositionPhrase,
    Sentence,
    is_pronoun,
)

KEIN_REPLACES = ("a", "bare")
INDEFINITE = ("a", "bare", "no", "some", "many")
LATE_ADVERBS = ("nie", "noch nie", "schon")  # like "nicht", they follow a definite object
# Order of the middle field, between the finite verb and the participle. A reflexive pronoun comes
# before a subject that is not a pronoun. Definite receivers and names precede the time. Other
# definite objects precede it only in clauses with "nicht" or a late adverb. Indefinite objects
# follow the place, because German puts new information late.
MIDDLE = (
    "pronoun_subject", "reflexive", "early_receiver", "subject", "pronoun_direct",
    "pronoun_receiver", "definite_receiver", "definite_direct", "time", "frequency",
    "receiver", "direct", "not", "company", "means", "benefit", "manner", "place",
    "indefinite_direct", "noun", "complement",
)  # fmt: skip


# Fields of MIDDLE that each part of the tree may occupy.
ROLES = {
    "subject": ("pronoun_subject", "subject"),
    "direct": ("pronoun_direct", "definite_direct", "direct", "indefinite_direct", "complement"),
    "receiver": ("early_receiver", "pronoun_receiver", "definite_receiver", "receiver"),
}


class GermanOrder:
    """Realizes trees as German sentences."""

    def __init__(self, german: German) -> None:
        """Store the inflection rules."""
        self.german = german

    def sentence(self, sentence: Sentence) -> str:
        """Return the sentence with capitalization and punctuation."""
        words = []
        main = sentence.main
        if sentence.opening:
            opening = sentence.opening
            words = [opening.conjunction.de.strip(", "), self.clause(opening.clause, "final"), ","]
            words.append(self.clause(main, "first"))
        else:
            words.append(self.clause(main, _main_order(main)))
        words.extend(self.link(link) for link in sentence.links)
        last = sentence.links[-1].clause if sentence.links else main
        sign = "?" if "question" in (main.mood, last.mood) else "."
        if sentence.links and sentence.links[0].conjunction.lemma == "question_mark":
            sign = "."
        return _polish(" ".join(words), sign)

    def link(self, link: Link) -> str:
        """Return the conjunction and its clause."""
        kind = link.conjunction.kind
        orders = {"subordinate": "final", "infinitive": "infinitive", "inverting": "first"}
        text = self.clause(link.clause, orders.get(kind) or _main_order(link.clause))
        if unmarked(text) == zu_infinitive(link.clause.verb) and link.conjunction.lemma == "to":
            return text  # a bare infinitive needs no comma: sie versucht zu schlafen
        return f"{link.conjunction.de} {text}"

    def clause(self, clause: Clause, order: str) -> str:
        """Return the clause with its verb first, second or final, or as an infinitive with zu."""
        finite, right = self._verb(clause, order)
        fields = self._middle(clause)
        if order == "infinitive":
            fields = {name: text for name, text in fields.items() if name not in ROLES["subject"]}
        front = fields.pop(_front_field(clause, order, fields), "")
        middle = " ".join(fields[name] for name in MIDDLE if fields.get(name))
        match order:
            case "second" | "first":
                words = [front, finite, middle, right]
            case _:
                words = [front, middle, right, finite]
        return " ".join(word for word in [*words, *self._relatives(clause)] if word)

    def _verb(self, clause: Clause, order: str) -> tuple[str, str]:
        """Return the finite verb and the right bracket: prefix, participle or infinitive."""
        verb, tense, marks = clause.verb, clause.tense, clause.marks
        person = self.german.person(_agreeing(clause))
        prefix = mark(marks.part, verb.prefix)
        if order == "infinitive":
            if verb.prefix:
                return "", mark(marks.verb + marks.to, zu_infinitive(verb))
            return "", f"{mark(marks.to, 'zu')} {mark(marks.verb, infinitive(verb))}"
        if clause.mood == "command":
            return mark(marks.verb, self.german.command(verb)), prefix
        if tense.german == "perfect" and tense.lemma == "past" and verb.preterite:
            return mark(marks.verb, self.german.auxiliary(verb.de, person, "preterite")), ""
        if tense.german == "perfect":
            helper = self.german.auxiliary("sein" if verb.be else "haben", person, "present")
            return mark(marks.helper, helper), mark(marks.verb, verb.perfect)
        if tense.german == "present":
            finite = mark(marks.verb, self.german.present(verb, person))
            return (prefix + finite, "") if order == "final" else (finite, prefix)
        form = "preterite" if tense.preterite else "present"
        helper = self.german.auxiliary(tense.german, person, form)
        return mark(marks.helper, helper), mark(marks.verb, infinitive(verb))

    def _middle(self, clause: Clause) -> dict[str, str]:
        """Return the parts of the clause by their names in MIDDLE."""
        direct, has_kein = self._negate(clause)
        is_nicht = clause.is_negated and not has_kein
        fields = self._objects(clause, direct, is_nicht=is_nicht)
        if clause.verb.noun:
            fields["noun"] = _verb_noun(clause)
        elif is_nicht:
            fields["not"] = mark(clause.marks.negation, "nicht")
        if clause.complement:
            fields["complement"] = self._complement(clause)
        for adverbial in clause.adverbials:
            fields[adverbial.slot] = self._adverbial(adverbial)
        if "yet" in fields:
            negation = "not" if "not" in fields else "indefinite_direct"
            fields[negation] = f"{fields['yet']} {fields[negation]}"
        return fields

    def _negate(self, clause: Clause) -> tuple[Phrase | None, bool]:
        """Return the direct object, and whether kein expresses the negation."""
        direct = clause.direct
        if not clause.is_negated or clause.verb.preposition or clause.verb.case != "accusative":
            return direct, False
        if isinstance(direct, NounPhrase) and _takes_kein(direct):
            return self._with_kein(direct, clause), True
        complement = clause.complement
        return direct, isinstance(complement, NounPhrase) and _takes_kein(complement)

    def _with_kein(self, phrase: NounPhrase, clause: Clause) -> NounPhrase:
        """Return the phrase with the determiner kein, which expresses both "not" and "a"."""
        kein: Determiner = self.german.lexicon.determiners["no"]
        marks = clause.marks.negation + marks_of(phrase.determiner.german)
        return replace(phrase, determiner=replace(kein, german=mark(marks, kein.german)))

    def _objects(self, clause: Clause, direct: Phrase | None, *, is_nicht: bool) -> dict[str, str]:
        verb, fields = clause.verb, {}
        subject, receiver, case = clause.subject, clause.receiver, verb.case
        if verb.frame == "pleasing":
            # I like the film = der Film gefällt mir: the English object is the German subject.
            subject, receiver, direct = direct, subject, None
        if subject is not None:
            name = "subject" if isinstance(subject, NounPhrase | Name) else "pronoun_subject"
            fields[name] = self.german.phrase(subject, "nominative")
            if _has_relative(subject) and clause.verb.frame != "pleasing":
                fields[name] += " " + self._relative(subject)
        if receiver is not None:
            name = _receiver_field(receiver, verb.frame, is_nicht)
            fields[name] = self.german.phrase(receiver, "dative")
        if verb.reflexive:
            person = self.german.person(clause.subject)
            reflexive = self.german.lexicon.grammar["reflexives"][person]
            fields["reflexive"] = mark(clause.marks.part, reflexive)
        if direct is not None and verb.preposition:
            preposition = mark(clause.marks.preposition, verb.preposition)
            text = self.german.preposition_phrase(PrepositionPhrase("", preposition, case, direct))
            # undo the contraction: denkt an das Mädchen
            fields["complement"] = re.sub(f"^({PATTERN}?)({PATTERN}?)ans ", r"\1an \2das ", text)
        elif verb.bare_object and isinstance(direct, NounPhrase):
            fields["noun"] = direct.noun.german  # without an article: spielt im Garten Klavier
        elif direct is not None:
            is_early = is_nicht or _has_late_adverb(clause)
            fields[_direct_field(direct, is_early)] = self.german.phrase(direct, case)
        return fields

    def _complement(self, clause: Clause) -> str:
        complement: Complement | None = clause.complement
        match complement:
            case PrepositionPhrase():
                return self.german.preposition_phrase(complement)
            case Description():
                return self._description(complement)
            case Fixed():
                return complement.german
            case _:
                if clause.is_negated and _takes_kein(complement):
                    complement = self._with_kein(complement, clause)
                return self.german.phrase(complement, "nominative")

    def _description(self, part: Description) -> str:
        degree = part.degree.german + " " if part.degree else ""
        plain = degree + part.adjective.de.split("/")[0]
        if part.than is None:
            return plain
        than = self.german.phrase(part.than, "nominative")
        if degree:
            return f"{plain} {part.mark}wie {than}"
        return f"{part.adjective.compare[1]} {part.mark}als {than}"

    def _adverbial(self, adverbial: Adverbial) -> str:
        content = adverbial.content
        if isinstance(content, Fixed):
            return content.german
        return self.german.preposition_phrase(content)

    def _relatives(self, clause: Clause) -> list[str]:
        """Return the relative clauses of objects, which follow the clause."""
        # The English subject of `like` is an object in German: der Film gefällt dem Mann, der ...
        liking = clause.subject if clause.verb.frame == "pleasing" else None
        phrases = (liking, clause.direct, clause.complement)
        return [self._relative(phrase) for phrase in phrases if _has_relative(phrase)]

    def _relative(self, phrase: NounPhrase) -> str:
        return f", {self.clause(phrase.relative, 'final')} ,"


def _verb_noun(clause: Clause) -> str:
    """Return the noun that belongs to the verb: hat Angst, hat keine Angst."""
    if not clause.is_negated:
        return mark(clause.marks.part, clause.verb.noun)
    kein, _, noun = clause.verb.no_noun.partition(" ")
    return f"{mark(clause.marks.negation, kein)} {mark(clause.marks.part, noun)}"


def _agreeing(clause: Clause) -> Phrase | None:
    return clause.direct if clause.verb.frame == "pleasing" else clause.subject


def _front_field(clause: Clause, order: str, fields: dict[str, str]) -> str:
    if order in ("first", "infinitive") or (order == "final" and clause.front == "subject"):
        return ""
    names = ROLES.get(clause.front, (clause.front,))
    return next((name for name in names if name in fields), "")


def _receiver_field(receiver: Phrase, frame: str, is_nicht: bool) -> str:
    if frame == "pleasing":
        return "early_receiver"
    if is_pronoun(receiver):
        return "pronoun_receiver"
    return "definite_receiver" if is_nicht or not _is_indefinite(receiver) else "receiver"


def _direct_field(direct: Phrase, is_early: bool) -> str:
    if is_pronoun(direct):
        return "pronoun_direct"
    if _is_indefinite(direct):
        return "indefinite_direct"
    return "definite_direct" if is_early or isinstance(direct, Name) else "direct"


def _is_indefinite(phrase: Phrase) -> bool:
    return isinstance(phrase, NounPhrase) and phrase.determiner.lemma in INDEFINITE


def _has_late_adverb(clause: Clause) -> bool:
    contents = (adverbial.content for adverbial in clause.adverbials)
    return any(
        isinstance(part, Fixed) and unmarked(part.german) in LATE_ADVERBS for part in contents
    )


def _has_relative(phrase: object) -> bool:
    return isinstance(phrase, NounPhrase) and phrase.relative is not None


def _takes_kein(phrase: NounPhrase) -> bool:
    return phrase.determiner.lemma in KEIN_REPLACES and not phrase.number


def _main_order(clause: Clause) -> str:
    return "second" if clause.front else "first"


def _polish(text: str, sign: str) -> str:
    text = re.sub(r" +", " ", text)
    text = re.sub(r" ([,.?])", r"\1", text)
    text = re.sub(r",+", ",", text).rstrip(",") + sign
    return capitalize(re.sub(r",\.", ".", text))
