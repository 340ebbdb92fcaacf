"""Corpus formats: every format gives the same rows as two plain text files."""

import gc
import io
import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corpus_files
from corpus_files import WRITERS
from mtcli.data.formats import FORMATS, Languages, Location, open_corpus
from mtcli.data.formats import hub as hub_format
from mtcli.data.formats.base import join_lines
from mtcli.data.formats.languages import language_of_file, match_language
from mtcli.data.formats.wmt import read_test_set
from mtcli.errors import DataError

EN_DE = Languages("en", "de")
PAIRS = [
    ('Tom & <Mary> said: "No; it\'s 5 > 3"', "Tom & <Maria> sagten: „Nein; 5 > 3“"),
    ("NA", "null"),
    (" 007 ", "\u20281e5"),
    ("", "blank source"),
    ("blank target", ""),
    ("emoji 👍🏽", "中文，日本語"),
    ("\\n is not a line break", "{'a': [1, 2]}, #1"),
]
# Characters that all formats can store: XML has no control characters, and TSV has no tabs.
TEXT = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff\ufeff"),
    max_size=12,
)


def rows_of(names, languages=EN_DE):
    return list(open_corpus(names, languages).rows)


def expected_rows(kind, pairs):
    if kind.startswith("wmt"):
        return [(source.strip(), target.strip()) for source, target in pairs]
    return list(pairs)


@pytest.fixture(params=WRITERS)
def kind(request):
    return request.param


def test_every_format_yields_the_same_pairs(kind, tmp_path):
    names = WRITERS[kind](tmp_path, PAIRS)
    opened = open_corpus(names, EN_DE)
    assert opened.languages == EN_DE
    assert opened.files
    assert all(path.is_file() for path in opened.files)
    assert len(opened.descriptions) >= 1
    assert all(str(tmp_path) in line and "\n" not in line for line in opened.descriptions)
    assert list(opened.rows) == expected_rows(kind, PAIRS)


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
@settings(max_examples=8)
@given(pairs=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6))
def test_every_format_preserves_every_text(writer, tmp_path_factory, pairs):
    # Blank texts are special: an empty msgid is the header of a PO file.
    pairs = [(f"a{source}b", f"c{target}d") for source, target in pairs]
    names = writer(tmp_path_factory.mktemp("corpus"), pairs)
    assert rows_of(names) == pairs


PREFIXES = {
    "tsv": "tsv", "tsv.gz": "tsv", "csv": "csv", "jsonl": "jsonl", "nested jsonl": "jsonl",
    "parquet": "parquet", "feather": "arrow", "arrow stream": "arrow", "saved dataset": "dataset",
    "tmx": "tmx", "tmx.xz": "tmx", "tmx utf-16": "tmx", "xliff 1.2": "xliff",
    "xliff 2.0": "xliff", "po": "po", "wmt xml": "wmt", "wmt sgml": "wmt", "zip": "zip",
    "braces": "text", "prefix": "text", "tsv shards": "tsv",
}  # fmt: skip


@pytest.mark.parametrize("kind", PREFIXES, indirect=True)
def test_a_prefix_selects_the_format(kind, tmp_path):
    (name,) = WRITERS[kind](tmp_path, PAIRS)
    assert rows_of([f"{PREFIXES[kind]}:{name}"]) == expected_rows(kind, PAIRS)


@pytest.mark.parametrize("kind", sorted(set(PREFIXES) - {
    "braces", "prefix", "tsv shards", "saved dataset", "csv", "wmt sgml"
}), indirect=True)  # fmt: skip
def test_the_format_is_detected_from_the_content(kind, tmp_path):
    (name,) = WRITERS[kind](tmp_path, PAIRS)
    path = Path(name).rename(tmp_path / "unknown")
    assert rows_of([str(path)]) == expected_rows(kind, PAIRS)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_compression_is_detected_from_the_content(tmp_path, suffix):
    path = tmp_path / "corpus.tsv"
    path.write_bytes(corpus_files.COMPRESS[suffix](corpus_files.tsv(PAIRS)))
    assert rows_of([str(path)]) == PAIRS


def test_every_format_has_a_prefix_and_a_writer():
    names = [f.name for f in FORMATS]
    assert len(set(names)) == len(names)
    assert set(PREFIXES.values()) | {"hf"} == set(names)


