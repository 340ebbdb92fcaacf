"""Malformed corpora: every error message names the location and suggests a fix."""

import io
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import corpus_files
from corpus_files import WRITERS
from mtcli.data.formats import Languages, hub, open_corpus
from mtcli.errors import DataError

EN_DE = Languages("en", "de")
PAIRS = [(f"source {i}", f"target {i}") for i in range(2000)]

BOMB = '<!DOCTYPE t [<!ENTITY a "xxxxxxxxxx"><!ENTITY b "&a;&a;&a;&a;&a;">]>\n'
EXTERNAL = '<!DOCTYPE t [<!ENTITY a SYSTEM "file:///etc/passwd">]>\n'
UNIT = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv></tu>\n'


def tmx(units: str, doctype: str = "", header: str = 'srclang="en"') -> str:
    return f"{doctype}<tmx><header {header}/>\n<body>\n{units}</body></tmx>"


def xliff(languages: str, units: str = "") -> str:
    return f"<xliff version='1.2'>\n<file {languages}><body>{units}</body></file></xliff>"


JSON_LINES = '{"en": "a", "de": "b"}\n'
SRC_SGM = '<srcset><doc docid="d">\n<seg id="1">a</seg>\n<seg id="2">b</seg></doc></srcset>'
REF_SGM = '<refset><doc docid="d">\n<seg id="1">a</seg>\n<seg id="3">b</seg></doc></refset>'
WMT = '<dataset><doc id="d"><src lang="en"><seg id="1">a</seg></src>{}</doc></dataset>'

