"""Scores of given translations: engines agree, and scores equal those of search."""

import json
import math
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from corpus_files import WRITERS
from handmade import make_unigram_model
from mtcli import Translator
from mtcli.cli.base import app
from mtcli.config.search import EngineOptions, SearchOptions
from mtcli.config.tags import ModelTags
from mtcli.data.batches import pad
from mtcli.errors import DataError, EngineError
from mtcli.model_dir.weights import load_model
from mtcli.translation.engines import LoadedEngine, open_engine, pytorch
from mtcli.translation.engines.base import Source
from mtcli.translation.scoring import (
    Pair,
    PairScore,
    PairScorer,
    ScoreTotals,
    pair_groups,
    score_stream,
    total_scores,
)
from test_export import AS_LANGUAGE_MODELS, LANGUAGE_MODELS, MODELS, REFUSED, random_model
from test_translation import EchoEngine

pytestmark = pytest.mark.cpu

TORCH = EngineOptions(engine="torch")
FLOAT = EngineOptions(engine="ctranslate2", quantization="float32", shortlist=False)
PAIRS = [  # of different lengths, in pieces
    (Source(("▁the", "▁man", "▁sees", "▁bread")), ("▁der", "▁Mann", "▁sieht", "▁Brot")),
    (Source(("▁water",)), ("▁Wasser", "▁Wasser")),
    (Source(("▁a", "▁book")), ()),
    (Source(()), ("▁mag",)),
    (Source(("▁my", "▁dog") * 6), ("▁mein",) * 9),
]
EXPORTABLE = sorted(MODELS.keys() - REFUSED.keys() - AS_LANGUAGE_MODELS)


def flat(scores):
    return [log_prob for row in scores for log_prob in row]


def forced_log_probs(directory, pairs):
    """Return the log-probabilities of one teacher-forced forward pass."""
    loaded = load_model(directory, torch.device("cpu"))
    special, tokenizers = loaded.model.special, loaded.tokenizers
    found = []
    for source, pieces in pairs:
        rows = [*tokenizers.source.pieces_to_ids(source.pieces), special.eos]
        labels = torch.tensor([*tokenizers.target.pieces_to_ids(pieces), special.eos])
        target = torch.tensor([special.bos, *labels[:-1]])
        with torch.inference_mode():
            logits = loaded.model(pad([rows], special.pad), target[None])[0]
        found.append(logits.log_softmax(dim=-1)[range(len(labels)), labels].tolist())
    return found


@pytest.mark.parametrize("name", sorted(MODELS))
def test_scores_equal_teacher_forcing(tmp_path, tiny_config, tokenizers, name, monkeypatch):
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, MODELS[name])
    engine = open_engine(directory, TORCH).engine
    expected = pytest.approx(flat(forced_log_probs(directory, PAIRS)), abs=1e-4)
    assert flat(engine.score(PAIRS)) == expected
    monkeypatch.setattr(pytorch, "_MAX_LOGITS", 2 * len(PAIRS) * len(tokenizers.target))
    assert flat(engine.score(PAIRS)) == expected  # decoded two positions at a time


@pytest.mark.parametrize("name", [*EXPORTABLE, *LANGUAGE_MODELS])
def test_engines_return_the_same_scores(tmp_path, tiny_config, tokenizers, name):
    shape = MODELS.get(name) or LANGUAGE_MODELS[name]
    directory = random_model(tmp_path / "model", tiny_config, tokenizers, shape)
    by_torch, by_ct2 = (open_engine(directory, o).engine.score(PAIRS) for o in (TORCH, FLOAT))
    assert [len(row) for row in by_ct2] == [len(pieces) + 1 for _, pieces in PAIRS]
    assert flat(by_torch) == pytest.approx(flat(by_ct2), abs=1e-4)


@pytest.mark.parametrize("options", [TORCH, FLOAT], ids=["torch", "ctranslate2"])
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
def test_the_score_of_a_translation_equals_the_score_of_the_search(
    trained, test_lines, options, length_penalty
):
    translator = Translator(trained, engine=options)
    search = SearchOptions(beam_size=3, n_best=2, length_penalty=length_penalty, max_length=40)
    tokenize = translator.tokenizers.source.tokenize
    sources = [Source(tuple(tokenize(line))) for line in test_lines[:40]]
    best = translator.engine.search(sources, search, search.limit(1))
    pairs = [
        (source, candidate)
        for source, candidates in zip(sources, best, strict=True)
        for candidate in candidates
        if not candidate.is_truncated
    ]
    assert len(pairs) > 40
    scores = translator.engine.score([(source, tuple(c.pieces)) for source, c in pairs])
    found = [sum(row) / len(row) ** length_penalty for row in scores]
    assert found == pytest.approx([c.score for _, c in pairs], abs=1e-4)


