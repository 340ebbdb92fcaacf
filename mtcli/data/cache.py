"""Cache of prepared training data: one directory per entry, named after a hash of its inputs.

An entry gets its final name only when it is complete, and its files have checksums. Incomplete and
damaged entries are therefore never used.
"""

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtcli.errors import DataError

_VERSION = 1  # version of the cache format; part of every key
_MANIFEST = "manifest.json"
_PARTIAL = ".partial"
_PREFIX = "mtcli-"
_CHUNK = 1 << 22  # bytes to hash at a time
_ABANDONED_SECONDS = 24 * 3600  # age at which a partial entry is assumed to be abandoned


@dataclass(frozen=True)
class CacheEntry:
    """A complete entry: a directory of files, and the values that were saved with it."""

    path: Path
    values: dict[str, Any]


class DataCache:
    """Directory of cache entries. Several processes may use it at the same time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, key: str) -> CacheEntry | None:
        """Return the entry for `key`, or None if it is missing or damaged."""
        path = self._path(key)
        try:
            manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
            if manifest["key"] == key and manifest["files"] == _checksums(path):
                return CacheEntry(path, dict(manifest["values"]))
        except (OSError, ValueError, LookupError, TypeError):
            pass
        return None

    def open(self, key: str) -> CacheEntry:
        """Return the entry for `key`, which must exist; do not verify its checksums."""
        path = self._path(key)
        manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        return CacheEntry(path, dict(manifest["values"]))

    def find_or_build(self, key: str, write: Callable[[Path], dict[str, Any]]) -> CacheEntry:
        """Return the entry for `key`; build it if it is missing or damaged.

        `write` writes the files into a directory and returns the values to save.
        """
        if entry := self.find(key):
            return entry
        path = self._path(key)
        with self._partial() as partial:
            values = write(partial)
            manifest = {"key": key, "files": _checksums(partial), "values": values}
            (partial / _MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
            if self.find(key) is None:  # another process may have built it in the meantime
                shutil.rmtree(path, ignore_errors=True)
                partial.rename(path)
        return self.open(key)

    def remove(self, keys: Iterable[str]) -> None:
        """Remove the entries for `keys`, then the directory if it is empty."""
        self._remove(self._path(key) for key in keys)

    def remove_all(self, *, keep: Iterable[str] = ()) -> None:
        """Remove all entries whose keys are not in `keep`, then the directory if it is empty."""
        kept = {self._path(key) for key in keep}
        names = (f"{_PREFIX}*", f".{_PREFIX}*{_PARTIAL}")
        found = [path for name in names for path in self.directory.glob(name)]
        self._remove(path for path in found if path not in kept)

    def _remove(self, paths: Iterable[Path]) -> None:
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):  # the directory may contain other entries
            self.directory.rmdir()

    def remove_abandoned(self) -> None:
        """Remove partial entries older than a day, which a killed process probably left behind."""
        with suppress(OSError):
            for path in list(self.directory.glob(f".{_PREFIX}*{_PARTIAL}")):
                if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)

    def _path(self, key: str) -> Path:
        return self.directory / f"{_PREFIX}{key[:32]}"

    @contextmanager
    def _partial(self) -> Iterator[Path]:
        """Run the block with a new directory, then remove the directory unless it was renamed."""
        partial = self.directory / f".{_PREFIX}{secrets.token_hex(8)}{_PARTIAL}"
        try:
            self.remove_abandoned()
            partial.mkdir(parents=True)
            yield partial
        except OSError as error:
            raise DataError(
                f"cannot write to the data cache {self.directory}: {error.strerror or error}",
                hint="free some disk space, or choose another directory with --cache",
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def cache_key(*parts: object) -> str:
    """Return a hash of the cache version and `parts`, which must be serializable as JSON."""
    return hashlib.sha256(json.dumps([_VERSION, *parts]).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Return a hash of the content of a file."""
    sha = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            sha.update(chunk)
    return sha.hexdigest()


def _checksums(directory: Path) -> dict[str, str]:
    """Return a hash of each file except the manifest; ignore symbolic links."""
    files = [entry.name for entry in os.scandir(directory) if entry.is_file(follow_symlinks=False)]
    names = sorted(name for name in files if name != _MANIFEST)
    with ThreadPoolExecutor() as pool:
        digests = pool.map(file_digest, [directory / name for name in names])
        return dict(zip(names, digests, strict=True))
