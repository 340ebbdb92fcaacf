"""The decision to use a shortlist is based on operation counts, not on time."""

import itertools
import time

import pytest

from conftest import tiny_model_config
from mtcli.config.search import EngineOptions
from mtcli.data.encoding import encode
from mtcli.export.shortlist import Candidates, SearchedBatch, build_vocabulary_map, estimate_speedup
from mtcli.model_dir.card import describe_export
from mtcli.model_dir.manifest import Shortlist, read_manifest
from mtcli.training import finish
from mtcli.translation.engines import open_engine
from mtcli.translation.engines.base import Source
from test_export import random_model

CANDIDATES = Candidates.parse("\ta b\nx\tc d\ny\td e f\nz\ta\n")
SPECIAL = 3  # <unk>, <s> and </s>


@pytest.fixture
def model(tmp_path, tiny_config, tokenizers):
    return random_model(tmp_path / "model", tiny_config, tokenizers)


@pytest.fixture
def encoded(corpus, tokenizers):
    return encode(corpus, tokenizers, 64, print)


def batch(*sources: str, n_target: int = 10, beam_size: int = 4) -> SearchedBatch:
    return SearchedBatch([source.split() for source in sources], n_target, beam_size)


def test_the_shortlist_decision_does_not_depend_on_running_time(
    model, encoded, corpus, monkeypatch
):
    decisions = []
    # First make the search without the shortlist a thousand times slower, then faster.
    for pattern in ([1000.0, 1.0], [1.0, 1000.0]):
        ticks = itertools.accumulate(itertools.chain.from_iterable(itertools.repeat(pattern)))
        for clock in ("perf_counter", "monotonic", "time", "process_time"):
            monkeypatch.setattr(time, clock, ticks.__next__)
        shortlist = finish.export_with_shortlist(model, encoded, corpus)
        manifest = (model / "ctranslate2" / "mtcli.json").read_bytes()
        decisions.append((shortlist, manifest))
        monkeypatch.undo()
    assert decisions[0] == decisions[1]


@pytest.mark.parametrize(
    "expected",
    [
        Shortlist(is_on=True, bleu=30.0, bleu_without=30.05, speed=1.5),
        Shortlist(is_on=False, bleu=30.0, bleu_without=30.2, speed=1.5),
        Shortlist(is_on=True, bleu=31.0, bleu_without=30.0, speed=1.5),
        Shortlist(is_on=False, bleu=31.0, bleu_without=30.0, speed=0.8),
        Shortlist(is_on=False, bleu=31.0, bleu_without=30.0, speed=1.04),
    ],
)
def test_a_shortlist_is_enabled_if_it_is_faster_and_barely_lowers_bleu(
    model, encoded, corpus, monkeypatch, expected
):
    def translate_dev(directory, dev, *, shortlist):
        assert dev is corpus
        options = EngineOptions(engine="ctranslate2", shortlist=shortlist)
        assert open_engine(directory, options).engine.uses_shortlist is shortlist
        return (expected.bleu if shortlist else expected.bleu_without), []

    monkeypatch.setattr(finish, "_translate_dev", translate_dev)
    monkeypatch.setattr(finish, "estimate_speedup", lambda *_: expected.speed)
    assert finish.export_with_shortlist(model, encoded, corpus) == expected
    assert read_manifest(model / "ctranslate2").shortlist == expected
    assert open_engine(model, EngineOptions()).engine.uses_shortlist is expected.is_on
    assert not open_engine(model, EngineOptions(shortlist=False)).engine.uses_shortlist
    [(name, text)] = describe_export(model)
    state = "enabled" if expected.is_on else "disabled: speedup under 5%, or BLEU loss over 0.1"
    assert name == "shortlist"
    assert text.endswith(f"; estimated speedup {expected.speed:.2f}x; {state}")


def test_every_dev_sentence_is_counted_once(model, encoded, corpus):
    finish.export_with_shortlist(model, encoded, corpus)
    score, batches = finish._translate_dev(model, corpus, shortlist=False)
    sources = sorted(tuple(pieces) for batch in batches for pieces in batch.pieces)
    tokenizer = open_engine(model, EngineOptions()).tokenizers.source
    assert sources == sorted(tuple(tokenizer.tokenize(line)) for line in corpus.source)
    assert all(batch.n_target >= len(batch.pieces) for batch in batches)
    assert {batch.beam_size for batch in batches} == {4}
    assert 0 <= score <= 100


def test_the_candidates_of_a_batch_include_those_of_all_its_pieces():
    assert CANDIDATES.count([["x"]]) == SPECIAL + len("abcd")
    assert CANDIDATES.count([["x"], ["y"]]) == SPECIAL + len("abcdef")
    assert CANDIDATES.count([["x", "y"], ["y"]]) == SPECIAL + len("abcdef")
    assert CANDIDATES.count([["z", "unknown"]]) == SPECIAL + len("ab")


def test_search_with_the_shortlist_outputs_only_counted_candidates(model, encoded, corpus):
    finish.export_with_shortlist(model, encoded, corpus)
    loaded = open_engine(model, EngineOptions(engine="ctranslate2", shortlist=True))
    candidates = Candidates.parse(build_vocabulary_map(encoded, loaded.tokenizers))
    for line in corpus.source[::10]:
        pieces = loaded.tokenizers.source.tokenize(line)
        [[best]] = loaded.engine.search([Source(tuple(pieces))], loaded.search, 20)
        assert best.pieces
        known = candidates.common.union(*(candidates.by_piece[piece] for piece in pieces))
        assert set(best.pieces) <= known
        assert candidates.count([pieces]) == len(known)


def test_fewer_candidates_give_a_larger_speedup():
    config = tiny_model_config()
    one, two = (estimate_speedup(config, 100, CANDIDATES, [batch(x)]) for x in ("x", "x y"))
    assert one > two > 1
    every_piece = CANDIDATES.count([["x", "y"]])
    assert estimate_speedup(config, every_piece, CANDIDATES, [batch("x y")]) == 1
    assert estimate_speedup(config, 100, CANDIDATES, []) == 1


def test_the_speedup_is_smaller_if_the_output_layer_is_a_smaller_part_of_the_work():
    def speedup(beam_size: int = 4, **changes: int) -> float:
        batches = [batch("x", beam_size=beam_size)]
        return estimate_speedup(tiny_model_config(**changes), 1000, CANDIDATES, batches)

    assert speedup() > speedup(n_decoder_layers=6)
    assert speedup() > speedup(n_encoder_layers=6)
    assert speedup() > speedup(d_feed_forward=256)
    assert speedup() > speedup(beam_size=1)  # the encoder runs once for all hypotheses