def test_scores_of_texts_equal_the_scores_that_translate_reports(trained, test_lines):
    translator = Translator(trained, engine=FLOAT)
    options = replace(translator.options, length_penalty=0.7)
    best = [candidates[0] for candidates in translator.stream(test_lines[:60], options)]
    retokenized = translator.tokenizers.target.tokenize_batch([t.text for t in best])
    n_same = 0
    for pieces, found, translation in zip(
        retokenized,
        translator.score(test_lines[:60], [t.text for t in best]),
        best,
        strict=True,
    ):
        assert list(found.tokens) == [*pieces, "</s>"]
        if not translation.is_truncated and math.isclose(
            found.score(0.7), translation.score, abs_tol=1e-4
        ):
            n_same += 1
    # The search may output pieces that are not the tokenizer's choice for the same text.
    assert n_same >= 50


@pytest.mark.parametrize("options", [TORCH, FLOAT], ids=["torch", "ctranslate2"])
def test_scores_are_those_of_the_handmade_distribution(hesitant_model, options):
    translator = Translator(hesitant_model, engine=options)
    mag = -math.log(1 + math.exp(-1))
    end = -math.log(1 + math.exp(1))
    blank, one, three = translator.score(["water\n", "water", ""], ["", "mag", "mag mag mag\r\n"])
    assert blank.log_probs == pytest.approx([end], abs=1e-4)
    assert one.log_probs == pytest.approx([mag, end], abs=1e-4)
    assert three.log_prob == pytest.approx(3 * mag + end, abs=1e-4)
    assert three.score(1.0) == pytest.approx((3 * mag + end) / 4, abs=1e-4)
    assert (blank.is_blank, one.is_blank, three.is_blank) == (True, False, True)


@pytest.mark.parametrize("options", [TORCH, FLOAT], ids=["torch", "ctranslate2"])
def test_batch_composition_does_not_change_a_score(trained, options):
    lines = [" ".join(["the", "dog", "sees"][: i % 3 + 1] * (i % 5 + 1)) for i in range(40)]
    pairs = [Pair(line, other) for line, other in zip(lines, reversed(lines), strict=True)]
    loaded = open_engine(trained, options)
    by_size = [
        [s for group in PairScorer(loaded, batch_tokens=size).score_groups([pairs]) for s in group]
        for size in (1, 100, 10_000)
    ]
    assert [s.tokens for s in by_size[0]] == [s.tokens for s in by_size[2]]
    for scores in by_size[1:]:
        expected = pytest.approx([s.log_prob for s in by_size[0]], abs=1e-3)
        assert [s.log_prob for s in scores] == expected


def test_a_shortlist_does_not_change_a_score(trained, test_lines):
    with_map = Translator(trained, engine=replace(FLOAT, shortlist=True))
    without = Translator(trained, engine=FLOAT)
    pairs = test_lines[:5], test_lines[5:10]
    assert with_map.score(*pairs) == without.score(*pairs)


@pytest.mark.parametrize("options", [TORCH, FLOAT], ids=["torch", "ctranslate2"])
def test_the_longest_pair_that_the_positions_allow_is_scored(copying_model, options):
    loaded = open_engine(copying_model, options)  # learned positions: 127
    line = " ".join(["mag"] * 126)
    scorer = PairScorer(loaded, max_pieces=126)
    [[longest, overlong]] = scorer.score_groups([[Pair(line, line), Pair("mag", line + " mag")]])
    assert longest.log_prob == pytest.approx(0, abs=1e-3)  # the model copies its source
    assert (overlong.is_overlong, overlong.log_prob, overlong.tokens) == (True, -math.inf, ())
    with pytest.raises(EngineError, match=r"max_pieces=127 exceeds the model's limit of 126"):
        PairScorer(loaded, max_pieces=127)


def echo_scorer(tokenizers, **changes):
    engine = EchoEngine(**changes)
    return PairScorer(LoadedEngine(engine, tokenizers, 100, SearchOptions())), engine


def test_batches_keep_their_size_limit_and_every_pair_is_scored_once(tokenizers, corpus):
    scorer, engine = echo_scorer(tokenizers)
    scorer.batch_tokens = 60
    pairs = [Pair(s, t) for s, t in zip(corpus.source, corpus.target, strict=True)]
    [scores] = scorer.score_groups([pairs])
    assert [s.tokens[:-1] for s in scores] == [t for _, t in map(tuple, scorer.to_pieces(pairs))]
    assert sum(map(len, engine.batches)) == len(pairs)
    for batch in engine.batches:
        longest = max(len(s.pieces) + 1 for s, _ in batch) + max(len(t) + 1 for _, t in batch)
        assert len(batch) * longest <= 60 or len(batch) == 1


