"""Preparation of training data: formats, cache, processes, streaming, the user's tokenizer."""

import io
import itertools
import os
import shutil
import signal
import types
from dataclasses import replace

import numpy as np
import pytest
import sentencepiece
import torch

import corpus_files
import killing
from conftest import tiny_pairs
from launching import run_in_processes
from mtcli.config.load import with_overrides
from mtcli.data import id_files, streaming
from mtcli.data.batches import BatchStream, DataPosition
from mtcli.data.cache import DataCache
from mtcli.data.corpus import CorpusReader
from mtcli.distributed import Processes
from mtcli.errors import CheckpointError, ConfigError, DataError
from mtcli.model_dir.directory import load_saved_config
from mtcli.reporting.events import Finished, Notice, StepDone, Stopped
from mtcli.tokenizer import load_trained_tokenizer
from mtcli.training import open_run
from mtcli.training.preparation import Preparation
from mtcli.training.run import RunOptions, train_run
from mtcli.training.run_state import RunContext
from mtcli.training.streaming import StreamPreparation

LANGUAGES = [("data.source_lang", "en"), ("data.target_lang", "de")]


def ignore(_: object) -> None:
    """Do nothing."""


def prepare(config, directory, notify=ignore):
    return Preparation(config, DataCache(directory)).dataset(notify)


def batches(data, n=5):
    """Return the tensors of the first `n` batches."""
    groups = BatchStream(data.stream or data.train_set, budget=200, seed=1).groups()
    tensors = (group.batches[0] for group in itertools.islice(groups, n))
    return [(b.source.tolist(), b.target_in.tolist(), b.labels.tolist(), b.seed) for b in tensors]


@pytest.mark.parametrize("name", corpus_files.WRITERS)
def test_every_format_gives_the_same_batches(tiny_config, tmp_path, name):
    names = corpus_files.WRITERS[name](tmp_path, tiny_pairs())
    value = names if len(names) == 2 else names[0]
    config = with_overrides(tiny_config, [("data.train", value), *LANGUAGES])
    plain = with_overrides(tiny_config, LANGUAGES)
    found, expected = prepare(config, tmp_path / "1"), prepare(plain, tmp_path / "2")
    assert batches(found) == batches(expected)
    assert found.dev_sets[0].scored_pairs == expected.dev_sets[0].scored_pairs
    assert found.tokenizers.files() == expected.tokenizers.files()


def test_several_corpora_are_read_one_after_the_other(tiny_config, tmp_path):
    pairs = tiny_pairs()
    tsv, texts = tmp_path / "a.tsv", tmp_path / "b"
    tsv.write_bytes(corpus_files.tsv(pairs[:20]))
    texts.mkdir()
    files = corpus_files.WRITERS["text.gz"](texts, pairs[20:])
    corpora = [{"corpus": f"{tsv}#1,2"}, {"corpus": files}]
    config = with_overrides(tiny_config, [("data.train", corpora), *LANGUAGES])
    found = prepare(config, tmp_path / "1")
    assert batches(found) == batches(prepare(tiny_config, tmp_path / "2"))


def test_the_description_of_a_corpus_is_displayed_and_logged(tiny_config, tmp_path):
    path = tmp_path / "corpus.tsv"
    path.write_bytes(corpus_files.tsv(tiny_pairs()))
    config = with_overrides(tiny_config, [("data.train", str(path))])
    events: list = []
    train_run(config, tmp_path / "run", events.append)
    texts = [event.text for event in events if isinstance(event, Notice)]
    assert f"training: {path}: TSV, columns 1 and 2" in texts
    assert "TSV, columns 1 and 2" in (tmp_path / "run" / "log.jsonl").read_text()


def test_the_languages_of_the_corpus_are_saved(tiny_config, tmp_path):
    train_run(tiny_config, tmp_path / "run", ignore)
    data = load_saved_config(tmp_path / "run").data
    assert (data.source_lang, data.target_lang) == ("en", "de")
    # The saved languages do not count as changed settings.
    again = train_run(tiny_config, tmp_path / "run", ignore)
    assert isinstance(again, Finished)


