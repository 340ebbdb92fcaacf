"""Manifest of a CTranslate2 export: hashes of its inputs, and settings for translation."""

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mtcli.config.search import QUANTIZATIONS, SearchOptions
from mtcli.files import write_file
from mtcli.model_dir.layout import CONFIG, WEIGHTS
from mtcli.model_dir.safety import read_record
from mtcli.tokenizer import TOKENIZERS, tokenizer_names

MANIFEST = "mtcli.json"
# Version of the export format. Exports with any other version are rebuilt. A vocabulary map from
# version 4 is kept if it still matches the vocabulary.
VERSION = 5
_VOCABULARIES = ("shared", "source", "target")
_MAX_SIZE = 2**31 - 1
_INVALID = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Fingerprint:
    """Size, modification time and hash of a file."""

    size: int
    modified: int  # nanoseconds
    sha256: str

    @classmethod
    def from_file(cls, path: Path) -> "Fingerprint":
        """Compute the fingerprint of a file."""
        status = path.stat()
        return cls(status.st_size, status.st_mtime_ns, _sha256(path))

    def matches_stat(self, path: Path) -> bool:
        """Return whether the size and modification time of `path` match."""
        if not path.is_file():
            return False
        status = path.stat()
        return (status.st_size, status.st_mtime_ns) == (self.size, self.modified)

    def matches(self, path: Path) -> bool:
        """Return whether `path` has the same contents; its modification time may differ."""
        if path.name == WEIGHTS and self.matches_stat(path):
            return True  # hashing the weights at every start would take too long
        return path.is_file() and path.stat().st_size == self.size and _sha256(path) == self.sha256


@dataclass(frozen=True)
class Shortlist:
    """Whether to use the vocabulary map by default, and the results behind this decision."""

    is_on: bool
    bleu: float
    bleu_without: float
    speed: float  # estimated speedup

    def summary(self) -> str:
        """Return one line with the BLEU scores, the speedup and the decision."""
        state = "enabled" if self.is_on else "disabled: speedup under 5%, or BLEU loss over 0.1"
        scores = f"dev BLEU {self.bleu:.2f} with it, {self.bleu_without:.2f} without"
        return f"{scores}; estimated speedup {self.speed:.2f}x; {state}"


@dataclass(frozen=True)
class Manifest:
    """Information that translation needs in addition to CTranslate2's files.

    Field names are part of the file format.
    """

    inputs: dict[str, Fingerprint]  # files that the export was built from, by name
    max_pieces: int  # maximum source length in training
    n_positions: int  # maximum source or target length that the export supports
    target_size: int  # size of the target vocabulary
    search: SearchOptions  # default search options of the model
    is_language_model: bool  # whether CTranslate2's Generator runs the model (decoder-only)
    shortlist: Shortlist | None = None
    files: dict[str, int] = field(default_factory=dict)  # CTranslate2's files and their CRC-32
    version: int = VERSION
    vocabulary_map: int | None = None  # CRC-32 of vmap.txt; None: no vocabulary map

    def is_fresh(self, model: Path) -> bool:
        """Return whether the export was built from the current files of the model."""
        return set(self.inputs) == input_names(model) and all(
            fingerprint.matches(model / name) for name, fingerprint in self.inputs.items()
        )

    def is_fresh_by_stat(self, model: Path) -> bool:
        """Return whether the sizes and modification times of all inputs match."""
        return all(
            fingerprint.matches_stat(model / name) for name, fingerprint in self.inputs.items()
        )

    def uses_shortlist(self, requested: bool | None) -> bool:
        """Return whether to use the vocabulary map: `requested` or, if it is None, the default."""
        if requested is None:
            return self.shortlist is not None and self.shortlist.is_on
        return requested

    def write(self, export: Path) -> None:
        """Write the manifest, which marks the export as complete: write all other files first."""
        values = asdict(self)
        values["checksum"] = _checksum(values)
        write_file(export / MANIFEST, json.dumps(values, indent=1) + "\n")


def input_names(model: Path) -> set[str]:
    """Return the names of the files in a model directory that an export is built from."""
    return {WEIGHTS, CONFIG, *tokenizer_names(model)}


