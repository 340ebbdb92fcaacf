"""The analysis of translations finds planted problems, and its scores are those of sacreBLEU."""

import json
from dataclasses import asdict, replace

import pytest
import sacrebleu
from typer.testing import CliRunner

from mtcli.cli.base import app
from mtcli.data.formats.base import Languages
from mtcli.evaluation.analysis.analyze import analyze
from mtcli.evaluation.analysis.findings import Line, find_problems
from mtcli.evaluation.analysis.groups import word_recall
from mtcli.evaluation.analysis.items import compare_items
from mtcli.evaluation.analysis.results import FINDINGS, TrainingInfo
from mtcli.evaluation.analysis.tables import format_analysis
from mtcli.evaluation.analysis.training_text import (
    TrainingText,
    read_saved_counts,
    read_training_corpus,
)
from mtcli.evaluation.results import Decoding, Evaluation, SystemResult, TestSet
from mtcli.model_dir.layout import WORD_COUNTS
from mtcli.model_dir.word_counts import count_words, to_bytes

SOURCES = (
    "The man sees a dog.",
    "Where is Anna?",
    "In 1990, 3.5 million people lived in New York City.",
    "She reads the old book about the history of the town every day.",
)
REFERENCES = (
    "Der Mann sieht einen Hund.",
    "Wo ist Anna?",
    "1990 lebten 3,5 Millionen Menschen in New York City.",
    "Sie liest jeden Tag das alte Buch über die Geschichte der Stadt.",
)
OUTPUTS = (
    "Der Mann sieht eine Katze.",
    "Wo ist sie?",
    "1990 lebten 3,7 Millionen Menschen in York.",
    "Sie liest",
)
TEST_SET = TestSet("test", SOURCES, (REFERENCES,), ("a", "a", "b", "b"), Languages("en", "de"))


def system(outputs, name="one"):
    return SystemResult(name, tuple(outputs), {})


PROBLEMS = [
    ("A dog barks loudly.", "Ein Hund bellt laut.", "Ein Hund bellt laut.", ()),
    ("A dog.", "Ein Hund.", " ", ("empty",)),
    ("", "", "", ()),
    ("A dog barks loudly.", "Ein Hund bellt laut.", "A  dog barks loudly.", ("copied",)),
    ("OK.", "OK.", "OK.", ()),
    (SOURCES[3], REFERENCES[3], "Sie liest jeden Tag das alte", ("truncated", "punctuation-lost")),
    ("A B", "x y z w", "x y z w w w w w", ("repetitive",)),
    ("no no no no", "nein nein nein nein", "ne ne ne ne", ()),
    ("A B", "x y z w", f"x y z {'ha' * 20}", ("repetitive",)),
    ("A B.", "Eins zwei drei vier fünf.", "Eins zwei.", ("too-short",)),
    ("A B", "a b c d", "a b c d e f g h i", ("too-long",)),
    ("It costs 1,000 euros.", "Es kostet 1.000 Euro.", "Es kostet 1 000 Euro.", ()),
    ("It costs 7 euros.", "Es kostet 7 Euro.", "Es kostet acht Euro.", ("number-lost",)),
    ("It costs seven.", "Es kostet sieben.", "Es kostet 7.", ("number-invented",)),
    ("٣ dogs", "3 Hunde", "3 Hunde", ()),
    ("Tom saw Rex", "Tom sah Rex", "Tom sah ihn", ("name-lost",)),
    ("Tom saw Rex", "Tom sah Rex", "Tom sah Rex und NATO", ("name-invented",)),
    ("See www.x.org.", "Siehe www.x.org.", "Siehe dort.", ("url-lost",)),
    ("See there.", "Siehe dort.", "Siehe a@b.org.", ("url-invented",)),
    ("Is it?", "Ist es?", "Ist es.", ("punctuation-lost", "punctuation-invented")),
    ("是吗？", "Is it?", "Is it?", ()),
    ("„Ja“ (nein)", '"Yes" (no)', '"Yes" no', ("punctuation-lost",)),
]


@pytest.mark.parametrize(("source", "reference", "output", "findings"), PROBLEMS)
def test_planted_problems_are_found_and_no_others(source, reference, output, findings):
    assert set(findings) <= FINDINGS.keys()
    assert find_problems(Line(source, [reference], output)).names == findings


