"""Streaming: reading groups of lines, translating them in order, formats, writing."""

import io
import json
import os
import random
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtcli import Translator
from mtcli.config.search import EngineOptions, SearchOptions
from mtcli.data.lines import line_content
from mtcli.errors import DataError
from mtcli.translation.formats import Formats, Line
from mtcli.translation.line_translator import Request, Translation
from mtcli.translation.stream import LineCounts, translate_stream
from mtcli.translation.stream_io import Input, Output, line_groups
from processes import TIMEOUT

pytestmark = pytest.mark.cpu

RAW = st.text(st.sampled_from("a\r\n\ufeff\u2028ü")).map(str.encode) | st.binary()


def lines_of(raw: bytes) -> list[bytes]:
    """Return the lines of a corpus file with these bytes."""
    return [line_content(line, is_first=i == 0) for i, line in enumerate(io.BytesIO(raw))]


class Pipe:
    """The read end of a pipe; a thread writes the chunks, with a pause after each."""

    def __init__(self, chunks: list[bytes], pause: float = 0.0) -> None:
        self.read_end, write_end = os.pipe()
        self.chunks, self.pause = chunks, pause
        self.thread = threading.Thread(target=self.write, args=[write_end])

    def write(self, write_end: int) -> None:
        for chunk in self.chunks:
            os.write(write_end, chunk)
            time.sleep(self.pause)
        os.close(write_end)

    def __enter__(self):
        self.thread.start()
        self.file = os.fdopen(self.read_end, "rb")
        return self.file

    def __exit__(self, *_):
        self.file.close()  # close first: the thread may be waiting for space in the pipe
        self.thread.join(TIMEOUT)


@given(RAW, st.integers(1, 9))
def test_chunk_size_does_not_change_the_lines(raw, size):
    with Pipe([raw[i : i + size] for i in range(0, len(raw), size)]) as pipe:
        arrived = [line for group in line_groups(Input(pipe, "x")) for line in group]
    assert arrived == lines_of(raw)
    available = [line for group in line_groups(Input(io.BytesIO(raw), "x")) for line in group]
    assert available == lines_of(raw)


def test_a_file_is_read_in_full_groups(tmp_path):
    (tmp_path / "x").write_bytes(b"line\n" * 5000)
    with (tmp_path / "x").open("rb") as file:
        assert [len(group) for group in line_groups(Input(file, "x"))] == [2048, 2048, 904]


def test_groups_of_long_lines_are_small(tmp_path):
    (tmp_path / "x").write_bytes((b"x" * 100_000 + b"\n") * 50)
    with (tmp_path / "x").open("rb") as file:
        sizes = [len(group) for group in line_groups(Input(file, "x"))]
    assert sum(sizes) == 50
    assert max(sizes) <= 11


def test_fill_batches_waits_for_full_groups():
    """The groups, and thus the samples for a seed, do not depend on how fast lines arrive."""
    with Pipe([b"line\n" * 100] * 30, pause=0.001) as pipe:
        sizes = [len(group) for group in line_groups(Input(pipe, "x", fill_batches=True))]
    assert sizes == [2048, 952]


def test_a_line_is_yielded_before_the_next_one_arrives():
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as file:
        stream = line_groups(Input(file, "x"))
        for line in (b"a", b"bcd"):
            os.write(write_end, line + b"\n")
            assert next(group for group in stream if group) == [line]
            assert next(stream) == []  # no more lines are available yet
        os.write(write_end, b"e")
        os.close(write_end)
        assert [group for group in stream if group] == [[b"e"]]


@pytest.fixture(scope="session", params=["torch", "ctranslate2"])
def translator(request, copying_model):
    return Translator(copying_model, engine=EngineOptions(engine=request.param))


FAST = SearchOptions(beam_size=1, max_length=4, with_scores=False)


def translate_bytes(translator, raw: bytes, options=FAST) -> tuple[list[str], LineCounts]:
    lines, counts = [], LineCounts()
    inputs = [Input(io.BytesIO(raw), "x")]
    for group in translate_stream(translator, inputs, options, Formats()):
        lines += group.lines
        counts += group.counts
    return lines, counts


