"""Dataset of a run: pair filtering, dev split, warnings and refused files."""

import shutil
import signal
import subprocess
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import tiny_pairs
from mtcli.config.filters import FilterConfig
from mtcli.config.load import with_overrides
from mtcli.config.tokenizer import TokenizerConfig
from mtcli.data import line_store, overlong
from mtcli.data.cache import DataCache
from mtcli.data.corpus import Corpus
from mtcli.data.encoding import encode
from mtcli.data.held_out import choose_dev, hold_out
from mtcli.data.lines import read_aligned, read_lines
from mtcli.data.overlong import drop_overlong
from mtcli.errors import CheckpointError, DataError
from mtcli.planning.resolve import TrainRequest, plan_for
from mtcli.reporting.events import Finished, Notice, StepDone, Stopped
from mtcli.tokenizer import Tokenizer, train_tokenizers
from mtcli.training import preparation
from mtcli.training.preparation import Preparation, read_split
from mtcli.training.run import train_run

TIMEOUT = 60  # seconds to wait for a process


def ignore(_event: object) -> None:
    """Do nothing."""


def add_pair(files, source: str, target: str) -> None:
    for path, line in zip(files, (source, target), strict=True):
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


# Tests with overlong lines.


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("text", ["a" * 10_000_000, "word " * 2_000_000])
def test_a_line_of_several_megabytes_is_dropped_and_counted(tiny_config, tmp_path, text, side):
    lines = [text, "short"] if side == 0 else ["short", text]
    train_run(tiny_config, tmp_path / "without", ignore)
    add_pair(tiny_config.data.train.text_files, *lines)
    notices: list[str] = []
    pairs = read_split(tiny_config, notices.append)
    expected = "training: dropped 1 of 61 pairs longer than 512 characters (data.max_length=32)"
    assert notices[0].startswith(f"{expected}, for example ")
    assert len(notices[0]) < 300
    assert text not in (*pairs.train.source, *pairs.train.target)
    # The run was trained without this line and still counts as complete.
    assert isinstance(train_run(tiny_config, tmp_path / "without", ignore), Finished)


def test_dev_files_are_also_filtered(tiny_config, corpus_files, tmp_path):
    dev = [tmp_path / "dev.en", tmp_path / "dev.de"]
    for path, original in zip(dev, corpus_files, strict=True):
        shutil.copy(original, path)
    add_pair(dev, "x" * 600, "y")
    notices: list[str] = []
    pairs = read_split(with_overrides(tiny_config, [("data.dev", dev)]), notices.append)
    assert len(pairs.dev) == 60
    assert any(text.startswith("dev: dropped 1 of 61 pairs") for text in notices)


def test_a_corpus_with_only_overlong_lines_is_refused():
    with pytest.raises(DataError, match=r"all pairs are longer than data\.max_length=4 pieces"):
        drop_overlong(Corpus(["x" * 100], ["y"]), 4, "nmt_nfkc", ignore)


def test_a_corpus_without_overlong_lines_is_unchanged():
    """The digest must not change, so that runs from earlier versions can be resumed."""
    pairs = Corpus(["x" * 64, "a b"], ["y", "z" * 64])
    assert drop_overlong(pairs, 4, "nmt_nfkc", ignore) is pairs


# Characters that normalization removes (spaces, control, zero-width), composes or expands.
SHRINKING = st.text(
    alphabet=" \t\x01\u200b\u3000e\u0301\u0308\u1100\u1161\ufdfa\ufb03ab", max_size=300
)


@cache
def tokenizer_with(normalization: str) -> Tokenizer:
    sources, targets = zip(*tiny_pairs(), strict=True)
    options = TokenizerConfig(kind="bpe", vocab_size=340, normalization=normalization)
    return train_tokenizers(sources, targets, options).source


@pytest.mark.parametrize("normalization", ["nmt_nfkc", "nfkc", "identity"])
@given(line=SHRINKING, slice_length=st.integers(20, 300))
def test_a_pair_that_fits_is_never_dropped(normalization, line, slice_length):
    [ids] = tokenizer_with(normalization).encode([line])
    max_length = max(1, len(ids))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlong, "_SLICE", slice_length)
        pairs = Corpus([line], ["short"])
        assert drop_overlong(pairs, max_length, normalization, ignore) == pairs