def reversed_tmx(path, pairs):
    """Write a TMX file whose source language is German; return its name."""
    text = corpus_files.tmx(pairs).decode().replace('srclang="en-US"', 'srclang="de-DE"')
    assert 'srclang="de-DE"' in text
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_languages_of_the_first_corpus_apply_to_all_corpora(tiny_config, tmp_path, is_streamed):
    files = [str(path) for path in tiny_config.data.train.text_files]
    name = reversed_tmx(tmp_path / "memory.tmx", tiny_pairs()[:9])
    settings = [
        ("data.train", [{"corpus": files}, {"corpus": name}]),
        ("data.dev", name),
        ("data.streaming", is_streamed),
    ]
    config = with_overrides(tiny_config, settings)
    kind = StreamPreparation if is_streamed else Preparation
    found = kind(config, DataCache(tmp_path / "cache"))
    assert list(found.summary.dev.source) == [source for source, _ in tiny_pairs()[:9]]
    assert (found.summary.languages.source, found.summary.languages.target) == ("en", "de")
    data = found.dataset(ignore)
    [*blocks] = (data.stream or data.train_set).blocks()
    vocabulary = data.tokenizers.source.vocabulary
    texts = {"".join(vocabulary[i] for i in b.source[row]) for b in blocks for row in range(len(b))}
    assert not any("Hund" in text for text in texts)


def test_standard_input_is_read_once(tiny_config, tmp_path, monkeypatch):
    pipe = types.SimpleNamespace(buffer=io.BytesIO(corpus_files.tsv(tiny_pairs())))
    monkeypatch.setattr("sys.stdin", pipe)
    config = with_overrides(tiny_config, [("data.train", "tsv:-"), *LANGUAGES])
    found = prepare(config, tmp_path / "1")
    assert batches(found) == batches(prepare(tiny_config, tmp_path / "2"))


# Tests of the cache.


def forbid_reading(monkeypatch):
    def fail(*_):
        raise AssertionError("the corpus was read again")

    monkeypatch.setattr(CorpusReader, "_read", fail)
    monkeypatch.setattr("mtcli.training.preparation.train_tokenizers", fail)


def test_a_second_preparation_does_not_read_the_corpus(tiny_config, tmp_path, monkeypatch):
    first_notices, second_notices = [], []
    first = prepare(tiny_config, tmp_path / "cache", first_notices.append)
    forbid_reading(monkeypatch)
    second = prepare(tiny_config, tmp_path / "cache", second_notices.append)
    assert batches(first) == batches(second)
    assert first.tokenizers.files() == second.tokenizers.files()
    assert first.dev_sets[0].scored_pairs == second.dev_sets[0].scored_pairs
    assert first_notices == second_notices


@pytest.mark.parametrize(
    "change",
    [
        ("data.max_length", 7),
        ("data.dev_pairs", 2),
        ("tokenizer.vocab_size", 335),
        ("tokenizer.normalization", "identity"),
        ("data.dev", "train"),
    ],
    ids=lambda change: change[0],
)
def test_changed_settings_do_not_reuse_stale_cache_entries(tiny_config, tmp_path, change):
    key, value = change
    value = tiny_config.data.train if value == "train" else value
    config = with_overrides(tiny_config, [(key, value)])
    prepare(tiny_config, tmp_path / "cache")
    found = prepare(config, tmp_path / "cache")
    expected = prepare(config, tmp_path / "other")
    assert batches(found) == batches(expected)
    assert found.dev_sets[0].scored_pairs == expected.dev_sets[0].scored_pairs


def test_a_changed_corpus_is_read_again(tiny_config, tmp_path):
    before = Preparation(tiny_config, DataCache(tmp_path / "cache")).summary
    path = tiny_config.data.train.text_files[1]
    path.write_text(path.read_text().replace("Hund", "Kater"))
    after = Preparation(tiny_config, DataCache(tmp_path / "cache")).summary
    assert before.digest != after.digest


