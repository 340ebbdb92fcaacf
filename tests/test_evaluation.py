import json
import re
from dataclasses import replace
from typing import get_args

import pytest
from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.base import Score as LibraryScore
from typer.testing import CliRunner

import mtcli
from mtcli.cli.base import app
from mtcli.config.metrics import METRIC_NAMES, MetricOptions, TestOptions
from mtcli.config.sections import TrainConfig
from mtcli.errors import DataError, MtcliError, OptionsError
from mtcli.evaluation.evaluate import System, evaluate_model, evaluate_translations, score_systems
from mtcli.evaluation.results import Evaluation, TestSet
from mtcli.evaluation.scores import LOWER_IS_BETTER, METRICS, compute_scores
from mtcli.reporting.events import Score, Validated
from mtcli.reporting.messages import metric_label
from mtcli.training.dataset import DevScores, validation_metrics
from mtcli.training.run import train_run

HYPOTHESES = ["Ein Mann schläft auf dem Sofa.", "Zwei Hunde spielen im Schnee.", "Das ist gut."]
REFERENCES = ["Ein Mann schläft auf der Couch.", "Zwei Hunde spielen im Schnee.", "Dies ist gut."]
ALL = MetricOptions(metrics=METRIC_NAMES, resamples=0)
RESAMPLED = MetricOptions(metrics=METRIC_NAMES, resamples=10)


def test_a_perfect_translation_has_the_best_score_and_a_signature():
    scores = compute_scores(REFERENCES, [REFERENCES], ALL)
    for name, score in scores.items():
        assert score.value == pytest.approx(0 if name in LOWER_IS_BETTER else 100)
    signature = "[nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"
    assert str(scores["bleu"]).startswith(f"BLEU 100.00  {signature}")


def test_bootstrap_resampling_adds_intervals_without_changing_scores():
    plain = compute_scores(HYPOTHESES, [REFERENCES], ALL)
    resampled = compute_scores(HYPOTHESES, [REFERENCES], RESAMPLED)
    for name in METRIC_NAMES:
        assert plain[name].value == resampled[name].value
        assert plain[name].margin is plain[name].mean is None
        assert resampled[name].margin > 0


def test_translations_with_almost_no_matches_have_a_margin():
    """Some bootstrap samples contain no match at all, and others contain one."""
    hypotheses = [*["x y z w"] * 40, "Zwei Hunde spielen im Schnee."]
    references = [*["a b c d"] * 40, "Zwei Hunde spielen im Schnee."]
    for score in evaluate_translations(hypotheses, [references]).scores.values():
        assert score.margin > 0
        assert 0 < score.value < 50


@pytest.mark.parametrize("n_lines", [1, 2, 3])
def test_the_block_size_does_not_change_scores(monkeypatch, n_lines):
    expected = compute_scores(HYPOTHESES, [REFERENCES, HYPOTHESES[::-1]], RESAMPLED)
    monkeypatch.setattr("mtcli.evaluation.scores._LINES_PER_BLOCK", n_lines)
    assert compute_scores(HYPOTHESES, [REFERENCES, HYPOTHESES[::-1]], RESAMPLED) == expected


def test_trailing_whitespace_does_not_change_scores():
    options = replace(ALL, chrf_whitespace=True)
    expected = compute_scores(HYPOTHESES, [REFERENCES], options)
    hypotheses = [f"{line} \u3000\t" for line in HYPOTHESES]
    references = [f"{line}  " for line in REFERENCES]
    assert compute_scores(hypotheses, [references], options) == expected


def test_empty_translations_have_scores():
    scores = compute_scores(["", "", ""], [REFERENCES], RESAMPLED)
    assert scores["bleu"].value == scores["chrf"].value == scores["chrf++"].value == 0
    assert scores["ter"].value == 100


