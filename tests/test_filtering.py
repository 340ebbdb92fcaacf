"""Filters applied to training data: kept pairs, counts and reports for every kind of corpus."""

import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import killing
from corpus_files import WRITERS
from mtcli.config.corpora import CorpusSource
from mtcli.config.filters import FilterConfig
from mtcli.config.load import load_config, with_overrides
from mtcli.data import line_store, streaming
from mtcli.data.cache import DataCache
from mtcli.data.corpus import Corpus
from mtcli.data.encoded_lines import EncodedLines
from mtcli.data.filtering import PairFilter, drop_unwanted
from mtcli.data.filters import PairBlock
from mtcli.data.held_out import hold_out
from mtcli.data.line_store import LineStore
from mtcli.data.near_copies import NearCopyIndex
from mtcli.errors import ConfigError, DataError
from mtcli.model_dir.directory import load_saved_config
from mtcli.planning.resolve import TrainRequest, resolve
from mtcli.training.preparation import Preparation, read_split
from mtcli.training.run import train_run
from mtcli.training.streaming import StreamPreparation
from test_cli import run

VERSION_0_2_0 = Path(__file__).parent / "data" / "version-0.2.0"
NO_DEV = Corpus(["nothing like this occurs"], ["nichts davon kommt vor"])
STRICT = FilterConfig(
    duplicates="pair", identical=True, min_characters=2, max_words=4, different_numbers=True
)
LONG = "a long line that is much longer than its translation, as this one"
DIRTY = [
    ("the m\ufffdn likes bread", "der Mann mag Brot"),
    ("a child", "ein Kind fÃ¼r \x1b[31mmich"),
    (LONG, "x"),
    ("x", LONG),
]


def ignore(_: object) -> None:
    """Ignore a notice."""


def stored(pairs: list[tuple[str, str]]) -> Corpus:
    """Return a corpus on disk in blocks of three pairs."""
    sides = LineStore(), LineStore()
    for start in range(0, len(pairs), 3):
        for store, lines in zip(sides, zip(*pairs[start : start + 3], strict=True), strict=True):
            store.append(lines)
    return Corpus(*sides)


def pairs_of(corpus: Corpus) -> list[tuple[str, str]]:
    return list(zip(corpus.source, corpus.target, strict=True))


def counts(notices: list[str]) -> int:
    found = [re.search(r"dropped ([\d,]+) of", notice) for notice in notices]
    return sum(int(match[1].replace(",", "")) for match in found if match)


def expected_pairs(pairs, filters: FilterConfig) -> list[tuple[str, str]]:
    """Apply the filters pair by pair."""
    kept: list[tuple[str, str]] = []
    for source, target in pairs:
        is_bad = PairFilter(filters).find(PairBlock([source], [target]))[0]
        if not is_bad and not (filters.duplicates and (source, target) in kept):
            kept.append((source, target))
    return kept


line = st.sampled_from(
    ["a", "ab", "ab 12", "ab 13", "é", "Ã©", "x\ufffd", LONG, "a b c d e", "中文"]
)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(line, line), min_size=1, max_size=20),
    st.sampled_from([FilterConfig(), STRICT]),
)
def test_filters_keep_the_order_and_count_every_dropped_pair(pairs, filters):
    expected = expected_pairs(pairs, filters)
    for corpus in (Corpus(*map(list, zip(*pairs, strict=True))), stored(pairs)):
        notices: list[str] = []
        if not expected:
            with pytest.raises(
                DataError, match=f"the filters drop all of {len(pairs)} training pair"
            ):
                drop_unwanted(corpus, NO_DEV, filters, ignore, is_held_out=False)
            continue
        kept = drop_unwanted(corpus, NO_DEV, filters, notices.append, is_held_out=False)
        assert pairs_of(kept) == expected
        assert counts(notices) == len(pairs) - len(expected)


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\n"), max_size=5)))
def test_encoded_lines_equal_the_lines(lines):
    encoded = EncodedLines("".join(f"{line}\n" for line in lines).encode(errors="surrogatepass"))
    assert list(encoded) == [encoded[i] for i in range(len(encoded))] == lines
    assert encoded[1:3] == lines[1:3]
    assert [encoded[-1]] == lines[-1:] if lines else True


