"""Find exact duplicates in a corpus of any size by comparing hashes, with bounded memory use."""

import hashlib
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from mtcli.errors import DataError

_RECORD = np.dtype([("hash", np.uint64), ("row", np.int64)])
_NO_ROWS = np.zeros(0, np.int64)
_CHUNK = 1 << 20  # records to read at a time
_MAX_SORTED = 1 << 22  # records to sort at a time


def hash_texts(texts: Iterable[str]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each text.

    With 100 million distinct texts, the probability of any hash collision is 0.03%.
    """
    digests = (
        hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
        for text in texts
    )
    return np.frombuffer(b"".join(digests), np.uint64)


class DuplicateFinder:
    """Finds rows whose text occurs in an earlier row.

    Hashes are kept in an unnamed temporary file.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._file = TemporaryFile(dir=directory)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._n_records = 0

    def add(self, texts: Sequence[str], rows: NDArray[np.int64]) -> None:
        """Add texts with their row numbers, which must be in ascending order."""
        records = np.empty(len(texts), _RECORD)
        records["hash"], records["row"] = hash_texts(texts), rows
        try:
            self._file.write(records.tobytes())
        except OSError as error:
            raise DataError(
                f"cannot store the hashes of the pairs: {error.strerror}",
                hint="free some disk space, or choose another disk with --out or --cache",
            ) from error
        self._n_records += len(texts)

    def find(self, without: NDArray[np.int64] = _NO_ROWS) -> NDArray[np.int64]:
        """Return the sorted rows whose text occurs in an earlier row; ignore rows in `without`."""
        n_parts = -(-self._n_records // _MAX_SORTED)
        parts = [self._find_in(part, n_parts, without) for part in range(n_parts)]
        return np.sort(np.concatenate([_NO_ROWS, *parts]))

    def _find_in(self, part: int, n_parts: int, without: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the repeated rows among the records with `hash % n_parts == part`."""
        records = np.concatenate(
            [chunk[chunk["hash"] % np.uint64(n_parts) == part] for chunk in self._chunks()]
        )
        records = records[np.isin(records["row"], without, invert=True)]
        order = np.argsort(records["hash"], kind="stable")  # keeps the order of the rows
        hashes = records["hash"][order]
        rows: NDArray[np.int64] = records["row"][order[1:][hashes[1:] == hashes[:-1]]]
        return rows

    def _chunks(self) -> Iterator[NDArray[np.void]]:
        self._file.seek(0)
        while data := self._file.read(_CHUNK * _RECORD.itemsize):
            yield np.frombuffer(data, _RECORD)