def test_tags_precede_every_source(tokenizers):
    engine = EchoEngine()
    tags = ModelTags(("de", "en"), ("bt",))
    loaded = LoadedEngine(engine, tokenizers, 100, SearchOptions(), tags=tags)
    with pytest.raises(EngineError, match="several target languages"):
        PairScorer(loaded)
    scorer = PairScorer(loaded, to="en", tag="bt")
    [[blank, found]] = scorer.score_groups([[Pair("", "mag"), Pair("water", "mag")]])
    assert (blank.is_blank, found.is_blank) == (True, False)
    sources = [source.pieces for batch in engine.batches for source, _ in batch]
    assert sources == [("<2en>", "<bt>", *tokenizers.source.tokenize("water")), ("<2en>", "<bt>")]


def test_a_stream_reads_only_a_few_groups_ahead(tokenizers):
    scorer, _ = echo_scorer(tokenizers)
    n_read = 0

    def pairs():
        nonlocal n_read
        while True:
            n_read += 1
            yield Pair("the man", "der Mann")

    stream = score_stream(scorer, pairs())
    for number in range(1, 6):
        group = next(stream)
        assert n_read <= (number + 6) * len(group.pairs)


def test_groups_of_long_lines_are_small():
    groups = list(pair_groups(Pair("x" * 300_000, "y") for _ in range(8)))
    assert [len(group) for group in groups] == [4, 4]


def test_pairs_before_an_error_are_scored(tokenizers):
    scorer, _ = echo_scorer(tokenizers)

    def pairs():
        yield from [Pair("the man", "der Mann")] * 3
        raise DataError("line 4 is damaged")

    stream = score_stream(scorer, pairs())
    assert len(next(stream).scores) == 3
    with pytest.raises(DataError, match="line 4 is damaged"):
        next(stream)


def test_totals_do_not_depend_on_the_grouping():
    pairs = [Pair("a", "bc"), Pair("a", ""), Pair("a", "x" * 99), Pair("a", "defg")]
    scores = [
        PairScore(("b", "c", "</s>"), (-1.0, -2.0, -0.5)),
        PairScore(("</s>",), (-4.0,), is_blank=True),
        PairScore((), (), is_overlong=True),
        PairScore(("d", "</s>"), (-1.25, -0.25)),
    ]
    totals = total_scores(pairs, scores)
    parts = [total_scores([pair], [score]) for pair, score in zip(pairs, scores, strict=True)]
    assert sum(parts, ScoreTotals()) == totals
    assert totals == ScoreTotals(4, 1, 1, n_tokens=6, n_characters=6, log_prob=-9.0)
    assert totals.perplexity == pytest.approx(math.exp(1.5))
    assert totals.bits_per_character == pytest.approx(1.5 / math.log(2))
    assert math.isnan(ScoreTotals().perplexity)
    assert ScoreTotals(n_tokens=1, log_prob=-1e6).perplexity == math.inf


def run(*arguments):
    return CliRunner().invoke(app, ["score", *map(str, arguments)])


ODD_LINES = ["", "  ", "the man", "\x00\x01", "😀 </s> <s>", "a b\x85c", "x " * 3000, "tab\there"]


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_n_pairs_give_n_lines(tmp_path, hesitant_model, engine):
    files = tmp_path / "a.en", tmp_path / "a.de"
    for path, lines in zip(files, (ODD_LINES, ODD_LINES[::-1]), strict=True):
        path.write_bytes("\n".join(lines).encode() + b"\n")
    for name in ("text", "tsv", "jsonl"):
        result = run(hesitant_model, *files, "--engine", engine, "--format", name)
        assert result.exit_code == 0, result.stderr
        lines = result.stdout.removesuffix("\n").split("\n")
        assert len(lines) == len(ODD_LINES)
        if name == "text":
            assert lines[6] == lines[1] == "-inf"
            assert sum(map(math.isfinite, map(float, lines))) == 6
        elif name == "tsv":
            assert {len(line.split("\t")) for line in lines} == {4}
        else:
            records = [json.loads(line) for line in lines]
            assert [r["source"] for r in records] == ODD_LINES
            assert (records[6]["score"], records[6]["warnings"][0]) == (None, "overlong")
            assert [r["warnings"] for r in records[::7]] == [["blank"], ["blank"]]
            assert "warnings" not in records[2]
    assert "2 of 8 pairs have a source or target with more than 32 pieces" in result.stderr
    assert " of 8 pairs have a blank source or target" in result.stderr


