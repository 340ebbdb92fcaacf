"""An export gives the same translations as its model, and is rebuilt when stale or damaged."""

import fcntl
import json
import os
import shutil
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import ctranslate2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from conftest import tiny_decoder_only, tiny_model_config
from mtcli.cli.base import app
from mtcli.config.search import EngineOptions, Sampling, SearchOptions
from mtcli.config.sections import ARCHITECTURES
from mtcli.config.tokenizer import TokenizerConfig
from mtcli.config.transformers import TransformerConfig
from mtcli.data.encoding import EncodedCorpus, RaggedArray, encode
from mtcli.errors import CheckpointError, EngineError
from mtcli.export import compatibility
from mtcli.export import directory as export_directory
from mtcli.export.directory import make_export, open_export, write_standalone
from mtcli.export.shortlist import build_vocabulary_map, estimate_lexicon
from mtcli.files import write_file
from mtcli.model_dir.directory import WeightsInfo, load_saved_config, save_config, weights_info
from mtcli.model_dir.manifest import VERSION, read_manifest
from mtcli.model_dir.weights import load_model, save_weights
from mtcli.models import build_model
from mtcli.models.base import parameters_of
from mtcli.reporting.events import Notice
from mtcli.tokenizer import train_tokenizers
from mtcli.training import finish
from mtcli.training.run import train_run
from mtcli.translation.engines import open_engine
from mtcli.translation.engines.base import Source
from mtcli.translation.engines.ct2 import Ct2Engine, Ct2Generator
from mtcli.translation.engines.pytorch import TorchEngine
from processes import output_of
from test_models import MODELS as TEST_MODELS

pytestmark = pytest.mark.cpu

FLOAT = EngineOptions(engine="ctranslate2", quantization="float32")
OPTIONS = SearchOptions(beam_size=3, n_best=2, max_length=12)
COMBINATIONS = {  # in addition to those in test_models
    "grouped-query attention": tiny_model_config(n_heads=4, n_kv_heads=2),
    "alibi, six heads": tiny_model_config(d_model=24, n_heads=6, positions="alibi"),
    "query-key norm, one head": tiny_model_config(n_heads=1, qk_norm=True, positions="rotary"),
    "window, no positions": tiny_model_config(window=1, positions="none"),
    "deep norm, learned": tiny_model_config(
        norm="post", deep_norm=True, positions="learned", n_encoder_layers=3, tied_embeddings="none"
    ),
    "deep norm, no biases": tiny_model_config(
        norm="post", deep_norm=True, norm_kind="rms", gated=True, biases=False, positions="none"
    ),
    "deep norm, window": tiny_model_config(
        norm="post", deep_norm=True, window=2, positions="alibi", n_heads=4, n_kv_heads=1
    ),
}


def causal(**changes):
    return tiny_decoder_only(source_attention="causal", **changes)


LANGUAGE_MODELS = {
    "causal": causal(),
    "causal, learned": causal(positions="learned"),
    "causal, relative": causal(positions="relative", max_distance=2),
    "causal, rotary": causal(positions="rotary"),
    "causal, alibi": causal(positions="alibi"),
    "causal, no positions": causal(positions="none"),
    "causal, deep norm": causal(norm="post", deep_norm=True, n_kv_heads=1),
    "causal, modern": causal(
        norm_kind="rms", gated=True, activation="swish", qk_norm=True, biases=False
    ),
}
MODELS = {**TEST_MODELS, **COMBINATIONS}
REFUSED = {
    "query-key norm": "across all heads",
    "modern": "across all heads",
    "window": "windowed self-attention with absolute positions is not supported",
}
REFUSED |= {name: "use causal attention" for name in MODELS if name.startswith("decoder-only")}
REFUSED |= {
    "decoder-only, causal window": r"do not apply a window .*\(model.window=3\)",
    "decoder-only, not tied": r"one embedding matrix .*\(model.tied_embeddings=none\)",
}
# These are exported as language models; a separate test covers them.
AS_LANGUAGE_MODELS = {"decoder-only, causal", "decoder-only, loss on both"}
REFUSED = {name: reason for name, reason in REFUSED.items() if name not in AS_LANGUAGE_MODELS}
REFUSED |= {name: "recurrent" for name in MODELS if name.startswith(("lstm", "gru"))}


