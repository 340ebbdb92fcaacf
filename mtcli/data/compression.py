"""Read files and standard input, with automatic decompression."""

import io
import sys
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, BinaryIO, cast

from mtcli.errors import DataError

STDIN = "-"
COMPRESSION_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
ZIP_MAGIC = b"PK\x03\x04"

_MAGIC = {
    "gzip": b"\x1f\x8b",
    "bzip2": b"BZh",
    "xz": b"\xfd7zXZ\x00",
    "zstd": b"\x28\xb5\x2f\xfd",
}
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")  # at byte 4; plain text can also start with BZh
_BUFFER = 1 << 20
_ZSTD_READ = 1 << 12  # bytes per read; small, because pyarrow loses the data of a failed read
_DAMAGED_HINT = "copy or download the file again"

Read = Callable[[int], bytes]
OnRead = Callable[[int], None]  # called with the number of bytes in each read


class DamagedFileError(DataError):
    """The content of a file ends too early or fails its checksum."""

    def __init__(self, label: str, problem: str, *, place: str = "") -> None:
        where = f"{label}, {place}" if place else label
        super().__init__(f"{where}: {problem}", hint=_DAMAGED_HINT)
        self.label, self.problem, self.place = label, problem, place

    def at(self, place: str) -> "DamagedFileError":
        """Return the error with the position `place`, such as "line 7".

        If the error already has a position, keep it.
        """
        return DamagedFileError(self.label, self.problem, place=self.place or place)


class DecompressedReader(io.BufferedReader):
    """Buffered binary stream. `peek` returns 1 MB, or less at the end of the data."""

    def __init__(self, raw: io.RawIOBase, compression: str = "") -> None:
        super().__init__(raw, _BUFFER)
        self.compression = compression  # "gzip", "bzip2", "xz", "zstd" or ""


class _StreamReader(DecompressedReader):
    """Reader for a stream that can be opened only once; `close` does not close the stream."""

    def close(self) -> None:
        """Keep the stream open; a pipe is closed when its last reference is deleted."""


