"""Data augmentation: subword sampling and word dropout."""

import sys
from collections import Counter

import numpy as np
import pytest

from mtcli.config.sections import DataConfig
from mtcli.config.tokenizer import TokenizerConfig
from mtcli.data.augmentation import Augmentation, SubwordSampler
from mtcli.tokenizer import DEFAULT_SPECIAL_IDS, Tokenizer, train_tokenizers
from processes import output_of

LINES = ["the man sees the house", "a child likes bread", "my dog finds water", "çà 🙂 <unk> the"]
DETERMINISTIC = {"bpe": 0.0, "unigram": 1000.0}  # settings without randomness
RANDOM = {"bpe": 0.3, "unigram": 0.02}


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(corpus, kind) -> Tokenizer:
    options = TokenizerConfig(kind=kind, vocab_size=330)
    return train_tokenizers(corpus.source, corpus.target, options).source


def test_the_tokenizer_type_is_detected(tokenizer, kind):
    assert tokenizer.is_bpe == (kind == "bpe")


def test_sampling_changes_pieces_but_not_the_text(tokenizer, kind, corpus):
    lines = [*LINES, *corpus.target]
    rows = tokenizer.encode(lines)
    samples = SubwordSampler(tokenizer, RANDOM[kind]).sample(rows, seed=3)
    texts = [tokenizer.detokenize(tokenizer.ids_to_pieces(row)) for row in samples]
    assert texts == [tokenizer.detokenize(tokenizer.ids_to_pieces(row)) for row in rows]
    assert sum(new != old for new, old in zip(samples, rows, strict=True)) > len(rows) // 2


def test_byte_pieces_are_not_treated_as_text(kind):
    lines = ["<0xC3> 0x3C <", "a < 0 x C 3 A 7 >"] * 20  # contain the byte pieces of "ç" as text
    tokenizer = train_tokenizers(lines, lines, TokenizerConfig(kind=kind, vocab_size=290)).source
    [row] = tokenizer.encode(["ça"])
    for sample in SubwordSampler(tokenizer, RANDOM[kind]).sample([row] * 50, seed=1):
        assert tokenizer.detokenize(tokenizer.ids_to_pieces(sample)) == "ça"


def test_sampling_without_randomness_matches_sentencepiece(tokenizer, kind, corpus):
    rows = tokenizer.encode([*LINES, *corpus.source, *corpus.target])
    assert SubwordSampler(tokenizer, DETERMINISTIC[kind]).sample(rows, seed=3) == rows


def test_the_samples_depend_only_on_the_seed(tokenizer, kind):
    rows = tokenizer.encode(LINES)
    sampler = SubwordSampler(tokenizer, RANDOM[kind])
    first = sampler.sample(rows, seed=3)
    assert sampler.sample(rows, seed=4) != first
    assert sampler.sample(rows, seed=3) == first


def test_samples_are_the_same_in_another_process(tokenizer, kind, tmp_path):
    (tmp_path / "model").write_bytes(tokenizer.model)
    script = f"""
from pathlib import Path
from mtcli.data.augmentation import SubwordSampler
from mtcli.tokenizer import Tokenizer
tokenizer = Tokenizer(Path({str(tmp_path / "model")!r}).read_bytes())
print(SubwordSampler(tokenizer, {RANDOM[kind]}).sample(tokenizer.encode({LINES!r}), seed=3))
"""
    found = output_of([sys.executable, "-c", script]).strip()
    expected = SubwordSampler(tokenizer, RANDOM[kind]).sample(tokenizer.encode(LINES), seed=3)
    assert found == str(expected)


def test_sampling_frequencies_are_proportional_to_a_power_of_the_probability(corpus):
    options = TokenizerConfig(kind="unigram", vocab_size=330)
    tokenizer = train_tokenizers(corpus.source, corpus.target, options).source
    [row] = tokenizer.encode(["the man sees"])
    sampler = SubwordSampler(tokenizer, 0.05)
    n = 20_000
    counts = Counter(map(tuple, sampler.sample([row] * n, seed=1)))
    weights = {ids: 2.718281828 ** (0.05 * sum(map(tokenizer.score, ids))) for ids in counts}
    assert len(counts) > 3
    for ids, count in counts.items():
        expected = weights[ids] / sum(weights.values())
        assert count / n == pytest.approx(expected, abs=0.02)


def test_merges_are_dropped_at_the_configured_rate(corpus):
    options = TokenizerConfig(kind="bpe", vocab_size=330)
    tokenizer = train_tokenizers(corpus.source, corpus.target, options).source
    [row] = tokenizer.encode(["a"])  # one merge joins the space and the letter
    assert len(row) == 1
    samples = SubwordSampler(tokenizer, 0.3).sample([row] * 5000, seed=1)
    assert sum(len(ids) == 2 for ids in samples) / 5000 == pytest.approx(0.3, abs=0.03)


def test_word_dropout_replaces_pieces_but_not_bos_and_eos(tokenizers):
    rows = [
        np.array([2, *ids, DEFAULT_SPECIAL_IDS.eos], np.int32)
        for ids in tokenizers.source.encode(LINES)
    ]
    options = DataConfig(train=("a", "b"), word_dropout=0.5)
    dropped = Augmentation(tokenizers, options).drop_words(rows, np.random.default_rng(0))
    for before, after in zip(rows, dropped, strict=True):
        assert len(before) == len(after)
        assert after[0] == 2
        assert after[-1] == DEFAULT_SPECIAL_IDS.eos
        assert all(a in (b, DEFAULT_SPECIAL_IDS.unk) for a, b in zip(after, before, strict=True))
    n_dropped = sum(int((row == DEFAULT_SPECIAL_IDS.unk).sum()) for row in dropped)
    assert 0.3 < n_dropped / sum(len(row) - 2 for row in rows) < 0.7


def test_samples_do_not_exceed_the_maximum_length(tokenizers, corpus):
    rows = [
        np.array([*ids, DEFAULT_SPECIAL_IDS.eos], np.int32)
        for ids in tokenizers.source.encode(corpus.source)
    ]
    longest = max(map(len, rows)) - 1
    options = DataConfig(train=("a", "b"), subword_sampling=0.2, max_length=longest)
    samples, _ = Augmentation(tokenizers, options).sample_subwords(rows, rows, seed=1)
    assert max(map(len, samples)) - 1 <= longest
    assert any(len(new) > len(old) for new, old in zip(samples, rows, strict=True))
