"""Lines on disk behave like lists of lines."""

import errno
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtcli.data import line_store
from mtcli.data.corpus import Corpus
from mtcli.data.encoded_lines import EncodedLines
from mtcli.data.line_store import (
    LineStore,
    SelectedLines,
    aligned_blocks,
    blocks_of,
    take_lines,
)
from mtcli.errors import DataError

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=12)
LINES = st.lists(TEXT, min_size=1, max_size=40)


def stored(lines: list[str], block_size: int) -> LineStore:
    """Return `lines` in a store with blocks of `block_size` lines."""
    store = LineStore()
    for start in range(0, len(lines), block_size):
        store.append(lines[start : start + block_size])
    return store


@given(LINES, st.integers(1, 9), st.data())
def test_a_store_equals_the_list_of_its_lines(lines, block_size, data):
    store = stored(lines, block_size)
    assert len(store) == len(lines)
    assert list(store) == lines
    assert store.longest == max(map(len, lines))
    rows = data.draw(st.lists(st.integers(0, len(lines) - 1)))
    assert store.take(rows) == [lines[row] for row in rows]
    assert store[rows[0] if rows else 0] == lines[rows[0] if rows else 0]
    assert store[1:5] == lines[1:5]
    assert store[-1] == lines[-1]


@given(LINES, st.integers(1, 9), st.data())
def test_a_selection_equals_the_list_without_the_excluded_lines(lines, block_size, data):
    excluded = sorted(data.draw(st.sets(st.integers(0, len(lines) - 1))))
    expected = [line for row, line in enumerate(lines) if row not in excluded]
    selected = SelectedLines(stored(lines, block_size), np.array(excluded, dtype=np.int64))
    assert len(selected) == len(expected)
    assert list(selected) == expected
    rows = data.draw(st.lists(st.integers(0, len(expected) - 1))) if expected else []
    assert take_lines(selected, rows) == [expected[row] for row in rows]


@given(LINES, st.integers(1, 9), st.data())
def test_a_corpus_on_disk_equals_one_in_memory(lines, block_size, data):
    targets = [line[::-1] for line in lines]
    memory = Corpus(lines, targets)
    disk = Corpus(stored(lines, block_size), stored(targets, block_size))
    excluded = sorted(data.draw(st.sets(st.integers(0, len(lines) - 1))))
    for one, other in ((memory, disk), (memory.exclude(excluded), disk.exclude(excluded))):
        assert one.digest == other.digest
        pairs = [
            [pair for block in c.blocks() for pair in zip(*block, strict=True)]
            for c in (one, other)
        ]
        assert pairs[0] == pairs[1] == list(zip(one.source, one.target, strict=True))
        assert one.sample(3) == other.sample(3) or len(one) <= 3


@given(LINES, st.integers(1, 9))
def test_lazy_blocks_equal_decoded_blocks(lines, block_size):
    for corpus in (Corpus(lines, lines), Corpus(*[stored(lines, block_size)] * 2)):
        lazy = [(list(source), list(target)) for source, target in corpus.lazy_blocks()]
        assert lazy == list(corpus.blocks())


SPACES = [chr(code) for code in range(0x110000) if chr(code).isspace() and chr(code) != "\n"]


def test_lines_of_any_space_are_blank():
    lines = [*SPACES, *(f"{space}{space}" for space in SPACES), *(f"{s}a" for s in SPACES), ""]
    n_blank = 2 * len(SPACES)
    assert EncodedLines.of(lines).blank_rows() == [*range(n_blank), len(lines) - 1]


@given(LINES)
def test_blank_and_equal_lines_are_found(lines):
    encoded = EncodedLines.of(lines)
    assert encoded.blank_rows() == [row for row, line in enumerate(lines) if not line.strip()]
    others = [line if len(line) % 2 else line[::-1] for line in lines]
    n_same = sum(line == other for line, other in zip(lines, others, strict=True))
    assert encoded.n_same(EncodedLines.of(others)) == n_same


@given(LINES, st.data())
def test_encoded_lines_can_be_split(lines, data):
    n_lines = data.draw(st.integers(0, len(lines)))
    first, rest = EncodedLines.of(lines).split(n_lines)
    assert list(first) == lines[:n_lines]
    assert [rest[row] for row in range(len(rest))] == lines[n_lines:]
    assert rest.sizes.tolist() == [len(line.encode()) for line in lines[n_lines:]]


def test_a_sample_is_fixed_sorted_and_has_no_duplicates():
    lines = [f"{i:03}" for i in range(500)]
    sample = Corpus(lines, lines).sample(50)
    assert sample == Corpus(lines, lines).sample(50)
    assert list(sample.source) == sorted(set(sample.source))
    assert len(sample) == 50
    assert sample.source != lines[:50]


@given(LINES, st.integers(1, 5), st.integers(1, 30))
def test_blocks_are_limited_in_lines_and_characters(lines, n_lines, n_characters):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_store, "_BLOCK_LINES", n_lines)
        patch.setattr(line_store, "_BLOCK_CHARACTERS", n_characters)
        blocks = list(aligned_blocks((line, line) for line in lines))
        assert [line for block, _ in blocks for line in block] == lines
        assert all(sources == targets for sources, targets in blocks)
        assert all(len(s) <= n_lines for s, _ in blocks)
        assert all(len(s) == 1 or 2 * len("".join(s)) <= n_characters for s, _ in blocks)
        assert list(blocks_of(lines))


def test_unpaired_surrogates_are_replaced():
    assert list(LineStore.of(["a\ud800b", "c"])) == ["a\ufffdb", "c"]


def test_a_store_leaves_no_file_and_no_open_file_descriptor(tmp_path):
    store = LineStore(tmp_path)
    store.append(["a"])
    assert list(tmp_path.iterdir()) == []
    descriptor = store._descriptor
    os.fstat(descriptor)
    del store
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_full_disk_is_a_user_error(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = LineStore(tmp_path)
    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(DataError, match="cannot store the corpus in .*No space left on device"):
        store.append(["a"])


def test_a_directory_that_cannot_be_written_to_is_a_user_error(tmp_path):
    with pytest.raises(DataError, match="cannot create a temporary file in .*missing"):
        LineStore(tmp_path / "missing")