def test_an_existing_path_takes_precedence_over_the_corpus_syntax(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("tsv:a#1,2.tsv", "x*.tsv", "odd#3.tsv", "corpus.{en,de}.tsv"):
        Path(name).write_bytes(corpus_files.tsv(PAIRS))
        Path("xy.tsv").write_bytes(b"other\tfile\n")
        assert rows_of([name]) == PAIRS
    assert rows_of(["odd#3.tsv#2,1"]) == [(target, source) for source, target in PAIRS]


@pytest.mark.parametrize(
    ("content", "name", "languages", "expected"),
    [
        ("a\tb\tc\n", "x.tsv#1,3", EN_DE, [("a", "c")]),
        ("a\tb\tc\n", "x.tsv#3,1", EN_DE, [("c", "a")]),
        ("one\ttwo\tthree\na\tb\tc\n", "x.tsv#three,one", EN_DE, [("c", "a")]),
        ("id\tde\ten\n1\tb\ta\n", "x.tsv", EN_DE, [("a", "b")]),
        ("id\tde-AT\tEN\n1\tb\ta\n", "x.tsv", EN_DE, [("a", "b")]),
        ("tgt\tid\tsrc\nb\t1\ta\n", "x.tsv", Languages(), [("a", "b")]),
        ("src\ttrg\tid\na\tb\t1\n", "x.tsv#1,2", EN_DE, [("a", "b")]),
        ("a\tb\nde\ten\n", "x.tsv", EN_DE, [("a", "b"), ("de", "en")]),
        ('"a"\t"b\n', "x.tsv", EN_DE, [('"a"', '"b')]),
        ("a\r\tb\r\n", "x.tsv", EN_DE, [("a ", "b")]),
        ('a,"b ""x"", c"\n', "x.csv", EN_DE, [("a", 'b "x", c')]),
        ('"a\nb",c\n\nd,e\n', "x.csv", EN_DE, [("a b", "c"), ("d", "e")]),
        ('"a,x";b\n', "x.csv", EN_DE, [("a,x", "b")]),
        ("a\tb\n", "x.csv", EN_DE, [("a", "b")]),
        ("\ufeffen,de\na,b\n", "x.csv", EN_DE, [("a", "b")]),
        ('{"a": "x", "b": "y"}\n\n', "x.jsonl", Languages(), [("x", "y")]),
        ('{"a": "x", "b": "y", "c": "z"}', "x.jsonl#c,a", EN_DE, [("z", "x")]),
        ('{"target": "y", "source": "x"}\n', "x.json", EN_DE, [("x", "y")]),
        ('{"translation": {"de": "y", "en": "x"}}\n', "x.json", EN_DE, [("x", "y")]),
        ('{"translation": {"de": "y", "en": "x"}}\n', "x.json", Languages(), [("y", "x")]),
        ('{"translation": {"de": "y", "en": "x"}}\n', "x.json#en,de", Languages(), [("x", "y")]),
        ('{"de": "y", "en": "x"}\n', "x.json", Languages("en"), [("x", "y")]),
        ('{"de": "y", "en": "x\\r\\ny\\u2028\\ud83d\\udc4d"}', "x.json", EN_DE,
         [("x y\u2028👍", "y")]),
    ],
)  # fmt: skip
def test_fields_are_selected_by_the_user_by_language_or_by_name(
    tmp_path, monkeypatch, content, name, languages, expected
):
    monkeypatch.chdir(tmp_path)
    Path(name.partition("#")[0]).write_text(content, encoding="utf-8", newline="")
    assert rows_of([name], languages) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\r\nb\nc\rd", "a b c d"), ("a\n\nb", "a  b"), ("a\x0b\u2028\x85b", "a\x0b\u2028\x85b")],
)
def test_each_line_break_in_a_segment_becomes_a_space(text, expected):
    assert join_lines(text) == expected


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("train.en", "en"), ("train.de-en.de", "de"), ("a/b.en_US.gz", "en_US"),
        ("x.de-AT", "de-AT"), ("train.deu.txt.xz", "deu"), ("train.txt", None),
        ("train.src", None), ("en", None), ("train.english", None),
    ],
)  # fmt: skip
def test_the_language_is_read_from_the_file_suffix(name, language):
    assert language_of_file(name) == language