def test_a_moved_corpus_reuses_its_cache_entries(tiny_config, tmp_path, monkeypatch):
    prepare(tiny_config, tmp_path / "cache")
    (tmp_path / "moved").mkdir()
    files = [shutil.copy(path, tmp_path / "moved") for path in tiny_config.data.train.text_files]
    forbid_reading(monkeypatch)
    prepare(with_overrides(tiny_config, [("data.train", files)]), tmp_path / "cache")


def test_the_cache_is_removed_when_training_is_complete(tiny_config, tmp_path):
    run = tmp_path / "run"
    has_cache = []

    def listen(event):
        if isinstance(event, StepDone):
            has_cache.append((run / "cache").is_dir())

    train_run(tiny_config, run, listen)
    assert has_cache == [True] * 12
    assert not (run / "cache").exists()


def test_a_run_resumes_from_its_saved_settings_without_reading(tiny_config, tmp_path, monkeypatch):
    def stop(event):
        if isinstance(event, StepDone) and event.step == 6:
            signal.raise_signal(signal.SIGTERM)

    assert isinstance(train_run(tiny_config, tmp_path / "run", stop), Stopped)
    forbid_reading(monkeypatch)
    monkeypatch.chdir(tmp_path)  # the saved settings have file names without directories
    resumed = train_run(load_saved_config(tmp_path / "run"), tmp_path / "run", ignore)
    assert isinstance(resumed, Finished)


def test_a_shared_cache_is_kept(tiny_config, tmp_path, monkeypatch):
    options = RunOptions(cache=tmp_path / "cache")
    train_run(tiny_config, tmp_path / "one", ignore, options)
    assert not (tmp_path / "one" / "cache").exists()
    forbid_reading(monkeypatch)
    train_run(tiny_config, tmp_path / "two", ignore, options)
    assert killing.result(tmp_path / "one") == killing.result(tmp_path / "two")


def test_a_directory_with_only_a_cache_can_become_a_run(tiny_config, tmp_path):
    Preparation(tiny_config, DataCache(tmp_path / "run" / "cache")).dataset(ignore)
    assert isinstance(train_run(tiny_config, tmp_path / "run", ignore), Finished)


def test_an_error_leaves_no_cache(tiny_config, tmp_path):
    config = with_overrides(tiny_config, [("train.freeze", ["nothing.*"])])
    with pytest.raises(ConfigError, match="matches no parameter"):
        train_run(config, tmp_path / "run", ignore)
    assert not (tmp_path / "run").exists()


def test_token_ids_of_large_vocabularies_are_stored_with_more_bits(tokenizers, monkeypatch):
    assert id_files._id_type(tokenizers) is np.uint16
    monkeypatch.setattr(type(tokenizers.source), "__len__", lambda _: 2**16 + 1)
    assert id_files._id_type(tokenizers) is np.int32


