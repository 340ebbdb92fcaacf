"""Several dev sets: names, combined scores, log, and display."""

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from conftest import tiny_pairs
from mtcli.cli.corpora import dev_corpora, parse_corpus, training_corpora
from mtcli.config.load import with_overrides
from mtcli.data.corpus import Corpus
from mtcli.data.encoding import encode
from mtcli.data.entries import EntryInfo, open_entries
from mtcli.errors import ConfigError, DataError
from mtcli.model_dir.card import describe
from mtcli.model_dir.checkpoints import Progress
from mtcli.model_dir.directory import WeightsInfo, weights_info
from mtcli.reporting.display import open_display
from mtcli.reporting.events import Finished, Score, Validated
from mtcli.reporting.html_report import report_html
from mtcli.reporting.log import EventLog, as_logged, expand_sets, read_events
from mtcli.reporting.messages import summary_line
from mtcli.training import finish
from mtcli.training.alignment_heads import choose_alignment_heads
from mtcli.training.dataset import DevScores, combine, split_dev_sets, to_requests
from mtcli.training.run import train_run
from mtcli.translation.line_translator import Request

pytestmark = pytest.mark.cpu


def scores(loss, bleu, chrf=50.0):
    values = {"bleu": Score("BLEU", bleu, "sig"), "chrf": Score("chrF2", chrf, "sig")}
    return DevScores(loss, values, 1.0, ())


MEASURED = {"news": scores(2.0, 30.0, 55.0), "talks": scores(1.0, 20.0, 65.0)}


@pytest.mark.parametrize(
    ("rule", "loss", "bleu", "chrf"),
    [("mean", 1.5, 25.0, 60.0), ("worst", 2.0, 20.0, 55.0), ("first", 2.0, 30.0, 55.0)],
)
def test_the_rule_combines_the_scores(rule, loss, bleu, chrf):
    combined = combine(MEASURED, rule)
    assert combined.loss == loss
    assert combined.score("loss") == -loss
    assert combined.score("bleu") == bleu
    assert combined.score("chrf") == chrf
    assert combined.bleu_of_sets == {"news": 30.0, "talks": 20.0}
    assert combined.bleu.signature == "sig"
    assert combined.seconds == 2.0


@pytest.mark.parametrize("rule", ["mean", "worst", "first"])
def test_a_single_dev_set_is_not_combined(rule):
    assert combine({"": MEASURED["news"]}, rule) is MEASURED["news"]


@pytest.fixture
def validated():
    combined = combine(MEASURED, "mean")
    return Validated(5, combined.loss, combined.scores, True, 1.0, (), combined.sets)


def test_the_log_keeps_the_scores_of_each_dev_set(tmp_path, validated):
    log = EventLog(tmp_path / "log.jsonl")
    log(validated)
    [entry] = read_events(tmp_path / "log.jsonl")
    assert entry["sets"][1] == {"name": "talks", "loss": 1.0, "bleu": 20.0, "chrf": 65.0}
    [restored] = log.read_history()
    assert [scored.name for scored in restored.sets] == ["news", "talks"]
    assert restored.sets[0].scores["bleu"].value == 30.0
    finished = Finished(5, 5, 25.0, "sig", "done", "step 5", "x", {"news": 30.0, "talks": 20.0})
    log(finished)
    assert log.read_finished() == finished
    assert "dev BLEU 25.00 (news 30.00; talks 20.00)" in summary_line(finished)


def test_files_of_a_run_with_one_dev_set_have_no_fields_for_several_sets(validated):
    single = Validated(5, 1.0, validated.scores, True, 1.0)
    assert "sets" not in as_logged(single)
    assert "sets" not in as_logged(Finished(5, 5, 25.0, "sig", "done", "step 5", "x"))
    assert "best_sets" not in Progress("x").to_json()
    assert "sets" not in WeightsInfo(1, 1, 1.0, "", 1).to_metadata()


def test_progress_keeps_the_scores_of_each_dev_set():
    progress = Progress("x", best_sets={"news": 30.0})
    assert Progress.from_json(progress.to_json()) == progress


@pytest.mark.parametrize("is_terminal", [True, False])
def test_displays_show_each_dev_set(validated, is_terminal):
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=100)
    display = open_display(console)
    display(validated)
    display.close()
    text = console.file.getvalue()
    assert "news" in text
    assert "loss 1.000, BLEU 20.00, chrF 65.00" in text