@pytest.mark.parametrize(
    ("wanted", "available", "found"),
    [
        ("de", ["de-DE"], "de-DE"),
        ("de", ["de-AT", "DE"], "DE"),
        ("de", ["de_AT", "de-DE"], "de_AT"),
        ("de-CH", ["de-DE", "de"], None),
        ("de-DE", ["DE_de"], "DE_de"),
        ("de", ["den", "nl"], None),
    ],
)
def test_a_language_code_prefers_an_exact_match_over_its_variants(wanted, available, found):
    assert match_language(wanted, available) == found


def test_language_options_override_the_file_suffixes(tmp_path):
    names = corpus_files.write_texts(tmp_path, PAIRS, "train.de-en", ".gz")
    assert open_corpus(names).languages == EN_DE
    assert open_corpus(names, Languages("xx")).languages == Languages("xx", "de")


def test_a_description_reports_how_a_corpus_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = Path()
    corpus_files.write_texts(here, PAIRS, "a", ".gz")
    WRITERS["tsv.gz"](here, PAIRS)
    WRITERS["tmx"](here, PAIRS)

    def description(*names):
        return open_corpus(names, EN_DE).descriptions

    assert description("a.en.gz", "a.de.gz") == ("a.en.gz and a.de.gz: two text files, gzip",)
    assert description("corpus.tsv.gz") == ("corpus.tsv.gz: TSV, columns 1 and 2, gzip",)
    assert description("corpus.tmx") == ("corpus.tmx: TMX, en-US to de-DE",)


def make_tmx(units: str, header: str = 'srclang="en"') -> str:
    return f'<tmx version="1.4"><header {header}/><body>{units}</body></tmx>'


def make_unit(**texts: str) -> str:
    variants = (
        f'<tuv xml:lang="{language.replace("_", "-")}"><seg>{text}</seg></tuv>'
        for language, text in texts.items()
    )
    return f"<tu>{''.join(variants)}</tu>\n"


@pytest.mark.parametrize(
    ("content", "languages", "expected"),
    [
        (make_tmx(make_unit(de="d", en="e")), Languages(), [("e", "d")]),
        (make_tmx(make_unit(de="d", en="e", fr="f")), Languages("fr", "de"), [("f", "d")]),
        (make_tmx(make_unit(DE_de="d", en="e")), Languages("de", "en"), [("d", "e")]),
        (make_tmx(make_unit(de_AT="a", de="d", en="e")), EN_DE, [("e", "d")]),
        (make_tmx(make_unit(en="e", de="d") + make_unit(en="x")), EN_DE, [("e", "d"), ("x", "")]),
        (make_tmx(make_unit(en="a<bpt>b<sub>c</sub></bpt>d<hi>e</hi><ph/>f<it>g</it>h", de="i")),
         EN_DE, [("adefh", "i")]),
        (make_tmx(make_unit(en=" a\n&amp; b ", de="<ut>x</ut>")), EN_DE, [(" a & b ", "")]),
        (make_tmx('<tu><tuv lang="en"><seg>e</seg></tuv><tuv lang="de"><seg>d</seg></tuv></tu>'),
         EN_DE, [("e", "d")]),
        (make_tmx('<note/><tu><tuv xml:lang="en"/><tuv xml:lang="de"><seg>d</seg></tuv></tu>'),
         EN_DE, [("", "d")]),
    ],
)  # fmt: skip
def test_tmx_reader_selects_languages_and_removes_markup(tmp_path, content, languages, expected):
    (tmp_path / "x.tmx").write_text(content)
    assert rows_of([f"{tmp_path}/x.tmx"], languages) == expected


def test_xliff_reader_keeps_text_and_removes_inline_codes(tmp_path):
    path = tmp_path / "x.xlf"
    unit = (
        '<trans-unit id="1"><source>a<g id="1">b</g><x id="2"/><bpt id="3">&lt;b&gt;</bpt>c'
        '<mrk mtype="seg">d</mrk></source></trans-unit>'
    )
    path.write_text(
        f'<xliff version="1.2"><file source-language="en"><body>{unit}</body></file></xliff>'
    )
    assert rows_of([str(path)]) == [("abcd", "")]
    assert open_corpus([str(path)], Languages()).languages == Languages("en", None)


