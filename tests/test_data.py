"""Training data: reading lines and pairs, holding out dev pairs, encoding, batching."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import shipped_config
from mtcli.config.corpora import CorpusSource
from mtcli.data.batches import BatchStream, DataPosition, batches_in_order, collate, plan_epoch
from mtcli.data.corpus import Corpus, CorpusReader, read_corpus
from mtcli.data.encoding import EncodedCorpus, RaggedArray, encode
from mtcli.data.held_out import hold_out
from mtcli.data.lines import read_lines
from mtcli.errors import DataError
from mtcli.tokenizer import DEFAULT_SPECIAL_IDS, IGNORE_INDEX, train_tokenizers


def ragged_array(rows: list[list[int]]) -> RaggedArray:
    values = np.array(list(itertools.chain(*rows)), dtype=np.int32)
    return RaggedArray(values, np.cumsum([0, *map(len, rows)]))


def corpus_with_lengths(lengths: list[tuple[int, int]]) -> EncodedCorpus:
    """Return a corpus of pairs with the given lengths.

    All tokens of pair i except EOS are 10 + i.
    """
    numbered = list(enumerate(lengths))
    return EncodedCorpus(
        ragged_array(
            [[10 + i] * (source - 1) + [DEFAULT_SPECIAL_IDS.eos] for i, (source, _) in numbered]
        ),
        ragged_array(
            [[10 + i] * (target - 1) + [DEFAULT_SPECIAL_IDS.eos] for i, (_, target) in numbered]
        ),
    )


LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=80)


@given(LENGTHS, st.integers(1, 300), st.integers(0, 9))
def test_an_epoch_contains_every_pair_once_in_batches_within_the_budget(lengths, budget, seed):
    corpus = corpus_with_lengths(lengths)
    plan = plan_epoch(corpus, budget, np.random.default_rng(seed))
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    for rows in plan:
        batch = collate(corpus, rows)
        size = batch.source.numel() + batch.labels.numel()
        assert size <= budget or len(rows) == 1  # a pair above the budget forms its own batch


@given(LENGTHS, st.integers(20, 300))
def test_the_counts_of_a_batch_match_its_tensors(lengths, budget):
    corpus = corpus_with_lengths(lengths)
    for batch in batches_in_order(corpus, budget):
        is_target = batch.labels != IGNORE_INDEX
        assert batch.n_target_tokens == is_target.sum()
        assert batch.n_tokens == is_target.sum() + (batch.source != DEFAULT_SPECIAL_IDS.pad).sum()
        assert (batch.target_in[:, 0] == DEFAULT_SPECIAL_IDS.bos).all()
        # The decoder input consists of the labels shifted by one position.
        inputs, previous_labels = batch.target_in[:, 1:], batch.labels[:, :-1]
        assert (inputs == previous_labels)[is_target[:, 1:]].all()


@given(LENGTHS, st.integers(1, 3), st.integers(0, 12))
def test_a_resumed_stream_continues_with_the_next_group(lengths, n_batches, n_before):
    corpus = corpus_with_lengths(lengths)
    uninterrupted = BatchStream(corpus, 100, 7, n_batches).groups()
    before = list(itertools.islice(uninterrupted, n_before))
    start = before[-1].after if before else DataPosition()
    resumed = BatchStream(corpus, 100, 7, n_batches).groups(start)
    for expected, group in itertools.islice(zip(uninterrupted, resumed, strict=False), 5):
        assert group.after == expected.after
        for a, b in zip(expected.batches, group.batches, strict=True):
            assert torch.equal(a.source, b.source)
            assert torch.equal(a.labels, b.labels)
            assert a.seed == b.seed


def test_the_order_depends_on_the_epoch_and_the_seed():
    corpus = corpus_with_lengths([(3, 3)] * 50)

    def first_batch(seed: int, epoch: int) -> list[int]:
        stream = BatchStream(corpus, 60, seed).groups(DataPosition(epoch))
        return next(stream).batches[0].source[:, 0].tolist()

    assert first_batch(1, 0) == first_batch(1, 0)
    assert first_batch(1, 0) != first_batch(1, 1)
    assert first_batch(1, 0) != first_batch(2, 0)


def padding_rate(corpus: EncodedCorpus, budget: int) -> float:
    batches = list(batches_in_order(corpus, budget))
    padded = sum(batch.source.numel() + batch.labels.numel() for batch in batches)
    return 1 - sum(batch.n_tokens for batch in batches) / padded


def test_less_than_a_tenth_of_the_positions_is_padding():
    random = np.random.default_rng(0)
    source = random.poisson(12, size=5000) + 2
    target = np.maximum(2, source + random.integers(-3, 4, size=5000))
    corpus = corpus_with_lengths(list(zip(source.tolist(), target.tolist(), strict=True)))
    assert padding_rate(corpus, 4096) < 0.1


def test_less_than_a_tenth_of_the_demo_batches_is_padding():
    config = shipped_config("demo")
    files = [Path(__file__).parent.parent / path for path in config.data.train.text_files]
    corpus = read_corpus(CorpusSource.parse(files), lambda _: None)
    tokenizers = train_tokenizers(corpus.source, corpus.target, config.tokenizer)
    demo = encode(corpus, tokenizers, config.data.max_length, lambda _: None)
    assert len(demo) == 20_000
    assert padding_rate(demo, config.data.batch_tokens) < 0.1


def test_encoding_drops_long_pairs_and_reports_their_number(corpus, tokenizers):
    notices = []
    longest = max(len(tokenizers.target.tokenize(line)) for line in corpus.target)
    assert len(encode(corpus, tokenizers, 128, notices.append)) == len(corpus)
    assert notices == []
    short = encode(corpus, tokenizers, longest - 1, notices.append)
    n_dropped = len(corpus) - len(short)
    assert n_dropped > 0
    assert notices == [f"kept {len(short)} of {len(corpus)} pairs; {n_dropped} are longer than "
                    f"data.max_length={longest - 1}"]  # fmt: skip
    for i in range(len(short)):
        assert short.source[i][-1] == short.target[i][-1] == DEFAULT_SPECIAL_IDS.eos
        assert len(short.target[i]) <= longest
    with pytest.raises(DataError, match="all pairs are longer than data.max_length=1 pieces"):
        encode(corpus, tokenizers, 1, notices.append)


@given(st.lists(st.text(st.sampled_from("a \t\r\x0b\x0c\x1c\x85\u2028\u2029\x00ü"))))
def test_only_lf_ends_a_line(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    assert list(read_lines(path)) == [line.removesuffix("\r") for line in lines]


def test_a_byte_order_mark_and_carriage_returns_are_removed(tmp_path):
    path = tmp_path / "dos.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\x0bx\xc2\x85y\xe2\x80\xa8z\r\n")
    assert list(read_lines(path)) == ["one", "two\x0bx\x85y\u2028z"]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"a\nb\n", b"a\n", "source has 2 lines, but .*target has 1"),
        (b"", b"a\n", "source is empty"),
        (b"a\n", b"", "target is empty"),
        (b"a\n\n", b"\nb\n", "every pair .* has a blank source or target"),
        (b"a\nb\xff\n", b"a\nb\n", r"source, line 2: not valid UTF-8 .*byte 2"),
        (None, b"a\n", "no such file: .*source"),
    ],
)
def test_an_error_names_the_unusable_file(tmp_path, source, target, message):
    paths = tmp_path / "source", tmp_path / "target"
    for path, content in zip(paths, (source, target), strict=True):
        if content is not None:
            path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_corpus(CorpusSource.parse(paths), lambda _: None)


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(DataError, match="is a directory"):
        read_corpus(CorpusSource.parse([tmp_path, tmp_path]), lambda _: None)


def test_blank_pairs_are_dropped_and_counted(tmp_path):
    (tmp_path / "s").write_text("a\n \nc\nd\n")
    (tmp_path / "t").write_text("A\nB\n\nD\n")
    notices = []
    corpus = read_corpus(CorpusSource.parse([tmp_path / "s", tmp_path / "t"]), notices.append)
    assert (list(corpus.source), list(corpus.target)) == (["a", "d"], ["A", "D"])
    assert notices == ['dropped 2 of 4 pairs with a blank source or target, for example " " / "B"']


def test_using_one_file_as_source_and_target_causes_a_notice(corpus_files):
    notices = []
    read_corpus(CorpusSource.parse([corpus_files[0], corpus_files[0]]), notices.append)
    assert "same text on both sides; check that this is intended" in notices[0]


def test_training_and_dev_pairs_have_no_source_sentence_in_common(corpus):
    doubled = Corpus([*corpus.source, *corpus.source], [*corpus.target, *corpus.target])
    train, dev = hold_out(doubled, 10)
    assert len(dev) == 10
    assert not set(dev.source) & set(train.source)
    assert set(dev.source) | set(train.source) == set(corpus.source)
    assert hold_out(doubled, 10) == (train, dev)


def test_holding_out_from_a_tiny_corpus_is_refused(corpus):
    with pytest.raises(DataError, match="too few pairs to hold out dev pairs: 9"):
        hold_out(Corpus(corpus.source[:9], corpus.target[:9]), 10)


def test_the_digest_depends_only_on_the_pairs(corpus):
    same = Corpus(list(corpus.source), list(corpus.target))
    shuffled = Corpus([*corpus.source[1:], corpus.source[0]], corpus.target)
    assert corpus.digest == same.digest != shuffled.digest
    assert Corpus(["a", "b"], ["c"]).digest != Corpus(["a"], ["b", "c"]).digest


def test_a_corpus_reader_reads_each_corpus_once_and_repeats_its_notices(tmp_path):
    corpus = CorpusSource.parse([tmp_path / "s", tmp_path / "t"])
    for path in corpus.text_files:
        path.write_text("a\n\nb\n", encoding="utf-8")
    reader = CorpusReader()
    first, second = [], []
    pairs = reader.read(corpus, first.append)
    for path in corpus.text_files:
        path.unlink()
    assert reader.read(corpus, second.append) is pairs
    assert first == second
    assert "dropped 1 of 3 pairs" in first[0]
    reader.clear()
    with pytest.raises(DataError):
        reader.read(corpus, first.append)
