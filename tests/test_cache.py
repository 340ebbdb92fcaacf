"""Data cache: every entry that is found is complete and intact."""

import errno
import json
import os
import shutil

import pytest

from mtcli.data import cache as cache_module
from mtcli.data.cache import DataCache, cache_key, file_digest
from mtcli.errors import DataError

KEY = cache_key("test", 1)


def write(directory):
    (directory / "data").write_bytes(b"content" * 100)
    return {"n": 3}


@pytest.fixture
def cache(tmp_path) -> DataCache:
    return DataCache(tmp_path / "cache")


def fail(_):
    raise AssertionError("the entry should have been found")


def test_an_entry_is_built_once_and_found_again(cache):
    assert cache.find(KEY) is None
    entry = cache.find_or_build(KEY, write)
    assert entry.values == {"n": 3}
    assert (entry.path / "data").read_bytes() == b"content" * 100
    assert cache.find_or_build(KEY, fail) == cache.find(KEY) == cache.open(KEY) == entry
    assert [path.name for path in cache.directory.iterdir()] == [entry.path.name]


def test_different_inputs_have_different_keys():
    keys = [cache_key(), cache_key("a"), cache_key("a", 1), cache_key("a", [1]), cache_key("a1")]
    assert len(set(keys)) == len(keys)


DAMAGE = {
    "changed": lambda path: (path / "data").write_bytes(b"Content" * 100),
    "truncated": lambda path: os.truncate(path / "data", 50),
    "missing": lambda path: (path / "data").unlink(),
    "additional": lambda path: (path / "more").touch(),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "half a manifest": lambda path: os.truncate(path / "manifest.json", 20),
    "not JSON": lambda path: (path / "manifest.json").write_bytes(b"\xff"),
    "not an object": lambda path: (path / "manifest.json").write_text("[1]"),
    "no values": lambda path: (path / "manifest.json").write_text(json.dumps({"key": KEY})),
    "another key": lambda path: (path / "manifest.json").write_text(
        (path / "manifest.json").read_text().replace(KEY, KEY[::-1])
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_rebuilt(cache, damage):
    path = cache.find_or_build(KEY, write).path
    DAMAGE[damage](path)
    assert cache.find(KEY) is None
    assert cache.find_or_build(KEY, write).values == {"n": 3}
    assert cache.find(KEY) is not None


def test_a_link_to_another_file_is_not_followed(cache, tmp_path):
    path = cache.find_or_build(KEY, write).path
    (path / "data").rename(tmp_path / "elsewhere")
    (path / "data").symlink_to(tmp_path / "elsewhere")
    assert cache.find(KEY) is None


def test_an_error_while_writing_leaves_no_files(cache):
    def write_half(directory):
        write(directory)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(DataError, match="cannot write to the data cache .*No space left"):
        cache.find_or_build(KEY, write_half)
    assert list(cache.directory.iterdir()) == []


def test_two_builders_of_the_same_entry_do_not_disturb_each_other(cache):
    def build_inside(directory):
        cache.find_or_build(KEY, write)
        return write(directory)

    assert cache.find_or_build(KEY, build_inside).values == {"n": 3}
    assert len(list(cache.directory.iterdir())) == 1


def test_removing_entries_keeps_others_and_unrelated_files(cache):
    other = cache_key("other")
    for key in (KEY, other):
        cache.find_or_build(key, write)
    (cache.directory / "notes.txt").touch()
    cache.remove_all(keep=[other])
    assert cache.find(KEY) is None
    assert cache.find(other) is not None
    cache.remove([other])
    assert [path.name for path in cache.directory.iterdir()] == ["notes.txt"]
    (cache.directory / "notes.txt").unlink()
    cache.remove_all()
    assert not cache.directory.exists()
    cache.remove_all()  # no error if the directory does not exist


def test_a_partial_entry_is_removed_only_when_it_is_old(cache, monkeypatch):
    old, new = (cache.directory / f".mtcli-{name}.partial" for name in "ab")
    for path in (old, new):
        path.mkdir(parents=True)
    os.utime(old, (0, 0))
    cache.find_or_build(KEY, write)
    assert not old.exists()
    assert new.exists()
    monkeypatch.setattr(cache_module, "_ABANDONED_SECONDS", -1)
    shutil.rmtree(cache.find(KEY).path)
    cache.find_or_build(KEY, write)
    assert not new.exists()


def test_the_digest_of_a_file_depends_on_all_of_its_content(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "_CHUNK", 4)
    path = tmp_path / "file"
    digests = set()
    for content in (b"", b"abcd", b"abcdefgh", b"abcdefgi", b"xbcdefgh"):
        path.write_bytes(content)
        digests.add(file_digest(path))
    assert len(digests) == 5
