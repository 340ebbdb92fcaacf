"""The line contract, from bytes to bytes: n lines in, n lines out, in order."""

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
from mtcli.errors import DataError
from mtcli.lines import line_content
from mtcli.options import EngineOptions, SearchOptions
from mtcli.stream import Formats, Input, Output, Tally, translate_stream
from mtcli.stream.formats import Line
from mtcli.stream.lines import windows
from mtcli.translation import Request, Translation
from processes import LIMIT

pytestmark = pytest.mark.cpu

RAW = st.text(st.sampled_from("a\r\n\ufeff\u2028ü")).map(str.encode) | st.binary()


def lines_of(raw: bytes) -> list[bytes]:
    """The same lines as those of a corpus file that holds the same bytes."""
    return [line_content(line, is_first=i == 0) for i, line in enumerate(io.BytesIO(raw))]


class Pipe:
    """The reading end of a pipe into which a thread writes, now and then."""

    def __init__(self, parts: list[bytes], pause: float = 0.0) -> None:
        self.end, entry = os.pipe()
        self.parts, self.pause = parts, pause
        self.thread = threading.Thread(target=self.write, args=[entry])

    def write(self, entry: int) -> None:
        for part in self.parts:
            os.write(entry, part)
            time.sleep(self.pause)
        os.close(entry)

    def __enter__(self):
        self.thread.start()
        self.file = os.fdopen(self.end, "rb")
        return self.file

    def __exit__(self, *_):
        self.file.close()  # first, or else the thread could wait for room in the pipe
        self.thread.join(LIMIT)


@given(RAW, st.integers(1, 9))
def test_lines_come_whole_however_the_bytes_arrive(raw, size):
    with Pipe([raw[i : i + size] for i in range(0, len(raw), size)]) as pipe:
        arrived = [line for window in windows(Input(pipe, "x")) for line in window]
    assert arrived == lines_of(raw)
    assert [line for window in windows(Input(io.BytesIO(raw), "x")) for line in window] == lines_of(
        raw
    )


def test_a_file_comes_in_full_windows(tmp_path):
    (tmp_path / "x").write_bytes(b"line\n" * 5000)
    with (tmp_path / "x").open("rb") as file:
        assert [len(window) for window in windows(Input(file, "x"))] == [2048, 2048, 904]


def test_long_lines_are_not_collected_for_long(tmp_path):
    (tmp_path / "x").write_bytes((b"x" * 100_000 + b"\n") * 50)
    with (tmp_path / "x").open("rb") as file:
        sizes = [len(window) for window in windows(Input(file, "x"))]
    assert sum(sizes) == 50
    assert max(sizes) <= 11


def test_whoever_is_patient_gets_full_windows():
    """So that what is found does not depend on how fast lines arrive."""
    with Pipe([b"line\n" * 100] * 30, pause=0.001) as pipe:
        sizes = [len(window) for window in windows(Input(pipe, "x", is_patient=True))]
    assert sizes == [2048, 952]


def test_a_line_is_given_on_before_the_next_one_comes():
    end, entry = os.pipe()
    with os.fdopen(end, "rb") as file:
        stream = windows(Input(file, "x"))
        for line in (b"a", b"bcd"):
            os.write(entry, line + b"\n")
            assert next(window for window in stream if window) == [line]
            assert next(stream) == []  # and says that it would wait now
        os.write(entry, b"e")
        os.close(entry)
        assert [window for window in stream if window] == [[b"e"]]


@pytest.fixture(scope="session", params=["torch", "ctranslate2"])
def translator(request, copying_model):
    return Translator(copying_model, engine=EngineOptions(engine=request.param))


FAST = SearchOptions(beam_size=1, max_length=4, with_scores=False)


def translated(translator, raw: bytes, options=FAST) -> tuple[list[str], Tally]:
    lines, tally = [], Tally()
    inputs = [Input(io.BytesIO(raw), "x")]
    for written in translate_stream(translator, inputs, options, Formats()):
        lines += written.lines
        tally += written.tally
    return lines, tally