# Name of the corpus, content of its file, expected part of the message.
FILES: list[tuple[str, str | bytes, str]] = [
    ("x.tsv", "", "x.tsv is empty"),
    ("x.tsv", "a\tb\n" * 4 + "a\n", "x.tsv, line 5: 1 column, but exactly 2 are required"),
    ("x.tsv", "a\tb\n" * 4 + "a\tb\tc\n", "x.tsv, line 5: 3 columns, but exactly 2"),
    ("x.tsv", "a\tb\n\nc\td\n", "x.tsv, line 2: 1 column"),
    ("x.tsv#1,3", "a\tb\tc\na\tb\n", "x.tsv, line 2: 2 columns, but at least 3 are required"),
    ("x.tsv", "a\tb\tc\n", "x.tsv: cannot determine the columns; its columns are 1 (a), 2 (b)"),
    ("x.tsv", "just a line\n", "x.tsv, line 1: only one column"),
    ("x.tsv#1,4", "a\tb\tc\n", "x.tsv: cannot select #1,4; its columns are 1 (a)"),
    ("x.tsv#0,1", "a\tb\tc\n", "x.tsv: cannot select #0,1"),
    ("x.tsv#1", "a\tb\tc\n", "x.tsv: cannot select #1"),
    ("x.tsv#en,fr", "en\tde\n", "x.tsv: no column fr in the first line; its columns are"),
    ("x.tsv#en", "en\tde\n", "x.tsv: the selection #en must have two names"),
    ("x.tsv", "a\tb\n".encode("utf-16"), "x.tsv is UTF-16, not UTF-8"),
    ("x.tsv", b"a\tb\na\tb\xff\n", "x.tsv, line 2: not valid UTF-8"),
    ("x.csv", 'a,b\n"x"y,b\n', "x.csv, line 2: not valid CSV"),
    ("x.csv", 'a,b\na,"b\n', "x.csv, line 2: not valid CSV (unexpected end of data)"),
    ("x.csv", "a,b\na\n", "x.csv, line 2: 1 column"),
    ("x.jsonl", JSON_LINES * 6 + '{"en": \n', "x.jsonl, line 7: not valid JSON"),
    ("x.jsonl", JSON_LINES + '{"en": "a"}\n', "x.jsonl, line 2: no field de"),
    ("x.jsonl", JSON_LINES + '{"en": "a", "de": null}\n', "line 2: the field de is null, not text"),
    ("x.jsonl", JSON_LINES + '{"en": 7, "de": "b"}\n', "line 2: the field en is 7, not text"),
    ("x.jsonl", JSON_LINES + "[1]\n", "x.jsonl, line 2: not a JSON object"),
    ("x.jsonl", JSON_LINES + '{"en": "\\ud800", "de": "b"}\n', "line 2: not valid Unicode"),
    ("x.jsonl", JSON_LINES + "[" * 100_000 + "\n", "x.jsonl, line 2: not valid JSON"),
    ("x.jsonl", '{"fr": "a", "it": "b"}\n', "cannot determine the fields for en and de; its"),
    ("x.jsonl#a,b", JSON_LINES, "x.jsonl: no field a; its fields are en, de"),
    ("x.json", '[\n {"en": "a"}\n]', "x.json, line 1: expected one JSON object per line"),
    ("x.json", '[{"en": "a"}]', "x.json, line 1: expected one JSON object per line"),
    ("x.json", '{\n "en": "a"\n}', "x.json, line 1: expected one JSON object per line"),
    ("x.json", "\n \n", "x.json, line 1: not valid JSON"),
    ("x.json", '{"translation": {"en": "a", "de": "b"}}\n{"translation": 1}', "2: no field en"),
    ("x.parquet", "PAR1 and no more", "cannot read x.parquet: "),
    ("x.parquet", "text", "x.parquet is not Parquet data"),
    ("x.arrow", "text", "x.arrow is not Arrow data"),
    ("x.feather", "ARROW1 and no more", "cannot read x.feather: "),
    ("x.tmx", tmx(UNIT.format("a") * 3), "x.tmx, line 5: no unit so far has both en and de; found"),
    ("x.tmx", tmx(UNIT.format("a") * 3000), "x.tmx, line 1,002: no unit so far has both en and de"),
    ("x.tmx", tmx(""), "no unit so far has both en and de; found: no languages"),
    ("x.tmx", tmx(UNIT.format("a")).replace("</body>", ""), "x.tmx, line 4: not valid XML (mism"),
    ("x.tmx", tmx(UNIT.format("a & b")), "x.tmx, line 3: not valid XML"),
    ("x.tmx", tmx(UNIT.format("&b;"), BOMB), "x.tmx, line 1: the file declares or refers"),
    ("x.tmx", tmx(UNIT.format("&a;"), EXTERNAL), "x.tmx, line 1: the file declares or refers to"),
    ("x.tmx", tmx(UNIT.format("a"), '<?xml version="1.0" encoding="no-such"?>'), "x.tmx, line 1:"),
    ("x.tmx", "text", "x.tmx, line 1: not valid XML"),
    ("x.xlf", xliff('source-language="en" target-language="fr"'),
     "x.xlf, line 2: the file translates en to fr, not en to de"),
    ("x.xlf", xliff('source-language="en" target-language="de"'), "x.xlf has no translation units"),
    ("x.xlf", xliff("source-language='en'", "<trans-unit>"), "x.xlf, line 2: not valid XML"),
    ("x.xlf", EXTERNAL + xliff("", "<trans-unit>&a;</trans-unit>"), "x.xlf, line 1: the file"),
    ("x.po", 'msgid "a"\nmsgstr "b"\n\nmsgid "c"\nnonsense\n', "x.po, line 5: not valid PO"),
    ("x.po", 'msgid "a"\nmsgstr "b\n', "x.po, line 2: not valid PO"),
    ("x.po", 'msgid ""\nmsgstr ""\n"Language: fr\\n"\n', "x.po translates to fr, not to de"),
    ("x.po", b'msgid "a"\nmsgstr "b\xff"\n', "x.po, line 2: not valid utf-8"),
    ("x.po", b'msgid ""\nmsgstr "charset=no-such\\n"\n', "x.po, line 1: not valid no-such"),
    ("x.po", 'msgid ""\nmsgstr "x"\n', "x.po has no messages"),
    ("wmt:x.xml", WMT.format(""), "x.xml, line 1: the document d has references: none"),
    ("x.xml#B", WMT.format('<ref lang="de" translator="A"><seg id="1">a</seg></ref>'),
     "x.xml, line 1: the document d has references: none; required: B"),
    ("x.xml", WMT.format('<ref lang="de"><seg id="2">a</seg></ref>'),
     "x.xml, line 1: in the document d, the source and ref have different segments"),
    ("x.xml", WMT.format("").replace('"en"', '"fr"'),
     "x.xml, line 1: the document d has no src in en; it has src fr"),
    ("wmt:x.xml", "<dataset></dataset>", "x.xml has no segments"),
    ("x.sgm", SRC_SGM, "x.sgm: found 0 reference files in its directory, expected 1"),
    ("x.sgm#missing.sgm", SRC_SGM, "no such file: missing.sgm"),
    ("x.sgm#x.sgm", SRC_SGM.replace("</seg>", ""), "x.sgm, line 2: the segment 1 of the"),
    ("x.sgm#x.sgm", SRC_SGM.replace('"2"', '"1"'), "3: the segment 1 of the document d occurs"),
    ("x.sgm#x.sgm", "<srcset></srcset>", "x.sgm has no segments"),
    ("x.zip", "PK\x03\x04 and no more", "x.zip: not a complete zip archive"),
    ("x.zip", "text", "x.zip: not a complete zip archive"),
    ("unknown", "one sentence\n", "unknown: cannot determine the format"),
    ("unknown", b"\x00\x01\x02", "unknown: cannot determine the format"),
    ("unknown", b"", "unknown is empty"),
    ("xyz:x.tsv", "a\tb\n", "xyz:x.tsv: unknown format xyz; known formats: parquet, arrow, zip,"),
    ("https://example.com/x.tsv", "", "unknown format https"),
    ("text:x.tsv", "a\tb\n", "x.tsv: a text corpus requires two files"),
    ("missing.tsv", "", "no such corpus: missing.tsv"),
    ("tsv:missing", "", "no such corpus: tsv:missing"),
    ("missing*.tsv", "", "no such corpus: missing*.tsv"),
    ("missing.{en,de}", "", "no such file: missing.en"),
    ("tmx:.", "", "is a directory"),
    ("dataset:.", "", ". is not a saved dataset"),
    ("dataset:missing", "", "no such corpus: dataset:missing"),
    (".", "", ". is a directory, but not a saved dataset"),
    ("hf:a/b/c/d", "", "hf:a/b/c/d is not a valid dataset name"),
    ("hf:", "", "is not a valid dataset name"),
]  # fmt: skip


