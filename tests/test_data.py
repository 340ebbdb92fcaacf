import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import shipped_config
from mtcli.data import Corpus, EncodedCorpus, encode, hold_out
from mtcli.data.corpus import Ragged, read_corpus
from mtcli.errors import DataError
from mtcli.feed import Feed, Position, batches_in_order
from mtcli.feed.batches import IGNORED, collate, epoch_plan
from mtcli.lines import read_lines
from mtcli.tokenizer import BOS_ID, EOS_ID, PAD_ID, train_tokenizers


def ragged(rows: list[list[int]]) -> Ragged:
    flat = np.array(list(itertools.chain(*rows)), dtype=np.int32)
    return Ragged(flat, np.cumsum([0, *map(len, rows)]))


def encoded(lengths: list[tuple[int, int]]) -> EncodedCorpus:
    """Pairs of the given lengths; a sentence consists of its own number."""
    numbered = list(enumerate(lengths))
    return EncodedCorpus(
        ragged([[10 + i] * (source - 1) + [EOS_ID] for i, (source, _) in numbered]),
        ragged([[10 + i] * (target - 1) + [EOS_ID] for i, (_, target) in numbered]),
    )


LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=80)


@given(LENGTHS, st.integers(1, 300), st.integers(0, 9))
def test_an_epoch_holds_every_pair_once_and_stays_within_the_budget(lengths, budget, seed):
    corpus = encoded(lengths)
    plan = epoch_plan(corpus, budget, np.random.default_rng(seed))
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    for rows in plan:
        batch = collate(corpus, rows)
        size = batch.source.numel() + batch.labels.numel()
        assert size <= budget or len(rows) == 1  # a pair too large for any batch stands alone


@given(LENGTHS, st.integers(20, 300))
def test_a_batch_says_what_it_holds(lengths, budget):
    corpus = encoded(lengths)
    for batch in batches_in_order(corpus, budget):
        is_word = batch.labels != IGNORED
        assert batch.n_words == is_word.sum()
        assert batch.n_tokens == is_word.sum() + (batch.source != PAD_ID).sum()
        assert (batch.target_in[:, 0] == BOS_ID).all()
        # What is read at one position is what should have been said at the one before.
        read, said = batch.target_in[:, 1:], batch.labels[:, :-1]
        assert (read == said)[is_word[:, 1:]].all()


@given(LENGTHS, st.integers(1, 3), st.integers(0, 12))
def test_reading_goes_on_where_it_stopped(lengths, size, n_before):
    corpus = encoded(lengths)
    whole = Feed(corpus, 100, 7, size).groups()
    before = list(itertools.islice(whole, n_before))
    start = before[-1].after if before else Position()
    rest = Feed(corpus, 100, 7, size).groups(start)
    for expected, group in itertools.islice(zip(whole, rest, strict=False), 5):
        assert group.after == expected.after
        for a, b in zip(expected.batches, group.batches, strict=True):
            assert torch.equal(a.source, b.source)
            assert torch.equal(a.labels, b.labels)
            assert a.seed == b.seed


def test_epochs_differ_and_the_seed_decides():
    corpus = encoded([(3, 3)] * 50)

    def first(seed: int, epoch: int) -> list[int]:
        stream = Feed(corpus, 60, seed).groups(Position(epoch))
        return next(stream).batches[0].source[:, 0].tolist()

    assert first(1, 0) == first(1, 0)
    assert first(1, 0) != first(1, 1)
    assert first(1, 0) != first(2, 0)


def padding_share(corpus: EncodedCorpus, budget: int) -> float:
    batches = list(batches_in_order(corpus, budget))
    padded = sum(batch.source.numel() + batch.labels.numel() for batch in batches)
    return 1 - sum(batch.n_tokens for batch in batches) / padded


def test_little_of_a_batch_is_padding():
    random = np.random.default_rng(0)
    source = random.poisson(12, size=5000) + 2
    target = np.maximum(2, source + random.integers(-3, 4, size=5000))
    corpus = encoded(list(zip(source.tolist(), target.tolist(), strict=True)))
    assert padding_share(corpus, 4096) < 0.1


def test_little_of_the_demo_is_padding():
    config = shipped_config("demo")
    files = (Path(__file__).parent.parent / path for path in config.data.train)
    corpus = read_corpus(*files, lambda _: None)
    pieces = train_tokenizers(corpus.source, corpus.target, config.tokenizer)
    demo = encode(corpus, pieces, config.data.max_length, lambda _: None)
    assert len(demo) == 20_000
    assert padding_share(demo, config.data.batch_tokens) < 0.1


