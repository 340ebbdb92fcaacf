"""What an export knows of itself: from which files it was made, and how it is to be used."""

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mtcli.checkpoint.files import write_file
from mtcli.checkpoint.records import read_record
from mtcli.options import QUANTIZATIONS, SearchOptions
from mtcli.tokenizer import TOKENIZERS, tokenizer_names

EXPORT = "ctranslate2"  # the directory inside a model's
MANIFEST = "mtcli.json"
VERSION = 5  # of the files that are written; exports of other versions are rebuilt
_WEIGHTS, _CONFIG = "model.safetensors", "config.yaml"
_VOCABULARIES = ("shared", "source", "target")
_MANY = 2**31 - 1
_INVALID = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Fingerprint:
    """A file as it was: size and time say at a glance that it is the same, the hash for sure."""

    size: int
    modified: int  # nanoseconds
    sha256: str

    @classmethod
    def of(cls, path: Path) -> "Fingerprint":
        """The fingerprint of a file."""
        status = path.stat()
        return cls(status.st_size, status.st_mtime_ns, _sha256(path))

    def fits_at_a_glance(self, path: Path) -> bool:
        """Whether `path` is the very file."""
        if not path.is_file():
            return False
        status = path.stat()
        return (status.st_size, status.st_mtime_ns) == (self.size, self.modified)

    def fits(self, path: Path) -> bool:
        """Return whether `path` has this content; it may have been copied in the meantime."""
        if path.name == _WEIGHTS and self.fits_at_a_glance(path):
            return True  # only this file is too large to be hashed at every start
        return path.is_file() and path.stat().st_size == self.size and _sha256(path) == self.sha256


@dataclass(frozen=True)
class Shortlist:
    """Whether the vocabulary map is used by default, and the figures that decided it."""

    is_on: bool
    bleu: float
    bleu_without: float
    speed: float  # estimated speedup, from counted work

    def summary(self) -> str:
        """Describe cost, gain and decision."""
        state = "enabled" if self.is_on else "disabled: speedup under 5 %, or BLEU loss over 0.1"
        scores = f"dev BLEU {self.bleu:.2f} with it, {self.bleu_without:.2f} without"
        return f"{scores}; estimated speedup {self.speed:.2f}x; {state}"


@dataclass(frozen=True)
class Manifest:
    """All that translating needs to know and that CTranslate2's own files do not say."""

    inputs: dict[str, Fingerprint]  # the model's files, by name
    max_pieces: int  # the longest source the model was trained for
    n_positions: int  # the longest source or target it can represent
    target_size: int  # pieces of the target vocabulary
    search: SearchOptions  # the model's own
    is_language_model: bool  # goes on with the source, instead of looking at it
    shortlist: Shortlist | None = None
    files: dict[str, int] = field(default_factory=dict)  # what CTranslate2 reads, with checksums
    version: int = VERSION
    vocabulary_map: int | None = None  # checksum of vmap.txt, if there is one

    def is_fresh(self, model: Path) -> bool:
        """Return whether the files of the model directory are those it was made from."""
        return set(self.inputs) == input_names(model) and all(
            print_.fits(model / name) for name, print_ in self.inputs.items()
        )

    def is_fresh_at_a_glance(self, model: Path) -> bool:
        """Whether that can be seen without reading them."""
        return all(print_.fits_at_a_glance(model / name) for name, print_ in self.inputs.items())

    def uses_shortlist(self, wanted: bool | None) -> bool:
        """Return whether to use the vocabulary map; None leaves it to the manifest."""
        if wanted is None:
            return self.shortlist is not None and self.shortlist.is_on
        return wanted

    def write(self, export: Path) -> None:
        """Put it into an export; last of all, for without it the export counts as unfinished."""
        facts = asdict(self)
        facts["checksum"] = _checksum(facts)
        write_file(export / MANIFEST, json.dumps(facts, indent=1) + "\n")


def describe_export(model: Path) -> list[tuple[str, str]]:
    """What a person wants to know of a model's export, as names and values."""
    manifest = read_manifest(model / EXPORT)
    if manifest is None or manifest.shortlist is None or not manifest.is_fresh(model):
        return []
    return [("shortlist", manifest.shortlist.summary())]