def random_model(directory, config, tokenizers, model=None, seed=0, **changes):
    """Create a complete model directory with random weights."""
    shape = model or tiny_model_config(**changes)
    if shape.n_positions is not None:
        shape = shape.model_copy(update={"max_positions": 128})  # enough for the tiny settings
    config = config.model_copy(update={"model": shape})
    torch.manual_seed(seed)
    model = build_model(config.model, len(tokenizers.source), len(tokenizers.target))
    for parameter in model.parameters():  # biases and norms must not have their initial values
        parameter.data += 0.1 * torch.randn_like(parameter)
    save_config(directory, config)
    for name, content in tokenizers.files().items():
        write_file(directory / name, content)
    info = WeightsInfo(n_parameters=0, step=1, bleu=0.0, signature="", n_pairs=1)
    save_weights(directory, parameters_of(model), info)
    return directory


def remove_checksums(directory):
    """Save the weights of a model without checksums, as version 0.1.0 did."""
    path = directory / "model.safetensors"
    metadata = weights_info(directory).to_metadata()
    save_file(load_file(path), path, {"mtcli": json.dumps(metadata)})


@pytest.fixture
def model(tmp_path, tiny_config, tokenizers):
    return random_model(tmp_path / "model", tiny_config, tokenizers)


@pytest.fixture
def sources(corpus, tokenizers):
    return [Source(tuple(tokenizers.source.tokenize(line))) for line in corpus.source[::4]]


def translated_pieces(directory, sources, options=FLOAT):
    engine = open_engine(directory, options).engine
    return [[h.pieces for h in best] for best in engine.search(sources, OPTIONS, 12)]


def assert_same(ours, theirs):
    """Assert that the translations, scores and attention weights are equal."""
    for our, their in zip(ours, theirs, strict=True):
        assert [h.pieces for h in our] == [h.pieces for h in their]
        assert [h.score for h in our] == pytest.approx([h.score for h in their], abs=1e-4)
        for h, other in zip(our, their, strict=True):
            np.testing.assert_allclose(h.attention or 0, other.attention or 0, atol=1e-4)


def assert_engines_agree(make_model, batch, searches):
    """Compare the engines on a model with random weights, and if they differ, on a second one.

    Sometimes the probabilities of two pieces differ only by rounding, and the engines select
    different pieces. This is unlikely to happen with two models in a row.
    """
    for seed in (0, 1):
        directory = make_model(seed)
        engines = [
            open_engine(directory, options).engine
            for options in (EngineOptions(engine="torch"), FLOAT)
        ]
        try:
            for options in searches:
                assert_same(*(engine.search(batch, options, 20) for engine in engines))
            return
        except AssertionError:
            if seed:
                raise


@pytest.mark.parametrize("name", sorted(MODELS.keys() - REFUSED.keys() - AS_LANGUAGE_MODELS))
def test_an_export_translates_like_the_model(tmp_path, tiny_config, tokenizers, corpus, name):
    lines = ["water", corpus.source[0], " ".join(corpus.source[:3]), corpus.source[7]]
    prefix = tuple(tokenizers.target.tokenize(corpus.target[0])[:3])
    batch = [Source(tuple(tokenizers.source.tokenize(line))) for line in lines]
    batch.append(replace(batch[1], prefix=prefix))
    assert_engines_agree(
        lambda seed: random_model(
            tmp_path / str(seed), tiny_config, tokenizers, MODELS[name], seed
        ),
        batch,
        [SearchOptions(beam_size=3, n_best=2, with_alignment=True), SearchOptions(beam_size=1)],
    )


@pytest.mark.parametrize("name", sorted(LANGUAGE_MODELS))
def test_an_exported_language_model_translates_like_the_model(
    tmp_path, tiny_config, tokenizers, corpus, name
):
    def make_model(seed):
        shape = LANGUAGE_MODELS[name]
        directory = random_model(tmp_path / str(seed), tiny_config, tokenizers, shape, seed)
        assert isinstance(open_engine(directory, FLOAT).engine, Ct2Generator)
        return directory

    lines = ["water", corpus.source[0], " ".join(corpus.source[:3]), "milk", corpus.source[7]]
    batch = [Source(tuple(tokenizers.source.tokenize(line))) for line in lines]
    searches = [
        SearchOptions(beam_size=3, n_best=2, with_scores=True),
        SearchOptions(beam_size=1),
        SearchOptions(beam_size=2, repetition_penalty=1.3, no_repeat_ngram=2, length_penalty=0.0),
        SearchOptions(sampling=Sampling(top_k=1)),
    ]
    assert_engines_agree(make_model, batch, searches)