def test_po_reader_uses_only_finished_messages(tmp_path):
    path = tmp_path / "de.po"
    path.write_text(
        'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=ISO-8859-1\\n"\n'
        '"Language: de\\n"\n\n'
        'msgid "open"\nmsgstr "öffnen"\n\n#, fuzzy\nmsgid "close"\nmsgstr "schließen"\n\n'
        'msgid "new"\nmsgstr ""\n\nmsgid "a\\n"\n"b"\nmsgstr "c"\n\n'
        'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d Datei"\nmsgstr[1] "%d Dateien"\n\n'
        'msgid "%d day"\nmsgid_plural "%d days"\nmsgstr[0] "%d x"\nmsgstr[1] "y"\nmsgstr[2] "z"\n\n'
        '#~ msgid "old"\n#~ msgstr "alt"\n',
        encoding="iso-8859-1",
    )
    opened = open_corpus([str(path)])
    assert opened.languages == Languages(None, "de")
    assert list(opened.rows) == [
        ("open", "öffnen"), ("close", ""), ("new", ""), ("a b", "c"),
        ("%d file", "%d Datei"), ("%d files", "%d Dateien"), ("%d day", "%d x"),
    ]  # fmt: skip


WMT = """<dataset id="t"><collection id="general">
<doc id="one"><src lang="en"><p><seg id="1"> a </seg></p><p><seg id="2">b</seg></p></src>
<ref lang="de" translator="A"><seg id="1">A1</seg><seg id="2">A2</seg></ref>
<ref lang="de" translator="B"><seg id="1">B1</seg><seg id="2">B2</seg></ref></doc>
<doc id="two"><src lang="en"><seg id="1">c</seg></src>
<ref lang="de" translator="B"><seg id="1">B3</seg></ref>
<ref lang="de" translator="A"><seg id="1">A3</seg></ref></doc>
</collection></dataset>"""


def test_wmt_xml_reader_handles_references_and_documents(tmp_path):
    path = tmp_path / "test.xml"
    path.write_text(WMT)
    test_set = read_test_set(Location(str(path)))
    assert test_set.source == ["a", "b", "c"]
    assert test_set.references == {"A": ["A1", "A2", "A3"], "B": ["B1", "B2", "B3"]}
    assert test_set.documents == ["one", "one", "two"]
    assert test_set.languages == EN_DE
    assert rows_of([str(path)]) == [("a", "A1", "B1"), ("b", "A2", "B2"), ("c", "A3", "B3")]
    assert rows_of([f"wmt:{path}#B"]) == [("a", "B1"), ("b", "B2"), ("c", "B3")]


def test_wmt_sgml_reader_accepts_invalid_xml(tmp_path):
    source = (
        '<srcset setid=x srclang=any>\n<DOC docid="d 1">\n'
        "<seg id=1>R&D <doc> &lt;&#228;></seg>\n<seg id=2>b</seg>"
    )
    target = (
        '<refset trglang="de"><doc sysid="ref" docid="d 1">'
        '<SEG ID="2">B</SEG><SEG ID="1">F&E &amp;\nx</SEG></doc>'
    )
    (tmp_path / "n-src.en.sgm").write_text(source)
    (tmp_path / "n-ref.de.sgm").write_text(target)
    (tmp_path / "other.sgm").write_text(target.replace("F", "G"))
    name = f"{tmp_path}/n-src.en.sgm"
    assert rows_of([name]) == [("R&D <doc> <ä>", "F&E & x"), ("b", "B")]
    assert rows_of([f"wmt:{name}#other.sgm"]) == [("R&D <doc> <ä>", "G&E & x"), ("b", "B")]
    assert open_corpus([name]).languages == EN_DE


def test_the_user_can_select_zip_members(tmp_path):
    make = corpus_files._zip(lambda _: {"a/x.fr": b"f\n", "x.en": b"e\n", "x.de": b"d\n"})
    (name,) = make(tmp_path, PAIRS)
    assert rows_of([name], Languages("fr", "en")) == [("f", "e")]
    assert rows_of([f"{name}#x.de,a/x.fr"], Languages()) == [("d", "f")]


