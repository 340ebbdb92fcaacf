import json
import sys

import pytest
from typer.testing import CliRunner

import mtcli
from mtcli.cli.base import app
from mtcli.errors import DataError
from mtcli.evaluation.evaluate import Evaluation, evaluate_model, evaluate_translations
from mtcli.evaluation.scores import METRICS, N_RESAMPLES, bleu, compute_scores
from mtcli.reporting.events import Score, Validated
from mtcli.training.run import train_run
from processes import output_of

HYPOTHESES = ["Ein Mann schläft auf dem Sofa.", "Zwei Hunde spielen im Schnee.", "Das ist gut."]
REFERENCES = ["Ein Mann schläft auf der Couch.", "Zwei Hunde spielen im Schnee.", "Dies ist gut."]
OTHERS = ["Der Mann schläft auf dem Sofa.", "Hunde spielen draußen.", "Das ist gut!"]


@pytest.mark.parametrize("references", [[REFERENCES], [REFERENCES, OTHERS]])
def test_scores_and_signatures_equal_those_of_the_sacrebleu_command(tmp_path, references):
    paths = []
    for i, lines in enumerate([HYPOTHESES, *references]):
        paths.append(tmp_path / str(i))
        paths[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", *paths[1:], "-i", paths[0], "--confidence"]
    options = ["-m", "bleu", "chrf", "-w", "12", "--format", "json"]
    output = json.loads(output_of([*command, *options]))
    scores = compute_scores(HYPOTHESES, references, n_resamples=N_RESAMPLES)
    assert list(scores) == ["bleu", "chrf"]
    for ours, theirs in zip(scores.values(), output, strict=True):
        assert ours.metric == theirs["name"]
        assert round(ours.value, 12) == theirs["score"]
        assert ours.margin == pytest.approx(theirs["confidence_var"], abs=1e-4)
        assert ours.signature == theirs["signature"]


def test_a_perfect_translation_scores_100_and_has_a_signature():
    score = bleu(REFERENCES, [REFERENCES])
    assert score.value == pytest.approx(100)
    assert str(score).startswith("BLEU 100.00  [nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|")


def test_bootstrap_resampling_adds_margins_without_changing_scores():
    plain = compute_scores(HYPOTHESES, [REFERENCES])
    resampled = compute_scores(HYPOTHESES, [REFERENCES], n_resamples=10)
    for name in METRICS:
        assert plain[name].value == resampled[name].value
        assert plain[name].margin is None
        assert resampled[name].margin > 0


def test_translations_with_almost_no_matches_have_a_margin():
    """Some bootstrap samples contain no match at all, and others contain one."""
    hypotheses = [*["x y z w"] * 40, "Zwei Hunde spielen im Schnee."]
    references = [*["a b c d"] * 40, "Zwei Hunde spielen im Schnee."]
    for score in compute_scores(hypotheses, [references], n_resamples=N_RESAMPLES).values():
        assert score.margin > 0
        assert 0 < score.value < 50


@pytest.mark.parametrize("evaluate", [compute_scores, evaluate_translations])
def test_inputs_of_unequal_length_and_empty_inputs_are_refused(evaluate):
    with pytest.raises(DataError, match="3 translations, but 2 references"):
        evaluate(HYPOTHESES, [REFERENCES[:2]])
    with pytest.raises(DataError, match="nothing to score"):
        evaluate([], [[]])


def test_lengths_are_checked_before_the_model_is_opened(tmp_path):
    with pytest.raises(DataError, match="3 translations, but 2 references"):
        evaluate_model(tmp_path / "missing", HYPOTHESES, [REFERENCES[:2]])


@pytest.mark.parametrize(("source", "references"), [("a man", [["x"]]), (["a man"], ["ein Mann"])])
def test_a_string_is_refused_as_a_list_of_lines(tmp_path, source, references):
    with pytest.raises(TypeError, match="not one string"):
        evaluate_model(tmp_path / "missing", source, references)


def evaluate_command(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["evaluate", "--quiet", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_library_function_and_the_command_give_the_same_scores(tiny_trained, corpus_files):
    source, target = corpus_files
    with source.open(encoding="utf-8") as lines, target.open(encoding="utf-8") as references:
        result = mtcli.evaluate_model(tiny_trained, lines, [references])
    assert isinstance(result, Evaluation)
    assert evaluate_command(tiny_trained, source, target) == f"{result}\n"
    assert evaluate_command(tiny_trained, source, target, "--json") == f"{result.to_json()}\n"
    translator = mtcli.Translator(tiny_trained)
    source_lines = source.read_text(encoding="utf-8").splitlines()
    assert list(result.hypotheses) == translator.translate(source_lines)
    target_lines = target.read_text(encoding="utf-8").splitlines()
    assert evaluate_model(translator, source_lines, [target_lines]) == result
    assert evaluate_translations(result.hypotheses, [target_lines]) == result


def test_json_output_contains_all_fields_of_each_score():
    scores = json.loads(evaluate_translations(HYPOTHESES, [REFERENCES]).to_json())
    assert [score["metric"] for score in scores] == ["BLEU", "chrF2"]
    for score in scores:
        assert list(score) == ["metric", "value", "signature", "margin"]


def count_words(hypotheses, _references, _n_resamples) -> Score:
    return Score("words", float(sum(len(line.split()) for line in hypotheses)), "v:1")


@pytest.fixture
def word_metric(monkeypatch):
    monkeypatch.setitem(METRICS, "words", count_words)


@pytest.mark.usefixtures("word_metric")
def test_a_new_metric_appears_in_the_output_of_evaluate(tmp_path):
    files = tmp_path / "hypotheses", tmp_path / "references"
    for path, lines in zip(files, (HYPOTHESES, REFERENCES), strict=True):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    arguments = ("--hypothesis", *files)
    assert evaluate_command(*arguments).splitlines()[2] == "words 14.00  [v:1]"
    assert json.loads(evaluate_command(*arguments, "--json"))[2]["value"] == 14
    assert evaluate_translations(HYPOTHESES, [REFERENCES]).signatures["words"] == "v:1"


@pytest.mark.usefixtures("word_metric")
def test_a_new_metric_appears_in_validations_log_and_report(tiny_config, tmp_path):
    directory, events = tmp_path / "run", []
    train_run(tiny_config, directory, events.append)
    validations = [event for event in events if isinstance(event, Validated)]
    assert [list(event.scores) for event in validations] == [["bleu", "chrf", "words"]] * 3
    log = [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]
    logged = [entry["words"] for entry in log if entry["event"] == "validation"]
    assert logged == [event.scores["words"].value for event in validations]
    report = (directory / "report.html").read_text(encoding="utf-8")
    assert "<dt>dev words</dt>" in report
    assert "<th>words</th>" in report