def test_a_line_of_the_longest_pieces_is_not_dropped():
    """A SentencePiece piece has at most 16 characters, including the space before a word."""
    options = TokenizerConfig(kind="bpe", vocab_size=330)
    line = " ".join(["abcdefghijklmno"] * 20)
    tokenizer = train_tokenizers([line] * 9, [line] * 9, options).source
    assert len(tokenizer.encode([line])[0]) == 20
    pairs = Corpus([line], ["short"])
    assert drop_overlong(pairs, 20, "nmt_nfkc", ignore) == pairs


@pytest.mark.parametrize("filler", [" ", "\t", "\u200b", "\u3000", "\x01"])
def test_characters_that_normalization_removes_do_not_add_to_the_length(filler):
    pairs = Corpus([f"a{filler * 200_000}b"], ["short"])
    assert drop_overlong(pairs, 8, "nmt_nfkc", ignore) == pairs


def test_the_block_size_does_not_change_the_ids(tokenizers, tiny_config, monkeypatch):
    pairs = read_split(tiny_config, ignore)
    whole = encode(pairs.train, tokenizers, 32, ignore)
    for n_lines, n_characters in ((7, 1_000_000), (10_000, 50), (10_000, 1)):
        monkeypatch.setattr(line_store, "_BLOCK_LINES", n_lines)
        monkeypatch.setattr(line_store, "_BLOCK_CHARACTERS", n_characters)
        blocks = list(line_store.in_blocks(pairs.train.source))
        assert [line for block in blocks for line in block] == list(pairs.train.source)
        assert all(len(block) == 1 or len("".join(block)) <= n_characters for block in blocks)
        assert max(map(len, blocks)) <= n_lines
        train = Corpus(list(pairs.train.source), list(pairs.train.target))
        again = encode(train, tokenizers, 32, ignore)
        assert (again.source.values == whole.source.values).all()
        assert (again.target.offsets == whole.target.offsets).all()


def test_an_overlong_line_does_not_change_the_plan(corpus_files, tmp_path):
    settings = [("data.train", list(map(str, corpus_files))), ("train.steps", 10)]
    before = plan_for(TrainRequest(tmp_path / "run", None, settings), ignore)
    add_pair(corpus_files, "x" * 5_000_000, "y")
    notices: list[str] = []
    after = plan_for(TrainRequest(tmp_path / "run", None, settings), notices.append)
    assert after.stats == before.stats
    expected = (
        "dropped 1 of 61 pairs longer than 4,096 characters (data.max_length=256), for example "
    )
    assert notices == [f'{expected}"{"x" * 60}…" / "y"']


# Tests of the dev split.


def test_the_dev_set_does_not_depend_on_the_seed(tiny_config):
    one, two = (
        read_split(with_overrides(tiny_config, [("train.seed", n)]), ignore) for n in (1, 2)
    )
    assert one.digest == two.digest
    assert one.dev == two.dev


def test_the_dev_set_equals_that_of_seed_1_in_earlier_versions():
    """The split is fixed so that earlier runs with the default seed can be resumed."""
    lines = [str(i) for i in range(100)]
    _, dev = hold_out(Corpus(lines, lines), 8)
    assert dev.source == ["48", "8", "16", "81", "6", "99", "38", "5"]


NO_FILTERS = [("filters", FilterConfig.none())]  # as in earlier versions


