"""Decompression of files and pipes, detected from their content, and reading of lines."""

import io
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus_files import COMPRESS
from mtcli.data import lines
from mtcli.data.compression import open_decompressed, suffix_of
from mtcli.data.lines import paired_lines, read_lines
from mtcli.errors import DataError

KINDS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
TEXT = "".join(f"line {i} – with a dash {i * 7919 % 1000}\n" for i in range(20_000))


def read_pairs(source, target):
    return paired_lines((source, read_lines(source)), (target, read_lines(target)))


@pytest.fixture(params=KINDS)
def suffix(request):
    return request.param


def read_all(name) -> bytes:
    with open_decompressed(str(name)) as file:
        return file.read()


@given(st.binary(max_size=100))
def test_a_compressed_file_is_read_like_the_plain_file(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("data") / "x"
    for compress in COMPRESS.values():
        path.write_bytes(compress(b"text " + data))
        assert read_all(path) == b"text " + data


def test_concatenated_parts_are_read_in_order(suffix, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(COMPRESS[suffix](b"first\n") + COMPRESS[suffix](b"second\n"))
    assert list(read_lines(path)) == ["first", "second"]
    with open_decompressed(str(path)) as file:
        assert file.compression == KINDS[suffix]


def test_large_files_are_read_completely(suffix, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(COMPRESS[suffix]((TEXT * 5).encode()))
    assert "".join(f"{line}\n" for line in read_lines(path)) == TEXT * 5


def test_files_written_by_command_line_tools_are_read(suffix, tmp_path):
    tool = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}[suffix]
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    data = subprocess.run([tool, "-c"], input=TEXT.encode(), stdout=subprocess.PIPE, check=True)
    (tmp_path / "x").write_bytes(data.stdout)
    assert read_all(tmp_path / "x").decode() == TEXT


@pytest.mark.parametrize("has_peek", [True, False])
def test_standard_input_is_decompressed_and_stays_open(suffix, has_peek, monkeypatch):
    buffer = io.BytesIO(COMPRESS[suffix](TEXT.encode()))
    buffer = io.BufferedReader(buffer) if has_peek else buffer
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=buffer))
    assert list(read_lines(Path("-"))) == TEXT.splitlines()
    assert not buffer.closed


@pytest.mark.parametrize("fraction", [0.3, 0.9])
def test_truncated_data_is_reported_after_all_complete_lines(suffix, fraction, tmp_path):
    path = tmp_path / f"corpus.en{suffix}"
    data = COMPRESS[suffix](TEXT.encode())
    path.write_bytes(data[: int(len(data) * fraction)])
    complete = []
    message = rf"corpus.en{suffix}, line [\d,]+: the {KINDS[suffix]} data is truncated"
    with pytest.raises(DataError, match=message) as error:
        complete.extend(read_lines(path))
    assert error.value.hint == "copy or download the file again"
    assert complete == TEXT.splitlines()[: len(complete)]
    assert f", line {len(complete) + 1:,}:" in str(error.value)


def test_damaged_data_is_reported(suffix, tmp_path):
    path = tmp_path / f"corpus.en{suffix}"
    data = bytearray(COMPRESS[suffix](TEXT.encode()))
    # Damage the start: without a checksum, zstd may not detect damage in later bytes.
    data[14:54] = bytes(40)
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"line [\d,]+: the {KINDS[suffix]} data is damaged"):
        list(read_lines(path))


def test_damage_that_decompresses_to_garbage_is_not_reported_as_an_encoding_error(tmp_path):
    path = tmp_path / "corpus.en.gz"
    data = bytearray(COMPRESS[".gz"](TEXT.encode()))
    middle = len(data) // 2
    data[middle : middle + 40] = bytes(40)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"line \d,\d+: the gzip data is damaged"):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("a.tsv.gz", ".tsv"), ("a.TSV", ".tsv"), ("a/b.c/d", ""), ("a.gz", ""), ("a.en.zst", ".en")],
)
def test_the_format_suffix_excludes_the_compression_suffix(name, suffix):
    assert suffix_of(name) == suffix


def test_a_file_without_read_permission_is_reported(tmp_path, monkeypatch):
    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match="cannot read .*: Permission denied"):
        open_decompressed(str(tmp_path / "x"))


# Tests of reading lines.


def plain_lines(data: bytes) -> list[str]:
    """Return the lines in `data`, without decoding it in blocks."""
    raw = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [line.removesuffix(b"\r").decode() for line in (raw if raw[-1] else raw[:-1])]


@given(
    st.text(st.sampled_from("aü\r\n\n\u2028\x85\x00中"), max_size=60),
    st.integers(1, 9),
    st.booleans(),
)
def test_the_block_size_does_not_change_the_lines(tmp_path_factory, text, block, has_mark):
    data = (b"\xef\xbb\xbf" if has_mark else b"") + b"0" + text.encode()
    path = tmp_path_factory.mktemp("lines") / "x"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_BLOCK", block)
        assert list(read_lines(path)) == plain_lines(data)


def test_the_error_for_invalid_utf8_in_a_later_block_names_the_line(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "_BLOCK", 64)
    path = tmp_path / "x"
    path.write_bytes(b"good line\n" * 100 + b"ab\xff\n" + b"good line\n" * 100)
    found = []
    with pytest.raises(DataError, match=r"x, line 101: not valid UTF-8 .*byte 3\)"):
        found.extend(read_lines(path))
    assert found == ["good line"] * 100


def test_an_endless_line_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "_BLOCK", 64)
    monkeypatch.setattr(lines, "_MAX_LINE", 1 << 20)
    path = tmp_path / "x"
    path.write_bytes(b"first\n" + b"x" * (3 << 20) + b"\n")
    with pytest.raises(DataError, match="x, line 2: longer than 1 MB"):
        list(read_lines(path))


def test_pairs_are_streamed_and_counted(tmp_path):
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_text("a\nb\n")
    target.write_text("A\nB\n")
    assert list(read_pairs(source, target)) == [("a", "A"), ("b", "B")]
    target.write_text("A\nB\nC\nD\n")
    pairs = read_pairs(source, target)
    assert [next(pairs), next(pairs)] == [("a", "A"), ("b", "B")]
    with pytest.raises(DataError, match="s has 2 lines, but .*t has 4"):
        next(pairs)
    with pytest.raises(DataError, match="t has 4 lines, but .*s has 2"):
        list(read_pairs(target, source))


@pytest.mark.parametrize(("source", "target"), [("", "a\n"), ("a\n", ""), ("", "")])
def test_an_empty_file_is_refused(tmp_path, source, target):
    (tmp_path / "s").write_text(source)
    (tmp_path / "t").write_text(target)
    empty = "t" if source else "s"
    with pytest.raises(DataError, match=f"{empty} is empty"):
        list(read_pairs(tmp_path / "s", tmp_path / "t"))


def test_a_zip_archive_is_not_a_text_file(tmp_path):
    path = tmp_path / "x.en"
    path.write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(DataError, match="is a zip archive") as error:
        list(read_lines(path))
    assert f"zip:{path}" in error.value.hint