def test_all_formats_report_the_same_scores(tmp_path, trained, test_lines):
    (tmp_path / "a.en").write_text("\n".join(test_lines[:5]) + "\n", encoding="utf-8")
    files = tmp_path / "a.en", tmp_path / "a.en"
    text, tsv, jsonl = (
        run(trained, *files, "--engine", "torch", "--length-penalty", 1, "--format", name, *extra)
        for name, *extra in (["text"], ["tsv", "--token-scores"], ["jsonl", "--token-scores"])
    )
    records = [json.loads(line) for line in jsonl.stdout.splitlines()]
    for line, row, record in zip(
        text.stdout.splitlines(), tsv.stdout.splitlines(), records, strict=True
    ):
        score, n_tokens, source, target, pieces, log_probs = row.split("\t")
        assert float(score) == float(line) == record["score"]
        assert int(n_tokens) == record["n_tokens"] == len(record["tokens"])
        assert (source, target) == (record["source"], record["target"])
        assert pieces.split(" ") == record["tokens"]
        assert [float(x) for x in log_probs.split(" ")] == record["log_probs"]
        mean = sum(record["log_probs"]) / record["n_tokens"]
        assert mean == pytest.approx(record["score"], abs=2e-4)


def test_totals_replace_the_lines(tmp_path, hesitant_model):
    (tmp_path / "pairs.tsv").write_text("water\tmag\nwater\tmag mag\n", encoding="utf-8")
    corpus = f"{tmp_path}/pairs.tsv"
    result = run(hesitant_model, corpus, "--totals", "--format", "jsonl", "--engine", "torch")
    totals = json.loads(result.stdout)
    expected = 3 * -math.log(1 + math.exp(-1)) + 2 * -math.log(1 + math.exp(1))
    assert totals["log_prob"] == pytest.approx(expected, abs=1e-3)
    assert totals["perplexity"] == pytest.approx(math.exp(-expected / 5), abs=1e-3)
    assert (totals["n_pairs"], totals["n_tokens"]) == (2, 5)
    text = run(hesitant_model, corpus, "--engine", "torch")
    assert "2 pairs scored, 5 tokens: log-probability" in text.stderr
    only = run(hesitant_model, corpus, "--totals", "--engine", "torch")
    assert only.stdout.strip() in text.stderr
    assert run(hesitant_model, corpus, "--quiet", "--engine", "torch").stderr == ""


@pytest.mark.parametrize("name", ["csv", "jsonl", "tmx"])
def test_any_corpus_format_can_be_scored(tmp_path, hesitant_model, name):
    pairs = [("water", "mag"), ("bread", "mag mag")]
    corpus = WRITERS[name](tmp_path, pairs)
    options = ["--source-lang", "en", "--target-lang", "de", "--engine", "torch"]
    result = run(hesitant_model, *corpus, *options)
    assert result.exit_code == 0, result.stderr
    first, second = map(float, result.stdout.splitlines())
    assert second - first == pytest.approx(-math.log(1 + math.exp(-1)), abs=1e-3)


def test_invalid_input_is_reported(tmp_path, hesitant_model):
    long, short, bad = tmp_path / "a.en", tmp_path / "b.de", tmp_path / "c.de"
    long.write_text("water\nbread\n", encoding="utf-8")
    short.write_text("mag\n", encoding="utf-8")
    bad.write_bytes(b"mag\n\xff\n")
    result = run(hesitant_model, long, short, "--engine", "torch")
    assert result.exit_code == 1
    assert "a.en has 2 lines, but" in result.stderr
    assert len(result.stdout.splitlines()) == 1  # the pair before the error
    result = run(hesitant_model, long, bad, "--engine", "torch")
    assert result.exit_code == 1
    assert "c.de, line 2: not valid UTF-8" in result.stderr
    result = run(hesitant_model, long, long, "--output", long)
    assert (result.exit_code, "is also an input" in result.stderr) == (1, True)
    assert long.read_text(encoding="utf-8") == "water\nbread\n"
    assert "no such corpus" in run(hesitant_model, tmp_path / "missing.tsv").stderr
    for arguments, message in (
        ([long, long, long], "expected MODEL SOURCE TARGET"),
        ([long, long, "--token-scores"], "--token-scores requires"),
        ([long, long, "--format", "xml"], "must be one of"),
    ):
        result = run(hesitant_model, *arguments)
        assert result.exit_code == 2
        assert message in " ".join(result.stderr.replace("│", " ").split())


def test_an_ensemble_scores_with_the_mean_probability(tmp_path, tokenizers, hesitant_model):
    certain = make_unigram_model(tmp_path / "b", tokenizers, {"▁mag": 0.0, "</s>": 0.0})
    translator = Translator(hesitant_model, engine=TORCH, ensemble=[certain])
    [found] = translator.score(["water"], ["mag"])
    sigmoid = 1 / (1 + math.exp(-1))
    expected = [math.log((p + 0.5) / 2) for p in (sigmoid, 1 - sigmoid)]
    assert found.log_probs == pytest.approx(expected, abs=1e-4)