def sentences(n: int) -> list[tuple[str, str]]:
    letters = (chr(97 + i // 26) + chr(97 + i % 26) for i in range(n))
    return [(f"this is a long sentence {name}", f"Satz {i}") for i, name in enumerate(letters)]


def test_dev_sources_and_near_copies_are_removed_from_training():
    pairs = sentences(200)
    dev = Corpus(*zip(*pairs[:10], strict=True))
    copies = [(f"{pairs[0][0].upper()}!", "?"), (pairs[1][0], "other")]
    corpus = stored([*pairs, *copies])
    notices: list[str] = []
    train = drop_unwanted(corpus, dev, FilterConfig(), notices.append, is_held_out=True)
    assert pairs_of(train) == pairs[10:]
    assert notices == [
        "dropped 1 of 202 pairs with the source of a dev pair",
        "dropped 1 of 191 pairs with the same letters as a dev pair (filters.dev_copies=true), "
        'for example "THIS IS A LONG SENTENCE AA!" / "?"',
    ]


def test_without_filters_the_split_is_that_of_earlier_versions():
    corpus = stored([*sentences(200), *sentences(40)])
    train, dev = hold_out(corpus, 12)
    found = drop_unwanted(corpus, dev, FilterConfig.none(), ignore, is_held_out=True)
    assert found.digest == train.digest


def test_near_copies_are_kept_if_there_are_many():
    pairs = [(f"a long sentence number {i}", f"ein langer Satz Nummer {i}") for i in range(60)]
    dev = Corpus(*zip(*pairs[:6], strict=True))
    notices: list[str] = []
    train = drop_unwanted(stored(pairs), dev, FilterConfig(), notices.append, is_held_out=True)
    assert pairs_of(train) == pairs[6:]
    assert len(notices) == 1
    assert notices[0].startswith(
        "warning: training pairs with the same letters as a dev pair: 54, kept because they are "
        "more than 10% of all pairs; the dev scores may be too high, for example "
    )


def test_overlap_with_a_specified_dev_set_is_only_reported():
    pairs = sentences(200)
    dev = Corpus([pairs[3][0]], ["x"])
    notices: list[str] = []
    corpus = stored(pairs)
    assert drop_unwanted(corpus, dev, FilterConfig(), notices.append, is_held_out=False) is corpus
    assert notices == [
        "warning: training pairs with the same letters as a dev pair: 1; the dev scores may be too "
        'high, for example "this is a long sentence ad" / "Satz 3"'
    ]


def test_filters_that_drop_most_pairs_cause_a_warning_that_names_the_rule():
    filters = FilterConfig(min_characters=50)
    notices: list[str] = []
    pairs = [*sentences(3), (LONG, LONG)]
    drop_unwanted(stored(pairs), NO_DEV, filters, notices.append, is_held_out=False)
    assert notices[-1] == (
        "warning: the filters drop 3 of 4 pairs, most of them because of filters.min_characters; "
        "if this is not intended, disable this filter with --set filters.min_characters=null"
    )
    with pytest.raises(
        DataError, match="disable this filter with --set filters.min_characters=null"
    ):
        drop_unwanted(stored(sentences(3)), NO_DEV, filters, ignore, is_held_out=False)


@pytest.fixture
def dirty_config(tiny_config):
    """Return `tiny_config` with four pairs that the default filters drop."""
    for side, path in enumerate(tiny_config.data.train.text_files):
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{pair[side]}\n" for pair in DIRTY)
    return tiny_config


def with_filters(config, **filters):
    return with_overrides(config, [(f"filters.{key}", value) for key, value in filters.items()])


def test_filters_do_not_change_the_dev_set(dirty_config):
    splits = [
        read_split(with_filters(dirty_config, **filters), ignore)
        for filters in ({}, {"min_words": 5}, {"damaged": False, "max_length_ratio": None})
    ]
    assert len({split.dev.digest for split in splits}) == 1
    assert len({split.train.digest for split in splits}) == 3


@pytest.mark.parametrize("name", ["text", "text.gz", "tsv", "csv", "jsonl", "tmx", "zip"])
def test_filters_do_not_depend_on_the_format(dirty_config, tmp_path, name):
    lines = [
        path.read_text("utf-8").split("\n")[:-1] for path in dirty_config.data.train.text_files
    ]
    # XML cannot contain control characters.
    pairs = [(s, t.replace("\x1b", "")) for s, t in zip(*lines, strict=True)]
    notices: list[list[str]] = []
    splits = []
    for writer in ("text", name):
        (tmp_path / writer).mkdir(exist_ok=True)
        names = WRITERS[writer](tmp_path / writer, pairs)
        source = CorpusSource.parse(names[0] if len(names) == 1 else list(names))
        changes = [("data.train", source), ("data.source_lang", "en"), ("data.target_lang", "de")]
        config = with_overrides(dirty_config, changes)
        notices.append([])
        splits.append(read_split(config, notices[-1].append))
    assert splits[0].digest == splits[1].digest
    dropped = [[text for text in found if "dropped" in text] for found in notices]
    assert counts(dropped[0]) == 4 - sum(pair in pairs_of(splits[0].dev) for pair in pairs[60:])
    assert dropped[0] == dropped[-1]


def test_a_cache_entry_is_not_used_with_different_filters(dirty_config, tmp_path):
    cache = DataCache(tmp_path / "cache")
    digests = []
    for filters in ({}, {"min_words": 5}, {}):
        config = with_filters(dirty_config, **filters)
        digests.append(Preparation(config, cache).summary.digest)
        assert digests[-1] == read_split(config, ignore).digest
    assert digests[0] == digests[2] != digests[1]


def test_a_stream_is_filtered_like_a_stored_corpus(dirty_config, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "BLOCK_PAIRS", 16)
    monkeypatch.setattr(line_store, "_BLOCK_LINES", 7)
    config = with_overrides(dirty_config, [("data.streaming", True), ("filters.min_words", 5)])
    preparation = StreamPreparation(config, DataCache(tmp_path))
    data = preparation.dataset(ignore)
    blocks = list(data.stream.blocks())
    found = [tuple(block.source[i]) for block in blocks for i in range(len(block))]
    dev = preparation.summary.dev
    corpus = read_split(with_filters(with_overrides(config, [("data.streaming", False)])), ignore)
    pairs = [*pairs_of(corpus.train), *pairs_of(corpus.dev)]
    index = NearCopyIndex(pairs_of(dev))
    expected = expected_pairs(
        [pair for pair in pairs if not index.has_copy_of(*pair)], config.filters
    )
    ids = data.tokenizers.source.encode([source for source, _ in expected])
    eos = data.tokenizers.special.eos
    assert sorted(found) == sorted((*row, eos) for row in ids)
    assert 0 < len(found) < 50
    notices = preparation.summary.notices
    assert any(
        re.search(r"first 64 pairs: dropped \d+ of .*filters.min_words=5", n) for n in notices
    )
    assert "  filters apply to the entire stream; counts cover the first pairs only" in notices


def test_duplicates_cannot_be_found_in_a_stream(tiny_config):
    with pytest.raises(ConfigError, match="data.streaming cannot find duplicates; set filters"):
        with_overrides(tiny_config, [("data.streaming", True), ("filters.duplicates", "pair")])


def test_notices_are_logged_without_control_characters(dirty_config, tmp_path):
    train_run(with_overrides(dirty_config, [("train.steps", 4)]), tmp_path / "run", ignore)
    log = (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    notices = [entry["text"] for entry in map(json.loads, log) if entry["event"] == "notice"]
    [damaged] = [text for text in notices if "filters.damaged=true" in text]
    assert "for example" in damaged
    assert "\x1b" not in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "filters.damaged=true" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_a_dry_run_reports_the_pairs_that_filters_drop(dirty_config, tmp_path):
    files = dirty_config.data.train.text_files
    result = run("train", *files, "--out", tmp_path / "model", "--dry-run")
    assert result.exit_code == 0
    assert "pairs with damaged characters (filters.damaged=true), for example" in result.stderr
    assert "\x1b" not in result.stderr
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("options", [[], ["--cache", "cache"]])
def test_a_dry_run_states_the_pairs_that_training_uses(
    dirty_config, tmp_path, monkeypatch, options
):
    monkeypatch.chdir(tmp_path)
    files = dirty_config.data.train.text_files
    command = ["train", *files, "--out", tmp_path / "model", "--dry-run", *options]
    for _ in range(2):  # the second command finds its data in the cache
        result = run(*command, "--set", "data.dev_pairs=7", "--set", "filters.max_words=6")
        settings = {"data.dev_pairs": 7, "filters.max_words": 6}
        train = read_split(with_overrides(dirty_config, settings.items()), ignore).train
        n_read = Path(files[0]).read_bytes().count(b"\n")
        assert 0 < len(train) < n_read - 7
        assert f"corpus   {n_read} pairs before filtering; " in result.stdout
        assert f"training {len(train)} pairs after filtering, " in result.stdout


def test_an_unknown_script_is_refused_with_a_suggestion(tiny_config):
    with pytest.raises(ConfigError, match="unknown script 'latin'; did you mean Latin?"):
        with_filters(tiny_config, source_scripts=["latin"])
    with pytest.raises(ConfigError, match="unknown script 'xyz'; known: Arabic, Armenian"):
        with_filters(tiny_config, source_scripts=["xyz"])


def test_models_of_earlier_versions_have_no_filters():
    assert load_saved_config(VERSION_0_2_0 / "unfinished").filters == FilterConfig.none()
    saved = load_config(VERSION_0_2_0 / "unfinished" / "config.yaml")
    assert saved.filters == FilterConfig.none()


def test_a_run_without_filters_is_resumed_without_filters(tmp_path):
    out = shutil.copytree(VERSION_0_2_0 / "unfinished", tmp_path / "run")
    file = tmp_path / "config.yaml"
    file.write_text("data: {train: [train.en, train.de]}\n", encoding="utf-8")
    assert resolve(TrainRequest(out, file, [])).filters == FilterConfig.none()
    assert resolve(TrainRequest(out, None, [])).filters == FilterConfig.none()
    assert resolve(TrainRequest(out, file, [], is_fresh=True)).filters == FilterConfig()
    chosen = resolve(TrainRequest(out, file, [("filters.damaged", True)])).filters
    assert chosen == FilterConfig.none().model_copy(update={"damaged": True})


@pytest.mark.long
def test_being_killed_does_not_change_the_filtered_pairs(dirty_config, tmp_path):
    config = with_filters(dirty_config, duplicates="source", min_words=3)
    killing.attempt(config, tmp_path / "uninterrupted")
    at_write = 1
    while not killing.attempt(config, tmp_path / "run", at_write=at_write):
        at_write += 4
    assert killing.result(tmp_path / "run") == killing.result(tmp_path / "uninterrupted")