def input_names(model: Path) -> set[str]:
    """Return the names of the files of a model directory that an export is made from."""
    return {_WEIGHTS, _CONFIG, *tokenizer_names(model)}


def fingerprints(model: Path) -> dict[str, Fingerprint]:
    """Return the fingerprints of the files that an export is made from."""
    names = sorted(name for name in input_names(model) if (model / name).is_file())
    return {name: Fingerprint.of(model / name) for name in names}


def weights_name(quantization: str) -> str:
    """Return the file name of exported weights; CTranslate2 itself looks for the name of int8."""
    return "model.bin" if quantization == QUANTIZATIONS[0] else f"model.{quantization}.bin"


def read_manifest(export: Path) -> Manifest | None:
    """Return the manifest of an export, or None if there is no valid one of this version.

    It may come from a stranger. Everything that it says is checked, so that the worst that a wrong
    value can do is to cause a new export.
    """
    try:
        facts = _read_json(export / MANIFEST)
        if facts.pop("checksum") != _checksum(facts):
            return None
        return _validated(facts)
    except _INVALID:
        return None


def read_previous(export: Path) -> tuple[dict[str, Fingerprint], Shortlist | None]:
    """Return the inputs and the shortlist of an export of version 4; empty if there is none."""
    try:
        facts = _read_json(export / MANIFEST)
        if facts["version"] != 4:
            return {}, None
        inputs = _inputs(facts["inputs"])
    except _INVALID:
        return {}, None
    try:
        return inputs, read_record(Shortlist, facts.get("shortlist"))
    except ValueError:
        return inputs, None


def have_same_content(
    some: Mapping[str, Fingerprint], others: Mapping[str, Fingerprint], names: Iterable[str]
) -> bool:
    """Return whether two exports were made from the same files of these names."""
    hashes = [
        {name: inputs[name].sha256 for name in names if name in inputs} for inputs in (some, others)
    ]
    return hashes[0] == hashes[1]


def _read_json(path: Path) -> dict[str, Any]:
    facts = json.loads(path.read_bytes())
    if not isinstance(facts, dict):
        raise ValueError("not an object")
    return facts


def _validated(facts: Mapping[str, Any]) -> Manifest:
    """Return the manifest that `facts` describe, or raise `ValueError`."""
    shortlist = facts["shortlist"]
    parts = {
        "inputs": _inputs(facts["inputs"]),
        "search": _search(facts["search"]),
        "shortlist": None if shortlist is None else read_record(Shortlist, shortlist),
        "files": _files(facts["files"]),
    }
    manifest = read_record(Manifest, {**facts, **parts})
    sizes = (manifest.max_pieces, manifest.n_positions, manifest.target_size)
    if manifest.version != VERSION or not all(1 <= size <= _MANY for size in sizes):
        raise ValueError("a number is out of range")
    if manifest.uses_shortlist(None) and manifest.vocabulary_map is None:
        raise ValueError("a shortlist without a vocabulary map")
    return manifest


def _inputs(facts: Mapping[str, Any]) -> dict[str, Fingerprint]:
    inputs = {name: read_record(Fingerprint, value) for name, value in facts.items()}
    tokenizers = [TOKENIZERS[:1], TOKENIZERS[1:]]  # shared, or one for each language
    if inputs.keys() not in [{_WEIGHTS, _CONFIG, *names} for names in tokenizers]:
        raise ValueError("not the files that an export is made from")
    return inputs


def _search(facts: Any) -> SearchOptions:
    options = read_record(SearchOptions, facts)
    if options.sampling is not None:
        raise ValueError("the default search options of a model must not sample")
    return options


def _files(facts: Mapping[str, Any]) -> dict[str, int]:
    """Return the checksums of the files, or raise `ValueError` if one has an unexpected name."""
    weights = {weights_name(quantization) for quantization in QUANTIZATIONS}
    others = {"config.json", "vocabulary.json", *(f"{s}_vocabulary.json" for s in _VOCABULARIES)}
    if not facts.keys() & weights or not facts.keys() <= weights | others:
        raise ValueError("not the files of an export")
    if not all(type(value) is int for value in facts.values()):
        raise ValueError("a checksum is not a number")
    return dict(facts)


def _checksum(facts: Mapping[str, Any]) -> int:
    """Return the checksum of everything else in a manifest."""
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