def test_the_user_can_select_splits_of_a_saved_dataset(tmp_path):
    (name,) = WRITERS["saved splits"](tmp_path, PAIRS)
    assert rows_of([f"{name}#test"]) == [("test", "test")]
    assert rows_of([f"{name}#test,de,en"]) == [("test", "test")]
    assert rows_of([f"{name}#de,en"], Languages()) == [(target, source) for source, target in PAIRS]


def test_the_translation_feature_of_datasets_is_read(tmp_path):
    import datasets

    features = datasets.Features(translation=datasets.Translation(languages=["de", "en"]))
    column = [{"en": source, "de": target} for source, target in PAIRS]
    dataset = datasets.Dataset.from_dict({"translation": column}, features=features)
    dataset.save_to_disk(tmp_path / "saved")
    assert rows_of([f"{tmp_path}/saved"]) == PAIRS


def test_deeply_nested_elements_are_read(tmp_path):
    text = f"{'<hi>' * 5000}a{'</hi>' * 5000}b"
    (tmp_path / "x.tmx").write_text(make_tmx(make_unit(en=text, de="c")))
    assert rows_of([f"{tmp_path}/x.tmx"]) == [("ab", "c")]


def test_null_values_are_empty_texts(tmp_path):
    import pyarrow.parquet

    path = tmp_path / "x.parquet"
    column = [{"en": "a", "de": None}, None]
    pyarrow.parquet.write_table(pyarrow.table({"translation": column}), path)
    assert rows_of([str(path)]) == [("a", ""), ("", "")]


# Tests of reading streams.


def set_stdin(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(data))))


@pytest.mark.parametrize("kind", ["tsv", "tsv.gz", "jsonl.zst", "tmx.xz", "po", "wmt xml"],
                         indirect=True)  # fmt: skip
@pytest.mark.parametrize("is_stated", [True, False])
def test_a_corpus_is_read_from_standard_input(kind, is_stated, tmp_path, monkeypatch):
    (name,) = WRITERS[kind](tmp_path, PAIRS)
    set_stdin(monkeypatch, Path(name).read_bytes())
    prefix = {"wmt xml": "wmt"}.get(kind, kind.partition(".")[0])
    opened = open_corpus([f"{prefix}:-" if is_stated else "-"], EN_DE)
    assert opened.files == ()
    assert opened.descriptions[0].startswith("standard input: ")
    assert list(opened.rows) == expected_rows(kind, PAIRS)


def test_only_one_of_two_text_files_can_be_standard_input(tmp_path, monkeypatch):
    source, target = corpus_files.write_texts(tmp_path, PAIRS)
    set_stdin(monkeypatch, Path(source).read_bytes())
    assert rows_of(["-", target]) == PAIRS
    with pytest.raises(DataError, match="both sides of the corpus are standard input"):
        open_corpus(["-", "-"])


def test_a_pipe_that_delivers_single_bytes_is_read(tmp_path):
    pipe, data = tmp_path / "pipe", corpus_files.COMPRESS[".gz"](corpus_files.tsv(PAIRS))
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("wb", buffering=0) as file:
            for byte in data:
                file.write(bytes([byte]))

    thread = threading.Thread(target=write)
    thread.start()
    rows = rows_of([str(pipe)])
    thread.join()
    assert rows == PAIRS


