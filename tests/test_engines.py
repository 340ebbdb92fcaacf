"""The engines agree with each other, and batch composition does not change a translation."""

import math
from dataclasses import replace

import pytest
import torch

from conftest import tiny_model_config
from handmade import make_unigram_model
from mtcli.config.search import EngineOptions, Sampling, SearchOptions
from mtcli.errors import EngineError
from mtcli.hardware import choose_device
from mtcli.models import build_model
from mtcli.search.beam import beam_search
from mtcli.tokenizer import load_tokenizers
from mtcli.translation.engines import open_engine
from mtcli.translation.engines.base import Source
from mtcli.translation.engines.ct2 import Ct2Engine, choose_quantization
from mtcli.translation.engines.pytorch import TorchEngine

pytestmark = pytest.mark.cpu

EXACT = {
    "torch": EngineOptions(engine="torch"),
    "ctranslate2": EngineOptions(engine="ctranslate2", quantization="float32", shortlist=False),
}


@pytest.fixture(scope="session")
def engines(trained):
    return {name: open_engine(trained, options).engine for name, options in EXACT.items()}


@pytest.fixture(scope="session")
def sources(trained, test_lines):
    """Return the pieces of 500 lines, longest first."""
    tokenizer = load_tokenizers(trained).source
    pieces = [tuple(tokenizer.tokenize(line)) for line in test_lines]
    return [Source(p) for p in sorted(pieces, key=len, reverse=True)]


def search_all(engine, sources, options):
    found = []
    for start in range(0, len(sources), 100):
        found += engine.search(sources[start : start + 100], options, options.limit(1))
    return found


def disagreements(engines, sources, options) -> int:
    """Return the number of sources whose n-best lists differ; rounding may affect ties."""
    by_torch, by_ct2 = (search_all(engines[name], sources, options) for name in EXACT)
    n_disagreements = 0
    for ours, theirs in zip(by_torch, by_ct2, strict=True):
        if [h.pieces for h in ours] != [h.pieces for h in theirs]:
            n_disagreements += 1
            continue
        assert [h.is_truncated for h in ours] == [h.is_truncated for h in theirs]
        if options.with_scores:
            expected = pytest.approx([h.score for h in theirs], abs=1e-4)
            assert [h.score for h in ours] == expected
    return n_disagreements


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize(("beam_size", "n_best"), [(1, 1), (4, 4), (8, 3)])
def test_engines_return_the_same_n_best_lists(engines, sources, beam_size, n_best, length_penalty):
    subset = sources[::2]
    assert len(subset) == 250
    options = SearchOptions(beam_size, n_best, length_penalty, max_length=40)
    assert disagreements(engines, subset, options) <= 3