def test_torch_runs_the_searches_that_ctranslate2_language_models_do_not_support(
    tmp_path, tiny_config, tokenizers, sources
):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, causal())
    by_torch, by_ct2, by_both = (
        open_engine(directory, options).engine
        for options in (EngineOptions(engine="torch"), FLOAT, EngineOptions(quantization="int8"))
    )
    assert isinstance(by_both, Ct2Generator)
    with_prefix = [replace(source, prefix=("x",)) for source in sources]
    for batch, options in (
        (sources, SearchOptions(beam_size=2, with_alignment=True)),
        (with_prefix, SearchOptions(beam_size=2)),
    ):
        assert_same(*(engine.search(batch, options, 20) for engine in (by_torch, by_both)))
        with pytest.raises(
            EngineError, match="neither alignments nor prefixes for language models"
        ):
            by_ct2.search(batch, options, 20)
    with pytest.raises(EngineError, match="does not support shortlists for language models"):
        open_engine(directory, EngineOptions(shortlist=True))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_an_unsupported_model_is_not_exported(tmp_path, tiny_config, tokenizers, name):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, MODELS[name])
    with pytest.raises(EngineError, match=REFUSED[name]):
        open_engine(directory, FLOAT)
    assert isinstance(open_engine(directory, EngineOptions()).engine, TorchEngine)


def test_separate_vocabularies_are_exported(tmp_path, tiny_config, corpus):
    options = TokenizerConfig(kind="bpe", vocab_size=300, is_shared=False)
    tokenizers = train_tokenizers(corpus.source, corpus.target, options)
    config = tiny_config.model_copy(update={"tokenizer": options})
    directory = random_model(tmp_path / "m", config, tokenizers, tied_embeddings="target")
    sources = [Source(tuple(tokenizers.source.tokenize(line))) for line in corpus.source[::4]]
    assert translated_pieces(directory, sources) == translated_pieces(
        directory, sources, EngineOptions(engine="torch")
    )
    assert (directory / "ctranslate2" / "source_vocabulary.json").exists()


def modification_times(directory):
    return {path.name: path.stat().st_mtime_ns for path in (directory / "ctranslate2").iterdir()}


def test_an_export_is_built_once(model, sources):
    translated_pieces(model, sources)
    before = modification_times(model)
    translated_pieces(model, sources)
    assert modification_times(model) == before


def test_a_copied_model_keeps_its_export_and_is_hashed_once(model, sources, tmp_path):
    translated_pieces(model, sources)
    copy = shutil.copytree(model, tmp_path / "copy", copy_function=shutil.copyfile)
    assert not read_manifest(copy / "ctranslate2").is_fresh_by_stat(copy)
    before = modification_times(copy)
    translated_pieces(copy, sources)
    assert read_manifest(copy / "ctranslate2").is_fresh_by_stat(copy)
    after = modification_times(copy)
    assert {name for name in after if after[name] != before[name]} == {"mtcli.json"}


def test_an_export_is_stale_if_the_weights_change_while_it_is_built(
    model, tiny_config, tokenizers, monkeypatch
):
    def validate(_self):
        monkeypatch.undo()
        random_model(model, tiny_config, tokenizers, seed=1)

    monkeypatch.setattr("ctranslate2.specs.TransformerSpec.validate", validate)
    with suppress(Exception):  # an export without validation may be incomplete
        make_export(model, "float32")
    manifest = read_manifest(model / "ctranslate2")
    assert manifest is None or not manifest.is_fresh(model)


def test_several_processes_can_export_the_same_model(model):
    code = f"from mtcli import Translator; print(Translator({str(model)!r}).translate(['water']))"
    with ThreadPoolExecutor(3) as threads:
        outputs = {*threads.map(output_of, [[sys.executable, "-c", code]] * 3)}
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_encoder_layers": 3}, "encoder.2.self_attention.to_queries.weight is missing"),
        ({"n_decoder_layers": 1}, "decoder.1.self_attention.to_queries.weight"),
        ({"norm": "post"}, "encoder_norm.weight"),
    ],
)
def test_weights_that_do_not_match_the_configuration_are_refused(
    model, tiny_config, changes, message
):
    config = tiny_config.model_copy(update={"model": tiny_model_config(**changes)})
    save_config(model, config)
    with pytest.raises(CheckpointError, match="model or tokenizer section of .* was changed after"):
        open_engine(model, FLOAT)
    remove_checksums(model)
    with pytest.raises(CheckpointError, match=message):
        open_engine(model, FLOAT)