class GeneratedTmx(io.RawIOBase):
    """TMX file of many units, generated while it is read."""

    def __init__(self, n_units: int) -> None:
        unit = make_unit(en="a<hi>b</hi>", de="c").encode()
        self._parts = iter((make_tmx("").encode()[: -len(b"</body></tmx>")], *(100 * unit,) * (
            n_units // 100), b"</body></tmx>"))  # fmt: skip

    def read(self, _: int = -1) -> bytes:
        return next(self._parts, b"")


def test_memory_use_does_not_depend_on_the_size_of_a_tmx_file():
    from mtcli.data.compression import decompress
    from mtcli.data.formats.tmx import TmxFormat

    def opener():
        file = io.BufferedReader(SmallReads(GeneratedTmx(50_000)))
        return decompress(file.read, [file], "x.tmx")

    rows = TmxFormat().open(Location("x.tmx", languages=EN_DE, opener=opener)).rows
    n_objects = []
    for number, row in enumerate(rows, start=1):
        assert row == ("ab", "c")
        if number in (20_000, 49_000):
            gc.collect()
            n_objects.append(len(gc.get_objects()))
    assert number == 50_000
    assert abs(n_objects[1] - n_objects[0]) < 5000


class SmallReads(io.RawIOBase):
    """Raw stream over `GeneratedTmx` that returns at most as many bytes as requested."""

    def __init__(self, file: GeneratedTmx) -> None:
        self._file, self._rest = file, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        self._rest = self._rest or self._file.read()
        chunk, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(chunk)] = chunk
        return len(chunk)


def test_rows_are_read_lazily(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("a\tb\n" * 400_000 + "broken\n")
    rows = open_corpus([str(path)], EN_DE).rows
    assert [next(rows) for _ in range(1000)] == [("a", "b")] * 1000


# Tests of the hub, with local files in the same layout instead of downloads.


@pytest.fixture
def hub(tmp_path, tmp_path_factory, monkeypatch):
    """Use a directory in place of every dataset on the hub; record the requested names."""
    # Not `tmp_path`: `datasets` interprets "test" in a directory name as a split.
    directory = tmp_path_factory.mktemp("hub")
    (directory / "de-en").mkdir()
    for split in ("train", "validation"):
        path = directory / "de-en" / f"{split}-00000.parquet"
        corpus_files.write_parquet(path, [(split, "x"), *PAIRS], is_nested=True)
    config = {"config_name": "de-en", "data_dir": "de-en"}
    (directory / "README.md").write_text(f"---\nconfigs:\n- {json.dumps(config)}\n---\n")
    requested = []

    def load_builder(name):
        import datasets

        requested.append(name)
        builder = datasets.load_dataset_builder(
            str(directory), name.config, cache_dir=str(tmp_path / "cache")
        )
        builder.hash = "0123456789" * 4
        return builder

    monkeypatch.setattr(hub_format, "load_builder", load_builder)
    return requested


def test_a_dataset_on_the_hub_is_streamed(hub):
    opened = open_corpus(["hf:wmt/wmt14/de-en@main#validation"], EN_DE)
    assert hub == [hub_format.HubName("wmt/wmt14", "de-en", "main")]
    assert opened.version == "0123456789" * 4
    assert opened.descriptions == (
        "wmt/wmt14/de-en@main: Hugging Face Hub, split validation, "
        "columns translation.en and translation.de",
    )
    assert list(opened.rows) == [("validation", "x"), *PAIRS]
    assert next(open_corpus(["hf:wmt14/de-en"], EN_DE).rows) == ("train", "x")
    assert hub[1] == hub_format.HubName("wmt14", "de-en", None)


def test_a_hub_name_with_two_parts_is_a_namespace_and_a_dataset(hub):
    open_corpus(["hf:someone/corpus"], EN_DE)
    assert hub == [hub_format.HubName("someone/corpus", None, None)]


def test_reading_local_files_leaves_no_datasets_cache(tmp_path, monkeypatch):
    import datasets

    cache = tmp_path / "cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    for kind in ("parquet", "feather", "saved splits"):
        assert rows_of(WRITERS[kind](tmp_path, PAIRS)) == PAIRS
    assert not cache.exists()


@pytest.mark.parametrize("name", ["x.tsv", "x.csv"])
def test_a_first_line_of_two_language_codes_is_a_header(tmp_path, name):
    separator = "," if name.endswith("csv") else "\t"
    lines = [("en", "de"), ("yes", "ja"), ("no", "nein")]
    (tmp_path / name).write_text("".join(f"{separator.join(line)}\n" for line in lines))
    opened = open_corpus([str(tmp_path / name)])
    assert opened.languages == Languages("en", "de")
    assert list(opened.rows) == lines[1:]


def test_the_second_language_is_inferred_if_only_one_other_field_is_a_language_code(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"id": "7", "de": "ja", "en": "yes"}\n')
    opened = open_corpus([str(tmp_path / "x.jsonl")], Languages("en"))
    assert list(opened.rows) == [("yes", "ja")]