@given(st.lists(st.binary().map(lambda raw: raw.replace(b"\n", b"")), max_size=8))
def test_binary_input_produces_one_output_line_per_input_line(translator, lines):
    found, counts = translate_bytes(translator, b"".join(line + b"\n" for line in lines))
    assert len(found) == len(lines) == counts.n_lines
    assert counts.n_invalid == sum(
        b"\xef\xbf\xbd" in content.decode(errors="replace").encode()
        and b"\xef\xbf\xbd" not in content
        for i, line in enumerate(lines)
        for content in [line_content(line, is_first=i == 0)]
    )
    assert all(len(line.splitlines()) <= 1 for line in found)


ALPHABETS = [
    "the man sees a book.,",
    "äöüß€é",
    "\x00\x0b\x0c\x1c\x85\u2028\u2029\t\r",
    "🙂שלום漢字",
]


def random_line(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.1:
        return b""
    if kind < 0.2:
        return rng.randbytes(rng.randrange(12)).replace(b"\n", b"")
    alphabet = rng.choice(ALPHABETS)
    return "".join(rng.choices(alphabet, k=rng.randrange(24))).encode()


def test_thousands_of_random_lines_keep_their_order(translator):
    """Every tested output line equals a separate translation: no line is lost or moved."""
    rng = random.Random(7)
    lines = [random_line(rng) for _ in range(5000)]
    options = SearchOptions(beam_size=1, max_length=2, with_scores=False)
    found, counts = translate_bytes(translator, b"\n".join(lines) + b"\n", options=options)
    assert len(found) == counts.n_lines == len(lines)
    for i in rng.sample(range(1, len(lines)), 40):
        content = line_content(lines[i], is_first=False)
        [[alone]] = translator.translate_all([Request(content.decode(errors="replace"))], options)
        assert alone.text == found[i]


def test_notices_report_the_number_of_lines_with_warnings(copying_model):
    translator = Translator(copying_model)
    raw = b"water \xff\n" + b"the man sees the house. " * 20 + b"\nbread\n"
    _, counts = translate_bytes(translator, raw)
    assert (counts.n_lines, counts.n_invalid, counts.n_split) == (3, 1, 1)
    counts += LineCounts(n_lines=1, n_truncated=1, n_repetitive=1)
    message = "\n".join(counts.notices())
    assert "1 of 4 lines were not valid UTF-8" in message
    assert "1 of 4 lines were longer than the lines the model was trained on" in message
    assert "of 4 lines have a translation that was cut off" in message
    assert "1 of 4 lines have a translation that repeats itself" in message
    assert not list(LineCounts(n_lines=9).notices())


ONE = Translation("ein\tWort", -0.5, alignment=((0, 0), (1, 0)))
WITHOUT_ATTENTION = Translation("drei", 0.0)
TWO = Translation(
    "zwei", -1.25, alignment=((0, 0),), n_parts=2, is_truncated=True, is_repetitive=True
)


@pytest.mark.parametrize(
    ("formats", "expected"),
    [
        (Formats(), "ein\tWort"),
        (Formats(output="tsv"), "ein Wort"),
        (Formats(output="tsv", with_scores=True), "ein Wort\t-0.5000"),
        (Formats(output="tsv", with_alignment=True), "ein Wort\t0-0 1-0"),
        (
            Formats(output="tsv", with_scores=True, n_best=2),
            "ein Wort\t-0.5000\tzwei\t-1.2500",
        ),
        (Formats(output="jsonl"), '{"text": "ä", "translation": "ein\\tWort"}'),
        (
            Formats(output="jsonl", with_scores=True, with_alignment=True),
            '{"text": "ä", "translation": "ein\\tWort", "score": -0.5, "alignment": "0-0 1-0"}',
        ),
        (
            Formats(output="jsonl", n_best=2),
            '{"text": "ä", "translation": "ein\\tWort", "candidates": '
            '[{"translation": "ein\\tWort"}, {"translation": "zwei"}]}',
        ),
    ],
)
def test_each_output_format_writes_the_expected_line(formats, expected):
    candidates = [ONE, TWO] if formats.n_best == 2 else [ONE]
    assert formats.format_line(Line(Request("ä")), candidates) == expected


def test_alignment_is_null_without_attention():
    formats = Formats(output="jsonl", with_alignment=True)
    written = formats.format_line(Line(Request("ä")), [WITHOUT_ATTENTION])
    assert json.loads(written)["alignment"] is None


def test_jsonl_lists_warnings():
    line = Line(Request("a"), is_valid=False)
    written = json.loads(Formats(output="jsonl").format_line(line, [TWO]))
    assert written["warnings"] == ["invalid-utf8", "split", "truncated", "repetition"]


NAMES = st.text().filter(lambda name: name != "warnings")
VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.floats(0, 1))
FIELDS = st.dictionaries(NAMES, VALUES)