def test_the_report_shows_each_dev_set(validated):
    entries = [{**as_logged(validated), "time": 1.0}]
    [expanded] = expand_sets(entries)
    assert expanded["BLEU (news)"] == 30.0
    page = report_html(entries, "", {})
    assert "BLEU (news)" in page
    assert "BLEU (talks)" in page
    damaged = [{**entries[0], "sets": [3, {"name": "x"}]}]
    assert "BLEU" in report_html(damaged, "", {})


# Tests of the division of the dev pairs into sets.


def dev_corpus(origins, infos):
    sources, targets = zip(*tiny_pairs()[: len(origins)], strict=True)
    return Corpus(list(sources), list(targets), np.array(origins, np.uint8), infos)


def test_pairs_are_divided_by_the_name_of_their_set(tokenizers):
    infos = (EntryInfo(set_name="a"), EntryInfo(set_name="b"), EntryInfo(set_name="a"))
    dev = dev_corpus([0, 1, 2, 1, 0], infos)
    sets = split_dev_sets(encode(dev, tokenizers, 64, print), dev, 2)
    assert [dev_set.name for dev_set in sets] == ["a", "b"]
    assert [len(dev_set.encoded) for dev_set in sets] == [3, 2]
    assert [dev_set.scored_pairs.source for dev_set in sets] == [
        [dev.source[0], dev.source[2]],
        [dev.source[1], dev.source[3]],
    ]
    encoded = encode(dev, tokenizers, 64, print)
    assert sets[1].encoded.source[1].tolist() == encoded.source[3].tolist()


def test_a_set_without_pairs_is_omitted_and_a_set_that_is_too_long_is_an_error(tokenizers):
    infos = (EntryInfo(set_name="a"), EntryInfo(set_name="b"), EntryInfo(set_name="c"))
    dev = dev_corpus([0, 2, 2], infos)
    sets = split_dev_sets(encode(dev, tokenizers, 64, print), dev, 5)
    assert [dev_set.name for dev_set in sets] == ["a", "c"]
    long = Corpus(["a " * 60, "water"], ["b", "Wasser"], np.array([0, 1], np.uint8), infos[:2])
    with pytest.raises(DataError, match="all pairs in the dev set a are longer"):
        split_dev_sets(encode(long, tokenizers, 30, print), long, 5)


def test_requests_have_the_target_language_and_the_tag_of_their_corpus():
    dev = dev_corpus([1, 0], (EntryInfo("de"), EntryInfo("en", "bt")))
    first, second = dev.source
    assert to_requests(dev) == [Request(first, to="en", tag="bt"), Request(second, to="de")]
    assert to_requests(Corpus(["x"], ["y"])) == [Request("x")]


# Tests of the translation direction of corpora.


@pytest.fixture
def files(corpus_files):
    return list(map(str, corpus_files))


def opened(config, targets=()):
    return list(open_entries(config.data.train, targets=targets))


def with_train(config, *entries):
    return with_overrides(config, [("data.train", list(entries))])


def test_the_target_language_determines_the_direction(tiny_config, files):
    config = with_train(tiny_config, {"corpus": files, "to": "de"}, {"corpus": files, "to": "en"})
    forward, backward = opened(config)
    source, target = tiny_pairs()[0]
    assert next(forward.corpus.rows) == (source, target)
    assert next(backward.corpus.rows) == (target, source)
    assert backward.info == EntryInfo("en", None, "en")
    assert (backward.corpus.languages.source, backward.corpus.languages.target) == ("de", "en")


def test_reverse_swaps_the_sides(tiny_config, files):
    [entry] = opened(with_train(tiny_config, {"corpus": files, "reverse": True}))
    source, target = tiny_pairs()[0]
    assert next(entry.corpus.rows) == (target, source)
    assert entry.info.symbols == ()
    [entry] = opened(with_train(tiny_config, {"corpus": files, "reverse": True, "to": "en"}))
    assert next(entry.corpus.rows) == (target, source)


@pytest.mark.parametrize(
    "entry", [{"to": "fr"}, {"to": "de", "reverse": True}, {"to": "pt", "target_lang": "fr"}]
)
def test_a_target_language_that_the_corpus_lacks_is_an_error(tiny_config, files, entry):
    config = with_train(tiny_config, {"corpus": files, **entry})
    with pytest.raises(
        DataError, match=f"cannot translate to {entry['to']}: the corpus direction is"
    ):
        opened(config)