def test_encoding_keeps_what_fits_and_counts_what_does_not(corpus, tokenizers):
    told = []
    longest = max(len(tokenizers.target.pieces(line)) for line in corpus.target)
    everything = encode(corpus, tokenizers, 128, told.append)
    assert len(everything) == len(corpus)
    assert told == []
    fewer = encode(corpus, tokenizers, longest - 1, told.append)
    lost = len(corpus) - len(fewer)
    assert lost > 0
    assert told == [f"kept {len(fewer)} of {len(corpus)} pairs; {lost} longer than "
                    f"data.max_length={longest - 1}"]  # fmt: skip
    for i in range(len(fewer)):
        assert fewer.source[i][-1] == fewer.target[i][-1] == EOS_ID
        assert len(fewer.target[i]) <= longest
    with pytest.raises(DataError, match="no pair is as short as data.max_length=1 pieces"):
        encode(corpus, tokenizers, 1, told.append)


@given(st.lists(st.text(st.sampled_from("a \t\r\x0b\x0c\x1c\x85\u2028\u2029\x00ü"))))
def test_a_line_ends_at_lf_and_nowhere_else(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    assert list(read_lines(path)) == [line.removesuffix("\r") for line in lines]


def test_a_byte_order_mark_and_carriage_returns_are_not_text(tmp_path):
    path = tmp_path / "dos.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\x0bx\xc2\x85y\xe2\x80\xa8z\r\n")
    assert list(read_lines(path)) == ["one", "two\x0bx\x85y\u2028z"]


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        (b"a\nb\n", b"a\n", "source has 2 lines, but .*target has 1"),
        (b"", b"a\n", "source is empty"),
        (b"a\n", b"", "target is empty"),
        (b"a\n\n", b"\nb\n", "every pair .* is blank on one side"),
        (b"a\nb\xff\n", b"a\nb\n", r"source, line 2: not valid UTF-8 .*byte 2"),
        (None, b"a\n", "no such file: .*source"),
    ],
)
def test_an_unusable_corpus_is_named(tmp_path, source, target, says):
    paths = tmp_path / "source", tmp_path / "target"
    for path, content in zip(paths, (source, target), strict=True):
        if content is not None:
            path.write_bytes(content)
    with pytest.raises(DataError, match=says):
        read_corpus(*paths, lambda _: None)


def test_a_directory_is_not_a_corpus(tmp_path):
    with pytest.raises(DataError, match="is a directory"):
        read_corpus(tmp_path, tmp_path, lambda _: None)


def test_blank_pairs_are_left_out_and_counted(tmp_path):
    (tmp_path / "s").write_text("a\n \nc\nd\n")
    (tmp_path / "t").write_text("A\nB\n\nD\n")
    told = []
    corpus = read_corpus(tmp_path / "s", tmp_path / "t", told.append)
    assert (corpus.source, corpus.target) == (["a", "d"], ["A", "D"])
    assert told == ["left out 2 of 4 pairs that are blank on one side"]


def test_two_times_the_same_file_is_noticed(corpus_files):
    told = []
    read_corpus(corpus_files[0], corpus_files[0], told.append)
    assert "same text on both sides" in told[0]


def test_what_is_held_out_is_not_trained_on(corpus):
    doubled = Corpus([*corpus.source, *corpus.source], [*corpus.target, *corpus.target])
    train, dev = hold_out(doubled, 10)
    assert len(dev) == 10
    assert not set(dev.source) & set(train.source)
    assert set(dev.source) | set(train.source) == set(corpus.source)
    assert hold_out(doubled, 10) == (train, dev)


def test_a_corpus_too_small_to_hold_out_from_is_refused(corpus):
    with pytest.raises(DataError, match="9 pairs are too few"):
        hold_out(Corpus(corpus.source[:9], corpus.target[:9]), 10)


def test_the_digest_depends_on_the_pairs_alone(corpus):
    same = Corpus(list(corpus.source), list(corpus.target))
    moved = Corpus([*corpus.source[1:], corpus.source[0]], corpus.target)
    assert corpus.digest() == same.digest() != moved.digest()
    assert Corpus(["a", "b"], ["c"]).digest() != Corpus(["a"], ["b", "c"]).digest()
