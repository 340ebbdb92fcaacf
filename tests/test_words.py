"""Words of a text, and the word counts of the training text in a model directory."""

import json
import shutil
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from mtcli.data import words
from mtcli.data.words import WordCounter, hash_word, split_words
from mtcli.errors import CheckpointError
from mtcli.model_dir import word_counts
from mtcli.model_dir.averaging import average_models
from mtcli.model_dir.directory import remove_run
from mtcli.model_dir.layout import WORD_COUNTS
from mtcli.model_dir.word_counts import count_words, load_word_counts, to_bytes
from mtcli.training.run import RunOptions, train_run

SPLITS = {
    "Hello, world!": ["Hello", "world"],
    "„Ja“, sagt's (1.000 €)": ["Ja", "sagt's", "1.000"],
    "e-mail — x": ["e-mail", "x"],
    "नमस्ते दुनिया।": ["नमस्ते", "दुनिया"],
    "我喜欢GPT-4。": ["我", "喜", "欢", "GPT-4"],
    "カタカナです": list("カタカナです"),
    "... !? —": [],
    "": [],
}


@pytest.mark.parametrize("text", SPLITS)
def test_words_have_no_punctuation_around_them(text):
    assert split_words(text) == SPLITS[text]


@given(st.text())
def test_words_are_parts_of_the_text_in_order(text):
    position = 0
    for word in split_words(text):
        assert word.strip() == word != ""
        position = text.index(word, position) + len(word)


@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "c d", "e, f"]), max_size=5), max_size=5),
    st.integers(0, 5),
)
def test_counts_do_not_depend_on_the_blocks(blocks, max_tokens):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "_MAX_TOKENS", max_tokens)
        counter = WordCounter()
        for block in blocks:
            counter.add(block)
        counts = counter.result()
    expected = Counter(w for block in blocks for line in block for w in split_words(line))
    assert counts.find(["a", "b", "c", "d", "e", "f", "x"]) == [expected[w] for w in "abcdefx"]
    assert len(counts) == len(expected)


def test_the_rarest_words_are_dropped_if_there_are_too_many(monkeypatch):
    monkeypatch.setattr(words, "_MAX_WORDS", 10)
    monkeypatch.setattr(words, "_COMPACT_AT", 40)
    counter = WordCounter()
    for i in range(100):
        counter.add([f"rare{i} often", "often", "common"])
    counts = counter.result()
    assert len(counts) == 10
    assert counts.find(["often", "common"]) == [200, 100]


def test_a_hash_does_not_depend_on_the_process():
    assert hash_word("Wort") == 12652520356838398738


@pytest.mark.parametrize("n_pairs", [5, 6, 7, 11, 100])
def test_a_sample_has_the_right_size_and_is_spread_evenly(monkeypatch, n_pairs):
    monkeypatch.setattr(word_counts, "MAX_COUNTED_PAIRS", 5)
    lines = [f"word{i}" for i in range(n_pairs)]
    blocks = [(lines[i : i + 3], lines[i : i + 3]) for i in range(0, n_pairs, 3)]
    found = count_words(blocks, n_pairs)
    assert (found.text.n_pairs, found.text.n_counted) == (n_pairs, 5)
    assert found.scale == n_pairs / 5
    kept = [i for i, n in enumerate(found.source.find(lines)) if n]
    assert len(kept) == 5
    assert found.target.find(lines) == found.source.find(lines)
    gaps = [b - a for a, b in zip(kept, kept[1:], strict=False)]
    assert max(gaps) - min(gaps) <= 1
    assert n_pairs - kept[-1] <= -(-n_pairs // 5)  # the sample includes the end


def test_training_keeps_the_word_counts_of_the_training_pairs(tiny_config, tmp_path, corpus):
    train_run(tiny_config, tmp_path / "run", lambda _: None)
    found = load_word_counts(tmp_path / "run")
    n_dev = len(corpus) - found.text.n_pairs
    assert 0 < n_dev <= len(corpus) // 10 + 5
    assert found.text.n_counted == found.text.n_pairs
    expected = Counter(word for line in corpus.target for word in split_words(line))
    [count] = found.target.find(["sieht"])
    assert expected["sieht"] - n_dev <= count <= expected["sieht"]
    assert found.source.find(["sees", "sieht"])[1] == 0 < found.source.find(["sees"])[0]
    # Words are hashed: their text is not in the file.
    assert b"sieht" not in (tmp_path / "run" / WORD_COUNTS).read_bytes()


def test_a_stopped_run_already_has_its_word_counts(tiny_config, tmp_path):
    train_run(tiny_config, tmp_path / "run", lambda _: None, RunOptions(stop_after=0.0))
    before = (tmp_path / "run" / WORD_COUNTS).read_bytes()
    train_run(tiny_config, tmp_path / "run", lambda _: None)
    assert (tmp_path / "run" / WORD_COUNTS).read_bytes() == before


def test_a_streamed_run_counts_the_first_pairs(tiny_config, tmp_path):
    data = tiny_config.data.model_copy(update={"streaming": True})
    config = tiny_config.model_copy(update={"data": data})
    train_run(config, tmp_path / "run", lambda _: None)
    found = load_word_counts(tmp_path / "run")
    assert found.text.n_pairs is None
    assert found.text.n_counted > 0
    assert found.scale == 1.0


def test_removing_a_run_removes_its_word_counts(tiny_trained, tmp_path):
    shutil.copytree(tiny_trained, tmp_path / "run")
    remove_run(tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_an_average_keeps_the_word_counts_that_its_models_share(tiny_trained, tmp_path):
    average_models([tiny_trained, tiny_trained], tmp_path / "mean")
    counts = (tiny_trained / WORD_COUNTS).read_bytes()
    assert (tmp_path / "mean" / WORD_COUNTS).read_bytes() == counts


def test_loading_returns_none_for_a_model_without_word_counts(copying_model):
    assert load_word_counts(copying_model) is None


def damage_truncate(path):
    path.write_bytes(path.read_bytes()[:-8])


def damage_order(path):
    tensors = load_file(path)
    tensors["target.hashes"] = tensors["target.hashes"][::-1].copy()
    save_file(tensors, path, {"mtcli": json.dumps({"n_pairs": 1, "n_counted": 1})})


def damage_types(path):
    tensors = {name: values.astype(np.int32) for name, values in load_file(path).items()}
    save_file(tensors, path, {"mtcli": json.dumps({"n_pairs": 1, "n_counted": 1})})


def damage_metadata(path):
    save_file(load_file(path), path, {"mtcli": json.dumps({"n_pairs": "many", "n_counted": 1})})


def damage_metadata_missing(path):
    save_file(load_file(path), path)


@pytest.mark.parametrize(
    "damage",
    [damage_truncate, damage_order, damage_types, damage_metadata, damage_metadata_missing],
)
def test_damaged_word_counts_are_reported_by_name(tmp_path, damage):
    path = tmp_path / WORD_COUNTS
    path.write_bytes(to_bytes(count_words([(["a b c"], ["d e f"])], 1)))
    assert load_word_counts(tmp_path).target.find(["e", "a"]) == [1, 0]
    damage(path)
    with pytest.raises(CheckpointError, match=r"word_counts\.safetensors is damaged"):
        load_word_counts(tmp_path)


def test_a_link_that_leads_out_of_the_model_is_refused(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(to_bytes(count_words([(["a"], ["b"])], 1)))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / WORD_COUNTS).symlink_to(outside)
    with pytest.raises(CheckpointError, match="points outside the model directory"):
        load_word_counts(tmp_path / "model")
