"""Read two line-aligned text files in blocks, without creating an object for each line."""

from collections.abc import Iterator, Sequence
from itertools import islice

from mtcli.data.encoded_lines import EncodedLines
from mtcli.data.formats.base import Block, Location
from mtcli.data.line_store import aligned_blocks, paired_blocks
from mtcli.data.lines import (
    BYTE_ORDER_MARK,
    HEAD,
    check_is_text,
    is_overlong,
    line_blocks,
    paired_lines,
)
from mtcli.errors import DataError

_READ_SIZE = 1 << 19  # bytes


def text_blocks(shards: Sequence[tuple[Location, Location]]) -> Iterator[Block]:
    """Yield the pairs of all shards in blocks. The files must not be pipes.

    If the files of a shard are damaged, are not UTF-8, or have different numbers of lines, the
    error is the same as that of `paired_lines`.
    """
    for source, target in shards:
        n_pairs = 0
        try:
            for block in paired_blocks(_encoded_blocks(source), _encoded_blocks(target)):
                n_pairs += len(block[0])
                yield block
        except (DataError, ValueError):
            rows = paired_lines((source, source.lines()), (target, target.lines()))
            yield from aligned_blocks(islice(rows, n_pairs, None))


def _encoded_blocks(location: Location) -> Iterator[EncodedLines]:
    """Yield the lines of a file in blocks; raise `DataError` or `ValueError` if one is invalid."""
    with location.open() as file:
        check_is_text(file.peek()[:HEAD], str(location))
        for number, content in enumerate(line_blocks(file, _READ_SIZE)):
            yield _encoded_lines(content if number else content.removeprefix(BYTE_ORDER_MARK))


def _encoded_lines(content: bytes) -> EncodedLines:
    """Return the lines in `content`; LF and CR LF end a line."""
    if is_overlong(content):
        raise ValueError("a line is too long")
    if not content.isascii():
        content.decode()  # raises `UnicodeDecodeError`, a `ValueError`, if it is not UTF-8
    if not content.endswith(b"\n"):
        content += b"\n"
    return EncodedLines(content.replace(b"\r\n", b"\n") if b"\r" in content else content)