def test_unknown_languages_cause_a_notice(tiny_config, tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\n", encoding="utf-8")
    name = str(tmp_path / "a.tsv")
    [entry] = opened(with_train(tiny_config, {"corpus": name, "to": "de"}))
    assert next(entry.corpus.rows) == ("a", "b")
    assert entry.corpus.descriptions[-1].endswith("languages unknown; using the second side as de")


def test_the_languages_of_a_dev_corpus_determine_its_direction(tiny_config, files, tmp_path):
    config = with_train(tiny_config, {"corpus": files})
    [entry] = opened(config, targets=("en", "de"))
    assert entry.info.to == "de"
    (tmp_path / "a.tsv").write_text("a\tb\n", encoding="utf-8")
    config = with_train(tiny_config, {"corpus": str(tmp_path / "a.tsv")})
    with pytest.raises(
        DataError, match="the target language is missing; the model translates to en, de"
    ):
        opened(config, targets=("en", "de"))
    assert opened(config, targets=("en",))[0].info.to == "en"


# Tests of the command line and of entire runs.


def test_corpora_on_the_command_line_are_parsed():
    assert training_corpora(["a", "b"], []) == ["a", "b"]
    assert training_corpora(["a.tsv"], []) == "a.tsv"
    assert training_corpora([], []) is None
    mapping = "{corpus: [a, b], to: de}"
    assert training_corpora([mapping], []) == [{"corpus": ["a", "b"], "to": "de"}]
    assert training_corpora(["a", "b"], [mapping, "c"]) == [
        {"corpus": ["a", "b"]},
        {"corpus": ["a", "b"], "to": "de"},
        {"corpus": "c"},
    ]
    assert parse_corpus("{train,corpus}") == "{train,corpus}"  # a pattern, not a mapping
    with pytest.raises(ConfigError, match="is not valid YAML"):
        parse_corpus("{corpus: [a}")


def test_dev_sets_on_the_command_line_are_parsed():
    assert dev_corpora(None, []) is None
    assert dev_corpora((Path("a"), Path("b")), []) == ["a", "b"]
    assert dev_corpora(None, ["d.tsv"]) == "d.tsv"
    assert dev_corpora(None, ["x/a.tsv", "{corpus: b, name: B}", "{corpus: [c, d], to: de}"]) == [
        {"name": "a.tsv", "corpus": "x/a.tsv"},
        {"corpus": "b", "name": "B"},
        {"corpus": ["c", "d"], "to": "de"},
    ]


@pytest.mark.parametrize(
    ("dev", "message"),
    [
        ([{"corpus": "a", "weight": 2}], "data.dev: item 1: weight has no effect on a dev set"),
        ([{"corpus": "a"}, {"corpus": "b", "to": "fr"}], "item 2: no training corpus has `to: fr`"),
        ([{"corpus": "a", "tag": "x"}], "item 1: no training corpus has `tag: x`"),
    ],
)
def test_a_dev_set_must_match_the_training_corpora(tiny_config, dev, message):
    with pytest.raises(ConfigError) as error:
        with_overrides(tiny_config, [("data.dev", dev)])
    assert message in str(error.value)


def test_a_run_with_two_dev_sets_uses_both(tiny_config, files, tmp_path, monkeypatch):
    used = []

    def choose(model, train_set, dev_sets):
        used.extend(map(len, dev_sets))
        return choose_alignment_heads(model, train_set, dev_sets)

    monkeypatch.setattr(finish, "choose_alignment_heads", choose)
    dev = [{"corpus": files, "name": "same"}, {"corpus": files, "reverse": True, "name": "other"}]
    settings = {"data.dev": dev, "train.dev_rule": "first", "train.steps": 8, "train.average": 2}
    config = with_overrides(tiny_config, settings.items())
    train_run(config, tmp_path / "run", lambda _: None)
    info = weights_info(tmp_path / "run")
    assert used == [60, 60]  # both choose the alignment heads
    assert list(info.sets) == ["same", "other"]
    assert info.bleu == info.sets["same"]
    events = read_events(tmp_path / "run" / "log.jsonl")
    notices = [event["text"] for event in events if event["event"] == "notice"]
    assert "dev sets: same (60 pairs), other (60 pairs)" in notices
    assert "  weights are selected by the first set (BLEU, train.dev_rule=first)" in notices
    assert events[-1]["sets"] == info.sets
    for event in events:
        if event["event"] == "validation":
            assert event["loss"] == event["sets"][0]["loss"]
    assert ("dev BLEU", f"{info.bleu:.2f} with greedy search, first of 2 dev sets") in describe(
        tmp_path / "run"
    )
