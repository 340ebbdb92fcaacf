"""The BLEU tokenizer depends on the target language, in evaluation and in validation."""

import shutil

import pytest

from mtcli.config.load import with_overrides
from mtcli.config.metrics import BLEU_TOKENIZERS, MetricOptions
from mtcli.errors import ConfigError, DataError
from mtcli.evaluation import tokenizers
from mtcli.evaluation.evaluate import evaluate_translations
from mtcli.evaluation.tokenizers import check_tokenizer, choose_tokenizer, is_installed
from mtcli.model_dir.directory import load_saved_config
from mtcli.reporting.events import Notice, Stopped, Validated
from mtcli.training.run import train_run
from mtcli.training.run_state import RunOptions
from system_outputs import CHINESE, JAPANESE, system_output
from test_version_0_2_0 import VERSION

needs_mecab = pytest.mark.skipif(not is_installed("ja-mecab"), reason="mtcli[ja] is not installed")


@pytest.fixture
def no_mecab(monkeypatch):
    monkeypatch.setattr(tokenizers, "find_spec", lambda _: None)


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        *((code, "zh") for code in ("zh", "zh-CN", "zh_Hant", "zho_Hans", "cmn", "yue", "ZH")),
        *((code, "char") for code in ("th", "lo", "my", "km", "bo", "tha_Thai", "khm")),
        *((code, "13a") for code in ("de", "en", "fr-CA", "vi", "hi", "zu", "jav", None, "")),
    ],
)
def test_the_tokenizer_depends_on_the_language(language, expected):
    choice = choose_tokenizer(language)
    assert choice.name == expected
    assert (choice.notice is None) == (expected == "13a")


@pytest.mark.parametrize(("language", "extra"), [("ja", "ja"), ("jpn_Jpan", "ja"), ("ko", "ko")])
@pytest.mark.usefixtures("no_mecab")
def test_without_mecab_the_tokenizer_is_char_and_a_notice_explains_why(language, extra):
    choice = choose_tokenizer(language)
    assert choice.name == "char"
    assert f"{extra}-mecab is not installed: pip install 'mtcli[{extra}]'" in choice.notice


@pytest.mark.parametrize("language", ["ja", "ko"])
def test_mecab_is_used_if_it_is_installed(language, monkeypatch):
    monkeypatch.setattr(tokenizers, "find_spec", lambda _: object())
    assert choose_tokenizer(language).name == f"{language}-mecab"


@pytest.mark.usefixtures("no_mecab")
def test_the_error_for_a_missing_tokenizer_shows_the_install_command():
    with pytest.raises(DataError, match="the BLEU tokenizer ja-mecab is not installed") as error:
        evaluate_translations(["あ"], [["あ"]], metrics=MetricOptions(tokenize="ja-mecab"))
    assert "pip install 'mtcli[ja]'" in error.value.hint
    check_tokenizer("13a")


def test_no_default_tokenizer_needs_a_download():
    names = {choose_tokenizer(code).name for code in tokenizers._BY_LANGUAGE}
    assert names <= {"zh", "ja-mecab", "ko-mecab", "char"} <= set(BLEU_TOKENIZERS)


def test_a_failed_tokenizer_download_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path))

    def refuse(*_):
        raise OSError("offline")

    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.download_file", refuse)
    with pytest.raises(DataError, match="cannot load the BLEU tokenizer flores200: offline"):
        evaluate_translations(["a"], [["a"]], metrics=MetricOptions(tokenize="flores200"))


@pytest.mark.parametrize("language", ["zh", pytest.param("ja", marks=needs_mecab)])
def test_a_good_translation_without_spaces_has_a_high_bleu(language):
    references = {"zh": CHINESE, "ja": JAPANESE}[language]
    lines = system_output(language, 0.1, seed=1)
    by_language = evaluate_translations(lines, [references], target_lang=language)
    by_default = evaluate_translations(lines, [references])
    assert by_language.scores["bleu"].value > 50 > 40 > by_default.scores["bleu"].value
    assert f"tok:{language}" in by_language.scores["bleu"].signature
    assert language in by_language.notices[0]


@pytest.fixture
def chinese_config(tiny_config):
    return with_overrides(tiny_config, [("data.target_lang", "zh")])


def stopped_run(config, directory, events):
    """Train until the first validation has been saved, then stop."""
    result = train_run(config, directory, events.append, RunOptions(stop_after=1e-9))
    assert isinstance(result, Stopped)


def test_a_run_validates_with_the_tokenizer_of_its_language_and_saves_it(chinese_config, tmp_path):
    events = []
    train_run(chinese_config, tmp_path / "run", events.append)
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert "BLEU tokenizer: zh (target language zh)" in notices
    for event in events:
        if isinstance(event, Validated):
            assert "|tok:zh|" in event.scores["bleu"].signature
    assert load_saved_config(tmp_path / "run").train.bleu_tokenizer == "zh"


def test_a_resumed_run_keeps_its_tokenizer(tiny_config, tmp_path, monkeypatch):
    """MeCab was not installed when the run started, and is installed when it resumes."""
    config = with_overrides(tiny_config, [("data.target_lang", "ja")])
    monkeypatch.setattr(tokenizers, "find_spec", lambda _: None)
    stopped_run(config, tmp_path / "run", [])
    monkeypatch.setattr(tokenizers, "find_spec", lambda _: object())
    events = []
    train_run(config, tmp_path / "run", events.append)
    validations = [event for event in events if isinstance(event, Validated)]
    assert validations
    assert all("|tok:char|" in event.scores["bleu"].signature for event in validations)


@pytest.mark.usefixtures("no_mecab")
def test_training_with_a_missing_tokenizer_fails_before_the_first_step(tiny_config, tmp_path):
    config = with_overrides(tiny_config, [("train.bleu_tokenizer", "ko-mecab")])
    with pytest.raises(DataError, match="ko-mecab is not installed"):
        train_run(config, tmp_path / "run", lambda _: None)
    assert not (tmp_path / "run").exists()


def test_an_unknown_tokenizer_in_the_configuration_is_an_error(tiny_config):
    with pytest.raises(ConfigError, match="train.bleu_tokenizer: must be one of 13a, intl"):
        with_overrides(tiny_config, [("train.bleu_tokenizer", "moses")])


def test_runs_of_earlier_formats_keep_13a(tmp_path):
    for name in ("model", "unfinished"):
        directory = shutil.copytree(VERSION / name, tmp_path / name)
        assert load_saved_config(directory).train.bleu_tokenizer == "13a"