def test_loading_errors_of_ctranslate2_are_engine_errors(model):
    export = open_export(model, "float32")
    export.files["model.bin"] = b"x" * 1000
    with pytest.raises(EngineError, match="CTranslate2 failed: "):
        Ct2Engine(export, FLOAT, device="cpu")


def test_nan_weights_are_refused(model):
    remove_checksums(model)
    path = model / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-4000:] = b"\xff" * 4000
    path.write_bytes(content)
    for options in (FLOAT, EngineOptions(engine="torch")):
        with pytest.raises(CheckpointError, match="some weights are NaN or infinite"):
            open_engine(model, options)


def test_a_stale_export_is_rebuilt(model, tiny_config, tokenizers, sources):
    before = translated_pieces(model, sources)
    random_model(model, tiny_config, tokenizers, seed=1)
    after = translated_pieces(model, sources)
    assert after != before
    assert after == translated_pieces(model, sources, EngineOptions(engine="torch"))


def test_changes_to_the_search_settings_take_effect(model):
    assert open_engine(model, FLOAT).search.beam_size == 4
    config = load_saved_config(model)
    search = config.search.model_copy(update={"beam_size": 7})
    save_config(model, config.model_copy(update={"search": search}))
    assert open_engine(model, FLOAT).search.beam_size == 7


@pytest.mark.parametrize("name", ["mtcli.json", "model.float32.bin", "shared_vocabulary.json"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "changed"])
def test_a_damaged_export_is_rebuilt(model, sources, name, damage):
    before = translated_pieces(model, sources)
    path = model / "ctranslate2" / name
    match damage:
        case "missing":
            path.unlink()
        case "truncated":
            path.write_bytes(path.read_bytes()[:-9])
        case "changed":
            path.write_bytes(path.read_bytes()[:-9] + b"\x00" * 9)
    assert translated_pieces(model, sources) == before


def test_an_export_from_a_different_version_is_rebuilt(model, sources):
    before = translated_pieces(model, sources)
    path = model / "ctranslate2" / "mtcli.json"
    path.write_text(path.read_text().replace(f'"version": {VERSION}', '"version": 0'))
    assert translated_pieces(model, sources) == before
    assert read_manifest(model / "ctranslate2").version == VERSION


def test_an_export_can_have_several_quantizations(model, sources):
    exact = translated_pieces(model, sources)
    translated_pieces(model, sources, replace(FLOAT, quantization="int8"))
    assert {"model.bin", "model.float32.bin"} <= set(modification_times(model))
    assert translated_pieces(model, sources) == exact


@pytest.mark.skipif(
    "int16" not in ctranslate2.get_supported_compute_types("cpu"),
    reason="CTranslate2 supports int16 only with MKL, which it uses on Intel CPUs",
)
def test_int16_is_exported_alongside_other_quantizations(model, sources):
    exact = translated_pieces(model, sources)
    translated_pieces(model, sources, replace(FLOAT, quantization="int16"))
    assert {"model.int16.bin", "model.float32.bin"} <= set(modification_times(model))
    assert translated_pieces(model, sources) == exact


def test_a_model_in_a_read_only_directory_translates(model, sources, monkeypatch):
    def refuse(path, content):
        if path.is_relative_to(model):
            raise CheckpointError(f"cannot write {path}")
        write_file(path, content)

    monkeypatch.setattr(export_directory, "write_file", refuse)
    assert translated_pieces(model, sources) == translated_pieces(
        model, sources, EngineOptions(engine="torch")
    )
    assert not (model / "ctranslate2").exists()


def test_all_reasons_why_a_model_cannot_be_exported_are_listed():
    changes = {"activation": "squared_relu", "norm": "peri", "qk_norm": True, "window": 8}
    reasons = compatibility.incompatibilities(tiny_model_config().model_copy(update=changes))
    assert len(reasons) == 4
    assert reasons[0] == "model.activation=squared_relu is not supported"
    assert reasons[1] == "model.norm=peri is not supported"
    assert "model.qk_norm=true" in reasons[2]
    assert "model.window=8 with model.positions=sinusoidal" in reasons[3]


