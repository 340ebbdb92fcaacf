"""Mixing of corpora: which pairs an epoch contains, and the shares that are reported."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import killing
from mtcli.config.load import load_config, with_overrides
from mtcli.data.batches import BatchStream, Shard, plan_epoch
from mtcli.data.encoding import EncodedCorpus, RaggedArray
from mtcli.data.mixing import CorpusParts, Mixture, mix
from mtcli.errors import CheckpointError, ConfigError
from mtcli.training.run import train_run
from mtcli.training.step import TrainStep

pytestmark = pytest.mark.cpu

SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=4)


def encoded(sizes, length=3):
    """Return a corpus whose pairs have different ids; corpus i has `sizes[i]` pairs."""
    n = sum(sizes)
    offsets = np.arange(n + 1, dtype=np.int64) * length
    rows = RaggedArray(np.repeat(np.arange(n, dtype=np.int32) + 10, length), offsets)
    origins = np.repeat(np.arange(len(sizes), dtype=np.uint8), sizes)
    return EncodedCorpus(rows, rows, origins=origins)


def mixture(sizes, counts, seed=1):
    return Mixture((0, *np.cumsum(sizes).tolist()), tuple(counts), seed)


@given(SIZES, st.data())
def test_every_epoch_has_the_planned_number_of_pairs_of_each_corpus(sizes, data):
    counts = [data.draw(st.integers(1, 3 * size)) for size in sizes]
    mixed = mixture(sizes, counts)
    origins = encoded(sizes).origins
    for epoch in range(4):
        found = np.bincount(origins[mixed.rows(epoch)], minlength=len(sizes))
        assert found.tolist() == counts


@given(SIZES, st.data())
def test_all_pairs_of_a_corpus_are_used_equally_often(sizes, data):
    counts = [data.draw(st.integers(1, 3 * size)) for size in sizes]
    mixed = mixture(sizes, counts)
    uses = np.zeros(sum(sizes), dtype=np.int64)
    for epoch in range(5):
        uses += np.bincount(mixed.rows(epoch), minlength=len(uses))
        for start, end in zip(mixed.starts, mixed.starts[1:], strict=False):
            assert np.ptp(uses[start:end]) <= 1


@given(SIZES, st.integers(0, 5), st.data())
def test_the_pairs_used_before_an_epoch_are_those_of_the_earlier_epochs(sizes, epoch, data):
    counts = [data.draw(st.integers(1, 3 * size)) for size in sizes]
    mixed = mixture(sizes, counts)
    expected = [mixed.rows(e) for e in range(epoch)]
    for corpus in range(len(sizes)):
        n_complete, rest = mixed.rows_before(epoch, corpus)
        start, end = mixed.starts[corpus : corpus + 2]
        found = np.concatenate([*[np.arange(start, end)] * n_complete, rest])
        rows = np.concatenate([np.zeros(0, np.int64), *expected])
        assert sorted(found) == sorted(rows[(rows >= start) & (rows < end)])


def test_epochs_and_seeds_change_the_pairs_but_repeated_calls_do_not():
    rows = mixture([1000], [500]).rows(0)
    np.testing.assert_array_equal(rows, mixture([1000], [500]).rows(0))
    assert set(rows).isdisjoint(mixture([1000], [500]).rows(1))
    assert set(rows) != set(mixture([1000], [500], seed=2).rows(0))
    first, second = (mixture([1000], [1000]).rows(epoch).tolist() for epoch in (0, 1))
    assert first != second


def test_a_weight_is_the_number_of_uses_per_epoch():
    assert mix([100, 50], [1, 3], None) == (100, 150)
    assert mix([100, 50], [0.5, 1], 1) == (50, 50)
    assert mix([10, 0], [0.001, 2], None) == (1, 0)


def test_a_temperature_flattens_the_shares_and_keeps_the_weight_of_the_largest_corpus():
    sizes = [10_000, 400, 1]
    counts = mix(sizes, [1, 1, 1], 2)
    assert counts == (10_000, 2_000, 100)  # proportional to the square roots of the sizes
    assert mix(sizes, [1, 1, 1], 1) == tuple(sizes)
    assert mix(sizes, [1, 0.5, 1], 2) == (10_000, 1_000, 100)


def test_batches_contain_exactly_the_pairs_of_the_mixture():
    corpus, mixed = encoded([20, 5]), mixture([20, 5], [10, 15])
    stream = BatchStream(corpus, 40, seed=7, mixture=mixed)
    seen = []
    for group in stream.groups():
        if group.after.epoch > 0:
            break
        seen += [row for batch in group.batches for row in batch.labels[:, 0].tolist()]
        position = group.after
    rows = stream.rows_in_epoch(position)
    assert sorted(seen) == sorted((rows + 10).tolist())
    plan = plan_epoch(corpus, 40, np.random.default_rng(0), mixed.rows(0))
    assert sorted(np.concatenate(list(plan))) == sorted(mixed.rows(0))


@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_together_use_the_mixture_of_one_process(size):
    corpus, mixed = encoded([20, 5]), mixture([20, 5], [10, 15])

    def pairs(shard):
        groups = BatchStream(corpus, 40, seed=7, shard=shard, mixture=mixed).groups()
        return [
            [row for batch in next(groups).batches for row in batch.labels[:, 0].tolist()]
            for _ in range(30)
        ]

    parts = [pairs(Shard(rank, size)) for rank in range(size)]
    for single, *shards in zip(pairs(Shard()), *parts, strict=True):
        assert sorted(single) == sorted(row for part in shards for row in part if row >= 0)


def test_the_position_determines_the_batches():
    corpus, mixed = encoded([20, 5]), mixture([20, 5], [13, 8])
    stream = BatchStream(corpus, 40, seed=7, mixture=mixed)
    groups = stream.groups()
    first = [next(groups) for _ in range(12)]
    for skipped in (1, 5, 9):
        resumed = stream.groups(first[skipped - 1].after)
        for expected in first[skipped:]:
            assert next(resumed).batches[0].labels.equal(expected.batches[0].labels)


def test_corpus_parts_count_the_pairs_and_tokens_of_each_corpus():
    parts = CorpusParts(encoded([4, 0, 2]), 3)
    assert parts.sizes == (4, 0, 2)
    assert parts.n_tokens == (24, 0, 12)
    pairs, tokens = parts.count(np.array([0, 3, 3, 5]))
    assert pairs.tolist() == [3, 0, 1]
    assert tokens.tolist() == [18, 0, 6]


# Tests of complete runs.


def mixed_corpora(files):
    """Return `data.train` for two directions with weights; one of them has a tag."""
    return [
        {"corpus": files, "to": "de", "weight": 1.5, "name": "forward"},
        {"corpus": files, "to": "en", "tag": "bt", "weight": 0.4},
    ]


@pytest.fixture
def mixed_config(tiny_config):
    train = mixed_corpora(list(tiny_config.data.train.corpora[0]))
    settings = {"data.train": train, "data.subword_sampling": 0.2, "data.word_dropout": 0.1}
    return with_overrides(tiny_config, settings.items())


def notices(directory):
    lines = (directory / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [event["text"] for event in map(json.loads, lines) if event["event"] == "notice"]


def test_the_log_and_the_report_state_the_shares(mixed_config, tmp_path):
    train_run(mixed_config, tmp_path / "run", lambda _: None)
    text = "\n".join(notices(tmp_path / "run"))
    assert len(re.findall("mix: [\\d,]+ pairs", text)) == 2  # before and after training
    assert "  forward, to de: " in text
    assert "train.en and train.de, to en, tag bt: " in text
    assert str(tmp_path) not in text
    shares = [float(x) for x in re.findall(r"pairs \(([\d.]+)%\)", text)]
    assert sum(shares[:2]) == pytest.approx(100, abs=0.11)
    assert sum(shares[2:]) == pytest.approx(100, abs=0.11)
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "forward, to de: " in report


def test_the_reported_shares_are_those_of_the_batches(mixed_config, tmp_path, monkeypatch):
    """Count the tags in the batches of a run; a share must not be an estimate."""
    rows = []
    backward = TrainStep.backward

    def record(self, group):
        rows.extend(row.tolist() for batch in group.batches for row in batch.source)
        return backward(self, group)

    monkeypatch.setattr(TrainStep, "backward", record)
    config = with_overrides(
        mixed_config, [("data.subword_sampling", 0), ("train.steps", 30), ("train.accumulate", 2)]
    )
    train_run(config, tmp_path / "run", lambda _: None)
    used = notices(tmp_path / "run")
    start = [i for i, text in enumerate(used) if text.startswith("mix:")][-1]
    counts = [
        int(re.search(r": ([\d,]+) pairs", t)[1].replace(",", "")) for t in used[start + 1 :][:2]
    ]
    assert counts == [sum(row[0] == 4 for row in rows), sum(row[0] == 5 for row in rows)]
    assert sum(counts) == len(rows)


def test_a_run_without_weights_equals_a_run_with_weights_of_one(tiny_config, tmp_path):
    files = list(tiny_config.data.train.corpora[0])
    train = [{"corpus": files, "weight": 1, "name": "a"}, {"corpus": files}]
    plain = with_overrides(tiny_config, [("data.train", [{"corpus": files}, {"corpus": files}])])
    named = with_overrides(tiny_config, [("data.train", train), ("data.temperature", 1)])
    dev = ("data.dev", files)
    weights = []
    for name, config in (("plain", plain), ("named", named)):
        train_run(with_overrides(config, [dev]), tmp_path / name, lambda _: None)
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


@pytest.mark.parametrize("change", [{"weight": 3.0}, {"tag": "other"}])
def test_a_run_is_not_resumed_with_different_options(mixed_config, tmp_path, change):
    train_run(mixed_config, tmp_path / "run", lambda _: None)
    first, second = mixed_config.data.train.to_yaml()
    changed = with_overrides(mixed_config, [("data.train", [first, {**second, **change}])])
    with pytest.raises(CheckpointError, match="different settings:\n  data.train"):
        train_run(changed, tmp_path / "run", lambda _: None)


@pytest.mark.long
@pytest.mark.parametrize(("first", "step"), [(45, 1000), (25, 19)])
def test_being_killed_does_not_change_a_mixed_run(mixed_config, tmp_path, first, step):
    """The first case kills the run once, the second case many times."""

    def attempt(name, **options):
        return killing.attempt(mixed_config, tmp_path / name, **options, first_is_best=True)

    assert attempt("uninterrupted")
    at_write = first
    while not attempt("run", at_write=at_write):
        at_write += step
    assert at_write > first
    assert killing.result(tmp_path / "run") == killing.result(tmp_path / "uninterrupted")


def test_streaming_refuses_weights(tiny_config):
    files = list(tiny_config.data.train.corpora[0])
    settings = [("data.streaming", True), ("data.train", [{"corpus": files, "weight": 2}])]
    with pytest.raises(ConfigError, match="cannot mix corpora by weight or temperature"):
        with_overrides(tiny_config, settings)
    settings = [("data.streaming", True), ("data.train", [{"corpus": files}] * 2)]
    with pytest.raises(ConfigError, match="cannot mix"):
        with_overrides(tiny_config, [*settings, ("data.temperature", 2)])


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([{"corpus": "a", "weight": 0}], "item 1: weight: must be greater than 0"),
        (
            [{"corpus": "a"}, {"corpus": "b", "tags": "x"}],
            "item 2: unknown key tags; did you",
        ),
        ([{"corpus": "a"}, {"tag": "bt"}], "item 2: corpus is missing"),
        ([{"corpus": "a"}, "b"], "item 2: must be a mapping such as {corpus: NAME} (got 'b')"),
        ([{"corpus": "a", "to": False}], "item 1: to: YAML reads no, yes, on and off as booleans"),
        ([{"corpus": "a", "to": "<s>"}], "item 1: to: must be a language code"),
        ([{"corpus": "a", "tag": "2de"}], "item 1: tag: must be a letter"),
        ([{"corpus": "a", "tag": "s"}], "item 1: tag: must be"),
        ([{"corpus": ["a", False]}], "item 1: corpus: must be a corpus name or two files"),
        ([{"corpus": "a", "to": "de"}, {"corpus": "b"}], "item 2: the key `to` is missing"),
        ([{"corpus": "a", "weight": -1}, {"corpus": "b", "tag": 3}], "item 2: tag: "),
    ],
)
def test_an_error_names_the_item(entries, message):
    with pytest.raises(ConfigError) as error:
        load_config(None, [("data.train", entries)])
    assert f"data.train: {message}" in str(error.value) or message in str(error.value)


def test_entries_are_unchanged_by_saving_and_loading_the_configuration():
    entries = [
        {"corpus": ["a.en", "a.de"], "to": "de", "weight": 0.5},
        {"corpus": "b.tsv", "to": "en", "tag": "bt", "reverse": True, "name": "B"},
    ]
    config = load_config(None, [("data.train", entries), ("data.temperature", 5)])
    assert config.data.train.to_yaml() == entries
    assert load_config(None, [("data", config.model_dump(mode="json")["data"])]).data == config.data