@pytest.mark.long
def test_only_the_first_process_reads_the_corpus(tiny_config, tmp_path):
    run_in_processes(read_only_in_rank_0, 2, tiny_config, tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").exists()


def read_only_in_rank_0(config, directory):
    if os.environ["RANK"] != "0":

        def fail(*_):
            raise AssertionError("rank 1 read the corpus")

        CorpusReader._read = fail
    train_run(config, directory, ignore)


@pytest.mark.long
def test_the_first_process_of_each_machine_prepares_its_own_cache(tiny_config, tmp_path):
    """Each process is the first on its machine, and the machines do not share a directory."""
    run_in_processes(train_on_two_machines, 2, tiny_config, tmp_path)
    assert (tmp_path / "machine 0" / "model.safetensors").exists()
    assert not (tmp_path / "machine 1" / "cache").exists()


def train_on_two_machines(config, directory):
    os.environ["LOCAL_RANK"] = "0"
    machine = directory / f"machine {os.environ['RANK']}"

    def listen(event):
        if isinstance(event, StepDone):
            assert (machine / "cache").is_dir()

    result = train_run(config, machine, listen)
    assert isinstance(result, Finished)


class OtherMachine(Processes):
    """Process group as seen by the first process on a machine without rank 0."""

    def run_on_first(self, function):
        """Do nothing: rank 0 is on a different machine."""

    def run_on_each_machine(self, function):
        """Call `function`."""
        function()


def test_machines_with_different_pairs_are_refused(tiny_config, tmp_path, tokenizers):
    context = RunContext(tmp_path, torch.device("cpu"), OtherMachine(1, 2), ignore)
    prepared = Preparation(tiny_config, context.cache)
    summary = prepared.summary
    other = replace(summary, digest="other pairs")
    with pytest.raises(DataError, match="the corpus is not the same on all machines"):
        open_run._prepare_data(prepared, other, tokenizers, context, ignore)
    assert open_run._prepare_data(prepared, summary, tokenizers, context, ignore).n_pairs == 54


# Tests with a SentencePiece model from the user.


def train_sentencepiece(path, **options):
    prefix = str(path.with_suffix(""))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for pair in tiny_pairs() for line in pair]),
        model_prefix=prefix,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )


@pytest.mark.parametrize(
    "options", [{}, {"pad_id": 3}, {"bos_id": -1}, {"bos_id": -1, "eos_id": 0, "unk_id": 1}]
)
def test_training_accepts_a_sentencepiece_model_from_the_user(tiny_config, tmp_path, options):
    path = tmp_path / "my.model"
    train_sentencepiece(path, **options)
    before = sentencepiece.SentencePieceProcessor(model_file=str(path))
    config = with_overrides(tiny_config, [("tokenizer.model", str(path))])
    finished = train_run(config, tmp_path / "run", ignore)
    assert isinstance(finished, Finished)
    special = load_trained_tokenizer(path).special
    ids = [special.pad, special.unk, special.bos, special.eos]
    assert len(set(ids)) == 4
    assert min(ids) >= 0
    after = load_trained_tokenizer(tmp_path / "run" / "tokenizer.model").source
    text = "the man sees my dog <pad> </s>"
    assert after.encode([text])[0] == before.encode(text)  # text cannot produce special symbols
    path.unlink()  # a run contains its tokenizer
    assert isinstance(train_run(config, tmp_path / "run", ignore), Finished)


def test_a_file_that_is_not_a_sentencepiece_model_is_refused(tiny_config, tmp_path):
    (tmp_path / "my.model").write_text("nonsense")
    for name, message in (("my.model", "is not a SentencePiece model"), ("x", "cannot read")):
        config = with_overrides(tiny_config, [("tokenizer.model", str(tmp_path / name))])
        with pytest.raises(ConfigError, match=message):
            train_run(config, tmp_path / "run", ignore)


# Tests of streaming.


@pytest.fixture
def streaming_config(tiny_config, monkeypatch):
    monkeypatch.setattr(streaming, "BLOCK_PAIRS", 16)
    return with_overrides(tiny_config, [("data.streaming", True)])


def stream(config, directory):
    return StreamPreparation(config, DataCache(directory)).dataset(ignore)


def test_a_streamed_epoch_contains_every_pair_once_except_the_dev_pairs(streaming_config, tmp_path):
    data = stream(streaming_config, tmp_path)
    blocks = list(data.stream.blocks())
    assert len(blocks) == 4  # 60 pairs
    sentences = [tuple(block.source[i]) for block in blocks for i in range(len(block))]
    targets = [tuple(block.target[i]) for block in blocks for i in range(len(block))]
    expected = prepare(
        with_overrides(streaming_config, [("data.streaming", False)]), tmp_path / "x"
    )
    assert len(sentences) == 60 - len(data.dev_sets[0].scored_pairs)
    assert len(set(zip(sentences, targets, strict=True))) == len(sentences)
    assert len(expected.train_set) == len(sentences)