class _FullReads(io.RawIOBase):
    """Raw stream in which every read except the last fills the buffer.

    If reading fails, the stream first returns all data before the error and then raises
    `DataError`. Readers can therefore report the line of the error.
    """

    def __init__(self, read: Read, files: Sequence[Any], label: str, kind: str) -> None:
        self._read, self._files, self._label, self._kind = read, files, label, kind
        self._error: DataError | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer and return the number of bytes read."""
        n_read, size = 0, len(buffer)
        while n_read < size and not self._error:
            try:
                chunk = self._read(size - n_read)
            except Exception as error:
                self._error = _explain(error, self._label, self._kind)
                if self._error is None:
                    raise
                self._error.__cause__ = error
                break
            if not chunk:
                break
            buffer[n_read : n_read + len(chunk)] = chunk
            n_read += len(chunk)
        if self._error and not n_read:
            raise self._error
        return n_read

    def close(self) -> None:
        """Close the underlying files."""
        if not self.closed:
            super().close()
            for file in self._files:
                with suppress(Exception):  # the caller already has all data or an earlier error
                    file.close()


def _explain(error: Exception, label: str, kind: str) -> DataError | None:
    """Return a user error for an exception from a decompressor or a file, or None for a bug."""
    from lzma import LZMAError
    from zipfile import BadZipFile

    if isinstance(error, DataError):
        return error
    if isinstance(error, EOFError) or "Truncated" in str(error):
        return DamagedFileError(label, f"the {kind} data is truncated")
    if isinstance(error, zlib.error | LZMAError | BadZipFile):
        return DamagedFileError(label, f"the {kind} data is damaged")
    if isinstance(error, OSError):
        if error.errno is None and kind:
            return DamagedFileError(label, f"the {kind} data is damaged")
        return DataError(
            f"cannot read {label}: {error.strerror or error}", hint="check the disk or the network"
        )
    return None


def exists(name: str) -> bool:
    """Return whether a file or directory `name` exists, or False if the name is invalid."""
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def is_pipe(name: str) -> bool:
    """Return whether `name` is standard input or a pipe, which can be read only once."""
    path = Path(name)
    return name == STDIN or (exists(name) and not path.is_file() and not path.is_dir())


def open_stream(name: str) -> DecompressedReader:
    """Open standard input or a pipe. `close` leaves it open for another reader."""
    if name == STDIN:
        return open_decompressed(name)
    file = _open_file(name)
    return decompress(file.read, [file], name, is_stream=True)


def open_decompressed(name: str, on_read: OnRead | None = None) -> DecompressedReader:
    """Open a file, or standard input for "-". Decompress gzip, bzip2, xz and zstd.

    `on_read` receives the number of bytes read from a file, before decompression.
    """
    if name == STDIN:
        if sys.stdin is None:
            raise DataError("standard input is closed", hint="pass a file instead of -")
        file: Any = sys.stdin.buffer
        return decompress(getattr(file, "read1", file.read), [], "standard input", is_stream=True)
    file = _open_file(name)
    return decompress(count_reads(file.read, on_read), [file], name)


def count_reads(read: Read, on_read: OnRead | None) -> Read:
    """Return a function that calls `read`, then calls `on_read` with the number of bytes read."""
    if on_read is None:
        return read

    def read_and_count(n_bytes: int) -> bytes:
        chunk = read(n_bytes)
        on_read(len(chunk))
        return chunk

    return read_and_count


def _open_file(name: str) -> BinaryIO:
    path = Path(name)
    try:
        return cast(BinaryIO, path.open("rb", buffering=0))
    except FileNotFoundError as error:
        raise DataError(f"no such file: {path}", hint="check the name and the directory") from error
    except IsADirectoryError as error:
        raise DataError(
            f"{path} is a directory", hint="pass a text file with one sentence per line"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"cannot read {path}: {reason}", hint="check the name and the permissions"
        ) from error


def decompress(
    read: Read, files: Sequence[Any], label: str, kind: str = "", *, is_stream: bool = False
) -> DecompressedReader:
    """Return a reader that decompresses the data from `read`; closing it closes `files`.

    `label` names the data in error messages. `kind` is the format that `read` itself decompresses.
    If `is_stream` is true, closing the reader has no effect.
    """
    reader_class = _StreamReader if is_stream else DecompressedReader
    inner = reader_class(_FullReads(read, files, label, kind))
    try:
        compression = detect_compression(inner.peek(16))
        if not compression:
            return inner
        file = _decompressing_file(inner, compression)
    except BaseException:
        inner.close()
        raise
    largest = _ZSTD_READ if compression == "zstd" else _BUFFER
    raw = _FullReads(
        lambda n_bytes: file.read1(min(n_bytes, largest)), [file, inner], label, compression
    )
    return reader_class(raw, compression)


def detect_compression(head: bytes) -> str:
    """Return the compression format of data that starts with `head`, or "" if there is none."""
    for kind, magic in _MAGIC.items():
        if head.startswith(magic) and (kind != "bzip2" or head[4:].startswith(_BZIP2_BLOCKS)):
            return kind
    return ""


def _decompressing_file(inner: DecompressedReader, compression: str) -> Any:
    match compression:
        case "gzip":
            import gzip

            return gzip.GzipFile(fileobj=inner, mode="rb")
        case "bzip2":
            import bz2

            return bz2.BZ2File(inner)
        case "xz":
            import lzma

            return lzma.LZMAFile(inner)
        case _:
            import pyarrow

            return pyarrow.CompressedInputStream(pyarrow.PythonFile(inner, mode="r"), "zstd")


def strip_compression_suffix(name: str) -> str:
    """Return `name` without a compression suffix: train.tsv for train.tsv.gz."""
    for suffix in COMPRESSION_SUFFIXES:
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name


def suffix_of(name: str) -> str:
    """Return the file suffix before any compression suffix, in lower case: .tsv for a.tsv.gz."""
    return PurePath(strip_compression_suffix(name)).suffix.lower()
