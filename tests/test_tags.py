"""Tags and target languages: vocabulary, training data, translation, evaluation, export."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from conftest import TINY_SETTINGS, create_once, tiny_pairs
from handmade import make_copying_model
from mtcli import Translator, evaluate_model
from mtcli.cli import app
from mtcli.cli.prompt import handle_line
from mtcli.config.load import load_config, with_overrides
from mtcli.config.search import EngineOptions, SearchOptions
from mtcli.config.tags import ModelTags
from mtcli.config.tokenizer import TokenizerConfig
from mtcli.data.augmentation import Augmentation
from mtcli.data.batches import BatchStream
from mtcli.data.corpus import Corpus
from mtcli.data.encoding import encode, insert_tags
from mtcli.data.entries import EntryInfo
from mtcli.data.held_out import hold_out
from mtcli.errors import ConfigError, EngineError
from mtcli.export.shortlist import build_vocabulary_map
from mtcli.tokenizer import load_tokenizers, train_tokenizers
from mtcli.training.run import train_run
from mtcli.translation.engines import LoadedEngine
from mtcli.translation.engines.base import Engine, ScoredPieces
from mtcli.translation.line_translator import LineTranslator, Request

pytestmark = pytest.mark.cpu

TAGS = ("<2de>", "<2en>", "<bt>")
DE, EN = EntryInfo(to="de"), EntryInfo(to="en")


def _train_tagged(kind, *, is_shared=True):
    # The text contains strings that look like the tags, so the vocabulary could learn them.
    sources, targets = zip(*tiny_pairs(), strict=True)
    fakes = ["<2de> <2en>", "<bt><2de> x", "▁<2de>"] * 20
    options = TokenizerConfig(kind=kind, vocab_size=360, is_shared=is_shared)
    return train_tokenizers([*sources, *fakes], [*targets, *fakes], options, TAGS)


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def any_tokenizers(request):
    return _train_tagged(request.param)


@pytest.fixture(scope="module")
def tagged():
    return _train_tagged("bpe")


# Texts that are likely to contain a tag or a similar string.
NEAR_TAGS = st.lists(
    st.sampled_from([*TAGS, "<", ">", "<2", "de>", "▁", " ", "<0x3C>", "\u200b", "＜2de＞", "</s>"])
    | st.text(max_size=5)
).map("".join)


@settings(max_examples=300)
@given(text=NEAR_TAGS)
def test_no_text_contains_a_tag(any_tokenizers, text):
    tokenizer = any_tokenizers.source
    ids = set(tokenizer.pieces_to_ids(TAGS))
    assert len(ids) == 3
    assert tokenizer.tags == TAGS
    pieces = tokenizer.tokenize(text)
    assert ids.isdisjoint(tokenizer.pieces_to_ids(pieces))
    assert not set(TAGS) & set(pieces)
    valid = text.encode(errors="replace").decode()
    assert ids.isdisjoint(tokenizer.encode([valid])[0])


def test_only_the_source_vocabulary_has_tags():
    tokenizers = _train_tagged("bpe", is_shared=False)
    assert tokenizers.source.tags == TAGS
    assert tokenizers.target.tags == ()
    assert tokenizers.source.special == tokenizers.target.special


@given(
    st.lists(st.tuples(st.lists(st.integers(10, 99)), st.integers(0, 2)), min_size=1, max_size=9)
)
def test_tags_precede_their_rows(rows):
    tags = [[], [4], [5, 6]]
    ids = np.array([i for row, _ in rows for i in row], np.int32)
    lengths = np.array([len(row) for row, _ in rows], np.int64)
    indices = np.array([i for _, i in rows], np.uint8)
    found, new_lengths = insert_tags(ids, lengths, tags, indices)
    expected = [[*tags[i], *row] for row, i in rows]
    assert new_lengths.tolist() == [len(row) for row in expected]
    assert found.tolist() == [i for row in expected for i in row]


def test_encoded_sources_start_with_their_tags_and_tags_count_as_pieces(tagged):
    infos = (EntryInfo(), EntryInfo(to="en", tag="bt"))
    corpus = Corpus(["the man"] * 2, ["der Mann"] * 2, np.array([0, 1], np.uint8), infos)
    encoded = encode(corpus, tagged, 64, print)
    plain, with_tags = (tagged.source.ids_to_pieces(encoded.source[i]) for i in (0, 1))
    assert with_tags == ["<2en>", "<bt>", *plain]
    assert encoded.target[0].tolist() == encoded.target[1].tolist()
    limit = len(plain) - 1  # without EOS
    assert len(encode(corpus, tagged, limit, print)) == 1
    assert len(encode(corpus, tagged, limit + 2, print)) == 2


@pytest.mark.parametrize(
    "changes", [{"word_dropout": 0.99}, {"subword_sampling": 0.5}], ids=["dropout", "sampling"]
)
def test_augmentation_keeps_the_tags(tagged, changes):
    infos = (EntryInfo(to="de", tag="bt"),)
    sources, targets = zip(*tiny_pairs(), strict=True)
    encoded = encode(Corpus(list(sources), list(targets), None, infos), tagged, 64, print)
    options = load_config(None, [("data.train", ["a", "b"]), *_data(changes)]).data
    stream = BatchStream(encoded, 400, 1, augmentation=Augmentation(tagged, options))
    groups = stream.groups()
    for batch in (batch for _ in range(5) for batch in next(groups).batches):
        assert tagged.source.ids_to_pieces(batch.source[0, :2].tolist()) == ["<2de>", "<bt>"]
        assert (batch.source[:, 0] == batch.source[0, 0]).all()
        assert (batch.source[:, 1] == batch.source[0, 1]).all()


def _data(changes):
    return [(f"data.{key}", value) for key, value in changes.items()]


def test_a_shortlist_never_contains_a_tag(tagged):
    sources, targets = zip(*tiny_pairs(), strict=True)
    encoded = encode(Corpus(list(sources), list(targets), None, (DE,)), tagged, 64, print)
    lines = build_vocabulary_map(encoded, tagged).splitlines()
    candidates = {piece for line in lines for piece in line.split("\t")[1].split(" ")}
    assert not candidates & set(TAGS)


def test_the_reverse_of_a_dev_pair_is_removed_from_training():
    sources, targets = map(list, zip(*tiny_pairs(), strict=True))
    origins = np.repeat(np.array([0, 1], np.uint8), len(sources))
    both = Corpus([*sources, *targets], [*targets, *sources], origins, (DE, EN))
    train, dev = hold_out(both, 10)
    kept = {frozenset(pair) for pair in zip(train.source, train.target, strict=True)}
    held_out = {frozenset(pair) for pair in zip(dev.source, dev.target, strict=True)}
    assert len(dev) == 10
    assert set(dev.origins.tolist()) == {0, 1}
    assert not kept & held_out
    for row, (source, target) in enumerate(zip(train.source, train.target, strict=True)):
        assert (source, target) in set(tiny_pairs()) or train.origins[row] == 1


def test_tagged_pairs_are_not_held_out_unless_all_are():
    sources, targets = map(list, zip(*tiny_pairs(), strict=True))
    origins = np.repeat(np.array([0, 1], np.uint8), [30, 30])
    back = EntryInfo(tag="bt")
    _, dev = hold_out(Corpus(sources, targets, origins, (EntryInfo(), back)), 10)
    assert dev.origins.tolist() == [0, 0, 0]  # 10% of the pairs without a tag
    _, dev = hold_out(Corpus(sources, targets, origins, (back, back)), 10)
    assert len(dev) == 6


# Tests of choosing the target language.


@pytest.mark.parametrize(
    ("tags", "to", "tag", "expected"),
    [
        (ModelTags(), None, None, ()),
        (ModelTags(("de",)), None, None, ("<2de>",)),
        (ModelTags(("de",)), "de", None, ("<2de>",)),
        (ModelTags(("de", "en"), ("bt",)), "en", None, ("<2en>",)),
        (ModelTags(("de", "en"), ("bt",)), "en", "bt", ("<2en>", "<bt>")),
        (ModelTags((), ("bt",)), None, "bt", ("<bt>",)),
    ],
)
def test_a_choice_of_language_and_tag_determines_the_symbols(tags, to, tag, expected):
    assert tags.symbols(to, tag) == expected
    assert ModelTags.from_symbols(expected).symbols(to, tag) == expected


@pytest.mark.parametrize(
    ("tags", "to", "tag", "message"),
    [
        (ModelTags(("de", "en")), None, None, "several target languages: de, en\n  hint: choose"),
        (
            ModelTags(("de", "en")),
            "fr",
            None,
            "no target language 'fr'\n  hint: choose --to from de",
        ),
        (ModelTags(), "de", None, "the model has only one direction\n  hint: omit --to"),
        (ModelTags((), ("bt",)), None, "x", "no tag 'x'\n  hint: choose --tag from bt"),
        (ModelTags(), None, "x", "no tag 'x'\n  hint: omit --tag"),
    ],
)
def test_the_error_for_an_invalid_choice_lists_the_valid_choices(tags, to, tag, message):
    with pytest.raises(EngineError) as error:
        tags.symbols(to, tag)
    assert message in str(error.value)


def test_other_control_symbols_are_not_tags():
    assert ModelTags.from_symbols(["<pad>", "<mask>", "<2de>", "<0x0A>", "x"]).tags == ("mask",)


# A copying model outputs its source, tags included, and detokenizing removes tags.


@pytest.fixture(scope="module")
def copying(tmp_path_factory, tagged):
    return make_copying_model(tmp_path_factory.mktemp("tags") / "copying", tagged)


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_each_part_of_a_long_line_has_the_tag(copying, engine):
    translator = Translator(copying, engine=EngineOptions(engine=engine), to="de")
    searched = []
    search = translator.engine.submit

    def submit(sources, options, limit):
        searched.extend(sources)
        return search(sources, options, limit)

    translator.engine.submit = submit
    line = "the man sees bread. " * 12
    [[best]] = translator.translate_all([Request(line)], translator.options)
    assert best.n_parts > 1
    assert all(source.pieces[0] == "<2de>" and source.n_tags == 1 for source in searched)
    assert max(len(source.pieces) for source in searched) <= translator.max_pieces
    assert best.text == " ".join(line.split())


class DiagonalEngine(Engine):
    """Fake engine that outputs its source without tags; each piece attends to itself and to a tag.

    The attention to the tag is higher.
    """

    def search(self, sources, options, limit):
        del options, limit
        return [[self._copy(source)] for source in sources]

    def score(self, pairs):
        raise NotImplementedError

    def _copy(self, source):
        pieces = source.pieces[source.n_tags :]
        rows = np.eye(len(pieces), len(source.pieces), source.n_tags) * 0.4
        rows[:, 0] = 0.6
        return ScoredPieces(list(pieces), -1.0, attention=rows.tolist())


@pytest.mark.parametrize("tag", [None, "bt"])
def test_words_are_never_aligned_with_a_tag(tagged, tag):
    tags = ModelTags.from_symbols(tagged.source.tags)
    loaded = LoadedEngine(DiagonalEngine(), tagged, 100, SearchOptions(), tags=tags)
    translator = LineTranslator(loaded, to="de", tag=tag)
    options = SearchOptions(with_alignment=True)
    [[best]] = translator.translate_all([Request("the man sees bread")], options)
    assert best.text == "the man sees bread"
    assert best.alignment == ((0, 0), (1, 1), (2, 2), (3, 3))


def test_an_attention_map_shows_the_tag(copying):
    translator = Translator(copying, engine=EngineOptions(engine="torch"), to="en")
    [part] = translator.attention("the man").parts
    shown = part.map()
    assert shown.columns[0] == "<2en>"
    assert shown.weights.shape[1] == len(shown.columns)
    with pytest.raises(EngineError, match="several target languages"):
        Translator(copying).attention("the man")


def test_requests_with_different_tags_are_searched_separately(copying):
    translator = Translator(copying, to="de")
    lines = [Request("the man"), Request("the man", to="en"), Request("the man", tag="bt")]
    assert len({translator.symbols(request) for request in lines}) == 3
    found = translator.translate_all(lines, translator.options)
    assert [best[0].text for best in found] == ["the man"] * 3


def test_the_prompt_changes_the_target_language(copying):
    translator = Translator(copying)
    with pytest.raises(EngineError, match="several target languages"):
        handle_line(translator, "the man", translator.options)
    assert "de, en (now not set)" in handle_line(translator, ":help", translator.options).lines[0]
    handle_line(translator, ":to de", translator.options)
    assert handle_line(translator, "the man", translator.options).lines[0] == "the man"
    with pytest.raises(EngineError, match="choose --to from de, en"):
        handle_line(translator, ":to fr", translator.options)


def run(*arguments, stdin=""):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def test_translate_requires_a_known_target_language(copying):
    assert run("translate", copying, "--to", "de", stdin="the man\n").stdout == "the man\n"
    for options, message in (
        ([], "several target languages: de, en"),
        (["--to", "fr"], "choose --to from de, en"),
        (["--to", "de", "--tag", "x"], "choose --tag from bt"),
    ):
        result = run("translate", copying, *options, stdin="the man\n")
        assert result.exit_code == 1
        assert message in result.stderr


def test_jsonl_objects_can_have_a_target_language(copying):
    lines = [{"text": "the man", "to": "en"}, {"text": "a book"}]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    result = run("translate", copying, "--input-format", "jsonl", "--to", "de", stdin=text)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["translation"] for line in found] == ["the man", "a book"]
    assert found[0]["to"] == "en"
    result = run("translate", copying, "--input-format", "jsonl", stdin=text)
    assert result.exit_code == 1
    assert "line 2: the model has several target languages" in result.stderr
    wrong = '{"text": "x", "to": 3}\n'
    result = run("translate", copying, "--input-format", "jsonl", stdin=wrong)
    assert "line 1: the model has no target language 3" in result.stderr


def test_the_field_to_is_ordinary_data_for_other_models(copying_model):
    line = '{"text": "the man", "to": "you@example.org"}\n'
    result = run("translate", copying_model, "--input-format", "jsonl", stdin=line)
    assert json.loads(result.stdout)["translation"] == "the man"


@pytest.fixture
def reference_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for suffix in ("en", "de", "en-US", "new", "txt"):
        (tmp_path / f"t.{suffix}").write_text("the man sees bread\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("files", "to", "found"),
    [
        (["t.de", "t.en"], "de", "en"),
        (["t.de", "t.en-US"], "de", "en-US"),
        (["t.{de,en}"], "de", "en"),
        (["t.txt", "t.de", "t.en"], "de", "en"),
        (["--test-set", "wmt14", "--pair", "de-en"], "de", "en"),
    ],
)
@pytest.mark.usefixtures("reference_files")
def test_a_reference_in_another_language_contradicts_to(copying, files, to, found):
    result = run("evaluate", copying, *files, "--to", to)
    assert result.exit_code == 1
    assert f"error: --to {to} contradicts the reference " in result.stderr
    assert f"which is in {found}\n  hint: use --to {found}, or a reference in {to}" in result.stderr


@pytest.mark.usefixtures("reference_files")
def test_an_unknown_target_language_is_reported_as_such(copying):
    result = run("evaluate", copying, "t.en", "t.de", "--to", "fr")
    assert result.exit_code == 1
    assert "choose --to from de, en" in result.stderr


@pytest.mark.parametrize(
    "files",
    [["t.en", "t.de"], ["t.de", "t.new"], ["t.de", "t.txt"], ["t.{en,de}"]],  # new is not Newari
)
@pytest.mark.usefixtures("reference_files")
def test_a_reference_in_the_target_language_or_an_unknown_one_is_scored(copying, files):
    result = run("evaluate", copying, *files, "--to", "de")
    assert result.exit_code == 0
    assert "contradicts" not in result.stderr


@pytest.mark.usefixtures("reference_files")
def test_swapped_test_files_cause_a_warning(copying_model, tmp_path):
    model = Path(shutil.copytree(copying_model, tmp_path / "model"))
    config = model / "config.yaml"
    text = config.read_text(encoding="utf-8")
    codes = {"source_lang: null": "source_lang: en", "target_lang: null": "target_lang: de"}
    for old, new in codes.items():
        assert old in text
        text = text.replace(old, new)
    config.write_text(text, encoding="utf-8")
    warning = "translates from en to de, but t.de and t.en are in the opposite order"
    assert warning in run("evaluate", model, "t.de", "t.en").stderr
    assert "opposite" not in run("evaluate", model, "t.en", "t.de").stderr
    assert "opposite" not in run("evaluate", model, "t.de", "t.new").stderr


def test_evaluate_requires_a_target_language(copying, tmp_path):
    (tmp_path / "a").write_text("the man sees bread\n", encoding="utf-8")
    result = run("evaluate", copying, tmp_path / "a", tmp_path / "a", "--to", "en", "--json")
    [system] = json.loads(result.stdout)["systems"]
    assert system["scores"]["bleu"]["value"] == pytest.approx(100)
    result = run("evaluate", copying, tmp_path / "a", tmp_path / "a")
    assert "several target languages" in result.stderr
    lines = ["the man sees bread"]
    assert evaluate_model(Translator(copying, to="de"), lines, [lines]).scores["bleu"].value > 99


def test_translate_takes_a_target_language_per_call(copying):
    translator = Translator(copying, to="de")
    assert translator.translate(["the man"], to="en") == ["the man"]
    with pytest.raises(EngineError, match="no target language 'fr'"):
        translator.translate(["the man"], to="fr")
    with pytest.raises(EngineError, match="no target language 'fr'"):
        Translator(copying, to="fr")


# Tests of complete runs in two directions.


@pytest.fixture(scope="module")
def two_directions(tmp_path_factory):
    """Return the directory of an under-trained model with two directions; tests only read it."""
    directory = tmp_path_factory.mktemp("two")
    for name, lines in zip(("train.en", "train.de"), zip(*tiny_pairs(), strict=True), strict=True):
        (directory / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = [str(directory / name) for name in ("train.en", "train.de")]
    train = [{"corpus": files, "to": "de"}, {"corpus": files, "to": "en"}]
    settings = {**TINY_SETTINGS, "data.train": train, "train.steps": 40, "train.validate_every": 20}
    config = load_config(None, settings.items())
    return create_once(
        tmp_path_factory, "two_directions", lambda path: train_run(config, path, lambda _: None)
    )


def test_each_direction_has_a_dev_set(two_directions):
    lines = (two_directions / "log.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    validation = next(event for event in events if event["event"] == "validation")
    assert [scored["name"] for scored in validation["sets"]] == ["de", "en"]
    means = [scored["loss"] for scored in validation["sets"]]
    assert validation["loss"] == pytest.approx(sum(means) / 2)
    card = (two_directions / "README.md").read_text(encoding="utf-8")
    assert "# Translation model: to de, to en" in card
    assert "--to de < input.txt" in card
    assert "- languages: de, en (--to)" in card
    assert "mean of 2 dev sets" in card


def test_the_engines_agree_on_both_directions(two_directions):
    lines = [source for source, _ in tiny_pairs()[:8]] + [target for _, target in tiny_pairs()[:8]]
    for to in ("de", "en"):
        results = []
        for name in ("torch", "ctranslate2"):
            options = EngineOptions(engine=name, quantization="float32", shortlist=False)
            translator = Translator(two_directions, engine=options, to=to)
            search = SearchOptions(beam_size=2, n_best=2, max_length=32)
            requests = [Request(line) for line in lines]
            results.append(translator.translate_all(requests, search))
        for ours, theirs in zip(*results, strict=True):
            # Later candidates may be almost equally likely.
            assert ours[0].score == pytest.approx(theirs[0].score, abs=1e-4)


def test_the_target_language_changes_the_input_of_the_model(two_directions):
    tokenizers = load_tokenizers(two_directions)
    assert tokenizers.source.tags == ("<2de>", "<2en>")
    options = EngineOptions(engine="torch")
    scores = [
        Translator(two_directions, engine=options, to=to)
        .translate_all([Request("the man sees bread")], SearchOptions())[0][0]
        .score
        for to in ("de", "en")
    ]
    assert scores[0] != scores[1]


def test_fine_tuning_requires_known_tags_and_a_target_language(two_directions, tmp_path):
    files = [str(tmp_path / "a.en"), str(tmp_path / "a.de")]
    for name, lines in zip(files, zip(*tiny_pairs(), strict=True), strict=True):
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def tune(train):
        settings = {**TINY_SETTINGS, "data.train": train, "train.start_from": str(two_directions)}
        train_run(load_config(None, settings.items()), tmp_path / "out", lambda _: None)

    with pytest.raises(ConfigError, match="lacks the tags <2fr>; it has <2de>, <2en>"):
        tune([{"corpus": files, "to": "fr", "source_lang": "en", "target_lang": "fr"}])
    with pytest.raises(ConfigError, match="lacks the tags <bt>"):
        tune([{"corpus": files, "to": "de", "tag": "bt"}])
    with pytest.raises(ConfigError, match="has the target languages de, en: the corpora need `to`"):
        tune(files)
    tune([{"corpus": files, "to": "de"}])
    assert Translator(tmp_path / "out").tags.languages == ("de", "en")


def test_a_vocabulary_without_the_tags_is_refused(tiny_config, tokenizers, tmp_path):
    (tmp_path / "spm.model").write_bytes(tokenizers.source.model)
    files = list(tiny_config.data.train.corpora[0])
    settings = [
        ("tokenizer.model", str(tmp_path / "spm.model")),
        ("data.train", [{"corpus": files, "to": "de"}]),
    ]
    with pytest.raises(ConfigError, match=r"spm.model lacks the tags <2de>; it has no tags"):
        train_run(with_overrides(tiny_config, settings), tmp_path / "run", lambda _: None)
    assert not (tmp_path / "run").exists()


def test_only_the_tags_of_the_corpora_are_used_with_a_vocabulary_from_the_user(
    tiny_config, tagged, tmp_path
):
    (tmp_path / "spm.model").write_bytes(tagged.source.model)
    files = list(tiny_config.data.train.corpora[0])
    settings = {
        "tokenizer.model": str(tmp_path / "spm.model"),
        "data.train": [{"corpus": files, "to": "de"}],
        "train.steps": 2,
    }
    config = with_overrides(tiny_config, settings.items())
    train_run(config, tmp_path / "run", lambda _: None)
    assert Translator(tmp_path / "run").tags == ModelTags(("de",))


def test_streamed_runs_with_tags_are_reproducible(tiny_config, tmp_path):
    files = list(tiny_config.data.train.corpora[0])
    train = [{"corpus": files, "to": "de"}, {"corpus": files, "to": "en", "tag": "bt"}]
    settings = {"data.train": train, "data.streaming": True, "train.steps": 4}
    config = with_overrides(tiny_config, settings.items())
    weights = []
    for name in ("a", "b"):
        train_run(config, tmp_path / name, lambda _: None)
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
