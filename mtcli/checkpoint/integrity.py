"""Checksums in model.safetensors: of its tensors and of the files that belong to them."""

import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from mtcli.checkpoint.directory import (
    CHECKSUMS,
    CONFIG,
    WEIGHTS,
    read_facts,
    read_saved_tree,
    weights_info,
)
from mtcli.errors import COPY_AGAIN, CheckpointError
from mtcli.tokenizer import TOKENIZERS, tokenizer_names

Arrays = Mapping[str, NDArray[Any]]
Facts = Mapping[str, object]
_SECTIONS = ("model", "tokenizer")  # of config.yaml; users may edit the others


def checksum(text: str, arrays: Arrays) -> str:
    """Return the CRC-32 of a text and of all arrays with their names."""
    total = zlib.crc32(text.encode())
    for name, array in sorted(arrays.items()):
        total = zlib.crc32(name.encode(), total)
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return f"{total:08x}"


def checksums(directory: Path, facts: Facts, arrays: Arrays) -> dict[str, object]:
    """Return checksums of the weights, their `facts`, the tokenizers and the configuration."""
    paths = [directory / name for name in tokenizer_names(directory)]
    config = directory / CONFIG
    digests = {
        "config": _config_digest_if_valid(config),
        "files": {path.name: _sha256(path.read_bytes()) for path in paths if path.is_file()},
    }
    return {**digests, "all": _checksum_of_all(facts, digests, arrays)}


def load_arrays(directory: Path) -> dict[str, NDArray[Any]]:
    """Return the weights of a model directory, without torch, after `check_integrity`."""
    weights_info(directory)  # names what is missing or damaged
    arrays: dict[str, NDArray[Any]] = load_file(directory / WEIGHTS)
    check_integrity(directory, arrays)
    return arrays


def check_integrity(directory: Path, arrays: Arrays) -> None:
    """Raise `CheckpointError` if the weights or the files that belong to them have changed.

    `arrays` is the content of model.safetensors. Models of earlier versions have no checksums.
    Load the configuration first: its errors say more.
    """
    path = directory / WEIGHTS
    facts = read_facts(path)
    if CHECKSUMS not in facts:
        return
    try:
        digests = dict(facts.pop(CHECKSUMS))
        expected, config, files = digests.pop("all"), digests["config"], dict(digests["files"])
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(path, "its list of checksums cannot be read") from error
    is_known = files.keys() <= set(TOKENIZERS)  # a stranger's name could lead to any file
    if not is_known or _checksum_of_all(facts, digests, arrays) != expected:
        raise _damaged(path, "its checksum is wrong")
    if config is not None and _config_digest(directory / CONFIG) != config:
        raise CheckpointError(
            f"the model or tokenizer section of {directory / CONFIG} was changed after training",
            hint="restore the sections that the model was trained with, or retrain with --fresh",
        )
    _check_tokenizers(directory, files)


def _check_tokenizers(directory: Path, expected: Mapping[str, str]) -> None:
    if not expected:
        return  # there was no tokenizer when the weights were saved
    for name in sorted(expected.keys() | set(tokenizer_names(directory))):
        path = directory / name
        if not path.is_file():
            raise CheckpointError(f"{path} is missing", hint=COPY_AGAIN)
        if _sha256(path.read_bytes()) != expected.get(name):
            raise CheckpointError(
                f"{path} is damaged, or is the tokenizer of another model", hint=COPY_AGAIN
            )


def _checksum_of_all(facts: Facts, digests: Facts, arrays: Arrays) -> str:
    """Return the checksum of all tensors with their types and shapes, and of the metadata."""
    shapes = {name: [str(array.dtype), *array.shape] for name, array in arrays.items()}
    return checksum(json.dumps([dict(facts), dict(digests), shapes], sort_keys=True), arrays)


def _config_digest_if_valid(path: Path) -> str | None:
    """Return the digest, or None: a file that the user is editing must not end a training."""
    try:
        return _config_digest(path)
    except CheckpointError:
        return None


def _config_digest(path: Path) -> str:
    """Return a digest of the sections that define the model, as they stand in the file.

    Defaults do not count: those of later versions must not change it.
    """
    tree = read_saved_tree(path)
    sections = [tree.get(name) for name in _SECTIONS]
    return _sha256(json.dumps(sections, sort_keys=True, default=str).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _damaged(path: Path, how: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {how}", hint=COPY_AGAIN)
