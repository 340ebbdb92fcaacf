"""Test sets from files and from sacreBLEU, with simulated downloads."""

import logging
import sys
import urllib.error
from pathlib import Path

import pytest
import sacrebleu.dataset.base
from sacrebleu.dataset import DATASETS

from corpus_files import WRITERS
from mtcli.data.formats.base import Languages
from mtcli.errors import DataError
from mtcli.evaluation.test_sets import NamedTestSet, load_named_test_set, read_test_set
from test_formats import WMT

EN_DE = Languages("en", "de")
SOURCE = """<srcset setid="t" srclang="any">
<doc docid="news.1" genre="news" origlang="en">
<seg id="1">one</seg>
<seg id="2">two</seg>
</doc>
<doc docid="news.2" genre="news" origlang="de">
<seg id="1">three</seg>
</doc>
</srcset>
"""
REFERENCE = SOURCE.replace("srcset", "refset").replace("one", "eins").replace("two", "zwei")


def ignore(_: str) -> None:
    pass


def read(*files: object, has_source: bool = True):
    return read_test_set([str(file) for file in files], EN_DE, ignore, has_source=has_source)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Move the caches of some test sets to a new directory, and replace the download."""
    for name in ("wmt14", "wmt14/full", "wmt15", "wmt22"):
        monkeypatch.setattr(DATASETS[name], "_outdir", str(tmp_path / name))
        monkeypatch.setattr(DATASETS[name], "_rawdir", str(tmp_path / name / "raw"))
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(tmp_path))

    def refuse(*_, **__):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    return tmp_path


def write_raw(cache: Path, name: str, pair: str = "en-de") -> None:
    """Write the files that sacreBLEU extracts from the archive of a test set."""
    raw = cache / name / "raw"
    for file, content in zip(DATASETS[name].langpairs[pair], (SOURCE, REFERENCE), strict=True):
        (raw / file).parent.mkdir(parents=True, exist_ok=True)
        (raw / file).write_text(content, encoding="utf-8")


@pytest.fixture
def downloaded(cache, monkeypatch):
    for name in ("wmt14", "wmt15"):
        write_raw(cache, name)
    monkeypatch.setattr(sacrebleu.dataset.base, "download_file", lambda *_, **__: None)
    return cache


def test_a_named_test_set_has_source_references_and_documents(downloaded):
    messages = []
    loaded = load_named_test_set(NamedTestSet("wmt14", "en-de"), messages.append)
    assert loaded.test_set.source == ("one", "two", "three")
    assert loaded.test_set.references == (("eins", "zwei", "three"),)
    assert loaded.test_set.documents == ("news.1", "news.1", "news.2")
    assert loaded.test_set.languages == EN_DE
    assert messages == [f"downloading the test set wmt14 to {downloaded}/wmt14"]


@pytest.mark.usefixtures("downloaded")
def test_a_cached_test_set_is_not_downloaded_again(monkeypatch):
    first = load_named_test_set(NamedTestSet("wmt14", "en-de"), ignore)
    monkeypatch.setattr(sacrebleu.dataset.base, "download_file", lambda *_, **__: sys.exit(1))
    messages = []
    assert load_named_test_set(NamedTestSet("wmt14", "en-de"), messages.append) == first
    assert messages == []


@pytest.mark.usefixtures("downloaded")
def test_several_test_sets_are_concatenated():
    test_set = load_named_test_set(NamedTestSet("wmt14,wmt15", "en-de"), ignore).test_set
    assert test_set.source == ("one", "two", "three") * 2
    assert test_set.references == (("eins", "zwei", "three") * 2,)
    assert len(test_set.documents) == 6
    assert test_set.name == "wmt14,wmt15 en-de"


@pytest.mark.parametrize(
    ("origlang", "rows"), [("en", ["one", "two"]), ("de", ["three"]), ("non-en", ["three"])]
)
def test_documents_can_be_selected_by_original_language(downloaded, origlang, rows):
    loaded = load_named_test_set(NamedTestSet("wmt14", "en-de", origlang), ignore)
    assert list(loaded.test_set.source) == rows
    # Translations of the entire test set are also accepted.
    for lines in (["one", "two", "three"], rows):
        path = downloaded / "hypothesis"
        path.write_text("".join(f"{line}\n" for line in lines))
        assert list(loaded.read_hypotheses(path)) == rows


@pytest.mark.usefixtures("downloaded")
def test_a_selection_without_sentences_is_reported():
    with pytest.raises(DataError, match="has no sentences with origlang=fr"):
        load_named_test_set(NamedTestSet("wmt14", "en-de", "fr"), ignore)


@pytest.mark.parametrize("name", ["wmt14/full", "wmt22"])
def test_an_offline_error_names_the_local_files(cache, name):
    with pytest.raises(DataError, match=f"cannot download the test set {name}") as error:
        load_named_test_set(NamedTestSet(name, "en-de"), ignore)
    assert "Name or service not known" in str(error.value)
    words = error.value.hint.replace(":", " ").split()
    files = [Path(word) for word in words if word.startswith(f"{cache}/{name}/")]
    assert [path.suffix[:4] for path in files] == [".src", *[".ref"] * (len(files) - 1)]
    for path in files:
        path.write_text(f"{path.suffix}\n")
    test_set = load_named_test_set(NamedTestSet(name, "en-de"), ignore).test_set
    assert [test_set.source, *test_set.references] == [(path.suffix,) for path in files]


@pytest.mark.usefixtures("cache")
def test_an_exit_of_sacrebleu_becomes_an_error_with_its_message(monkeypatch, capsys):
    def fail(*_, **__):
        logging.getLogger("sacrebleu").error("MD5 sum of downloaded file was incorrect")
        sys.exit(1)

    monkeypatch.setattr(sacrebleu.dataset.base, "download_file", fail)
    with pytest.raises(DataError, match="wmt15: MD5 sum of downloaded file was incorrect"):
        load_named_test_set(NamedTestSet("wmt15", "en-de"), ignore)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "pair", "message", "hint"),
    [
        ("wmt14-full", "en-de", "no test set named wmt14-full", "did you mean wmt14/full"),
        ("xyzzy", "en-de", "no test set named xyzzy", "`sacrebleu --list`"),
        ("wmt14,wmt1", "en-de", "no test set named wmt1", "did you mean wmt"),
        ("wmt14", "de-xx", "wmt14 has no language pair de-xx", "did you mean de-en?"),
        ("wmt20", "fr-en", "no language pair fr-en", "available pairs: cs-en, de-en"),
    ],
)
def test_the_error_for_an_unknown_name_suggests_similar_names(name, pair, message, hint):
    with pytest.raises(DataError, match=message) as error:
        load_named_test_set(NamedTestSet(name, pair), ignore)
    assert hint in error.value.hint


@pytest.mark.parametrize("name", ["tsv", "jsonl", "wmt xml", "wmt sgml", "wmt sgml pair", "zip"])
def test_corpora_of_other_formats_are_test_sets(tmp_path, name):
    pairs = [("one", "eins"), ("two", "zwei")]
    test_set = read(*WRITERS[name](tmp_path, pairs)).test_set
    assert test_set.source == ("one", "two")
    assert test_set.references == (("eins", "zwei"),)
    assert (test_set.documents is not None) == name.startswith("wmt")


def test_a_wmt_test_set_has_documents_and_all_references(tmp_path):
    (tmp_path / "test.xml").write_text(WMT)
    test_set = read(tmp_path / "test.xml").test_set
    assert test_set.documents == ("one", "one", "two")
    assert test_set.references == (("A1", "A2", "A3"), ("B1", "B2", "B3"))


def test_sgml_files_can_have_several_references(tmp_path):
    (tmp_path / "src.en.sgm").write_text(SOURCE)
    (tmp_path / "ref-a.de.sgm").write_text(REFERENCE)
    (tmp_path / "ref-b.de.sgm").write_text(REFERENCE.replace("eins", "ein"))
    names = [tmp_path / name for name in ("src.en.sgm", "ref-a.de.sgm", "ref-b.de.sgm")]
    test_set = read(*names).test_set
    assert test_set.references == (("eins", "zwei", "three"), ("ein", "zwei", "three"))
    assert test_set.documents == ("news.1", "news.1", "news.2")


def test_rows_with_a_blank_side_are_dropped_and_translations_of_all_rows_are_accepted(tmp_path):
    (tmp_path / "test.tsv").write_text("one\teins\n\tzwei\nthree\tdrei\n")
    messages = []
    loaded = read_test_set([f"{tmp_path}/test.tsv"], EN_DE, messages.append, has_source=False)
    assert loaded.test_set.source == ("one", "three")
    assert messages[-1] == "dropped 1 of 3 pairs with a blank source or target"
    for text in ("1\n2\n3\n", "1\n3\n"):
        (tmp_path / "hypothesis").write_text(text)
        assert loaded.read_hypotheses(tmp_path / "hypothesis") == ("1", "3")


def test_the_target_language_of_text_files_is_their_suffix(tmp_path):
    for name in ("source.en", "a.zh", "b.zh"):
        (tmp_path / name).write_text("x\n")
    files = [str(tmp_path / name) for name in ("source.en", "a.zh", "b.zh")]
    test_set = read_test_set(files, Languages(), ignore, has_source=True).test_set
    assert test_set.languages == Languages("en", "zh")
    test_set = read_test_set(files[1:], Languages(), ignore, has_source=False).test_set
    assert test_set.languages == Languages(None, "zh")
    assert test_set.source is None