def read(*names: str, languages: Languages = EN_DE) -> str:
    """Read a malformed corpus and return the error message, which must have a hint."""
    with pytest.raises(DataError) as error:
        for _ in open_corpus(names, languages).rows:
            pass
    assert error.value.hint
    return str(error.value)


@pytest.fixture(autouse=True)
def _work_in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("name", "content", "message"), FILES)
def test_a_malformed_file_is_reported(name, content, message):
    path = re.sub(r"^(wmt|xyz|text):|#.*", "", name)
    if re.fullmatch(r"(x\.\w+|unknown)", path):
        Path(path).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message in read(name)


COMPRESSED = [
    *((f"text{s}", f"corpus.en{s}", k) for s, k in ((".gz", "gzip"), (".bz2", "bzip2"),
                                                    (".xz", "xz"), (".zst", "zstd"))),
    ("tsv.gz", "corpus.tsv.gz", "gzip"),
    ("jsonl.zst", "corpus.jsonl.zst", "zstd"),
    ("tmx.xz", "corpus.tmx.xz", "xz"),
    ("xliff 2.0", "corpus.xliff.gz", "gzip"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "file", "compression"), COMPRESSED)
def test_the_error_for_truncated_compressed_data_names_the_file_and_line(kind, file, compression):
    names = WRITERS[kind](Path(), PAIRS)
    data = Path(file).read_bytes()
    Path(file).write_bytes(data[: len(data) * 2 // 3])
    message = read(*names)
    assert re.search(
        rf"{re.escape(file)}, line [\d,]+: the {compression} data is truncated", message
    )
    assert "copy or download the file again" in message


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["x.en", "x.de"], "x.en has 3 lines, but x.de has 2"),
        (["missing.en", "x.de"], "no such file: missing.en"),
        (["x.en", "empty.de"], "empty.de is empty"),
        (["x.en", "."], ". is a directory"),
        (["x.en", "utf16.de"], "utf16.de is UTF-16"),
        (["s*.en", "s*.de"], "s*.en matches 2 files, but s*.de matches 1"),
        (["no*.en", "s*.de"], "no file matches no*.en"),
        (["**a", "x.de"], "**a: "),
        (["x.en", "x.de", "x.fr"], "expected one or two names for a corpus, got 3: x.en x.de x.fr"),
        (["src.sgm", "ref.sgm"], "ref.sgm: no segment 2 of the document d"),
        (["ref.sgm", "src.sgm"], "src.sgm: no segment 3 of the document d"),
        (["x"], "x.en has 3 lines, but x.de has 2"),
        (["x\0y"], "no such corpus: x\0y"),
        (["x" * 5000], "no such corpus: xxx"),
        (["x" * 5000, "x.de"], "cannot read xxx"),
    ],
)
def test_malformed_pairs_of_files_are_reported(names, message):
    Path("x.en").write_text("a\nb\nc\n")
    Path("x.de").write_text("a\nb\n")
    Path("empty.de").write_text("")
    Path("utf16.de").write_text("abc\n", encoding="utf-16")
    for name in ("s1.en", "s2.en", "s1.de"):
        Path(name).write_text("a\n")
    Path("src.sgm").write_text(SRC_SGM)
    Path("ref.sgm").write_text(REF_SGM)
    assert message in read(*names)