@given(st.lists(st.binary().map(lambda raw: raw.replace(b"\n", b"")), max_size=8))
def test_every_line_of_bytes_gets_its_line(translator, lines):
    found, tally = translated(translator, b"".join(line + b"\n" for line in lines))
    assert len(found) == len(lines) == tally.n_lines
    assert tally.n_invalid == sum(
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


def test_thousands_of_random_lines_come_back_in_order(translator):
    """Each by itself says the same: so none is lost, doubled or exchanged."""
    rng = random.Random(7)
    lines = [random_line(rng) for _ in range(5000)]
    options = SearchOptions(beam_size=1, max_length=2, with_scores=False)
    found, tally = translated(translator, b"\n".join(lines) + b"\n", options=options)
    assert len(found) == tally.n_lines == len(lines)
    for i in rng.sample(range(1, len(lines)), 40):
        content = line_content(lines[i], is_first=False)
        [[alone]] = translator.translate_all([Request(content.decode(errors="replace"))], options)
        assert alone.text == found[i]


def test_what_is_unusual_is_counted_and_told(copying_model):
    translator = Translator(copying_model)
    raw = b"water \xff\n" + b"the man sees the house. " * 20 + b"\nbread\n"
    _, tally = translated(translator, raw)
    assert (tally.n_lines, tally.n_invalid, tally.n_split) == (3, 1, 1)
    tally += Tally(n_lines=1, n_cut=1, n_runaway=1)
    says = "\n".join(tally.notices())
    assert "1 of 4 lines were not valid UTF-8" in says
    assert "1 of 4 lines were longer than what the model was trained on" in says
    assert "of 4 lines have a translation that was cut off" in says
    assert "1 of 4 lines have a translation that repeats itself" in says
    assert not list(Tally(n_lines=9).notices())


# What lines hold.

ONE = Translation("ein\tWort", -0.5, alignment=((0, 0), (1, 0)))
BLIND = Translation("drei", 0.0)
TWO = Translation("zwei", -1.25, alignment=((0, 0),), n_parts=2, is_cut=True, is_runaway=True)


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
def test_what_is_written(formats, expected):
    candidates = [ONE, TWO] if formats.n_best == 2 else [ONE]
    assert formats.written(Line(Request("ä")), candidates) == expected


def test_a_model_that_looks_at_nothing_has_no_links():
    formats = Formats(output="jsonl", with_alignment=True)
    written = formats.written(Line(Request("ä")), [BLIND])
    assert json.loads(written)["alignment"] is None


def test_jsonl_marks_what_is_unusual():
    line = Line(Request("a"), is_valid=False)
    written = json.loads(Formats(output="jsonl").written(line, [TWO]))
    assert written["warnings"] == ["invalid-utf8", "split", "truncated", "repetition"]


NAMES = st.text().filter(lambda name: name != "warnings")
VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.floats(0, 1))
FIELDS = st.dictionaries(NAMES, VALUES)


@given(FIELDS, st.text())
def test_other_fields_pass_through(fields, text):
    formats = Formats("jsonl", "jsonl", field="src")
    given_ = {**fields, "src": text}
    line = formats.read(json.dumps(given_).encode(), "x")
    assert line.request == Request(text)
    raw = formats.written(line, [Translation("t", 0.0)])
    raw.encode()
    assert "\n" not in raw
    assert json.loads(raw) == {**given_, "translation": "t"}


def test_blank_lines_of_jsonl_stay_blank():
    formats = Formats("jsonl", "jsonl")
    assert formats.written(formats.read(b" ", "x"), [Translation("", 0.0)]) == ""


def test_rows_of_tsv_have_as_many_columns_each():
    formats = Formats("tsv", "tsv", with_scores=True, n_best=2)
    blank = formats.written(Line(Request(""), columns=["id"]), [Translation("", 0.0)])
    full = formats.written(Line(Request("a"), columns=["id"]), [ONE, TWO])
    assert blank.count("\t") == full.count("\t") == 4
    assert blank.endswith("\tid")


def test_warnings_of_an_earlier_translation_are_not_passed_on():
    formats = Formats("jsonl", "jsonl")
    line = formats.read(b'{"text": "a", "warnings": ["split"], "translation": "old"}', "x")
    assert json.loads(formats.written(line, [ONE])) == {"text": "a", "translation": "ein\tWort"}


def test_tsv_has_the_text_then_the_prefix_then_what_is_passed_on():
    line = Formats("tsv", "tsv", has_prefix=True).read(b"text\tpre\tid 7\t", "x")
    assert line.request == Request("text", "pre")
    assert Formats("tsv", "tsv").written(line, [ONE]) == "ein Wort\tid 7\t"
    assert Formats("tsv", "tsv", has_prefix=True).read(b"text", "x").request == Request("text")


@pytest.mark.parametrize(
    ("formats", "raw", "says"),
    [
        (Formats("jsonl"), b"{", "x, line 2: not JSON"),
        (Formats("jsonl"), b"[" * 100_000, "x, line 2: not JSON"),
        (Formats("jsonl"), b'{"text": "a", "x": 1e999}', "not JSON"),
        (Formats("jsonl"), b'{"text": "a", "x": NaN}', "not JSON"),
        (Formats("jsonl"), b'["text"]', "x, line 2: no object with the field 'text'"),
        (Formats("jsonl", field="src"), b'{"text": ""}', "no object with the field 'src'"),
        (Formats("jsonl"), b'{"text": 1}', "is not a string"),
        (
            Formats("jsonl", has_prefix=True),
            b'{"text": "a", "prefix": ["b"]}',
            "is not a string",
        ),
        (Formats(is_strict=True), b"a\xff", r"x, line 2: not valid UTF-8 \(.*byte 2\)"),
    ],
)
def test_a_mistake_is_told_after_what_came_before_it(copying_model, formats, raw, says):
    first = b'{"text": "a", "src": "b"}'
    written = translate_stream(
        Translator(copying_model), [Input(io.BytesIO(first + b"\n" + raw), "x")], FAST, formats
    )
    assert len(next(written).lines) == 1
    with pytest.raises(DataError, match=says):
        next(written)


# Writing.


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    room = [10]  # bytes on the disk

    def write(descriptor, data):
        if not room[0]:
            raise OSError(28, "No space left on device")
        n = min(len(data), room[0])
        room[0] -= n
        return real_write(descriptor, data[:n])

    real_write = os.write
    monkeypatch.setattr(os, "write", write)
    with Output((tmp_path / "out").open("wb"), "out") as out:
        out.write(["ab"])
        with pytest.raises(DataError, match="cannot write out: No space left on device"):
            out.write(["cd", "efghij"])
    assert (tmp_path / "out").read_bytes() == b"ab\ncd\n"