@pytest.mark.parametrize("arch", sorted(ARCHITECTURES.keys() - {"transformer"}))
def test_every_architecture_that_cannot_be_exported_has_a_specific_reason(arch):
    [reason] = compatibility.incompatibilities(ARCHITECTURES[arch](arch=arch))
    assert "(model." in reason
    assert not reason.startswith("model.arch=")  # not the generic reason


def test_an_unknown_model_setting_is_refused():
    class ExtendedConfig(TransformerConfig):
        sparse: bool = False

    assert compatibility.incompatibilities(TransformerConfig()) == []
    assert compatibility.incompatibilities(ExtendedConfig()) == ["cannot export model.sparse"]


def test_torch_runs_a_model_that_cannot_be_exported(model, monkeypatch):
    reasons = ["model.arch=rnn is not supported", "model.norm=none is not supported"]
    monkeypatch.setattr(compatibility, "incompatibilities", lambda _: reasons)
    with pytest.raises(EngineError) as error:
        open_engine(model, FLOAT)
    assert all(reason in str(error.value) for reason in reasons)
    assert "--engine torch" in str(error.value)
    assert isinstance(open_engine(model, EngineOptions()).engine, TorchEngine)
    with pytest.raises(EngineError, match=reasons[0]):  # the torch engine does not support int8
        open_engine(model, EngineOptions(quantization="int8"))


def test_ctranslate2_reads_a_standalone_export(model, sources, tmp_path):
    write_standalone(model, "int16", tmp_path / "int16")
    ctranslate2.Translator(str(tmp_path / "int16"))
    write_standalone(model, "int8", tmp_path / "standalone")
    translator = ctranslate2.Translator(str(tmp_path / "standalone"), compute_type="int8")
    assert (tmp_path / "standalone" / "tokenizer.model").is_file()
    [result] = translator.translate_batch(
        [list(sources[0].pieces)], beam_size=3, max_decoding_length=12, min_decoding_length=0
    )
    int8 = translated_pieces(
        model, sources[:1], EngineOptions(engine="ctranslate2", shortlist=False)
    )
    assert result.hypotheses[0] == int8[0][0]


# Tests of the vocabulary map and the shortlist.

ROWS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=6)


def ragged(rows) -> RaggedArray:
    starts = np.cumsum([0, *map(len, rows)])
    return RaggedArray(np.array([i for row in rows for i in row], dtype=np.int32), starts)


def ibm_model_1(pairs, n_iterations=4) -> dict[tuple[int, int], float]:
    """Return the probabilities of a textbook implementation of IBM Model 1."""
    t = defaultdict(lambda: 1.0)
    for _ in range(n_iterations):
        counts, totals = defaultdict(float), defaultdict(float)
        for source, target in pairs:
            for f in target:
                z = sum(t[e, f] for e in source)
                for e in source:
                    counts[e, f] += t[e, f] / z
                    totals[e] += t[e, f] / z
        t = defaultdict(float, {(e, f): count / totals[e] for (e, f), count in counts.items()})
    return {key: p for key, p in t.items() if counts[key] >= 0.05}


@given(ROWS, ROWS)
def test_the_lexicon_matches_ibm_model_1(sources, targets):
    pairs = list(zip(sources, targets, strict=False))
    corpus = EncodedCorpus(ragged([s for s, _ in pairs]), ragged([t for _, t in pairs]))
    lexicon = estimate_lexicon(corpus, target_size=5)
    expected = ibm_model_1(pairs)
    keys = list(zip(lexicon.sources.tolist(), lexicon.targets.tolist(), strict=True))
    assert set(keys) == set(expected)
    # The sum excludes pruned links, so probabilities may be slightly larger.
    for key, p in zip(keys, lexicon.probabilities, strict=True):
        total = sum(q for (e, _), q in expected.items() if e == key[0])
        assert p == pytest.approx(expected[key] / total, abs=1e-6)


def test_sampling_chunks_of_a_large_corpus_gives_a_similar_lexicon(monkeypatch, corpus, tokenizers):
    encoded = encode(corpus, tokenizers, 64, print)
    whole = estimate_lexicon(encoded, 340)
    monkeypatch.setattr("mtcli.export.shortlist._CHUNK", 800)
    monkeypatch.setattr("mtcli.export.shortlist._MAX_CHUNKS", 4)
    parts = estimate_lexicon(encoded, 340)
    best = [dict(reversed(list(zip(lx.sources, lx.targets, strict=True)))) for lx in (whole, parts)]
    assert len(best[1]) > 0.8 * len(best[0])
    n_same = sum(best[0][source] == target for source, target in best[1].items())
    assert n_same > 0.7 * len(best[1])