@pytest.mark.parametrize(
    ("options", "name", "part"),
    [
        ({"lowercase": True}, "bleu", "case:lc"),
        ({"lowercase": True}, "chrf++", "case:lc"),
        ({"tokenize": "char"}, "bleu", "tok:char"),
        ({"smooth_method": "floor", "smooth_value": 0.5}, "bleu", "smooth:floor[0.50]"),
        ({"smooth_method": "add-k"}, "bleu", "smooth:add-k[1.00]"),
        ({"chrf_char_order": 4}, "chrf", "nc:4|nw:0"),
        ({"chrf_word_order": 1}, "chrf", "nc:6|nw:1"),
        ({"chrf_word_order": 1}, "chrf++", "nc:6|nw:2"),
        ({"chrf_whitespace": True}, "chrf", "space:yes"),
        ({"chrf_eps_smoothing": True}, "chrf", "eff:no"),
        ({"ter_case_sensitive": True}, "ter", "case:mixed"),
        (
            {"ter_normalized": True, "ter_asian_support": True},
            "ter",
            "norm:yes|punct:yes|asian:yes",
        ),
        ({"ter_no_punct": True}, "ter", "punct:no"),
    ],
)
def test_an_option_appears_in_the_signature(options, name, part):
    scores = compute_scores(HYPOTHESES, [REFERENCES], MetricOptions((name,), **options))
    assert f"|{part}|" in scores[name].signature


