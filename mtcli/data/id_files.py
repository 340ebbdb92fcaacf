"""Write the token ids of a corpus to files, and map the files into memory."""

import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mtcli.data.encoding import EncodedBlock, EncodedCorpus, RaggedArray
from mtcli.tokenizer import Tokenizers

SIDES = ("source", "target")


def write_ids(
    directory: Path, name: str, blocks: Iterable[EncodedBlock], tokenizers: Tokenizers
) -> None:
    """Write two files per side: the token ids, and the offset of each row.

    If the pairs come from several corpora, a fifth file contains the corpus index of each pair.
    """
    id_type = _id_type(tokenizers)
    totals = [0, 0]
    with (
        (directory / f"{name}.source.ids").open("wb") as source_ids,
        (directory / f"{name}.source.offsets").open("wb") as source_offsets,
        (directory / f"{name}.target.ids").open("wb") as target_ids,
        (directory / f"{name}.target.offsets").open("wb") as target_offsets,
    ):
        for file in (source_offsets, target_offsets):
            file.write(np.zeros(1, np.int64).tobytes())
        for block in blocks:
            sides = (
                (block.source, block.source_lengths, source_ids, source_offsets),
                (block.target, block.target_lengths, target_ids, target_offsets),
            )
            for side, (ids, lengths, ids_file, offsets_file) in enumerate(sides):
                ids_file.write(ids.astype(id_type).tobytes())
                offsets_file.write((totals[side] + np.cumsum(lengths)).tobytes())
                totals[side] += len(ids)
            if block.origins is not None:
                with _origins_path(directory, name).open("ab") as origins_file:
                    origins_file.write(block.origins.tobytes())


def open_ids(directory: Path, name: str, tokenizers: Tokenizers) -> EncodedCorpus:
    """Return the corpus that `write_ids` wrote, mapped into memory."""
    source, target = (
        RaggedArray(
            _map(directory / f"{name}.{side}.ids", _id_type(tokenizers)),
            _map(directory / f"{name}.{side}.offsets", np.int64),
        )
        for side in SIDES
    )
    path = _origins_path(directory, name)
    origins = _map(path, np.uint8) if path.exists() else None
    return EncodedCorpus(source, target, tokenizers.special, origins)


def _origins_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.origins"


def _id_type(tokenizers: Tokenizers) -> type[np.uint16] | type[np.int32]:
    """Return the smallest type that can hold all ids."""
    size = max(len(tokenizers.source), len(tokenizers.target))
    return np.uint16 if size <= 2**16 else np.int32


def _map(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    """Return a memory-mapped file as a plain array, because slicing `np.memmap` is slow."""
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)