def test_a_stream_can_start_at_any_block(streaming_config, tmp_path):
    data = stream(streaming_config, tmp_path)
    blocks = [block.source.values.tolist() for block in data.stream.blocks()]
    for start in range(len(blocks) + 1):
        found = [block.source.values.tolist() for block in data.stream.blocks(start)]
        assert found == blocks[start:]


def test_a_stream_of_batches_can_start_at_any_group(streaming_config, tmp_path):
    data = stream(streaming_config, tmp_path)
    batches = BatchStream(data.stream, budget=120, seed=3, n_batches=3)
    groups = list(itertools.islice(batches.groups(), 12))
    assert groups[-1].after.epoch >= 1
    for i, group in enumerate(groups[:-1]):
        resumed = next(batches.groups(group.after))
        assert resumed.after == groups[i + 1].after
        for one, other in zip(resumed.batches, groups[i + 1].batches, strict=True):
            assert (one.source.tolist(), one.seed) == (other.source.tolist(), other.seed)


def test_epochs_and_blocks_of_a_stream_are_shuffled_differently(streaming_config, tmp_path):
    data = stream(streaming_config, tmp_path)
    batches = BatchStream(data.stream, budget=60, seed=3)
    plans = [
        [batches._plan(block, DataPosition(epoch, 0, number))[i].tolist() for i in range(5)]
        for number, block in list(enumerate(data.stream.blocks()))[:2]
        for epoch in (0, 1)
    ]
    assert len({str(plan) for plan in plans}) == 4


@pytest.mark.long
def test_being_killed_does_not_change_the_result_of_a_streaming_run(streaming_config, tmp_path):
    killing.attempt(streaming_config, tmp_path / "uninterrupted")
    at_write = 30
    while not killing.attempt(streaming_config, tmp_path / "run", at_write=at_write):
        at_write += 55
    assert at_write > 30
    assert killing.result(tmp_path / "run") == killing.result(tmp_path / "uninterrupted")


def test_a_stream_without_usable_pairs_is_refused(streaming_config, tmp_path):
    for path in streaming_config.data.train.text_files:
        path.write_text("\n" * 30)
    with pytest.raises(DataError, match="none of the first .* pairs of .* is usable"):
        stream(streaming_config, tmp_path)


@pytest.mark.parametrize("name", ["-", "tsv:-"])
def test_standard_input_cannot_be_streamed(streaming_config, tmp_path, name, monkeypatch):
    pipe = types.SimpleNamespace(buffer=io.BytesIO(corpus_files.tsv(tiny_pairs())))
    monkeypatch.setattr("sys.stdin", pipe)
    config = with_overrides(streaming_config, [("data.train", name)])
    with pytest.raises(DataError, match="cannot stream .*: it can be read only once"):
        stream(config, tmp_path)


def test_streaming_excludes_the_pairs_in_the_dev_files(streaming_config, tmp_path):
    dev = [tmp_path / "dev.en", tmp_path / "dev.de"]
    for path, lines in zip(dev, zip(*tiny_pairs()[50:], strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    config = with_overrides(streaming_config, [("data.dev", [str(path) for path in dev])])
    data = stream(config, tmp_path)
    assert sum(map(len, data.stream.blocks())) == 50
    assert len(data.dev_sets[0].scored_pairs) == 10


def test_a_finished_streaming_run_is_complete(streaming_config, tmp_path):
    train_run(streaming_config, tmp_path / "run", ignore)
    events: list = []
    assert isinstance(train_run(streaming_config, tmp_path / "run", events.append), Finished)
    assert "is already complete" in events[-2].text
    path = streaming_config.data.train.text_files[0]
    path.write_text(path.read_text().replace("dog", "cat"))
    with pytest.raises(CheckpointError, match="trained on different sentence pairs"):
        train_run(streaming_config, tmp_path / "run", ignore)