def test_beta_appears_in_the_name_of_chrf():
    scores = compute_scores(HYPOTHESES, [REFERENCES], MetricOptions(("chrf",), chrf_beta=3))
    assert scores["chrf"].metric == "chrF3"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": ("meteor",)}, "metric=meteor is unknown: must be one of bleu, chrf"),
        ({"metrics": ()}, "no metric is given"),
        ({"tokenize": "moses"}, "tokenize=moses is unknown"),
        ({"smooth_method": "chen"}, "smooth_method=chen is unknown"),
        ({"smooth_value": 0.1}, "smooth_value=0.1 requires smooth_method=floor or add-k"),
        ({"resamples": -1}, "resamples=-1 is not between 0 and"),
        ({"seed": 1.5}, "seed=1.5 is not an integer"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(OptionsError, match=message):
        MetricOptions(**options)


def test_invalid_test_options_are_refused():
    with pytest.raises(OptionsError, match="test=t-test is unknown"):
        TestOptions("t-test")
    with pytest.raises(OptionsError, match="trials=0 is not between 1 and"):
        TestOptions(trials=0)


def test_comet_is_reported_as_unavailable():
    with pytest.raises(MtcliError, match="COMET is not available in mtcli") as error:
        evaluate_translations(HYPOTHESES, [REFERENCES], metrics=MetricOptions(("bleu", "comet")))
    assert "separate environment" in error.value.hint


@pytest.mark.parametrize("evaluate", [compute_scores, evaluate_translations])
def test_inputs_of_unequal_length_and_empty_inputs_are_refused(evaluate):
    with pytest.raises(DataError, match="3 translations, but 2 reference lines"):
        evaluate(HYPOTHESES, [REFERENCES[:2]])
    with pytest.raises(DataError, match="nothing to score"):
        evaluate([], [[]])
    with pytest.raises(DataError, match="there are no references"):
        evaluate(HYPOTHESES, [])


def test_lengths_are_checked_before_the_model_is_opened(tmp_path):
    with pytest.raises(DataError, match="3 translations, but 2 reference lines"):
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
    printed = json.loads(evaluate_command(tiny_trained, source, target, "--json"))
    assert printed["systems"][0]["scores"] == result.to_dict()["systems"][0]["scores"]
    translator = mtcli.Translator(tiny_trained)
    source_lines = source.read_text(encoding="utf-8").splitlines()
    assert list(result.hypotheses) == translator.translate(source_lines)
    target_lines = target.read_text(encoding="utf-8").splitlines()
    assert evaluate_model(translator, source_lines, [target_lines]).scores == result.scores
    assert evaluate_translations(result.hypotheses, [target_lines]).scores == result.scores


def test_the_result_describes_the_decoding(copying_model):
    result = evaluate_model(copying_model, ["the man", "water"], [["the man", "water"]])
    decoding = result.systems[0].decoding
    assert (decoding.engine, decoding.beam_size, decoding.n_lines) == ("ctranslate2", 4, 2)
    assert decoding.seconds > 0
    assert decoding.cpu_seconds > 0
    assert decoding.model_bytes > 10_000
    assert result.scores["chrf"].value == pytest.approx(100)


def test_json_output_contains_all_fields():
    systems = [System("a", tuple(HYPOTHESES)), System("b", tuple(REFERENCES))]
    test_set = TestSet("test", None, (tuple(REFERENCES),), documents=("x", "x", "y"))
    result = json.loads(score_systems(systems, test_set, RESAMPLED).to_json())
    assert list(result) == ["test_set", "systems", "comparison", "analysis", "notices"]
    assert result["test_set"]["lines"] == 3
    assert result["test_set"]["documents"] == 2
    for system in result["systems"]:
        assert list(system) == ["name", "scores", "decoding"]
        assert list(system["scores"]) == [*METRIC_NAMES]
        for score in system["scores"].values():
            assert list(score) == ["metric", "value", "signature", "margin", "mean"]
    for difference in result["comparison"]["differences"]:
        assert list(difference) == ["system", "metric", "difference", "p_value"]
        assert difference["system"] == "b"


def test_many_lines_with_a_separate_period_give_a_notice():
    lines = ["Das ist gut ."] * 100
    notices = evaluate_translations(lines, [lines], metrics=ALL).notices
    assert len(notices) == 1
    assert "100 lines end in ' .'; if the text is tokenized, detokenize it" in notices[0]
    assert not evaluate_translations(lines[:99], [lines[:99]], metrics=ALL).notices


class WordCount(Metric):
    """Number of words in the hypotheses: a metric that is not part of sacreBLEU."""

    _SIGNATURE_TYPE = Signature

    def _preprocess_segment(self, sent):
        return sent

    def _extract_reference_info(self, refs):
        return {"refs": refs}

    def _compute_segment_statistics(self, hypothesis, ref_kwargs):
        return [len(hypothesis.split()), len(ref_kwargs["refs"])]

    def _compute_score_from_stats(self, stats):
        return LibraryScore("words", stats[0])

    def _aggregate_and_compute(self, stats):
        return self._compute_score_from_stats([sum(row[0] for row in stats)])


@pytest.fixture
def word_metric(monkeypatch):
    monkeypatch.setitem(METRICS, "words", lambda _: WordCount())
    monkeypatch.setattr("mtcli.config.metrics.METRIC_NAMES", (*METRIC_NAMES, "words"))


@pytest.mark.usefixtures("word_metric")
def test_a_new_metric_appears_in_the_output_of_evaluate(tmp_path):
    files = tmp_path / "hypotheses", tmp_path / "references"
    for path, lines in zip(files, (HYPOTHESES, REFERENCES), strict=True):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    arguments = ("--hypothesis", *files, "--metric", "words", "--metric", "bleu")
    assert evaluate_command(*arguments).startswith("words 14.00 ± 4.50  [nrefs:1|bs:1000|")
    arguments = ("--hypothesis", files[1], *arguments)
    assert evaluate_command(*arguments).splitlines()[1].startswith(f"words   {files[1]}")


@pytest.mark.usefixtures("word_metric")
def test_a_new_default_metric_appears_in_validations_log_and_report(
    tiny_config, tmp_path, monkeypatch
):
    monkeypatch.setattr("mtcli.training.dataset.DEFAULT_METRICS", ("bleu", "chrf", "words"))
    directory, events = tmp_path / "run", []
    train_run(tiny_config, directory, events.append)
    validations = [event for event in events if isinstance(event, Validated)]
    assert [list(event.scores) for event in validations] == [["bleu", "chrf", "words"]] * 3
    log = [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]
    logged = [entry["words"] for entry in log if entry["event"] == "validation"]
    assert logged == [event.scores["words"].value for event in validations]
    report = (directory / "report.html").read_text(encoding="utf-8")
    assert "<dt>dev words</dt>" in report
    assert re.search(r"<th\b[^>]*>words</th>", report)


def test_all_lists_of_metric_names_agree():
    assert set(METRICS) - {"comet"} == set(METRIC_NAMES)
    choices = get_args(TrainConfig.model_fields["metric"].annotation)
    assert choices == (*METRIC_NAMES, "loss")
    assert all(metric_label(name) != name for name in choices)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("loss", ("bleu", "chrf")),
        ("chrf", ("bleu", "chrf")),
        ("ter", ("bleu", "chrf", "ter")),
        ("chrf++", ("bleu", "chrf", "chrf++")),
    ],
)
def test_validation_computes_bleu_chrf_and_the_selecting_metric(metric, expected):
    assert validation_metrics(TrainConfig(metric=metric)).metrics == expected


def test_selection_prefers_a_lower_ter():
    good, bad = (DevScores(1.0, {"ter": Score("TER", x, "")}, 0, ()) for x in (20.0, 30.0))
    assert good.score("ter") > bad.score("ter")