def test_the_error_for_shards_of_unequal_length_names_both_files():
    corpus_files.write_texts(Path(), PAIRS[:3], "s1")
    corpus_files.write_texts(Path(), PAIRS[:5], "s2")
    Path("s2.de").write_text("one\n")
    assert "s2.en has 5 lines, but s2.de has 1" in read("s*.en", "s*.de")


def test_parquet_columns_are_checked_before_the_first_row():
    import pyarrow.parquet

    table = pyarrow.table({"en": ["a"], "fr": ["b"], "n": [1]})
    pyarrow.parquet.write_table(table, "x.parquet")
    for name, message in {
        "x.parquet": "cannot determine the columns for en and de; its columns are en, fr, n",
        "x.parquet#en,it": "x.parquet: no column it; its columns are en, fr, n",
        "x.parquet#en,n": "x.parquet: the column n has the type int64, not text",
    }.items():
        with pytest.raises(DataError) as error:
            open_corpus([name], EN_DE)
        assert message in str(error.value)
        assert error.value.hint


def test_a_missing_split_is_reported():
    WRITERS["saved splits"](Path(), PAIRS[:2])
    assert "saved: no split dev; its splits are test, train" in read("saved#dev")
    Path("saved/train/data-00000-of-00001.arrow").write_bytes(b"no arrow data")
    assert "cannot read saved" in read("saved")


def test_missing_or_undetermined_languages_are_reported():
    Path("x.tmx").write_bytes(corpus_files.tmx(PAIRS[:2]))
    assert "no unit so far has both fr and de; found: en-US, de-DE" in read(
        "x.tmx", languages=Languages("fr", "de")
    )
    assert "no unit so far has both en and de-CH" in read(
        "x.tmx", languages=Languages("en", "de-CH")
    )
    Path("x.tmx").write_bytes(corpus_files.tmx(PAIRS[:2]).replace(b"srclang", b"other"))
    assert "cannot determine the languages; the first unit has en-US, de-DE" in read(
        "x.tmx", languages=Languages()
    )


# Tests with archives.


