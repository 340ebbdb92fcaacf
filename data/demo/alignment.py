"""Gold word alignment: links between words that express the same part of the tree.

`Marker` marks each part of a tree with a separate character. The realizers output the marks with
the words, and `align` links the words that have the same mark.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from lexicon import Adjective, Determiner, Noun, Pronoun
from marks import FIRST, all_marks, mark
from trees import (
    Adverbial,
    Clause,
    ClauseMarks,
    Complement,
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

Links = list[tuple[int, int]]  # (English word, German word), both counted from 0, sorted


@dataclass
class Marker:
    """Marks the parts of one sentence."""

    verb_of: dict[str, str] = field(default_factory=dict)  # maps a mark to the mark of its verb
    n_marks: int = 0

    def sentence(self, sentence: Sentence) -> Sentence:
        """Return the sentence with marks."""
        return replace(
            sentence,
            main=self._clause(sentence.main),
            opening=self._link(sentence.opening) if sentence.opening else None,
            links=tuple(self._link(link) for link in sentence.links),
        )

    def _new(self) -> str:
        self.n_marks += 1
        return chr(ord(FIRST) + self.n_marks - 1)

    def _link(self, link: Link) -> Link:
        conjunction, m = link.conjunction, self._new()
        marked = replace(conjunction, en=mark(m, conjunction.en), de=mark(m, conjunction.de))
        return Link(marked, self._clause(link.clause, to=m))

    def _clause(self, clause: Clause, to: str = "") -> Clause:
        verb, *others = (self._new() for _ in range(4))
        self.verb_of |= dict.fromkeys(others, verb)
        return replace(
            clause,
            subject=self._optional(clause.subject, self._phrase),
            direct=self._optional(clause.direct, self._phrase),
            receiver=self._optional(clause.receiver, self._phrase),
            complement=self._optional(clause.complement, self._complement),
            adverbials=tuple(
                Adverbial(adverbial.slot, self._complement(adverbial.content))
                for adverbial in clause.adverbials
            ),
            marks=ClauseMarks(verb, *others, negation=self._new(), to=to),
        )

    def _optional(self, part: object, mark_part: Callable) -> object:
        return None if part is None else mark_part(part)

    def _phrase(self, phrase: Phrase) -> Phrase:
        match phrase:
            case Pronoun():
                m = self._new()
                english = tuple(mark(m, form) for form in phrase.english)
                return replace(
                    phrase, english=english, german=tuple(mark(m, form) for form in phrase.german)
                )
            case Name():
                return replace(phrase, text=mark(self._new(), phrase.text))
            case Relative():
                return replace(phrase, mark=self._new())
            case _:
                return self._noun_phrase(phrase)

    def _noun_phrase(self, phrase: NounPhrase) -> NounPhrase:
        return replace(
            phrase,
            noun=self._noun(phrase.noun),
            determiner=self._determiner(phrase.determiner),
            adjective=self._optional(phrase.adjective, self._adjective),
            number=self._optional(phrase.number, self._fixed),
            owner=self._optional(phrase.owner, self._phrase),
            relative=self._optional(phrase.relative, self._clause),
        )

    def _noun(self, noun: Noun) -> Noun:
        m, names = self._new(), ("lemma", "english_plural", "german", "german_plural", "genitive")
        return replace(noun, **{name: mark(m, getattr(noun, name)) for name in names})

    def _determiner(self, determiner: Determiner) -> Determiner:
        m = self._new()
        english = tuple(form and mark(m, form) for form in determiner.english)
        return replace(determiner, english=english, german=mark(m, determiner.german))

    def _adjective(self, adjective: Adjective) -> Adjective:
        m = self._new()
        stems = "/".join(mark(m, stem) for stem in adjective.de.split("/"))
        compare = tuple(mark(m, form) for form in adjective.compare)
        return replace(adjective, lemma=mark(m, adjective.lemma), de=stems, compare=compare)

    def _complement(self, part: Complement) -> Complement:
        match part:
            case PrepositionPhrase():
                m = self._new()
                english, german = mark(m, part.english), mark(m, part.german)
                return PrepositionPhrase(english, german, part.case, self._phrase(part.phrase))
            case Description():
                return Description(
                    self._adjective(part.adjective),
                    self._optional(part.degree, self._fixed),
                    self._optional(part.than, self._phrase),
                    mark=self._new(),
                )
            case Fixed():
                return self._fixed(part)
            case _:
                return self._phrase(part)

    def _fixed(self, part: Fixed) -> Fixed:
        english, german = part.english.split(" "), part.german.split(" ")
        words = [[""] * len(english), [""] * len(german)]
        for i, j in pair_words(len(english), len(german)):
            m = self._new()
            words[0][i] += m
            words[1][j] += m
        return Fixed(
            " ".join(map(str.__add__, words[0], english)),
            " ".join(map(str.__add__, words[1], german)),
        )


def pair_words(n_english: int, n_german: int) -> Iterator[tuple[int, int]]:
    """Yield links between the words of two fixed expressions.

    The outer words are paired first: at half past six = um halb sieben. The remaining words are
    linked to each other or, if one expression has none left, to a paired word next to its middle.
    """
    first, last = 0, 1  # next word from the start, and from the end
    while n_english - 2 * first >= 2 and n_german - 2 * first >= 2:
        yield first, first
        yield n_english - last, n_german - last
        first, last = first + 1, last + 1
    english, german = range(first, n_english - first), range(first, n_german - first)
    yield from product(english or ([first - 1] if german else []), german or [first - 1])


def align(english: str, german: str, verb_of: dict[str, str]) -> Links:
    """Return the links between the words of two marked sentences.

    A helper of the verb, such as an auxiliary, is linked to the verb if it has no counterpart.
    """
    sides = [_words_by_mark(text.split(" ")) for text in (english, german)]
    links: set[tuple[int, int]] = set()
    for m in sides[0].keys() | sides[1].keys():
        first, second = (words.get(m) or words.get(verb_of.get(m, ""), []) for words in sides)
        links |= set(product(first, second))
    return sorted(links)


def _words_by_mark(words: Sequence[str]) -> dict[str, list[int]]:
    by_mark: dict[str, list[int]] = defaultdict(list)
    for i, word in enumerate(words):
        for m in all_marks(word):
            by_mark[m].append(i)
    return by_mark


def to_pharaoh(links: Links) -> str:
    """Return the links in Pharaoh format: 0-0 1-2."""
    return " ".join(f"{i}-{j}" for i, j in links)