def test_an_item_is_lost_only_if_all_references_have_it():
    one, other = "Es kostet 7 Euro.", "Es kostet sieben Euro."
    assert compare_items("number", "7 euros", [one], "Euro").n_lost == 1
    assert compare_items("number", "7 euros", [one, other], "Euro").n_lost == 0
    assert compare_items("number", None, [one], "Euro").n_lost == 1
    # German nouns are not names, although they are capitalized.
    assert compare_items("name", None, ["Der Hund"], "Die Katze").n_lost == 0


def test_scores_of_groups_and_sentences_are_those_of_sacrebleu():
    analysis = analyze(TEST_SET, [system(OUTPUTS)])
    [found] = analysis.systems
    for i, sentence in enumerate(found.sentences):
        chrf = sacrebleu.sentence_chrf(OUTPUTS[i], [REFERENCES[i]]).score
        bleu = sacrebleu.sentence_bleu(OUTPUTS[i], [REFERENCES[i]]).score
        assert sentence.scores == pytest.approx({"bleu": bleu, "chrf": chrf})
    assert [group.label for group in found.by_document] == ["a", "b"]
    for group, rows in zip(found.by_document, (slice(0, 2), slice(2, 4)), strict=True):
        bleu = sacrebleu.corpus_bleu(OUTPUTS[rows], [REFERENCES[rows]], force=True)
        chrf = sacrebleu.corpus_chrf(OUTPUTS[rows], [REFERENCES[rows]])
        assert group.scores == pytest.approx({"bleu": bleu.score, "chrf": chrf.score})
    whole = sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES], force=True)
    assert found.precisions == pytest.approx(whole.precisions)
    assert found.brevity_penalty == pytest.approx(whole.bp)
    assert found.length_ratio == pytest.approx(whole.sys_len / whole.ref_len)
    assert [(g.label, g.n_lines) for g in found.by_length] == [
        ("0-5", 2),
        ("6-10", 1),
        ("11-20", 1),
    ]


def test_a_perfect_translation_has_no_findings():
    counts = {word.strip(".,?"): 5.0 for line in REFERENCES for word in line.split()}
    training = TrainingText(TrainingInfo("x", 9, 9), counts)
    [found] = analyze(TEST_SET, [system(REFERENCES)], training).systems
    assert found.findings == ()
    assert [item.n_lost + item.n_invented for item in found.items] == [0, 0, 0, 0]
    assert [(r.recall, r.precision) for r in found.word_recall] == [(1.0, 1.0)]
    assert (found.length_ratio, found.precisions) == (1.0, pytest.approx((100,) * 4))


def test_every_line_is_in_one_group_of_each_kind():
    training = TrainingText(
        TrainingInfo("x", 9, 9),
        {w.strip(".,?"): float(len(w)) for t in (*REFERENCES, *OUTPUTS) for w in t.split()},
        frozenset(SOURCES[:1]),
        frozenset([*REFERENCES[:2], OUTPUTS[1]]),
    )
    [found] = analyze(TEST_SET, [system(OUTPUTS)], training).systems
    for groups in (found.by_length, found.by_frequency, found.by_document, found.by_training):
        assert sum(group.n_lines for group in groups) == len(SOURCES)
    assert [(g.label, g.n_lines) for g in found.by_training] == [
        ("not in training", 3),
        ("in training", 1),
    ]
    assert asdict(found.matches) == {"n_sources": 1, "n_references": 2, "n_outputs": 1}
    assert "source-in-training" in found.sentences[0].findings
    assert "output-in-training" in found.sentences[1].findings
    counts = {count.finding: count.n_lines for count in found.findings}
    for finding, n_lines in counts.items():
        assert n_lines == sum(finding in sentence.findings for sentence in found.sentences)


def test_word_recall_counts_each_word_once():
    counts = {"rare": 1.0, "often": 50.0, "new": 0.0}
    found = word_recall(["often often rare", "often"], ["often new", "often often"], counts)
    assert [(r.label, r.n_reference, r.recall, r.n_output, r.precision) for r in found] == [
        ("0", 0, 0.0, 1, 0.0),
        ("1", 1, 0.0, 0, 0.0),
        ("10-99", 3, 2 / 3, 3, 2 / 3),
    ]


