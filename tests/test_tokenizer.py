"""Tokenizers: round trips, training and files."""

import io
import unicodedata

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from mtcli.config.tokenizer import TokenizerConfig
from mtcli.errors import CheckpointError, ConfigError
from mtcli.tokenizer import (
    DEFAULT_SPECIAL_IDS,
    SpecialIds,
    Tokenizer,
    load_tokenizers,
    train_tokenizers,
)

# Text that nmt_nfkc does not change: no control characters or compatibility forms, single spaces.
PLAIN = st.text(st.characters(categories=["Ll", "Lu", "Nd"], max_codepoint=0x2FF), min_size=1)
LINES = st.lists(PLAIN, min_size=1).map(" ".join)


@given(LINES)
def test_decoding_the_ids_of_a_text_returns_the_normalized_text(tokenizers, text):
    tokenizer = tokenizers.source
    ids = tokenizer.pieces_to_ids(tokenizer.tokenize(text))
    assert tokenizer.detokenize(tokenizer.ids_to_pieces(ids)) == unicodedata.normalize("NFKC", text)


@given(st.text())
def test_byte_fallback_encodes_any_text_without_unk(tokenizers, text):
    assert DEFAULT_SPECIAL_IDS.unk not in tokenizers.source.encode([text])[0]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_lines_in_utf8_have_the_ids_of_the_text(tokenizers, lines):
    encoded = [line.encode() for line in lines]
    assert tokenizers.source.encode(encoded) == tokenizers.source.encode(lines)


class WithoutBuffers:
    """A processor of an earlier SentencePiece version."""

    def __init__(self, processor):
        self.encode, self.eos_id = processor.encode, processor.eos_id
        self.pad_id, self.unk_id, self.bos_id = processor.pad_id, processor.unk_id, processor.bos_id


@pytest.mark.parametrize("has_buffers", [True, False])
@given(lines=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_buffers_contain_the_ids_and_eos(tokenizers, has_buffers, lines):
    tokenizer = Tokenizer(tokenizers.source.model)
    if not has_buffers:
        tokenizer._processor = WithoutBuffers(tokenizer._processor)
    expected = [[*ids, DEFAULT_SPECIAL_IDS.eos] for ids in tokenizer.encode(lines)]
    for texts in (lines, [line.encode() for line in lines]):
        rows = tokenizer.encode_to_buffers(texts)
        assert [memoryview(row).cast("B").cast("i").tolist() for row in rows] == expected


@pytest.mark.parametrize("text", ["the man", "Straße <b>", "日本語 и 😀", "1.5% of $3"])
def test_tokenizing_and_detokenizing_returns_the_text(tokenizers, text):
    tokenizer = tokenizers.source
    assert tokenizer.detokenize(tokenizer.tokenize(text)) == text


@pytest.mark.parametrize("symbol", ["<s>", "</s>", "<pad>", "<unk>", "<0x41>"])
def test_a_special_symbol_in_the_input_is_treated_as_text(tokenizers, symbol):
    tokenizer = tokenizers.source
    ids = tokenizer.pieces_to_ids(tokenizer.tokenize(f"the {symbol} man"))
    assert not {
        DEFAULT_SPECIAL_IDS.pad,
        DEFAULT_SPECIAL_IDS.unk,
        DEFAULT_SPECIAL_IDS.bos,
        DEFAULT_SPECIAL_IDS.eos,
    } & set(ids)
    assert tokenizer.detokenize(tokenizer.ids_to_pieces(ids)) == f"the {symbol} man"


def test_blank_text_has_no_pieces(tokenizers):
    assert tokenizers.source.tokenize("") == tokenizers.source.tokenize(" \t ") == []


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_training_is_deterministic(corpus, kind):
    options = TokenizerConfig(kind=kind, vocab_size=330)
    one, other = (train_tokenizers(corpus.source, corpus.target, options) for _ in range(2))
    assert one.files() == other.files()


def test_separate_vocabularies_contain_one_language_each(corpus, tmp_path):
    options = TokenizerConfig(kind="bpe", vocab_size=300, is_shared=False)
    both = train_tokenizers(corpus.source, corpus.target, options)
    assert len(both.source.tokenize("the woman")) < len(both.target.tokenize("the woman"))
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


def test_the_error_for_a_small_vocabulary_reports_the_required_size(corpus):
    with pytest.raises(ConfigError, match=r"vocab_size=100 is too small.* require \d+ pieces"):
        train_tokenizers(corpus.source, corpus.target, TokenizerConfig(vocab_size=100))


def test_training_samples_all_parts_of_a_large_corpus():
    lines = [word for word in ("alpha", "gamma", "omega") for _ in range(100)]
    options = TokenizerConfig(kind="bpe", vocab_size=290, sample_lines=20, character_coverage=1.0)
    tokenizer = train_tokenizers(lines, lines, options).source
    for word in ("alpha", "gamma", "omega"):
        assert tokenizer.tokenize(word) == [f"▁{word}"]


def test_training_uses_long_lines():
    line = " ".join(["zebra quartz"] * 1000)
    options = TokenizerConfig(kind="bpe", vocab_size=290, character_coverage=1.0)
    tokenizer = train_tokenizers([line, "a"], [line, "a"], options).source
    assert tokenizer.tokenize("zebra quartz") == ["▁zebra", "▁quartz"]


def test_the_error_names_a_missing_or_damaged_file(tmp_path):
    with pytest.raises(CheckpointError, match="has no tokenizer.model"):
        load_tokenizers(tmp_path)
    (tmp_path / "target.model").touch()
    with pytest.raises(CheckpointError, match="source.model: No such file"):
        load_tokenizers(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="tokenizer.model is not a SentencePiece model"):
        load_tokenizers(tmp_path)


def test_special_ids_come_from_the_sentencepiece_model():
    lines = iter(["a b c d", "d c b a"] * 10)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=model,
        vocab_size=12,
        hard_vocab_limit=False,
        unk_id=0,
        bos_id=3,
        eos_id=1,
        pad_id=2,
        minloglevel=2,
    )
    assert Tokenizer(model.getvalue()).special == SpecialIds(pad=2, unk=0, bos=3, eos=1)
