"""Two text files give the same pairs and errors whether they are read in blocks or by line."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mtcli.config.corpora import CorpusSource
from mtcli.data import line_store, lines
from mtcli.data.corpus import CorpusReader
from mtcli.data.formats import open_corpus, text_blocks
from mtcli.errors import DataError

PARTS = [b"a", b"bc", "\u00e4\u00f6".encode(), " \u3000".encode(), b"\r", b"\n", b"\r\n", b"\xff"]
CONTENT = st.lists(st.sampled_from([*PARTS, b"\n", b"\n"]), max_size=12).map(b"".join)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def write_files(directory, source, target):
    """Write two files; return their names."""
    paths = directory / "source", directory / "target"
    for path, content in zip(paths, (source, target), strict=True):
        path.write_bytes(content)
    return [str(path) for path in paths]


def read(pairs):
    """Return all pairs before the first error, and the error."""
    found = []
    try:
        found.extend(pairs)
    except DataError as error:
        return found, (str(error), error.hint)
    return found, None


def in_rows(blocks):
    for sources, targets in blocks:
        yield from zip(sources, targets, strict=True)


@given(CONTENT, CONTENT, st.booleans(), st.integers(1, 9), st.integers(1, 5))
@example(b"a\nb\n", b"a\nb", True, 3, 10)
@example(b"a\r\nb\r", b"\na", False, 1, 10)
@example(b"", b"", False, 3, 10)
@example(b"a", b"\r\r", False, 3, 10)
@example(b"a\n" * 20, b"b\n" * 19 + b"\xff\n", False, 4, 3)
@example("a\n".encode("utf-16"), b"a\n", False, 4, 3)
@example(b"a\n" + b"b" * 2000, b"a\nb\n", False, 100, 3)
def test_blocks_equal_rows(tmp_path_factory, source, target, has_mark, size, n_lines):
    mark = BYTE_ORDER_MARK if has_mark else b""
    names = write_files(tmp_path_factory.mktemp("text"), mark + source, mark + target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_blocks, "_READ_SIZE", size)
        patch.setattr(line_store, "_BLOCK_LINES", n_lines)
        patch.setattr(lines, "_MAX_LINE", 1000)
        opened = open_corpus(names)
        rows, error = read(opened.rows)
        pairs, block_error = read(in_rows(opened.blocks))
    assert block_error == error
    assert pairs == (rows[: len(pairs)] if error else rows)


def test_regular_files_are_read_only_once(tmp_path, monkeypatch):
    names = write_files(tmp_path, *[b"a\r\n\xc3\xa4\n" * 100] * 2)
    monkeypatch.setattr(text_blocks, "_READ_SIZE", 50)
    monkeypatch.setattr(text_blocks, "paired_lines", pytest.fail)
    blocks = list(open_corpus(names).blocks)
    assert len(blocks) > 10
    assert list(in_rows(blocks)) == [("a", "a"), ("\u00e4", "\u00e4")] * 100


def test_a_reversed_corpus_is_read_in_blocks(tmp_path):
    names = write_files(tmp_path, b"one\n" * 20, b"two\n" * 20)
    source = CorpusSource.parse([{"corpus": names, "reverse": True}])
    corpus = CorpusReader().read(source, lambda _: None)
    assert (corpus.source[0], corpus.target[0], len(corpus)) == ("two", "one", 20)