@pytest.fixture
def earlier_version():
    """Run the test with the dev split of mtcli 0.1.0; return a function that undoes this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "choose_dev", lambda pairs, n: choose_dev(pairs, n, seed=5))
        patch.setattr("mtcli.model_dir.directory.__version__", "0.1.0")
        yield patch.undo


def stop_at_6(event) -> None:
    if isinstance(event, StepDone) and event.step == 6:
        signal.raise_signal(signal.SIGTERM)


def test_resuming_a_run_with_a_different_dev_split_is_refused(
    tiny_config, tmp_path, earlier_version
):
    config = with_overrides(tiny_config, [("train.seed", 5), *NO_FILTERS])
    assert isinstance(train_run(config, tmp_path / "run", stop_at_6), Stopped)
    earlier_version()
    shutil.rmtree(tmp_path / "run" / "cache")  # earlier versions did not have a cache
    with pytest.raises(CheckpointError) as error:
        train_run(config, tmp_path / "run", ignore)
    assert (
        "was started by an earlier version of mtcli (0.1.0), which held out different dev pairs "
        in (str(error.value))
    )
    assert "for train.seed=5\n  hint: finish the run with that version" in str(error.value)


def test_a_finished_run_with_a_different_dev_split_counts_as_complete(
    tiny_config, tmp_path, earlier_version
):
    config = with_overrides(tiny_config, [("train.seed", 5), *NO_FILTERS])
    train_run(config, tmp_path / "run", ignore)
    earlier_version()
    assert isinstance(train_run(config, tmp_path / "run", ignore), Finished)
    tiny_config.data.train.text_files[0].write_text("".join(f"{i}\n" for i in range(60)))
    with pytest.raises(CheckpointError, match="trained on different sentence pairs"):
        train_run(config, tmp_path / "run", ignore)


# Tests with few pairs.


def test_too_few_training_pairs_cause_a_warning(tiny_config, tiny_trained):
    notices: list[str] = []
    read_split(tiny_config, notices.append)
    assert any(
        text.startswith("warning: too few training pairs for useful translations: 54; ")
        for text in notices
    )
    notices.clear()
    read_split(
        with_overrides(tiny_config, [("train.start_from", str(tiny_trained))]), notices.append
    )
    assert not any("too few" in text for text in notices)


def test_enough_training_pairs_cause_no_warning(tiny_config, corpus_files):
    for path in corpus_files:
        path.write_text("".join(f"line {i}\n" for i in range(1200)))
    notices: list[str] = []
    read_split(tiny_config, notices.append)
    assert not any("too few" in text for text in notices)


def test_the_warning_is_displayed_and_logged(tiny_config, tmp_path):
    events: list = []
    train_run(tiny_config, tmp_path / "run", events.append)
    assert any("too few" in e.text for e in events if isinstance(e, Notice))
    assert "too few" in (tmp_path / "run" / "log.jsonl").read_text()


# Tests with files that are not UTF-8 text.

TEXT = "The first line.\nThe second – with a dash.\n"


@pytest.mark.parametrize(
    ("codec", "name"),
    [
        ("utf-16", "UTF-16"),
        ("utf-32", "UTF-32"),
        ("utf-16-le", "UTF-16LE"),
        ("utf-16-be", "UTF-16BE"),
        ("utf-32-le", "UTF-32LE"),
        ("utf-32-be", "UTF-32BE"),
    ],
)
@pytest.mark.parametrize("text", [TEXT, "Ένα δύο\n", "один – два\n"])
def test_an_encoding_other_than_utf8_is_recognized_and_the_hint_works(tmp_path, codec, name, text):
    if "16-" in codec and not text.isascii() and text != TEXT:
        pytest.skip("UTF-16 without a byte order mark is detected only in Latin text")
    path = tmp_path / "train.en"
    path.write_bytes(text.encode(codec))
    with pytest.raises(DataError, match=f"train.en is {name}, not UTF-8\n") as error:
        read_aligned([path, path])
    command = error.value.hint.removeprefix("convert it: ")
    assert command.startswith(f"iconv -f {name} -t UTF-8 ")
    if shutil.which("iconv"):
        subprocess.run(command, shell=True, check=True, timeout=TIMEOUT)
        assert (tmp_path / "train.en.txt").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "text", ["BZh is not bzip2", "PK is short", "a\0b", "\0", "a\0b\0 and more of a text", ""]
)
def test_utf8_text_that_resembles_a_different_format_is_read(tmp_path, text):
    (tmp_path / "train.en").write_text(f"{text}\nsecond\n", encoding="utf-8")
    assert list(read_lines(tmp_path / "train.en")) == [text, "second"]


def test_preparing_a_tiny_corpus_keeps_all_pairs(tiny_config, tmp_path):
    pairs = read_split(tiny_config, ignore)
    data = Preparation(tiny_config, DataCache(tmp_path / "data")).dataset(ignore)
    assert len(data.train_set) == len(pairs.train) == 54
