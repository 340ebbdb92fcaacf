"""Demo corpus: reproducible, as described in data/README.md, and grammatical."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / "data" / "demo"
sys.path.insert(0, str(DEMO))

import generate  # noqa: E402
from alignment import Marker, pair_words  # noqa: E402
from holdout import held_out_combinations  # noqa: E402
from lexicon import Noun, load_lexicon  # noqa: E402
from marks import unmarked  # noqa: E402
from sampler import Sampler  # noqa: E402
from trees import (  # noqa: E402
    Adverbial,
    Clause,
    Description,
    Fixed,
    Link,
    Name,
    NounPhrase,
    PrepositionPhrase,
    Relative,
    Sentence,
    clauses,
    noun_phrases,
)

MIN_OCCURRENCES = 30  # for every lemma in train, as data/README.md states

LEXICON = load_lexicon()
ANNA = Name("Anna", "she")


@pytest.fixture(scope="module")
def splits() -> dict[str, list[generate.Pair]]:
    return generate.make_splits()


def lines(name: str) -> list[str]:
    return (DEMO / name).read_text(encoding="utf-8").splitlines()


@pytest.mark.long
@pytest.mark.parametrize("name", ["train", "dev", "test", "long"])
def test_the_generator_reproduces_the_committed_files(
    name: str, splits: dict[str, list[generate.Pair]], tmp_path: Path
) -> None:
    generate.write_split(tmp_path, name, splits[name])
    for suffix in ("en", "de", *(["align"] if name != "train" else [])):
        file = f"{name}.{suffix}"
        assert (tmp_path / file).read_bytes() == (DEMO / file).read_bytes()


@pytest.mark.parametrize(
    ("name", "n"), [("train", 20_000), ("dev", 500), ("test", 500), ("long", 200)]
)
def test_both_languages_have_the_documented_number_of_lines(name: str, n: int) -> None:
    assert len(lines(f"{name}.en")) == len(lines(f"{name}.de")) == n


# Alignments that were checked by hand.
ALIGNMENTS = {
    "The writer who sells the bottle moves to England.": (  # separable prefix, relative clause
        "Der Schriftsteller, der die Flasche verkauft, zieht nach England um.",
        "0-0 1-1 2-2 3-5 4-3 5-4 6-6 6-9 7-7 8-8",
    ),
    "My uncles can throw away this poem on Friday.": (  # particle, modal, contraction
        "Meine Onkel können am Freitag dieses Gedicht wegwerfen.",
        "0-0 1-1 2-2 3-7 4-7 5-5 6-6 7-3 8-4",
    ),
    "He forgot to call Martin.": (  # perfect, infinitive with zu
        "Er hat vergessen, Martin anzurufen.",
        "0-0 1-1 1-2 2-4 3-4 4-3",
    ),
    "This friendly hairdresser may not lend this polite painter a long book.": (  # kein
        "Diese freundliche Friseurin darf diesem höflichen Maler kein langes Buch leihen.",
        "0-0 1-1 2-2 3-3 4-7 5-10 6-4 7-5 8-6 9-7 10-8 11-9",
    ),
    "The newspaper that we were interested in was very boring.": (  # reflexive verb
        "Die Zeitung, für die wir uns interessiert haben, war sehr langweilig.",
        "0-0 1-1 2-3 3-4 4-5 4-6 4-7 5-5 5-6 5-7 6-2 7-8 8-9 9-10",
    ),
    "The boys are singing at the moment.": (  # progressive, contraction
        "Die Jungen singen im Moment.",
        "0-0 1-1 2-2 3-2 4-3 5-3 6-4",
    ),
}


@pytest.mark.parametrize("english", ALIGNMENTS)
def test_the_alignment_links_words_with_the_same_meaning(english: str) -> None:
    row = lines("test.en").index(english)
    assert (lines("test.de")[row], lines("test.align")[row]) == ALIGNMENTS[english]


@pytest.mark.long
@pytest.mark.parametrize("name", ["dev", "test", "long"])
def test_marks_do_not_change_a_sentence(name: str, splits: dict[str, list[generate.Pair]]) -> None:
    realizer = generate.Realizer(LEXICON)
    for pair in splits[name]:
        sentence = Marker().sentence(pair.sentence)
        assert unmarked(realizer.english.sentence(sentence)) == pair.english
        assert unmarked(realizer.german.sentence(sentence)) == pair.german


@pytest.mark.parametrize("name", ["dev", "test", "long"])
def test_every_german_word_is_linked_to_an_english_word(name: str) -> None:
    rows = zip(*(lines(f"{name}.{suffix}") for suffix in ("en", "de", "align")), strict=True)
    for english, german, alignment in rows:
        links = [tuple(map(int, link.split("-"))) for link in alignment.split(" ")]
        assert links == sorted(set(links))
        assert max(i for i, _ in links) < len(english.split())
        words, linked = german.split(), {j for _, j in links}
        assert max(linked) < len(words)
        unlinked = {word for j, word in enumerate(words) if j not in linked}
        # the baker's umbrella = der Regenschirm des Bäckers
        assert unlinked <= {"der", "die", "das", "den", "dem"}
        assert not unlinked or "'" in english


@pytest.mark.parametrize(
    ("n_english", "n_german", "links"),
    [
        (1, 1, {(0, 0)}),
        (2, 2, {(0, 0), (1, 1)}),  # next year = nächstes Jahr
        (3, 2, {(0, 0), (1, 0), (2, 1)}),  # in the morning = am Morgen
        (4, 3, {(0, 0), (1, 1), (2, 1), (3, 2)}),  # at half past six = um halb sieben
        (4, 1, {(0, 0), (1, 0), (2, 0), (3, 0)}),  # the day before yesterday = vorgestern
    ],
)
def test_words_of_fixed_expressions_are_paired_from_the_outside_in(
    n_english: int, n_german: int, links: set[tuple[int, int]]
) -> None:
    assert set(pair_words(n_english, n_german)) == links
    assert {(j, i) for i, j in pair_words(n_german, n_english)} == links


def test_no_english_sentence_occurs_twice_across_all_splits() -> None:
    counts = Counter(
        line for name in ("train", "dev", "test", "long") for line in lines(f"{name}.en")
    )
    assert [line for line, n in counts.items() if n > 1] == []


def test_train_and_long_contain_no_held_out_combination(
    splits: dict[str, list[generate.Pair]],
) -> None:
    assert not any(
        held_out_combinations(pair.sentence) for pair in splits["train"] + splits["long"]
    )


@pytest.mark.parametrize("name", ["dev", "test"])
def test_half_of_the_dev_and_test_pairs_contain_a_held_out_combination(
    name: str, splits: dict[str, list[generate.Pair]]
) -> None:
    n_held_out = sum(bool(held_out_combinations(pair.sentence)) for pair in splits[name])
    assert n_held_out == len(splits[name]) // 2


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_long_sentence_is_longer_than_all_training_sentences(language: str) -> None:
    longest = max(len(line.split()) for line in lines(f"train.{language}"))
    assert min(len(line.split()) for line in lines(f"long.{language}")) > longest


def test_every_lemma_is_frequent_in_train(splits: dict[str, list[generate.Pair]]) -> None:
    counts: Counter[object] = Counter()
    for pair in splits["train"]:
        for clause, _ in clauses(pair.sentence):
            counts.update(lemmas(clause))
    words = [("noun", LEXICON.nouns), ("verb", LEXICON.verbs), ("adjective", LEXICON.adjectives)]
    entries = [(kind, word.lemma) for kind, table in words for word in table]
    assert [entry for entry in entries if counts[entry] < MIN_OCCURRENCES] == []


def lemmas(clause: Clause) -> list[tuple[str, str]]:
    found = [("verb", clause.verb.lemma)]
    if isinstance(clause.complement, Description):
        found.append(("adjective", clause.complement.adjective.lemma))
    for phrase in noun_phrases(clause):
        found.append(("noun", phrase.noun.lemma))
        if phrase.adjective:
            found.append(("adjective", phrase.adjective.lemma))
        if phrase.relative:
            found.extend(lemmas(phrase.relative))
    return found


def test_every_semantic_class_named_in_the_lexicon_has_nouns() -> None:
    for verb in LEXICON.verbs:
        LEXICON.nouns_of(verb.subject + verb.object + verb.receiver)
    for adjective in LEXICON.adjectives:
        LEXICON.nouns_of(adjective.of)


def test_random_choices_depend_only_on_the_seed() -> None:
    first, second = Sampler(5), Sampler(5)
    assert [first.pick(range(9)) for _ in range(20)] == [second.pick(range(9)) for _ in range(20)]


def find_noun(word: str) -> Noun:
    word = word.replace("_", " ")
    return next(noun for noun in LEXICON.nouns if word in (noun.lemma, noun.english_plural))


def phrase(words: str, owner: NounPhrase | Name | None = None) -> NounPhrase:
    """Parse a noun phrase such as "the man" or "bare old men"."""
    determiner, *adjectives, last = words.split()
    noun = find_noun(last)
    return NounPhrase(
        noun,
        LEXICON.determiners[determiner],
        is_plural=last == noun.english_plural,
        adjective=LEXICON.adjective(adjectives[0]) if adjectives else None,
        owner=owner,
    )


def clause(subject: object, tense: str, verb: str, direct: object = None) -> Clause:
    """Build a clause from arguments such as ("he", "past", "find", "the key")."""
    return Clause(LEXICON.verb(verb), LEXICON.tenses[tense], parse(subject), parse(direct))


def parse(words: object) -> object:
    if not isinstance(words, str):
        return words
    return LEXICON.pronouns[words] if words in LEXICON.pronouns else phrase(words)


def ask(question: Clause, front: str = "") -> Clause:
    return replace(question, mood="question", front=front)


def joined(main: Clause, conjunction: str, second: Clause) -> Sentence:
    return Sentence(main, links=(Link(LEXICON.conjunctions[conjunction], second),))


def at(main: Clause, english: str, german: str, case: str, where: object) -> Clause:
    return replace(main, complement=PrepositionPhrase(english, german, case, parse(where)))


def described(subject: object, adjective: str, than: str | None = None) -> Clause:
    description = Description(LEXICON.adjective(adjective), than=parse(than))
    return replace(clause(subject, "present", "be"), complement=description)


def when(main: Clause, english: str, german: str) -> Clause:
    return replace(main, adverbials=(Adverbial("time", Fixed(english, german)),))


def yesterday(main: Clause) -> Clause:
    return replace(when(main, "yesterday", "gestern"), front="time")


OPEN = clause("I", "present", "open", "the door")
DOOR_OF_HOUSE = phrase("the door", phrase("the old house"))
OF_MY_UNCLE, OF_ANNA = phrase("the car", phrase("my uncle")), phrase("the old umbrella", ANNA)
GIVE = replace(clause(ANNA, "past", "give", "a book"), receiver=phrase("her brother"))
NOT_FOUND = when(clause("I", "past", "find", "the key"), "yesterday", "gestern")
THAT_I_SAW = replace(
    clause("I", "past", "see", Relative(find_noun("man"), False, True)), front="direct"
)
MAN_THAT_I_SAW = replace(phrase("the man"), relative=THAT_I_SAW)
WHERE_WE_LIVE = replace(
    at(
        clause("we", "present", "live"),
        "in",
        "in",
        "dative",
        Relative(find_noun("house"), False, False),
    ),
    front="complement",
)
WHEN_SHE_CAME = Link(LEXICON.conjunctions["when"], clause("my sister", "past", "arrive"))
COMMAND = replace(clause(None, "present", "take off", "your coat"), mood="command", front="")

BREAK = replace(clause(None, "present", "break", "our vase"), mood="command", front="")

# Tree, English, German; each German sentence was written by hand.
PAIRS = {
    "accusative, mixed endings": (clause("a young woman", "present", "buy", "a red hat"),
        "A young woman buys a red hat.", "Eine junge Frau kauft einen roten Hut."),
    "strong endings": (clause("he", "present", "drink", "bare cold water"),
        "He drinks cold water.", "Er trinkt kaltes Wasser."),
    "changing stem": (clause("he", "present", "see", "a high tower"),
        "He sees a high tower.", "Er sieht einen hohen Turm."),
    "dative verb and plural": (clause("she", "present", "help", "the old men"),
        "She helps the old men.", "Sie hilft den alten Männern."),
    "weak noun": (clause("you", "past", "see", "this boy"),
        "You saw this boy.", "Du hast diesen Jungen gesehen."),
    "dative before accusative": (GIVE,
        "Anna gave her brother a book.", "Anna hat ihrem Bruder ein Buch gegeben."),
    "genitive of a thing": (clause("we", "present", "see", DOOR_OF_HOUSE),
        "We see the door of the old house.", "Wir sehen die Tür des alten Hauses."),
    "genitive of a person": (clause("we", "past", "wash", OF_MY_UNCLE),
        "We washed my uncle's car.", "Wir haben das Auto meines Onkels gewaschen."),
    "genitive of a name": (clause("he", "past", "find", OF_ANNA),
        "He found Anna's old umbrella.", "Er hat Annas alten Regenschirm gefunden."),
    "separable": (OPEN, "I open the door.", "Ich mache die Tür auf."),
    "separable, question": (ask(replace(OPEN, subject=parse("you"))),
        "Do you open the door?", "Machst du die Tür auf?"),
    "separable, verb-final": (joined(clause("she", "present", "say"), "that", OPEN),
        "She says that I open the door.", "Sie sagt, dass ich die Tür aufmache."),
    "separable with zu": (joined(clause("he", "past", "forget to"), "to", OPEN),
        "He forgot to open the door.", "Er hat vergessen, die Tür aufzumachen."),
    "separable with modal": (clause("we", "must", "switch off", "the lamps"),
        "We must switch off the lamps.", "Wir müssen die Lampen ausschalten."),
    "bare infinitive": (
        joined(clause("she", "present", "try to"), "to", clause("she", "will", "sleep")),
        "She tries to sleep.", "Sie versucht zu schlafen."),
    "perfect with sein, inversion": (yesterday(clause("they", "past", "get up")),
        "Yesterday they got up.", "Gestern sind sie aufgestanden."),
    "kein": (replace(clause("I", "present", "have", "a dog"), is_negated=True),
        "I do not have a dog.", "Ich habe keinen Hund."),
    "nicht": (replace(NOT_FOUND, is_negated=True),
        "I did not find the key yesterday.", "Ich habe den Schlüssel gestern nicht gefunden."),
    "be hungry as haben": (replace(clause("he", "past", "be hungry"), is_negated=True),
        "He was not hungry.", "Er hatte keinen Hunger."),
    "like as gefallen": (ask(clause("you", "present", "like (thing)", "this film")),
        "Do you like this film?", "Gefällt dir dieser Film?"),
    "verb-final perfect": (
        joined(described("my sister", "sad"), "because", clause("she", "past", "lose", "the key")),
        "My sister is sad because she lost the key.",
        "Meine Schwester ist traurig, weil sie den Schlüssel verloren hat."),
    "opening clause": (Sentence(clause("he", "past", "drink", "bare tea"), WHEN_SHE_CAME),
        "When my sister arrived, he drank tea.",
        "Als meine Schwester angekommen ist, hat er Tee getrunken."),
    "relative clause": (described(MAN_THAT_I_SAW, "ill"),
        "The man that I saw is ill.", "Der Mann, den ich gesehen habe, ist krank."),
    "relative with preposition": (
        described(replace(phrase("the house"), relative=WHERE_WE_LIVE), "old"),
        "The house in which we live is old.", "Das Haus, in dem wir wohnen, ist alt."),
    "place": (at(clause(ANNA, "progressive", "sit"), "in", "in", "dative", "the garden"),
        "Anna is sitting in the garden.", "Anna sitzt im Garten."),
    "direction": (
        at(clause("he", "past", "put (flat)", "the key"), "on", "auf", "accusative", "the table"),
        "He put the key on the table.", "Er hat den Schlüssel auf den Tisch gelegt."),
    "contraction": (at(clause("we", "want", "go"), "to", "zu", "dative", "the bus_stop"),
        "We want to go to the bus stop.", "Wir wollen zur Haltestelle gehen."),
    "reflexive": (clause("we", "past", "remember", "the journey"),
        "We remembered the journey.", "Wir haben uns an die Reise erinnert."),
    "reflexive before its noun": (yesterday(clause("my sister", "past", "hurry")),
        "Yesterday my sister hurried.", "Gestern hat sich meine Schwester beeilt."),
    "agreeing pronoun": (
        joined(clause("I", "past", "buy", "a hat"), "and", clause("I", "past", "lose", "it_m")),
        "I bought a hat and I lost it.", "Ich habe einen Hut gekauft und ich habe ihn verloren."),
    "command": (COMMAND, "Take off your coat.", "Zieh deinen Mantel aus."),
    "command with a changed stem": (replace(BREAK, is_negated=True),
        "Do not break our vase.", "Zerbrich unsere Vase nicht."),
    "like as gefallen, relative clause": (
        clause(MAN_THAT_I_SAW, "present", "like (thing)", "this film"),
        "The man that I saw likes this film.",
        "Dieser Film gefällt dem Mann, den ich gesehen habe."),
    "no contraction before a relative clause": (
        clause("he", "past", "dream of", MAN_THAT_I_SAW),
        "He dreamed of the man that I saw.",
        "Er hat von dem Mann geträumt, den ich gesehen habe."),
    "time of day": (
        when(clause("the train", "present", "depart"), "at half past three", "um halb vier"),
        "The train departs at half past three.", "Der Zug fährt um halb vier ab."),
    "comparison": (described("the train", "fast", "the bus"),
        "The train is faster than the bus.", "Der Zug ist schneller als der Bus."),
    "dative question": (ask(clause("you", "past", "thank", "who"), front="direct"),
        "Who did you thank?", "Wem hast du gedankt?"),
}  # fmt: skip


@pytest.mark.parametrize("phenomenon", PAIRS)
def test_the_realizer_writes_correct_english_and_german(phenomenon: str) -> None:
    tree, english, german = PAIRS[phenomenon]
    sentence = tree if isinstance(tree, Sentence) else Sentence(tree)
    pair = generate.Realizer(LEXICON).pair(sentence)
    assert (pair.english, pair.german) == (english, german)


def test_the_sentences_that_make_demo_translates_are_not_in_the_corpus() -> None:
    hello = set((DEMO / "hello.en").read_text(encoding="utf-8").splitlines())
    assert len(hello) == 8
    for split in ("train", "dev", "test", "long"):
        assert not hello & set((DEMO / f"{split}.en").read_text(encoding="utf-8").splitlines())
