"""Functions that write the same pairs in every corpus format."""

import bz2
import csv
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import polib

Pairs = Sequence[tuple[str, str]]
Writer = Callable[[Path, Pairs], list[str]]

SHARDS = 3


def zstd(data: bytes) -> bytes:
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as file:
        file.write(data)
    return sink.getvalue().to_pybytes()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}


def lines(texts: Sequence[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def write_texts(directory: Path, pairs: Pairs, stem: str = "corpus", suffix: str = "") -> list[str]:
    compress = COMPRESS.get(suffix, bytes)
    names = []
    for side, language in enumerate(("en", "de")):
        path = directory / f"{stem}.{language}{suffix}"
        path.write_bytes(compress(lines([pair[side] for pair in pairs])))
        names.append(str(path))
    return names


def _texts(suffix: str) -> Writer:
    return lambda directory, pairs: write_texts(directory, pairs, suffix=suffix)


def _braces(directory: Path, pairs: Pairs) -> list[str]:
    write_texts(directory, pairs)
    return [f"{directory}/corpus.{{en,de}}"]


def _prefix(directory: Path, pairs: Pairs) -> list[str]:
    write_texts(directory, pairs, suffix=".gz")
    return [f"{directory}/corpus"]


def _shards(pairs: Pairs) -> list[Pairs]:
    size = max(1, -(-len(pairs) // SHARDS))
    return [pairs[i : i + size] for i in range(0, len(pairs), size)]


def _text_shards(directory: Path, pairs: Pairs) -> list[str]:
    for number, shard in enumerate(_shards(pairs)):
        write_texts(directory, shard, f"shard{number}", ".gz")
    return [f"{directory}/shard*.en.gz", f"{directory}/shard*.de.gz"]


def _write(make: Callable[[Pairs], bytes], name: str) -> Writer:
    """Return a function that writes a single file; the suffix of `name` selects the compression."""

    def write(directory: Path, pairs: Pairs) -> list[str]:
        path = directory / name
        path.write_bytes(COMPRESS.get(path.suffix, bytes)(make(pairs)))
        return [str(path)]

    return write


def _tsv_shards(directory: Path, pairs: Pairs) -> list[str]:
    for number, shard in enumerate(_shards(pairs)):
        _write(tsv, f"shard{number}.tsv.gz")(directory, shard)
    return [f"{directory}/shard*.tsv.gz"]


def tsv(pairs: Pairs) -> bytes:
    return lines(["\t".join(pair) for pair in pairs])


def tsv_columns(pairs: Pairs) -> bytes:
    return lines(["score\tde\ten", *(f"0.5\t{target}\t{source}" for source, target in pairs)])


def csv_table(pairs: Pairs, delimiter: str = ",") -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(("id", "source", "target"))
    writer.writerows((i, *pair) for i, pair in enumerate(pairs))
    return text.getvalue().encode()


def jsonl(pairs: Pairs) -> bytes:
    return lines([json.dumps({"id": 1, "de": de, "en": en}) for en, de in pairs])


def nested_jsonl(pairs: Pairs) -> bytes:
    rows = [{"translation": {"en": en, "de": de}} for en, de in pairs]
    return lines([json.dumps(row, ensure_ascii=False) for row in rows])


def tmx(pairs: Pairs, codes: tuple[str, str] = ("en-US", "de-DE")) -> bytes:
    units = "".join(
        f'<tu><prop type="x">y</prop><tuv xml:lang="{codes[0]}"><seg>{escape(en)}</seg></tuv>\n'
        f'<tuv xml:lang="{codes[1]}"><seg>{escape(de)}</seg></tuv></tu>\n'
        for en, de in pairs
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
        f'<tmx version="1.4"><header srclang="{codes[0]}" datatype="plaintext"/>\n'
        f"<body>\n{units}</body></tmx>\n"
    ).encode()


def tmx_utf16(pairs: Pairs) -> bytes:
    return tmx(pairs).decode().replace("UTF-8", "UTF-16").encode("utf-16")


def xliff1(pairs: Pairs) -> bytes:
    units = "".join(
        f'<trans-unit id="{i}"><source>{escape(en)}</source><target>{escape(de)}</target>'
        "<alt-trans><target>other</target></alt-trans></trans-unit>\n"
        for i, (en, de) in enumerate(pairs)
    )
    return (
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n'
        '<file original="x" source-language="en" target-language="de" datatype="plaintext">\n'
        f"<body><group>\n{units}</group></body></file></xliff>\n"
    ).encode()


def xliff2(pairs: Pairs) -> bytes:
    units = "".join(
        f'<unit id="{i}"><segment><source xml:space="preserve">{escape(en)}</source>'
        f"<target>{escape(de)}</target></segment></unit>\n"
        for i, (en, de) in enumerate(pairs)
    )
    return (
        '<xliff version="2.0" srcLang="en" trgLang="de" '
        'xmlns="urn:oasis:names:tc:xliff:document:2.0">\n'
        f'<file id="f">\n{units}</file></xliff>\n'
    ).encode()


def po(pairs: Pairs) -> bytes:
    catalog = polib.POFile(wrapwidth=0)
    catalog.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Language": "de"}
    for i, (source, target) in enumerate(pairs):
        catalog.append(polib.POEntry(msgctxt=str(i), msgid=source, msgstr=target))
    return str(catalog).encode()


def wmt_xml(pairs: Pairs) -> bytes:
    def side(texts: Sequence[str]) -> str:
        segments = (f'<seg id="{i}">{escape(text)}</seg>' for i, text in enumerate(texts, start=1))
        return f"<p>{''.join(segments)}</p>"

    docs = "".join(
        f'<doc id="doc{number}" origlang="en"><src lang="en">{side([s for s, _ in shard])}</src>\n'
        f'<ref lang="de" translator="A">{side([t for _, t in shard])}</ref>'
        f'<hyp lang="de" system="x">{side([t for _, t in shard])}</hyp></doc>\n'
        for number, shard in enumerate(_shards(pairs))
    )
    return f"<?xml version='1.0'?>\n<dataset id=\"test\">\n{docs}</dataset>\n".encode()


def sgml(kind: str, texts: Sequence[str]) -> bytes:
    segments = "".join(
        f"<seg id={quoteattr(str(i))}> {escape(text)}\n</seg>\n" for i, text in enumerate(texts)
    )
    attributes = 'setid="test" srclang="en" trglang="de"'
    return f"<{kind}set {attributes}>\n<DOC docid=a>\n{segments}</DOC>\n</{kind}set>\n".encode()


def _sgml(directory: Path, pairs: Pairs) -> list[str]:
    names = []
    for side, (kind, language) in enumerate((("src", "en"), ("ref", "de"))):
        path = directory / f"test-ende-{kind}.{language}.sgm"
        path.write_bytes(sgml(kind, [pair[side] for pair in pairs]))
        names.append(str(path))
    return names


def _zip(make: Callable[[Pairs], dict[str, bytes]]) -> Writer:
    def write(directory: Path, pairs: Pairs) -> list[str]:
        path = directory / "de-en.txt.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in make(pairs).items():
                archive.writestr(name, data)
        return [str(path)]

    return write


def opus_members(pairs: Pairs) -> dict[str, bytes]:
    return {
        "README": b"about",
        "LICENSE": b"free",
        "Europarl.de-en.de": lines([target for _, target in pairs]),
        "Europarl.de-en.en": lines([source for source, _ in pairs]),
        "Europarl.de-en.xml": b"<x/>",
        "Europarl.de-en.ids": b"1\t1\n",
    }


def _table(pairs: Pairs, *, is_nested: bool):
    import pyarrow

    if is_nested:
        return pyarrow.table({"translation": [{"de": de, "en": en} for en, de in pairs]})
    columns = {"id": range(len(pairs)), "de": [p[1] for p in pairs], "en": [p[0] for p in pairs]}
    return pyarrow.table(columns)


def _parquet(directory: Path, pairs: Pairs) -> list[str]:
    return [write_parquet(directory / "corpus.parquet", pairs, is_nested=False)]


def _nested_parquet(directory: Path, pairs: Pairs) -> list[str]:
    return [write_parquet(directory / "corpus.parquet", pairs, is_nested=True)]


def write_parquet(path: Path, pairs: Pairs, *, is_nested: bool) -> str:
    import pyarrow.parquet

    pyarrow.parquet.write_table(_table(pairs, is_nested=is_nested), path)
    return str(path)


def _feather(directory: Path, pairs: Pairs) -> list[str]:
    import pyarrow.feather

    path = directory / "corpus.feather"
    pyarrow.feather.write_feather(_table(pairs, is_nested=False), str(path))
    return [str(path)]


def _arrow_stream(directory: Path, pairs: Pairs) -> list[str]:
    import pyarrow

    path, table = directory / "corpus.arrow", _table(pairs, is_nested=True)
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)
    return [str(path)]


def _datasets():
    import datasets

    datasets.disable_progress_bars()
    return datasets


def _saved(directory: Path, pairs: Pairs) -> list[str]:
    path = directory / "saved"
    _datasets().Dataset(_table(pairs, is_nested=True)).save_to_disk(path)
    return [str(path)]


def _saved_splits(directory: Path, pairs: Pairs) -> list[str]:
    datasets = _datasets()
    path = directory / "saved"
    train = datasets.Dataset(_table(pairs, is_nested=False))
    test = datasets.Dataset(_table([("test", "test")], is_nested=False))
    datasets.DatasetDict(test=test, train=train).save_to_disk(path)
    return [str(path)]


# To run all format tests on a new format, add one line here.
WRITERS: dict[str, Writer] = {
    "text": _texts(""),
    "text.gz": _texts(".gz"),
    "text.bz2": _texts(".bz2"),
    "text.xz": _texts(".xz"),
    "text.zst": _texts(".zst"),
    "braces": _braces,
    "prefix": _prefix,
    "text shards": _text_shards,
    "tsv": _write(tsv, "corpus.tsv"),
    "tsv.gz": _write(tsv, "corpus.tsv.gz"),
    "tsv columns": _write(tsv_columns, "corpus.tsv.bz2"),
    "tsv shards": _tsv_shards,
    "csv": _write(csv_table, "corpus.csv"),
    "csv semicolon": _write(lambda pairs: csv_table(pairs, ";"), "corpus.csv.gz"),
    "jsonl": _write(jsonl, "corpus.jsonl"),
    "jsonl.zst": _write(jsonl, "corpus.jsonl.zst"),
    "nested jsonl": _write(nested_jsonl, "corpus.json"),
    "parquet": _parquet,
    "nested parquet": _nested_parquet,
    "feather": _feather,
    "arrow stream": _arrow_stream,
    "saved dataset": _saved,
    "saved splits": _saved_splits,
    "tmx": _write(tmx, "corpus.tmx"),
    "tmx.xz": _write(tmx, "corpus.tmx.xz"),
    "tmx utf-16": _write(tmx_utf16, "corpus.tmx"),
    "xliff 1.2": _write(xliff1, "corpus.xlf"),
    "xliff 2.0": _write(xliff2, "corpus.xliff.gz"),
    "po": _write(po, "corpus.po"),
    "wmt xml": _write(wmt_xml, "corpus.xml"),
    "wmt sgml": lambda directory, pairs: _sgml(directory, pairs)[:1],
    "wmt sgml pair": _sgml,
    "zip": _zip(opus_members),
    "zip of tmx": _zip(lambda pairs: {"README.txt": b"x", "data/de-en.tmx": tmx(pairs)}),
    "zip of tsv.gz": _zip(lambda pairs: {"corpus.tsv.gz": gzip.compress(tsv(pairs))}),
}
