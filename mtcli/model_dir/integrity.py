"""Checksums of the weights, the tokenizers and the configuration, saved in model.safetensors.

Models written by mtcli 0.1.0 have no checksums, so their contents are not verified.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from mtcli.errors import COPY_AGAIN, CheckpointError
from mtcli.model_dir.directory import CHECKSUMS, read_metadata, weights_info
from mtcli.model_dir.layout import CONFIG, WEIGHTS
from mtcli.model_dir.saved_tree import read_saved_tree
from mtcli.tokenizer import TOKENIZERS, tokenizer_names

Arrays = Mapping[str, NDArray[Any]]
Metadata = Mapping[str, object]
_SECTIONS = ("model", "tokenizer")  # sections of config.yaml that must not change after training


def checksum(text: str, arrays: Arrays) -> str:
    """Return the CRC-32 of `text` and of all arrays and their names."""
    total = zlib.crc32(text.encode())
    for name, array in sorted(arrays.items()):
        total = zlib.crc32(name.encode(), total)
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return f"{total:08x}"


def checksums(directory: Path, metadata: Metadata, arrays: Arrays) -> dict[str, object]:
    """Return checksums of the weights, their metadata, the tokenizers and the configuration."""
    paths = [directory / name for name in tokenizer_names(directory)]
    config = directory / CONFIG
    digests = {
        "config": _config_digest_if_valid(config),
        "files": {path.name: _sha256(path.read_bytes()) for path in paths if path.is_file()},
    }
    return {**digests, "all": _checksum_of_all(metadata, digests, arrays)}


def load_arrays(directory: Path) -> dict[str, NDArray[Any]]:
    """Return the weights of a model directory, verified without importing torch."""
    weights_info(directory)  # raises an error if the file is missing or damaged
    arrays: dict[str, NDArray[Any]] = load_file(directory / WEIGHTS)
    check_integrity(directory, arrays)
    return arrays


def check_integrity(directory: Path, arrays: Arrays) -> None:
    """Raise `CheckpointError` if a checksum of the weights, tokenizers or settings is wrong.

    `arrays` contains the tensors in model.safetensors. Load the configuration before you call this
    function, because errors from loading it are more specific.
    """
    path = directory / WEIGHTS
    metadata = read_metadata(path)
    if CHECKSUMS not in metadata:
        return
    try:
        digests = dict(metadata.pop(CHECKSUMS))
        expected, config, files = digests.pop("all"), digests["config"], dict(digests["files"])
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(path, "its list of checksums cannot be read") from error
    is_known = files.keys() <= set(TOKENIZERS)  # an untrusted name could refer to any file
    if not is_known or _checksum_of_all(metadata, digests, arrays) != expected:
        raise _damaged(path, "its checksum is wrong")
    if config is not None and _config_digest(directory / CONFIG) != config:
        raise CheckpointError(
            f"the model or tokenizer section of {directory / CONFIG} was changed after training",
            hint="restore the sections that the model was trained with, or retrain with --fresh",
        )
    _check_tokenizers(directory, files)


def _check_tokenizers(directory: Path, expected: Mapping[str, str]) -> None:
    if not expected:
        return  # the weights were saved without a tokenizer
    for name in sorted(expected.keys() | set(tokenizer_names(directory))):
        path = directory / name
        if not path.is_file():
            raise CheckpointError(f"{path} is missing", hint=COPY_AGAIN)
        if _sha256(path.read_bytes()) != expected.get(name):
            raise CheckpointError(
                f"{path} is damaged, or is the tokenizer of a different model", hint=COPY_AGAIN
            )


def _checksum_of_all(metadata: Metadata, digests: Metadata, arrays: Arrays) -> str:
    """Return the checksum of all tensors with their types and shapes, and of the metadata."""
    shapes = {name: [str(array.dtype), *array.shape] for name, array in arrays.items()}
    return checksum(json.dumps([dict(metadata), dict(digests), shapes], sort_keys=True), arrays)


def _config_digest_if_valid(path: Path) -> str | None:
    """Return the digest of config.yaml, or None if it is invalid, perhaps after a user's edit."""
    try:
        return _config_digest(path)
    except CheckpointError:
        return None


def _config_digest(path: Path) -> str:
    """Return a digest of the sections that define the model, as they are written in the file.

    The digest does not depend on defaults, because later versions may add or change them.
    """
    tree = read_saved_tree(path)
    sections = [tree.get(name) for name in _SECTIONS]
    return _sha256(json.dumps(sections, sort_keys=True, default=str).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _damaged(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {problem}", hint=COPY_AGAIN)
