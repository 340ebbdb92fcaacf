import sys
from collections import Counter

import numpy as np
import pytest

from mtcli.config import DataConfig, TokenizerConfig
from mtcli.feed import Augmentation
from mtcli.feed.segmentation import Segmenter
from mtcli.tokenizer import EOS_ID, UNK_ID, Tokenizer, train_tokenizers
from processes import output_of

LINES = ["the man sees the house", "a child likes bread", "my dog finds water", "çà 🙂 <unk> the"]
NEVER = {"bpe": 0.0, "unigram": 1000.0}  # strengths at which nothing is left to chance
OFTEN = {"bpe": 0.3, "unigram": 0.02}


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(corpus, kind) -> Tokenizer:
    options = TokenizerConfig(kind=kind, vocab_size=330)
    return train_tokenizers(corpus.source, corpus.target, options).source


def test_the_kind_of_a_tokenizer_shows_in_its_scores(tokenizer, kind):
    assert tokenizer.is_bpe == (kind == "bpe")


def test_the_text_stays_the_same_and_the_pieces_do_not(tokenizer, kind, corpus):
    lines = [*LINES, *corpus.target]
    rows = tokenizer.encode(lines)
    found = Segmenter(tokenizer, OFTEN[kind]).segment(rows, seed=3)
    texts = [tokenizer.text(tokenizer.pieces_of(row)) for row in found]
    assert texts == [tokenizer.text(tokenizer.pieces_of(row)) for row in rows]
    assert sum(new != old for new, old in zip(found, rows, strict=True)) > len(rows) // 2


def test_what_is_spelt_in_bytes_is_not_taken_for_text(kind):
    lines = ["<0xC3> 0x3C <", "a < 0 x C 3 A 7 >"] * 20  # all characters that a byte's name has
    tokenizer = train_tokenizers(lines, lines, TokenizerConfig(kind=kind, vocab_size=290)).source
    [row] = tokenizer.encode(["ça"])
    for new in Segmenter(tokenizer, OFTEN[kind]).segment([row] * 50, seed=1):
        assert tokenizer.text(tokenizer.pieces_of(new)) == "ça"


def test_where_nothing_is_left_to_chance_the_segmentation_is_sentencepieces(
    tokenizer, kind, corpus
):
    rows = tokenizer.encode([*LINES, *corpus.source, *corpus.target])
    assert Segmenter(tokenizer, NEVER[kind]).segment(rows, seed=3) == rows


def test_the_seed_alone_decides(tokenizer, kind):
    rows = tokenizer.encode(LINES)
    segmenter = Segmenter(tokenizer, OFTEN[kind])
    first = segmenter.segment(rows, seed=3)
    assert segmenter.segment(rows, seed=4) != first
    assert segmenter.segment(rows, seed=3) == first


def test_it_decides_the_same_in_another_process(tokenizer, kind, tmp_path):
    (tmp_path / "model").write_bytes(tokenizer.model)
    script = f"""
from pathlib import Path
from mtcli.feed.segmentation import Segmenter
from mtcli.tokenizer import Tokenizer
tokenizer = Tokenizer(Path({str(tmp_path / "model")!r}).read_bytes())
print(Segmenter(tokenizer, {OFTEN[kind]}).segment(tokenizer.encode({LINES!r}), seed=3))
"""
    found = output_of([sys.executable, "-c", script]).strip()
    mine = Segmenter(tokenizer, OFTEN[kind]).segment(tokenizer.encode(LINES), seed=3)
    assert found == str(mine)


def test_a_segmentation_is_as_likely_as_the_power_of_its_probability(corpus):
    options = TokenizerConfig(kind="unigram", vocab_size=330)
    tokenizer = train_tokenizers(corpus.source, corpus.target, options).source
    [row] = tokenizer.encode(["the man sees"])
    segmenter = Segmenter(tokenizer, 0.05)
    n = 20_000
    counts = Counter(map(tuple, segmenter.segment([row] * n, seed=1)))
    weights = {ids: 2.718281828 ** (0.05 * sum(map(tokenizer.score, ids))) for ids in counts}
    assert len(counts) > 3
    for ids, count in counts.items():
        expected = weights[ids] / sum(weights.values())
        assert count / n == pytest.approx(expected, abs=0.02)


def test_merges_are_left_out_as_often_as_asked(corpus):
    options = TokenizerConfig(kind="bpe", vocab_size=330)
    tokenizer = train_tokenizers(corpus.source, corpus.target, options).source
    [row] = tokenizer.encode(["a"])  # two characters, the space and the letter: one merge
    assert len(row) == 1
    found = Segmenter(tokenizer, 0.3).segment([row] * 5000, seed=1)
    assert sum(len(ids) == 2 for ids in found) / 5000 == pytest.approx(0.3, abs=0.03)


def test_word_dropout_hides_pieces_but_no_beginning_and_no_end(tokenizers):
    rows = [np.array([2, *ids, EOS_ID], np.int32) for ids in tokenizers.source.encode(LINES)]
    options = DataConfig(train=("a", "b"), word_dropout=0.5)
    hidden = Augmentation(tokenizers, options).hide(rows, np.random.default_rng(0))
    for before, after in zip(rows, hidden, strict=True):
        assert len(before) == len(after)
        assert after[0] == 2
        assert after[-1] == EOS_ID
        assert all(a in (b, UNK_ID) for a, b in zip(after, before, strict=True))
    n_hidden = sum(int((row == UNK_ID).sum()) for row in hidden)
    assert 0.3 < n_hidden / sum(len(row) - 2 for row in rows) < 0.7


def test_a_segmentation_that_would_be_too_long_is_not_used(tokenizers, corpus):
    rows = [np.array([*ids, EOS_ID], np.int32) for ids in tokenizers.source.encode(corpus.source)]
    longest = max(map(len, rows)) - 1
    options = DataConfig(train=("a", "b"), subword_sampling=0.2, max_length=longest)
    found, _ = Augmentation(tokenizers, options).segment(rows, rows, seed=1)
    assert max(map(len, found)) - 1 <= longest
    assert any(len(new) > len(old) for new, old in zip(found, rows, strict=True))