def test_the_largest_differences_come_first():
    better = (OUTPUTS[0], REFERENCES[1], REFERENCES[2], "")
    analysis = analyze(TEST_SET, [system(OUTPUTS), system(better, "two")])
    [found] = analysis.differences
    assert (found.baseline, found.system) == ("one", "two")
    scores = [
        [sentence.scores["chrf"] for sentence in system.sentences] for system in analysis.systems
    ]
    gains = {i: scores[1][i] - scores[0][i] for i in range(4)}
    assert gains[0] == 0
    assert set(found.better) == {1, 2}
    assert gains[found.better[0]] >= gains[found.better[1]] > 0
    assert found.worse == (3,)


def test_saved_counts_equal_those_of_the_corpus(tmp_path):
    (tmp_path / "train.en").write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    (tmp_path / "train.de").write_text("\n".join(REFERENCES) + "\n", encoding="utf-8")
    content = to_bytes(count_words([(SOURCES, REFERENCES)], len(SOURCES)))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / WORD_COUNTS).write_bytes(content)
    systems = [system(OUTPUTS)]
    models = [tmp_path / "without", tmp_path / "model"]
    saved = read_saved_counts(models, TEST_SET, systems)
    read = read_training_corpus(
        [f"{tmp_path}/train.{{en,de}}"], TEST_SET.languages, TEST_SET, systems
    )
    assert saved.counts == read.counts
    assert (saved.info.n_pairs, read.info.n_pairs) == (4, 4)
    assert saved.sources is None
    assert (read.sources, read.targets) == (frozenset(SOURCES), frozenset(REFERENCES))
    assert read_saved_counts(models[:1], TEST_SET, systems) is None


def test_an_analysis_can_be_printed_as_json_and_text():
    training = TrainingText(
        TrainingInfo("big", 2_000_000, 1_000_000),
        {w.strip(".,?"): 1.0 for t in (*REFERENCES, *OUTPUTS) for w in t.split()},
        frozenset(),
        frozenset(),
    )
    systems = (
        replace(system(OUTPUTS), decoding=Decoding("torch", 4, 4, 2.0, 3.0, 5_000_000, 90_000_000)),
        system(REFERENCES, "two"),
    )
    evaluation = Evaluation(TEST_SET, systems, analysis=analyze(TEST_SET, systems, training))
    values = json.loads(evaluation.to_json())["analysis"]
    assert values["systems"][0]["sentences"][2]["findings"][0] == "number-lost"
    text = format_analysis(evaluation)
    for part in (
        "length ratio",
        "truncated: no final punctuation",
        "number lost 1 of 2",
        "Source length in words",
        "Training frequency of the rarest reference word",
        "Words by training frequency",
        "Occurrence of the source in the training corpus",
        "Exact matches",
        "Documents by chrF: 2",
        "lines per second",
        "90 MB",
        "Lines in which two is better than one",
        "training frequencies: big, a sample of 1,000,000 of 2,000,000 pairs",
    ):
        assert part in " ".join(text.split()), part
    assert not any(line.endswith(" ") for line in text.splitlines() if "  one" not in line)


def test_the_command_prints_the_analysis(tmp_path, copying_model):
    files = [tmp_path / f"test.{code}" for code in ("en", "de")]
    for path, lines in zip(files, (SOURCES, REFERENCES), strict=True):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def run(*options):
        arguments = ["evaluate", copying_model, *files, "--analysis", "--resamples", 0, *options]
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    result = run()
    assert result.exit_code == 0, result.stderr
    assert "Lines with problems" in result.stdout
    assert "peak memory" in result.stdout
    assert "no model has saved word counts; to count words, specify" in result.stdout
    result = run("--train-corpus", f"{tmp_path}/test.{{en,de}}", "--json")
    analysis = json.loads(result.stdout)["analysis"]
    assert analysis["training"]["n_pairs"] == 4
    assert analysis["systems"][0]["matches"]["n_sources"] == 4
    assert run("--train-corpus", tmp_path / "missing.tsv").exit_code == 1
    result = run("--format", "latex")
    assert result.exit_code == 2
    assert "--analysis requires --format" in " ".join(result.stderr.replace("│", " ").split())