def test_the_vocabulary_map_contains_translations_and_the_piece_itself(corpus, tokenizers):
    lines = build_vocabulary_map(encode(corpus, tokenizers, 64, print), tokenizers).splitlines()
    known = set(tokenizers.target.vocabulary)
    table = {}
    for line in lines:
        source, targets = line.split("\t")
        table[source] = targets.split(" ")
        assert set(table[source]) <= known
    assert len(table[""]) == 34
    for word, translation in (("water", "Wasser"), ("my dog", "mein Hund")):
        candidates = {t for p in tokenizers.source.tokenize(word) for t in table.get(p, [])}
        assert set(tokenizers.target.tokenize(translation)) <= candidates | set(table[""])
    assert all(piece in table[piece] for piece in tokenizers.source.vocabulary)
    assert {f"<0x{byte:02X}>" for byte in range(256)} <= set(table["<0x41>"])


def test_a_vocabulary_map_survives_new_weights_but_not_a_new_vocabulary(
    model, corpus, tiny_config, tokenizers
):
    finish.export_with_shortlist(model, encode(corpus, tokenizers, 64, print), corpus)
    random_model(model, tiny_config, tokenizers, seed=1)
    assert open_export(model, "int8", shortlist=True).vocabulary_map is not None
    # The effect of the vocabulary map on the new model is unknown, so it is used only on request.
    assert read_manifest(model / "ctranslate2").shortlist is None
    assert not open_engine(model, EngineOptions()).engine.uses_shortlist
    assert open_engine(model, EngineOptions(shortlist=True)).engine.uses_shortlist
    options = TokenizerConfig(kind="bpe", vocab_size=320)
    other = train_tokenizers(corpus.source, corpus.target, options)
    random_model(model, tiny_config, other)
    assert open_export(model, "int8", shortlist=True).vocabulary_map is None
    with pytest.raises(EngineError, match="has no vocabulary shortlist"):
        open_engine(model, EngineOptions(shortlist=True))


def test_a_run_whose_export_fails_is_complete_and_shows_the_export_command(
    tiny_config, tmp_path, monkeypatch
):
    def fail(*_arguments):
        raise CheckpointError("cannot write model.bin: File too large", hint="make room")

    events = []
    with monkeypatch.context() as patch:
        patch.setattr("mtcli.training.finish.export_with_shortlist", fail)
        train_run(tiny_config, tmp_path / "run", events.append)
    notices = [event.text for event in events if isinstance(event, Notice)]
    *_, first, reason, advice = notices
    assert first == "export failed; the model is complete and works with --engine torch"
    assert reason == "  cannot write model.bin: File too large\n  hint: make room"
    assert str(tmp_path) not in (tmp_path / "run" / "log.jsonl").read_text()
    command = advice.split("`")[1].split()
    assert command[0] == "mtcli"
    assert CliRunner().invoke(app, command[1:]).exit_code == 0
    assert read_manifest(tmp_path / "run" / "ctranslate2") is not None


def test_training_exports_the_model_and_logs_the_shortlist(tiny_trained):
    assert read_manifest(tiny_trained / "ctranslate2").shortlist is not None
    assert '"shortlist: dev BLEU' in (tiny_trained / "log.jsonl").read_text()
    assert load_model(tiny_trained, torch.device("cpu")).config.search.beam_size == 4


def test_an_export_waits_for_the_lock(model, monkeypatch):
    flock, descriptor = fcntl.flock, os.open(model, os.O_RDONLY)
    calls = []

    def release_lock(own, operation):
        calls.append(operation)
        with pytest.raises(BlockingIOError):
            flock(own, operation | fcntl.LOCK_NB)
        assert not (model / "ctranslate2").exists()
        os.close(descriptor)
        flock(own, operation)

    flock(descriptor, fcntl.LOCK_EX)
    monkeypatch.setattr(fcntl, "flock", release_lock)
    make_export(model)
    assert calls == [fcntl.LOCK_EX]
    assert (model / "ctranslate2" / "mtcli.json").exists()