CONSTRAINTS = {
    "no repeated bigram": {"no_repeat_ngram": 2},
    "no repeated piece": {"no_repeat_ngram": 1},
    "repetition penalty": {"repetition_penalty": 1.5},
    "truncated": {"max_length": 5},
    "greedy without scores": {"beam_size": 1, "n_best": 1, "with_scores": False},
    "combined": {"no_repeat_ngram": 3, "repetition_penalty": 1.2, "length_penalty": 0.6},
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_engines_agree_on_constraints(engines, sources, name):
    options = replace(SearchOptions(4, 2, max_length=40), **CONSTRAINTS[name])
    assert disagreements(engines, sources[::5], options) <= 1


WITH_PREFIX = [
    SearchOptions(1, max_length=40),
    SearchOptions(4, 3, max_length=40),
    SearchOptions(4, 2, length_penalty=0.0, max_length=40),
    SearchOptions(3, no_repeat_ngram=2, max_length=40),
]


@pytest.mark.parametrize("options", WITH_PREFIX, ids=range(len(WITH_PREFIX)))
def test_engines_agree_on_prefixes(trained, engines, sources, options):
    tokenizer = load_tokenizers(trained).target
    prefixes = [tuple(tokenizer.tokenize(text)) for text in ("Die", "Ein alter Mann", "Wo")]
    with_prefix = [Source(s.pieces, prefixes[i % 3]) for i, s in enumerate(sources[::5])]
    assert disagreements(engines, with_prefix, options) <= 1
    for engine in engines.values():
        for source, best in zip(with_prefix, search_all(engine, with_prefix, options), strict=True):
            for h in best:
                assert tuple(h.pieces[: len(source.prefix)]) == source.prefix
            assert len(best[0].pieces) > len(source.prefix)


def test_engines_return_the_same_attention(engines, sources):
    options = SearchOptions(2, 2, max_length=40, with_alignment=True)
    by_torch, by_ct2 = (search_all(engine, sources[::10], options) for engine in engines.values())
    n_same = 0
    for source, ours, theirs in zip(sources[::10], by_torch, by_ct2, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            if a.pieces == b.pieces:
                n_same += 1
                weights, expected = torch.tensor(a.attention), torch.tensor(b.attention)
                assert weights.shape == (len(a.pieces), len(source.pieces))
                torch.testing.assert_close(weights, expected, atol=1e-4, rtol=0)
                assert (weights >= 0).all()
                assert (weights.sum(dim=-1) <= 1 + 1e-5).all()
    assert n_same >= 98


def test_a_batch_that_does_not_fit_in_memory_is_split_in_half(engines, sources, monkeypatch):
    engine, options = engines["torch"], SearchOptions(beam_size=2)
    sizes = []

    def search(model, source, *arguments, **options):
        sizes.append(len(source))
        if len(source) > 10:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ...")
        return beam_search(model, source, *arguments, **options)

    expected = engine.search(sources[:30], options, limit=50)
    monkeypatch.setattr("mtcli.translation.engines.pytorch.beam_search", search)
    found = engine.search(sources[:30], options, limit=50)
    assert sizes == [30, 15, 7, 8, 15, 7, 8]
    assert [[h.pieces for h in best] for best in found] == [
        [h.pieces for h in best] for best in expected
    ]


@pytest.mark.parametrize("name", EXACT)
def test_batch_composition_does_not_change_a_translation(engines, sources, name):
    options = SearchOptions(3, 2, max_length=40)
    subset = sources[::25]
    together = engines[name].search(subset, options, 40)
    alone = [engines[name].search([source], options, 40)[0] for source in subset]
    n_same = sum(
        [h.pieces for h in a] == [h.pieces for h in b] for a, b in zip(together, alone, strict=True)
    )
    assert n_same >= len(subset) - 1  # rounding may break one tie differently


def test_sampling_works_with_a_shortlist_and_a_large_top_k(trained, sources):
    engine = open_engine(trained, EngineOptions(engine="ctranslate2", shortlist=True)).engine
    options = SearchOptions(1, 2, max_length=5, sampling=Sampling(top_k=999_999))
    assert all(len(best) == 2 for best in engine.search(sources[:3], options, 5))


def test_int8_scores_are_close_to_those_of_float32(trained, engines, sources):
    """Rounding may swap two hypotheses, but it must not change the scores much."""
    int8 = open_engine(trained, EngineOptions(engine="ctranslate2", shortlist=False)).engine
    scores = [
        [best[0].score for best in search_all(engine, sources, SearchOptions(4, max_length=40))]
        for engine in (int8, engines["ctranslate2"])
    ]
    differences = [abs(rounded - exact) for rounded, exact in zip(*scores, strict=True)]
    assert sum(differences) / len(differences) < 0.05  # nats per piece; 0.08 where int8 saturates


def test_search_with_a_shortlist_outputs_only_its_candidates(trained, sources):
    options = [EngineOptions(engine="ctranslate2", shortlist=wanted) for wanted in (True, False)]
    with_shortlist, without = (open_engine(trained, each).engine for each in options)
    assert with_shortlist.uses_shortlist
    assert not without.uses_shortlist
    text = (trained / "ctranslate2" / "vmap.txt").read_text(encoding="utf-8")
    rows = dict(line.split("\t") for line in text.splitlines())
    for source in sources[::10]:
        allowed = set(" ".join(rows.get(piece, "") for piece in ("", *source.pieces)).split(" "))
        [best] = with_shortlist.search([source], SearchOptions(4, 4, max_length=40), 40)
        assert all(allowed.issuperset(h.pieces) for h in best)


@pytest.mark.parametrize("name", EXACT)
def test_equal_seeds_give_equal_samples(random_pieces_model, name):
    options = SearchOptions(1, 4, max_length=30, sampling=Sampling(temperature=1.2, top_k=30))

    def sample(seed):
        engine = open_engine(random_pieces_model, replace(EXACT[name], seed=seed)).engine
        found = engine.search([Source(("▁the",))] * 8, options, 30)
        return [[h.pieces for h in best] for best in found]

    assert sample(1) == sample(1) != sample(2)
    assert all(len(best) == 4 for best in sample(3))


@pytest.mark.parametrize("name", EXACT)
def test_sampling_with_top_k_1_equals_greedy_search(engines, sources, name):
    greedy = SearchOptions(1, max_length=40)
    top_1 = replace(greedy, sampling=Sampling(temperature=0.7, top_k=1))
    subset = sources[:50]
    assert [h[0].pieces for h in search_all(engines[name], subset, top_1)] == [
        h[0].pieces for h in search_all(engines[name], subset, greedy)
    ]


@pytest.mark.parametrize("name", EXACT)
def test_sampling_follows_the_model_distribution(engines, sources, name):
    """Compare the first pieces of many samples with the probabilities of the model."""
    engine, n = engines["torch"], 2000
    options = SearchOptions(1, 500, max_length=1, sampling=Sampling(temperature=2.0, top_p=0.9))
    found = [h for _ in range(4) for h in engines[name].search([sources[-1]], options, 1)[0]]
    ids = [engine.tokenizers.target.pieces_to_ids(h.pieces or ["</s>"])[0] for h in found]
    counts = torch.bincount(torch.tensor(ids), minlength=len(engine.tokenizers.target))
    source = torch.tensor([[*engine.tokenizers.source.pieces_to_ids(sources[-1].pieces), 3]])
    logits = engine.model(source, torch.tensor([[2]]))[0, 0].detach() / 2.0
    probs, order = logits.softmax(dim=-1).sort(descending=True)
    kept = probs.cumsum(0) - probs < 0.9
    expected = torch.zeros(len(counts)).scatter(0, order[kept], probs[kept] / probs[kept].sum())
    assert (counts[expected == 0] == 0).all()
    torch.testing.assert_close(counts / n, expected, atol=0.06, rtol=0)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_search_score_equals_the_teacher_forced_score(tokenizers, beam_size):
    torch.manual_seed(0)
    size = len(tokenizers.source)
    engine = TorchEngine(build_model(tiny_model_config(), size, size).eval(), tokenizers)
    options = SearchOptions(beam_size=beam_size, max_length=9, length_penalty=0.7)
    pieces = tokenizers.source.tokenize("the man sees a book")
    [[found]] = engine.search([Source(tuple(pieces))], options, 9)
    source = torch.tensor([[*tokenizers.source.pieces_to_ids(pieces), 3]])
    labels = [*tokenizers.target.pieces_to_ids(found.pieces), 3][:9]
    target = torch.tensor([[2, *labels[:-1]]])
    log_probs = engine.model(source, target).log_softmax(dim=-1)[0]
    total = sum(float(log_probs[i, label].detach()) for i, label in enumerate(labels))
    assert found.score == pytest.approx(total / len(labels) ** 0.7, abs=1e-4)
    assert found.is_truncated == (labels[-1] != 3)


def test_an_ensemble_of_identical_models_translates_like_one(trained, engines, sources):
    loaded = open_engine(trained, EngineOptions(), ensemble=[trained, trained])
    options = SearchOptions(3, 2, max_length=40, with_alignment=True)
    subset = sources[::25]
    ours, theirs = (
        search_all(engine, subset, options) for engine in (loaded.engine, engines["torch"])
    )
    n_same = 0
    for a, b in zip(ours, theirs, strict=True):
        if [(h.pieces, h.is_truncated) for h in a] == [(h.pieces, h.is_truncated) for h in b]:
            n_same += 1
            torch.testing.assert_close(torch.tensor(a[0].attention), torch.tensor(b[0].attention))
    assert n_same >= len(subset) - 1  # rounding may break one tie differently


def test_an_ensemble_averages_probabilities(tmp_path, tokenizers):
    """Ensemble two models with different first choices: their common second choice must win."""
    probs_of = {"one": (0.5, 0.4, 0.1), "two": (0.1, 0.4, 0.5), "both": (0.3, 0.4, 0.3)}
    alone = [
        make_unigram_model(
            tmp_path / name,
            tokenizers,
            dict(zip(["▁mag", "▁sieht", "▁findet"], map(math.log, probs_of[name]), strict=True)),
        )
        for name in ("one", "two")
    ]
    engines = [open_engine(directory, EXACT["torch"]).engine for directory in alone]
    engines.append(open_engine(alone[0], EngineOptions(), ensemble=alone[1:]).engine)
    options, source = SearchOptions(1, max_length=2), Source(("▁the",))
    found = [engine.search([source], options, 2)[0][0].pieces for engine in engines]
    assert found == [["▁mag"] * 2, ["▁findet"] * 2, ["▁sieht"] * 2]
    logits = engines[2].model(torch.tensor([[5, 3]]), torch.tensor([[2]]))[0, 0]
    probabilities = logits.softmax(dim=-1)[
        tokenizers.target.pieces_to_ids(["▁mag", "▁sieht", "▁findet"])
    ]
    torch.testing.assert_close(probabilities.detach(), torch.tensor(probs_of["both"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (EngineOptions(engine="torch", quantization="int8"), "computes in float32, not in int8"),
        (
            EngineOptions(engine="torch", shortlist=True),
            "the torch engine does not support shortlists",
        ),
        (EngineOptions(engine="ctranslate2", device="mps"), "cannot use the device mps"),
        (
            EngineOptions(engine="ctranslate2", device="cuda:7"),
            "cannot use 'cuda:7' on this machine",
        ),
        (EngineOptions(quantization="float16", device="cpu"), "cannot compute in float16 on"),
    ],
)
def test_unsupported_engine_options_are_refused(trained, options, message):
    with pytest.raises(EngineError, match=message):
        open_engine(trained, options)


def test_an_ensemble_requires_the_torch_engine_and_equal_vocabularies(trained, tiny_trained):
    with pytest.raises(EngineError, match="has a different vocabulary than"):
        open_engine(trained, EngineOptions(), ensemble=[tiny_trained])
    with pytest.raises(EngineError, match="CTranslate2 cannot use an ensemble"):
        open_engine(trained, EngineOptions(engine="ctranslate2"), ensemble=[trained])


def test_the_default_engine_is_ctranslate2_with_int8(trained):
    assert isinstance(open_engine(trained, EngineOptions()).engine, Ct2Engine)
    assert choose_quantization(None, "cpu") == "int8"


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "meta", ""])
def test_an_error_names_the_missing_device(name):
    with pytest.raises(EngineError, match=f"torch cannot use '{name}' on this machine"):
        choose_device(name)
