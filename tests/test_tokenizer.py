import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtcli.config import TokenizerConfig
from mtcli.errors import CheckpointError, ConfigError
from mtcli.tokenizer import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    UNK_ID,
    load_tokenizers,
    train_tokenizers,
)

# What nmt_nfkc leaves alone: no control characters, no compatibility forms, single spaces.
PLAIN = st.text(st.characters(categories=["Ll", "Lu", "Nd"], max_codepoint=0x2FF), min_size=1)
LINES = st.lists(PLAIN, min_size=1).map(" ".join)


@given(LINES)
def test_text_becomes_ids_and_comes_back(tokenizers, text):
    tokenizer = tokenizers.source
    ids = tokenizer.ids(tokenizer.pieces(text))
    assert tokenizer.text(tokenizer.pieces_of(ids)) == unicodedata.normalize("NFKC", text)


@given(st.text())
def test_nothing_is_ever_unknown(tokenizers, text):
    assert UNK_ID not in tokenizers.source.encode([text])[0]


@pytest.mark.parametrize("text", ["the man", "Straße <b>", "日本語 и 😀", "1.5 % of $3"])
def test_the_round_trip_gives_the_text_itself(tokenizers, text):
    tokenizer = tokenizers.source
    assert tokenizer.text(tokenizer.pieces(text)) == text


@pytest.mark.parametrize("symbol", ["<s>", "</s>", "<pad>", "<unk>", "<0x41>"])
def test_a_symbol_typed_by_the_user_is_text(tokenizers, symbol):
    tokenizer = tokenizers.source
    ids = tokenizer.ids(tokenizer.pieces(f"the {symbol} man"))
    assert not {PAD_ID, UNK_ID, BOS_ID, EOS_ID} & set(ids)
    assert tokenizer.text(tokenizer.pieces_of(ids)) == f"the {symbol} man"


def test_blank_text_has_no_pieces(tokenizers):
    assert tokenizers.source.pieces("") == tokenizers.source.pieces(" \t ") == []


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_training_twice_gives_the_same_bytes(corpus, kind):
    options = TokenizerConfig(kind=kind, vocab_size=330)
    one, other = (train_tokenizers(corpus.source, corpus.target, options) for _ in range(2))
    assert one.files() == other.files()


def test_separate_vocabularies_know_one_language_each(corpus, tmp_path):
    options = TokenizerConfig(kind="bpe", vocab_size=300, is_shared=False)
    both = train_tokenizers(corpus.source, corpus.target, options)
    assert len(both.source.pieces("the woman")) < len(both.target.pieces("the woman"))
    for name, content in both.files().items():
        (tmp_path / name).write_bytes(content)
    loaded = load_tokenizers(tmp_path)
    assert not loaded.is_shared
    assert loaded.files() == both.files()


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_small_corpus_gets_a_smaller_vocabulary(corpus, kind):
    options = TokenizerConfig(kind=kind, vocab_size=30_000)
    tokenizer = train_tokenizers(corpus.source, corpus.target, options).source
    assert 260 < len(tokenizer) < 30_000


def test_a_vocabulary_too_small_for_the_bytes_is_refused_with_the_number_needed(corpus):
    with pytest.raises(ConfigError, match=r"vocab_size=100 is too small.* need \d+ pieces"):
        train_tokenizers(corpus.source, corpus.target, TokenizerConfig(vocab_size=100))


def test_a_large_corpus_is_sampled_from_all_its_parts():
    lines = [word for word in ("alpha", "gamma", "omega") for _ in range(100)]
    options = TokenizerConfig(kind="bpe", vocab_size=290, sample_lines=20, character_coverage=1.0)
    tokenizer = train_tokenizers(lines, lines, options).source
    for word in ("alpha", "gamma", "omega"):
        assert tokenizer.pieces(word) == [f"▁{word}"]


def test_lines_of_any_length_are_learned_from():
    line = " ".join(["zebra quartz"] * 1000)
    options = TokenizerConfig(kind="bpe", vocab_size=290, character_coverage=1.0)
    tokenizer = train_tokenizers([line, "a"], [line, "a"], options).source
    assert tokenizer.pieces("zebra quartz") == ["▁zebra", "▁quartz"]


def test_a_missing_or_damaged_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="has no tokenizer.model"):
        load_tokenizers(tmp_path)
    (tmp_path / "target.model").touch()
    with pytest.raises(CheckpointError, match="source.model: No such file"):
        load_tokenizers(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="tokenizer.model is not a SentencePiece model"):
        load_tokenizers(tmp_path)