def fingerprints(model: Path) -> dict[str, Fingerprint]:
    """Return the fingerprints of the files that an export is built from."""
    names = sorted(name for name in input_names(model) if (model / name).is_file())
    return {name: Fingerprint.from_file(model / name) for name in names}


def weights_name(quantization: str) -> str:
    """Return the file name of exported weights; int8 weights have CTranslate2's default name."""
    return "model.bin" if quantization == QUANTIZATIONS[0] else f"model.{quantization}.bin"


def read_manifest(export: Path) -> Manifest | None:
    """Return the manifest of an export, or None if it has no valid manifest of this version.

    The manifest may come from an untrusted source, so all values are checked. An invalid manifest
    only causes the model to be exported again.
    """
    try:
        values = _read_json(export / MANIFEST)
        if values.pop("checksum") != _checksum(values):
            return None
        return _validate(values)
    except _INVALID:
        return None


def read_version_4(export: Path) -> tuple[dict[str, Fingerprint], Shortlist | None]:
    """Return the inputs and shortlist of a version 4 export; ({}, None) for other versions."""
    try:
        values = _read_json(export / MANIFEST)
        if values["version"] != 4:
            return {}, None
        inputs = _read_inputs(values["inputs"])
    except _INVALID:
        return {}, None
    try:
        return inputs, read_record(Shortlist, values.get("shortlist"))
    except ValueError:
        return inputs, None


def have_same_hashes(
    first: Mapping[str, Fingerprint], second: Mapping[str, Fingerprint], names: Iterable[str]
) -> bool:
    """Return whether two exports recorded the same hashes for the files in `names`."""
    hashes = [
        {name: inputs[name].sha256 for name in names if name in inputs}
        for inputs in (first, second)
    ]
    return hashes[0] == hashes[1]


def _read_json(path: Path) -> dict[str, Any]:
    values = json.loads(path.read_bytes())
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    return values


def _validate(values: Mapping[str, Any]) -> Manifest:
    """Return the manifest with the given values; raise `ValueError` if one is invalid."""
    shortlist = values["shortlist"]
    nested = {
        "inputs": _read_inputs(values["inputs"]),
        "search": _read_search(values["search"]),
        "shortlist": None if shortlist is None else read_record(Shortlist, shortlist),
        "files": _read_files(values["files"]),
    }
    manifest = read_record(Manifest, {**values, **nested})
    sizes = (manifest.max_pieces, manifest.n_positions, manifest.target_size)
    if manifest.version != VERSION or not all(1 <= size <= _MAX_SIZE for size in sizes):
        raise ValueError("a number is out of range")
    if manifest.uses_shortlist(None) and manifest.vocabulary_map is None:
        raise ValueError("a shortlist without a vocabulary map")
    return manifest


def _read_inputs(values: Mapping[str, Any]) -> dict[str, Fingerprint]:
    inputs = {name: read_record(Fingerprint, value) for name, value in values.items()}
    tokenizers = [TOKENIZERS[:1], TOKENIZERS[1:]]  # shared, or separate for source and target
    if inputs.keys() not in [{WEIGHTS, CONFIG, *names} for names in tokenizers]:
        raise ValueError("not the files that an export is built from")
    return inputs


def _read_search(values: Any) -> SearchOptions:
    options = read_record(SearchOptions, values)
    if options.sampling is not None:
        raise ValueError("the default search options of a model must not sample")
    return options


def _read_files(values: Mapping[str, Any]) -> dict[str, int]:
    """Return the checksums of the files; raise `ValueError` if a name or checksum is invalid."""
    weights = {weights_name(quantization) for quantization in QUANTIZATIONS}
    others = {"config.json", "vocabulary.json", *(f"{s}_vocabulary.json" for s in _VOCABULARIES)}
    if not values.keys() & weights or not values.keys() <= weights | others:
        raise ValueError("not the files of an export")
    if not all(type(value) is int for value in values.values()):
        raise ValueError("a checksum is not an integer")
    return dict(values)


def _checksum(values: Mapping[str, Any]) -> int:
    """Return the checksum of a manifest's values, which must not include the checksum itself."""
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
