"""Progress of reading a corpus: every format reports the completed fraction."""

import os
import threading

import pytest

from corpus_files import WRITERS
from mtcli.config.corpora import CorpusSource
from mtcli.data import line_store
from mtcli.data.corpus import CorpusReader
from mtcli.data.formats import hf
from mtcli.data.formats.base import Languages, ReadProgress, completed_share

EN_DE = Languages("en", "de")
PAIRS = [(f"source {i} " + "x" * 50, f"target {i} " + "y" * 50) for i in range(300)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(line_store, "_BLOCK_LINES", 50)


def shares_of(*corpora):
    shares = []
    reader = CorpusReader(on_progress=lambda n_pairs, share: shares.append((n_pairs, share)))
    source = CorpusSource.parse([{"corpus": list(names)} for names in corpora])
    reader.read(source, lambda _: None, EN_DE)
    return shares


def assert_increases_to_one(shares):
    assert None not in shares
    assert sorted(shares) == shares
    assert shares[-1] == 1.0
    assert shares[0] >= 0


@pytest.mark.parametrize("kind", WRITERS)
def test_the_completed_fraction_increases_to_one(kind, tmp_path):
    reports = shares_of(WRITERS[kind](tmp_path, PAIRS))
    assert reports[-1][0] == len(PAIRS)
    assert_increases_to_one([share for _, share in reports])


def test_the_completed_fraction_covers_all_corpora_of_a_run(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    corpora = [
        WRITERS["tsv"](tmp_path / "a", PAIRS),
        WRITERS["parquet"](tmp_path / "b", PAIRS),
        WRITERS["tmx"](tmp_path / "c", PAIRS),
    ]
    reports = shares_of(*corpora)
    assert_increases_to_one([share for _, share in reports])
    after_first = [share for n_pairs, share in reports if n_pairs == len(PAIRS)]
    assert 0.1 < after_first[0] < 0.6


@pytest.mark.parametrize("kind", ["parquet", "feather", "arrow stream", "saved dataset"])
def test_the_progress_of_a_dataset_is_measured_in_rows(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(hf, "_BATCH_ROWS", 100)
    shares = {round(share, 6) for _, share in shares_of(WRITERS[kind](tmp_path, PAIRS))}
    assert shares == {round(1 / 3, 6), round(2 / 3, 6), 1.0}


def test_the_completed_fraction_of_a_pipe_is_unknown(tmp_path):
    pipe, file = tmp_path / "pipe.en", tmp_path / "corpus.de"
    os.mkfifo(pipe)
    file.write_text("".join(f"{target}\n" for _, target in PAIRS))
    text = "".join(f"{source}\n" for source, _ in PAIRS)
    writer = threading.Thread(target=pipe.write_text, args=(text,), daemon=True)
    writer.start()
    reports = shares_of([str(pipe), str(file)])
    writer.join(60)
    assert reports[-1] == (len(PAIRS), None)


def test_an_unknown_part_makes_the_fraction_unknown():
    assert completed_share([]) is None
    assert completed_share([ReadProgress(10), ReadProgress(None)]) is None
    part = ReadProgress(10)
    part.add(25)
    assert completed_share([part]) == 1.0
