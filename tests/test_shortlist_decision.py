"""The decision about the vocabulary shortlist: counted work, no clock."""

import itertools
import time

import pytest

from conftest import tiny_model_config
from mtcli.data import encode
from mtcli.engines import Source, open_engine
from mtcli.export.manifest import Shortlist, describe_export, read_manifest
from mtcli.export.shortlist import Candidates, SearchedBatch, estimated_speedup, vocabulary_map
from mtcli.options import EngineOptions
from mtcli.training import export as training_export
from test_export import random_model

CANDIDATES = Candidates.of("\ta b\nx\tc d\ny\td e f\nz\ta\n")
SPECIAL = 3  # <unk>, <s> and </s>


@pytest.fixture
def model(tmp_path, tiny_config, tokenizers):
    return random_model(tmp_path / "model", tiny_config, tokenizers)


@pytest.fixture
def encoded(corpus, tokenizers):
    return encode(corpus, tokenizers, 64, print)


def batch(*sources: str, n_target: int = 10, beam_size: int = 4) -> SearchedBatch:
    return SearchedBatch([source.split() for source in sources], n_target, beam_size)


def test_no_clock_changes_the_decision(model, encoded, corpus, monkeypatch):
    decisions = []
    # In turns, the time without the shortlist is a thousand times longer, and shorter.
    for pattern in ([1000.0, 1.0], [1.0, 1000.0]):
        ticks = itertools.accumulate(itertools.chain.from_iterable(itertools.repeat(pattern)))
        for clock in ("perf_counter", "monotonic", "time", "process_time"):
            monkeypatch.setattr(time, clock, ticks.__next__)
        shortlist = training_export.export_trained(model, encoded, corpus)
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
def test_a_shortlist_is_enabled_if_it_is_faster_and_costs_little(
    model, encoded, corpus, monkeypatch, expected
):
    def translate_dev(directory, dev, *, shortlist):
        assert dev is corpus
        options = EngineOptions(engine="ctranslate2", shortlist=shortlist)
        assert open_engine(directory, options).engine.uses_shortlist is shortlist
        return (expected.bleu if shortlist else expected.bleu_without), []

    monkeypatch.setattr(training_export, "_translate_dev", translate_dev)
    monkeypatch.setattr(training_export, "estimated_speedup", lambda *_: expected.speed)
    assert training_export.export_trained(model, encoded, corpus) == expected
    assert read_manifest(model / "ctranslate2").shortlist == expected
    assert open_engine(model, EngineOptions()).engine.uses_shortlist is expected.is_on
    assert not open_engine(model, EngineOptions(shortlist=False)).engine.uses_shortlist
    [(name, text)] = describe_export(model)
    state = "enabled" if expected.is_on else "disabled: speedup under 5 %, or BLEU loss over 0.1"
    assert name == "shortlist"
    assert text.endswith(f"; estimated speedup {expected.speed:.2f}x; {state}")


def test_all_dev_sentences_are_counted_once(model, encoded, corpus):
    training_export.export_trained(model, encoded, corpus)
    score, batches = training_export._translate_dev(model, corpus, shortlist=False)
    sources = sorted(tuple(pieces) for batch in batches for pieces in batch.pieces)
    tokenizer = open_engine(model, EngineOptions()).tokenizers.source
    assert sources == sorted(tuple(tokenizer.pieces(line)) for line in corpus.source)
    assert all(batch.n_target >= len(batch.pieces) for batch in batches)
    assert {batch.beam_size for batch in batches} == {4}
    assert 0 <= score <= 100


def test_the_candidates_of_a_batch_are_those_of_all_its_pieces():
    assert CANDIDATES.count([["x"]]) == SPECIAL + len("abcd")
    assert CANDIDATES.count([["x"], ["y"]]) == SPECIAL + len("abcdef")
    assert CANDIDATES.count([["x", "y"], ["y"]]) == SPECIAL + len("abcdef")
    assert CANDIDATES.count([["z", "unknown"]]) == SPECIAL + len("ab")


def test_a_search_with_the_shortlist_outputs_only_counted_candidates(model, encoded, corpus):
    training_export.export_trained(model, encoded, corpus)
    opened = open_engine(model, EngineOptions(engine="ctranslate2", shortlist=True))
    candidates = Candidates.of(vocabulary_map(encoded, opened.tokenizers))
    for line in corpus.source[::10]:
        pieces = opened.tokenizers.source.pieces(line)
        [[best]] = opened.engine.search([Source(tuple(pieces))], opened.search, 20)
        assert best.pieces
        known = candidates.fixed.union(*(candidates.of_piece[piece] for piece in pieces))
        assert set(best.pieces) <= known
        assert candidates.count([pieces]) == len(known)


def test_fewer_candidates_are_faster():
    config = tiny_model_config()
    one, two = (estimated_speedup(config, 100, CANDIDATES, [batch(x)]) for x in ("x", "x y"))
    assert one > two > 1
    every_piece = CANDIDATES.count([["x", "y"]])
    assert estimated_speedup(config, every_piece, CANDIDATES, [batch("x y")]) == 1
    assert estimated_speedup(config, 100, CANDIDATES, []) == 1


def test_a_shortlist_saves_less_where_the_output_layer_is_a_smaller_part():
    def speedup(beam_size: int = 4, **changes: int) -> float:
        batches = [batch("x", beam_size=beam_size)]
        return estimated_speedup(tiny_model_config(**changes), 1000, CANDIDATES, batches)

    assert speedup() > speedup(n_decoder_layers=6)
    assert speedup() > speedup(n_encoder_layers=6)
    assert speedup() > speedup(d_feed_forward=256)
    assert speedup() > speedup(beam_size=1)  # the encoder runs once for all hypotheses
