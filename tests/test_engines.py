"""Both engines find the same, and neither depends on who else is in the batch."""

import math
from dataclasses import replace

import pytest
import torch

from conftest import tiny_model_config
from handmade import make_unigram_model
from mtcli.engines import Source, open_engine
from mtcli.engines.ct2 import Ct2Engine, choose_quantization
from mtcli.engines.pytorch import TorchEngine, choose_device
from mtcli.errors import EngineError
from mtcli.models import build_model
from mtcli.options import EngineOptions, Sampling, SearchOptions
from mtcli.search import beam_search
from mtcli.tokenizer import load_tokenizers

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
    """The pieces of 500 lines, the longest first."""
    tokenizer = load_tokenizers(trained).source
    pieces = [tuple(tokenizer.pieces(line)) for line in test_lines]
    return [Source(p) for p in sorted(pieces, key=len, reverse=True)]


def found_by(engine, sources, options):
    found = []
    for start in range(0, len(sources), 100):
        found += engine.search(sources[start : start + 100], options, options.limit(1))
    return found


def disagreements(engines, sources, options) -> int:
    """Sources whose n-best lists differ by more than ties, which rounding decides."""
    by_torch, by_ct2 = (found_by(engines[name], sources, options) for name in EXACT)
    n_different = 0
    for ours, theirs in zip(by_torch, by_ct2, strict=True):
        if [h.pieces for h in ours] != [h.pieces for h in theirs]:
            n_different += 1
            continue
        assert [h.is_cut for h in ours] == [h.is_cut for h in theirs]
        if options.with_scores:
            expected = pytest.approx([h.score for h in theirs], abs=1e-4)
            assert [h.score for h in ours] == expected
    return n_different


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize(("beam_size", "n_best"), [(1, 1), (4, 4), (8, 3)])
def test_both_engines_find_the_same(engines, sources, beam_size, n_best, length_penalty):
    some = sources[::2]
    assert len(some) == 250
    options = SearchOptions(beam_size, n_best, length_penalty, max_length=40)
    assert disagreements(engines, some, options) <= 3