@given(FIELDS, st.text())
def test_jsonl_passes_other_fields_through(fields, text):
    formats = Formats("jsonl", "jsonl", field="src")
    fields_in = {**fields, "src": text}
    line = formats.parse_line(json.dumps(fields_in).encode(), "x")
    assert line.request == Request(text)
    raw = formats.format_line(line, [Translation("t", 0.0)])
    raw.encode()
    assert "\n" not in raw
    assert json.loads(raw) == {**fields_in, "translation": "t"}


def test_a_blank_jsonl_line_stays_blank():
    formats = Formats("jsonl", "jsonl")
    assert formats.format_line(formats.parse_line(b" ", "x"), [Translation("", 0.0)]) == ""


def test_all_tsv_rows_have_the_same_number_of_columns():
    formats = Formats("tsv", "tsv", with_scores=True, n_best=2)
    blank = formats.format_line(Line(Request(""), columns=["id"]), [Translation("", 0.0)])
    full = formats.format_line(Line(Request("a"), columns=["id"]), [ONE, TWO])
    assert blank.count("\t") == full.count("\t") == 4
    assert blank.endswith("\tid")


def test_jsonl_output_does_not_repeat_warnings_from_the_input():
    formats = Formats("jsonl", "jsonl")
    line = formats.parse_line(b'{"text": "a", "warnings": ["split"], "translation": "old"}', "x")
    assert json.loads(formats.format_line(line, [ONE])) == {"text": "a", "translation": "ein\tWort"}


def test_tsv_input_has_text_then_prefix_then_other_columns():
    line = Formats("tsv", "tsv", has_prefix=True).parse_line(b"text\tpre\tid 7\t", "x")
    assert line.request == Request("text", "pre")
    assert Formats("tsv", "tsv").format_line(line, [ONE]) == "ein Wort\tid 7\t"
    assert Formats("tsv", "tsv", has_prefix=True).parse_line(b"text", "x").request == Request(
        "text"
    )


@pytest.mark.parametrize(
    ("formats", "raw", "message"),
    [
        (Formats("jsonl"), b"{", "x, line 2: invalid JSON"),
        (Formats("jsonl"), b"[" * 100_000, "x, line 2: invalid JSON"),
        (Formats("jsonl"), b'{"text": "a", "x": 1e999}', "invalid JSON"),
        (Formats("jsonl"), b'{"text": "a", "x": NaN}', "invalid JSON"),
        (Formats("jsonl"), b'["text"]', "x, line 2: expected a JSON object with the field 'text'"),
        (
            Formats("jsonl", field="src"),
            b'{"text": ""}',
            "expected a JSON object with the field 'src'",
        ),
        (Formats("jsonl"), b'{"text": 1}', "is not a string"),
        (
            Formats("jsonl", has_prefix=True),
            b'{"text": "a", "prefix": ["b"]}',
            "is not a string",
        ),
        (Formats(is_strict=True), b"a\xff", r"x, line 2: not valid UTF-8 \(.*byte 2\)"),
    ],
)
def test_an_input_error_is_raised_after_the_lines_before_it(copying_model, formats, raw, message):
    first = b'{"text": "a", "src": "b"}'
    groups = translate_stream(
        Translator(copying_model), [Input(io.BytesIO(first + b"\n" + raw), "x")], FAST, formats
    )
    assert len(next(groups).lines) == 1
    with pytest.raises(DataError, match=message):
        next(groups)


def test_a_full_disk_leaves_no_partial_line(tmp_path, monkeypatch):
    n_free = [10]  # free bytes on the disk

    def write(descriptor, data):
        if not n_free[0]:
            raise OSError(28, "No space left on device")
        n = min(len(data), n_free[0])
        n_free[0] -= n
        return real_write(descriptor, data[:n])

    real_write = os.write
    monkeypatch.setattr(os, "write", write)
    with Output((tmp_path / "out").open("wb"), "out") as out:
        out.write(["ab"])
        with pytest.raises(DataError, match="cannot write out: No space left on device"):
            out.write(["cd", "efghij"])
    assert (tmp_path / "out").read_bytes() == b"ab\ncd\n"
