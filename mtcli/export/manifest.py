"""What an export knows of itself: from which files it was made, and how it is to be used."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mtcli.checkpoint.files import write_file
from mtcli.options import SearchOptions

EXPORT = "ctranslate2"  # the directory inside a model's
MANIFEST = "mtcli.json"
VERSION = 4  # of what is written; another one is made anew


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
        """Whether `path` still has this content; it may have been copied in the meantime."""
        return self.fits_at_a_glance(path) or (
            path.is_file() and path.stat().st_size == self.size and _sha256(path) == self.sha256
        )


@dataclass(frozen=True)
class Shortlist:
    """The vocabulary map, and what it cost on the dev set when training was over."""

    is_on: bool  # unless the user says otherwise
    bleu: float
    bleu_without: float
    speed: float  # sentences per second, as a multiple of the speed without it

    def quality(self) -> str:
        """What it costs, in words; the same whenever it is measured."""
        return f"dev BLEU {self.bleu:.2f} with it, {self.bleu_without:.2f} without"

    def gain(self) -> str:
        """What it brings, in words, and whether it is used."""
        state = "on" if self.is_on else "off: not worth it"
        return f"{self.speed:.2f} times as fast with it; {state}"


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

    def is_fresh(self, model: Path) -> bool:
        """Whether the files of the model directory are still those it was made from."""
        return all(print_.fits(model / name) for name, print_ in self.inputs.items())

    def is_fresh_at_a_glance(self, model: Path) -> bool:
        """Whether that can be seen without reading them."""
        return all(print_.fits_at_a_glance(model / name) for name, print_ in self.inputs.items())

    def write(self, export: Path) -> None:
        """Put it into an export; last of all, for without it the export counts as unfinished."""
        write_file(export / MANIFEST, json.dumps(asdict(self), indent=1) + "\n")


def describe_export(model: Path) -> list[tuple[str, str]]:
    """What a person wants to know of a model's export, as names and values."""
    manifest = read_manifest(model / EXPORT)
    if manifest is None or manifest.shortlist is None or not manifest.is_fresh(model):
        return []
    shortlist = manifest.shortlist
    return [("shortlist", f"{shortlist.quality()}; {shortlist.gain()}")]


def fingerprints(model: Path, names: Iterable[str]) -> dict[str, Fingerprint]:
    """The fingerprints of those files that are there."""
    return {name: Fingerprint.of(model / name) for name in names if (model / name).is_file()}


def read_manifest(export: Path) -> Manifest | None:
    """The manifest of an export; None if there is none that this version understands."""
    try:
        facts = json.loads((export / MANIFEST).read_bytes())
        if facts["version"] != VERSION:
            return None
        inputs = {name: Fingerprint(**value) for name, value in facts["inputs"].items()}
        shortlist = Shortlist(**facts["shortlist"]) if facts["shortlist"] else None
        search = SearchOptions(**facts["search"])
        parts = {"inputs": inputs, "shortlist": shortlist, "search": search}
        return Manifest(**{**facts, **parts})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # missing or damaged: it costs little to make it anew


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