CONSTRAINTS = {
    "no repetition of two pieces": {"no_repeat_ngram": 2},
    "no repetition of a piece": {"no_repeat_ngram": 1},
    "a penalty on repetition": {"repetition_penalty": 1.5},
    "cut off soon": {"max_length": 5},
    "greedily, without scores": {"beam_size": 1, "n_best": 1, "with_scores": False},
    "all together": {"no_repeat_ngram": 3, "repetition_penalty": 1.2, "length_penalty": 0.6},
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_both_engines_understand_constraints_alike(engines, sources, name):
    options = replace(SearchOptions(4, 2, max_length=40), **CONSTRAINTS[name])
    assert disagreements(engines, sources[::5], options) <= 1


WITH_PREFIX = [
    SearchOptions(1, max_length=40),
    SearchOptions(4, 3, max_length=40),
    SearchOptions(4, 2, length_penalty=0.0, max_length=40),
    SearchOptions(3, no_repeat_ngram=2, max_length=40),
]


@pytest.mark.parametrize("options", WITH_PREFIX, ids=range(len(WITH_PREFIX)))
def test_both_engines_keep_to_a_prefix(trained, engines, sources, options):
    tokenizer = load_tokenizers(trained).target
    prefixes = [tuple(tokenizer.pieces(text)) for text in ("Die", "Ein alter Mann", "Wo")]
    wanted = [Source(s.pieces, prefixes[i % 3]) for i, s in enumerate(sources[::5])]
    assert disagreements(engines, wanted, options) <= 1
    for engine in engines.values():
        for source, best in zip(wanted, found_by(engine, wanted, options), strict=True):
            for h in best:
                assert tuple(h.pieces[: len(source.prefix)]) == source.prefix
            assert len(best[0].pieces) > len(source.prefix)


def test_both_engines_look_at_the_same_source_pieces(engines, sources):
    options = SearchOptions(2, 2, max_length=40, with_alignment=True)
    by_torch, by_ct2 = (found_by(engine, sources[::10], options) for engine in engines.values())
    n_same = 0
    for source, ours, theirs in zip(sources[::10], by_torch, by_ct2, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            if a.pieces == b.pieces:
                n_same += 1
                ours_, theirs_ = torch.tensor(a.attention), torch.tensor(b.attention)
                assert ours_.shape == (len(a.pieces), len(source.pieces))
                torch.testing.assert_close(ours_, theirs_, atol=1e-4, rtol=0)
                assert (ours_ >= 0).all()
                assert (ours_.sum(dim=-1) <= 1 + 1e-5).all()
    assert n_same >= 98


def test_what_does_not_fit_into_memory_is_searched_in_halves(engines, sources, monkeypatch):
    engine, options = engines["torch"], SearchOptions(beam_size=2)
    sizes = []

    def search(model, source, *arguments, **options):
        sizes.append(len(source))
        if len(source) > 10:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ...")
        return beam_search(model, source, *arguments, **options)

    expected = engine.search(sources[:30], options, limit=50)
    monkeypatch.setattr("mtcli.engines.pytorch.beam_search", search)
    found = engine.search(sources[:30], options, limit=50)
    assert sizes == [30, 15, 7, 8, 15, 7, 8]
    assert [[h.pieces for h in best] for best in found] == [
        [h.pieces for h in best] for best in expected
    ]


@pytest.mark.parametrize("name", EXACT)
def test_a_sentence_is_translated_the_same_in_any_company(engines, sources, name):
    options = SearchOptions(3, 2, max_length=40)
    some = sources[::25]
    together = engines[name].search(some, options, 40)
    alone = [engines[name].search([source], options, 40)[0] for source in some]
    n_same = sum(
        [h.pieces for h in a] == [h.pieces for h in b] for a, b in zip(together, alone, strict=True)
    )
    assert n_same >= len(some) - 1  # one tie may be broken by rounding


def test_a_shortlist_and_many_candidates_to_draw_from_go_together(trained, sources):
    engine = open_engine(trained, EngineOptions(engine="ctranslate2", shortlist=True)).engine
    options = SearchOptions(1, 2, max_length=5, sampling=Sampling(top_k=999_999))
    assert all(len(best) == 2 for best in engine.search(sources[:3], options, 5))


def test_int8_scores_are_close_to_those_of_float32(trained, engines, sources):
    """Rounding may exchange two translations, but it must not make a score worse."""
    int8 = open_engine(trained, EngineOptions(engine="ctranslate2", shortlist=False)).engine
    scores = [
        [best[0].score for best in found_by(engine, sources, SearchOptions(4, max_length=40))]
        for engine in (int8, engines["ctranslate2"])
    ]
    differences = [abs(rough - exact) for rough, exact in zip(*scores, strict=True)]
    assert sum(differences) / len(differences) < 0.05  # nats per piece; 0.08 where int8 saturates


def test_a_search_with_a_shortlist_outputs_its_candidates_only(trained, sources):
    options = [EngineOptions(engine="ctranslate2", shortlist=wanted) for wanted in (True, False)]
    with_it, without = (open_engine(trained, each).engine for each in options)
    assert with_it.uses_shortlist
    assert not without.uses_shortlist
    text = (trained / "ctranslate2" / "vmap.txt").read_text(encoding="utf-8")
    rows = dict(line.split("\t") for line in text.splitlines())
    for source in sources[::10]:
        allowed = set(" ".join(rows.get(piece, "") for piece in ("", *source.pieces)).split(" "))
        [best] = with_it.search([source], SearchOptions(4, 4, max_length=40), 40)
        assert all(allowed.issuperset(h.pieces) for h in best)


@pytest.mark.parametrize("name", EXACT)
def test_samples_are_the_same_with_the_same_seed(random_pieces_model, name):
    options = SearchOptions(1, 4, max_length=30, sampling=Sampling(temperature=1.2, top_k=30))

    def sampled(seed):
        engine = open_engine(random_pieces_model, replace(EXACT[name], seed=seed)).engine
        found = engine.search([Source(("▁the",))] * 8, options, 30)
        return [[h.pieces for h in best] for best in found]

    assert sampled(1) == sampled(1) != sampled(2)
    assert all(len(best) == 4 for best in sampled(3))


@pytest.mark.parametrize("name", EXACT)
def test_samples_from_one_piece_are_greedy(engines, sources, name):
    greedy = SearchOptions(1, max_length=40)
    one = replace(greedy, sampling=Sampling(temperature=0.7, top_k=1))
    some = sources[:50]
    assert [h[0].pieces for h in found_by(engines[name], some, one)] == [
        h[0].pieces for h in found_by(engines[name], some, greedy)
    ]


@pytest.mark.parametrize("name", EXACT)
def test_samples_come_as_often_as_the_model_thinks(engines, sources, name):
    """The first piece of many samples, against the model's own probabilities of it."""
    engine, n = engines["torch"], 2000
    options = SearchOptions(1, 500, max_length=1, sampling=Sampling(temperature=2.0, top_p=0.9))
    found = [h for _ in range(4) for h in engines[name].search([sources[-1]], options, 1)[0]]
    ids = [engine.tokenizers.target.ids(h.pieces or ["</s>"])[0] for h in found]
    counts = torch.bincount(torch.tensor(ids), minlength=len(engine.tokenizers.target))
    source = torch.tensor([[*engine.tokenizers.source.ids(sources[-1].pieces), 3]])
    logits = engine.model(source, torch.tensor([[2]]))[0, 0].detach() / 2.0
    likely, order = logits.softmax(dim=-1).sort(descending=True)
    kept = likely.cumsum(0) - likely < 0.9
    expected = torch.zeros(len(counts)).scatter(0, order[kept], likely[kept] / likely[kept].sum())
    assert (counts[expected == 0] == 0).all()
    torch.testing.assert_close(counts / n, expected, atol=0.06, rtol=0)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_score_is_the_models_own(tokenizers, beam_size):
    """What search says of a translation is what teacher forcing says of it."""
    torch.manual_seed(0)
    size = len(tokenizers.source)
    engine = TorchEngine(build_model(tiny_model_config(), size, size).eval(), tokenizers)
    options = SearchOptions(beam_size=beam_size, max_length=9, length_penalty=0.7)
    pieces = tokenizers.source.pieces("the man sees a book")
    [[found]] = engine.search([Source(tuple(pieces))], options, 9)
    source = torch.tensor([[*tokenizers.source.ids(pieces), 3]])
    words = [*tokenizers.target.ids(found.pieces), 3][:9]
    target = torch.tensor([[2, *words[:-1]]])
    log_probs = engine.model(source, target).log_softmax(dim=-1)[0]
    total = sum(float(log_probs[i, word].detach()) for i, word in enumerate(words))
    assert found.score == pytest.approx(total / len(words) ** 0.7, abs=1e-4)
    assert found.is_cut == (words[-1] != 3)


def test_an_ensemble_of_equals_is_each_of_them(trained, engines, sources):
    opened = open_engine(trained, EngineOptions(), ensemble=[trained, trained])
    options = SearchOptions(3, 2, max_length=40, with_alignment=True)
    some = sources[::25]
    ours, theirs = (found_by(engine, some, options) for engine in (opened.engine, engines["torch"]))
    n_same = 0
    for a, b in zip(ours, theirs, strict=True):
        if [(h.pieces, h.is_cut) for h in a] == [(h.pieces, h.is_cut) for h in b]:
            n_same += 1
            torch.testing.assert_close(torch.tensor(a[0].attention), torch.tensor(b[0].attention))
    assert n_same >= len(some) - 1  # one tie may be broken by rounding


def test_an_ensemble_votes(tmp_path, tokenizers):
    """Return the second choice of both models where their first choices differ."""
    votes = {"one": (0.5, 0.4, 0.1), "two": (0.1, 0.4, 0.5), "both": (0.3, 0.4, 0.3)}
    alone = [
        make_unigram_model(
            tmp_path / name,
            tokenizers,
            dict(zip(["▁mag", "▁sieht", "▁findet"], map(math.log, votes[name]), strict=True)),
        )
        for name in ("one", "two")
    ]
    engines = [open_engine(directory, EXACT["torch"]).engine for directory in alone]
    engines.append(open_engine(alone[0], EngineOptions(), ensemble=alone[1:]).engine)
    options, source = SearchOptions(1, max_length=2), Source(("▁the",))
    found = [engine.search([source], options, 2)[0][0].pieces for engine in engines]
    assert found == [["▁mag"] * 2, ["▁findet"] * 2, ["▁sieht"] * 2]
    logits = engines[2].model(torch.tensor([[5, 3]]), torch.tensor([[2]]))[0, 0]
    probabilities = logits.softmax(dim=-1)[tokenizers.target.ids(["▁mag", "▁sieht", "▁findet"])]
    torch.testing.assert_close(probabilities.detach(), torch.tensor(votes["both"]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (EngineOptions(engine="torch", quantization="int8"), "computes in float32, not in int8"),
        (EngineOptions(engine="torch", shortlist=True), "the torch engine has no shortlist"),
        (EngineOptions(engine="ctranslate2", device="mps"), "cannot use the device mps"),
        (EngineOptions(engine="ctranslate2", device="cuda:7"), "cannot use 'cuda:7' here"),
        (EngineOptions(quantization="float16", device="cpu"), "cannot compute in float16 on"),
    ],
)
def test_what_an_engine_cannot_do_is_said(trained, options, says):
    with pytest.raises(EngineError, match=says):
        open_engine(trained, options)


def test_models_of_an_ensemble_share_the_vocabulary(trained, tiny_trained):
    with pytest.raises(EngineError, match="has another vocabulary than"):
        open_engine(trained, EngineOptions(), ensemble=[tiny_trained])
    with pytest.raises(EngineError, match="CTranslate2 cannot use an ensemble"):
        open_engine(trained, EngineOptions(engine="ctranslate2"), ensemble=[trained])


def test_auto_is_ctranslate2_in_int8(trained):
    assert isinstance(open_engine(trained, EngineOptions()).engine, Ct2Engine)
    assert choose_quantization(None, "cpu") == "int8"


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "meta", ""])
def test_a_device_that_is_not_there_is_named(name):
    with pytest.raises(EngineError, match=f"torch cannot use '{name}' here"):
        choose_device(name)