def write_zip(members: dict[str, bytes], change: Callable[[bytearray], None] | None = None) -> None:
    with zipfile.ZipFile("x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    if change:
        data = bytearray(Path("x.zip").read_bytes())
        change(data)
        Path("x.zip").write_bytes(data)


def encrypt(data: bytearray) -> None:
    data[data.index(b"PK\x01\x02") + 8] |= 1


def declare_bomb(data: bytearray) -> None:
    position = data.index(b"PK\x01\x02") + 24
    data[position : position + 4] = (2 << 30).to_bytes(4, "little")


def truncate(data: bytearray) -> None:
    del data[len(data) // 2 :]


def damage(data: bytearray) -> None:
    position = data.index(b"x.en") + 40
    data[position : position + 20] = bytes(20)


LINES = os.urandom(3000).hex().encode() + b"\n"


@pytest.mark.parametrize(
    ("members", "change", "name", "message"),
    [
        ({"../x.en": b"a\n", "x.de": b"a\n"}, None, "x.zip", "the member ../x.en points outside"),
        ({"/x.en": b"a\n", "x.de": b"a\n"}, None, "x.zip", "the member /x.en points outside"),
        ({"C:\\x.en": b"a\n"}, None, "x.zip", "x.en points outside the archive"),
        ({"x.en": b"a\n", "x.de": b"a\n"}, encrypt, "x.zip", "x.zip, member x.en is encrypted"),
        ({"x.en": LINES, "x.de": LINES}, declare_bomb, "x.zip", "expand to 2,147,483,648 bytes"),
        ({"x.en": LINES, "x.de": LINES}, truncate, "x.zip", "x.zip: not a complete zip archive"),
        ({"x.en": LINES, "x.de": LINES}, damage, "x.zip", "member x.en, line 1: the zip data"),
        ({"x.en": b"a\nb\n", "x.de": b"a\n"}, None, "x.zip",
         "x.zip, member x.en has 2 lines, but x.zip, member x.de has 1"),
        ({"x.en": b"a\n\xff\n", "x.de": b"a\nb\n"}, None, "x.zip", "member x.en, line 2: not"),
        ({"x.en": b"a\n", "x.fr": b"a\n"}, None, "x.zip", "members: x.en, x.fr"),
        ({"x.en": b"a\n", "y.en": b"a\n", "x.de": b"a\n"}, None, "x.zip", "cannot determine"),
        ({}, None, "x.zip", "members: none"),
        ({"a.tsv": b"a\tb\n", "b.tsv": b"a\tb\n"}, None, "x.zip", "cannot determine"),
        ({"a.tsv": b"a\tb\na\n"}, None, "x.zip", "x.zip, member a.tsv, line 2: 1 column"),
        ({"a.parquet": b"PAR1"}, None, "x.zip#a.parquet", "parquet cannot be read inside"),
        ({"x.en": b"a\n", "x.de": b""}, None, "x.zip", "x.zip, member x.de is empty"),
        ({"x.en": b"a\n"}, None, "x.zip#x.en,x.de", "x.zip: no member x.de; members: x.en"),
    ],
)  # fmt: skip
def test_a_malformed_archive_is_reported(members, change, name, message):
    write_zip(members, change)
    assert message in read(name)


# Tests with standard input and the hub.


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("-", b"one sentence\n", "standard input: cannot determine the format"),
        ("-", b"", "standard input is empty"),
        ("tsv:-", b"a\tb\na\n", "standard input, line 2: 1 column"),
        ("zip:-", b"PK\x03\x04", "standard input: the format zip cannot be read from a pipe"),
        ("-", b"PAR1", "standard input: the format parquet cannot be read from a pipe"),
    ],
)
def test_malformed_standard_input_is_reported(monkeypatch, name, data, message):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(data))))
    assert message in read(name)


def test_closed_standard_input_is_reported(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    assert "standard input is closed" in read("tsv:-")


class DatasetNotFoundError(FileNotFoundError):
    """Error with the same name as the one in `datasets`."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionError("no route to host"), "the Hub cannot be reached (no route to host)"),
        (DatasetNotFoundError("Dataset 'x' doesn't exist on the Hub"), "no such dataset"),
        (DatasetNotFoundError("Dataset 'x' is a gated dataset on the Hub"), "access is restricted"),
        (
            RuntimeError("Dataset scripts are no longer supported, but found x.py"),
            "a loading script",
        ),
        (
            ValueError("BuilderConfig 'a' not found. Available: ['b']"),
            "BuilderConfig 'a' not found",
        ),
        (ValueError("Bad split: dev. Available splits: ['train']"), "Bad split: dev. Available"),
    ],
)
def test_hub_errors_have_a_hint(monkeypatch, error, message):
    def fail(_):
        raise error

    monkeypatch.setattr(hub, "load_builder", fail)
    text = read("hf:x/y#dev")
    assert text.startswith("cannot open hf:x/y: ")
    assert message in text
    assert "save_to_disk" in text
