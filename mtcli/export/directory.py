"""The export inside a model directory: made when it is missing, and anew when it is stale."""

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from mtcli.checkpoint.files import write_file
from mtcli.errors import CheckpointError, EngineError
from mtcli.export.manifest import EXPORT, MANIFEST, Manifest, fingerprints, read_manifest
from mtcli.options import SearchOptions

VOCABULARY_MAP = "vmap.txt"  # CTranslate2's name for it
_DEFAULT = "int8"
_TOKENIZERS = ("tokenizer.model", "source.model", "target.model")


class NotExportableError(EngineError):
    """CTranslate2 has no words for a model."""


@dataclass(frozen=True)
class Export:
    """What CTranslate2 loads, in memory, and what mtcli knows of it."""

    manifest: Manifest
    files: dict[str, bytes]
    shortlist: bytes | None  # the vocabulary map, if there is one


def open_export(model: Path, quantization: str) -> Export:
    """The export of a model directory, made now if need be."""
    directory = model / EXPORT
    with suppress(OSError):  # it may go away while it is read: another process makes it anew
        if export := _loaded(model, directory, quantization):
            return export
    with _alone_in(model):
        try:
            # Whoever was here before may have made it.
            if export := _loaded(model, directory, quantization):
                return export
            _make(model, model / EXPORT, quantization)
            if export := _loaded(model, directory, quantization):
                return export
            raise OSError("the export did not stay as it was written")
        except (CheckpointError, OSError):
            # The directory cannot be written to: for this once, elsewhere.
            with TemporaryDirectory() as scratch:
                _make(model, Path(scratch), quantization)
                if export := _loaded(model, Path(scratch), quantization):
                    return export
            raise


def make_export(model: Path, quantization: str = _DEFAULT) -> Manifest:
    """Write the weights of a model in CTranslate2's format, beside its own."""
    with _alone_in(model):
        return _make(model, model / EXPORT, quantization)


def _make(model: Path, directory: Path, quantization: str) -> Manifest:
    old = read_manifest(directory)
    is_usable = old is not None and old.is_fresh(model)
    files, manifest = _converted(model, quantization)
    if old and is_usable:  # another quantization of the same weights
        manifest = replace(old, files={**old.files, **manifest.files})
    else:
        # Which pieces translate which is a matter of the vocabulary, not of the weights; but what
        # that costs is not, and has to be measured again.
        keeps_map = old is not None and _have_same_vocabulary(old, manifest)
        _clear(directory, keeps_map=keeps_map)
    for name, content in files.items():
        write_file(directory / name, content)
    manifest.write(directory)
    return manifest


def write_plain(model: Path, quantization: str, directory: Path) -> None:
    """Write what CTranslate2 needs to run the model without mtcli, the tokenizers included."""
    files, _ = _converted(model, quantization)
    files["model.bin"] = files.pop(weights_name(quantization))
    for name, content in files.items():
        write_file(directory / name, content)
    for path in (model / name for name in _TOKENIZERS):
        if path.is_file():
            write_file(directory / path.name, path.read_bytes())


def weights_name(quantization: str) -> str:
    """The file of the weights; int8 is what CTranslate2 finds when it is given the directory."""
    return "model.bin" if quantization == _DEFAULT else f"model.{quantization}.bin"


def _converted(model: Path, quantization: str) -> tuple[dict[str, bytes], Manifest]:
    """The files of an export, and its manifest."""
    import numpy as np
    from safetensors.numpy import load_file

    from mtcli.checkpoint.directory import CONFIG, WEIGHTS, load_saved_config, weights_info
    from mtcli.config import AttentionConfig
    from mtcli.export.obstacles import obstacles
    from mtcli.export.quantization import quantize
    from mtcli.export.spec import model_spec
    from mtcli.tokenizer import load_tokenizers

    # Before anything is read: if it changes meanwhile, the export is stale and known to be.
    inputs = fingerprints(model, (WEIGHTS, CONFIG, *_TOKENIZERS))
    config = load_saved_config(model)
    shape, reasons = config.model, obstacles(config.model)
    if reasons or not isinstance(shape, AttentionConfig):
        raise _refusal(model, reasons)
    weights_info(model)  # refuses what is missing or damaged
    tokenizers = load_tokenizers(model)
    longest = max(1024, config.data.max_length + 1, config.search.max_length)
    n_positions = shape.n_positions or longest
    weights = load_file(model / WEIGHTS)
    if not all(np.isfinite(weight).all() for weight in weights.values()):
        raise CheckpointError(f"{model / WEIGHTS} is damaged: not all of its weights are numbers")
    vocabularies = tokenizers.source.vocabulary, tokenizers.target.vocabulary
    spec = model_spec(shape, weights, vocabularies, n_positions=n_positions)
    spec.validate()
    quantize(spec, quantization)
    with TemporaryDirectory() as scratch:
        spec.save(scratch)
        files = {path.name: path.read_bytes() for path in sorted(Path(scratch).iterdir())}
    files = {weights_name(quantization): files.pop("model.bin"), **files}
    return files, Manifest(
        inputs=inputs,
        max_pieces=config.data.max_length,
        n_positions=n_positions,
        target_size=len(tokenizers.target),
        is_language_model=spec.name == "TransformerDecoderSpec",
        search=SearchOptions(**config.search.model_dump()),
        files={name: zlib.crc32(content) for name, content in files.items()},
    )


def _refusal(model: Path, reasons: list[str]) -> NotExportableError:
    lines = "".join(f"\n  {reason}" for reason in reasons)
    return NotExportableError(
        f"CTranslate2 cannot run {model}:{lines}",
        hint="`mtcli translate` uses torch for it, with --engine torch or without --engine",
    )


def _loaded(model: Path, directory: Path, quantization: str) -> Export | None:
    """The export as it is, if it can be used."""
    manifest = read_manifest(directory)
    if manifest is None or weights_name(quantization) not in manifest.files:
        return None
    if not manifest.is_fresh(model):
        return None
    if not manifest.is_fresh_at_a_glance(model):  # copied: next time one look is to be enough
        manifest = replace(manifest, inputs=fingerprints(model, manifest.inputs))
        with suppress(CheckpointError):
            manifest.write(directory)
    return _load(directory, manifest, quantization)


def _load(directory: Path, manifest: Manifest, quantization: str) -> Export | None:
    """The files in memory, if they are what was written."""
    files = {}
    for name, checksum in manifest.files.items():
        is_weights = name.endswith(".bin")
        if is_weights and name != weights_name(quantization):
            continue
        content = (directory / name).read_bytes() if (directory / name).is_file() else b""
        if zlib.crc32(content) != checksum:
            return None
        files["model.bin" if is_weights else name] = content
    shortlist = directory / VOCABULARY_MAP
    return Export(manifest, files, shortlist.read_bytes() if shortlist.is_file() else None)


def _have_same_vocabulary(old: Manifest, new: Manifest) -> bool:
    hashes = [
        {name: value.sha256 for name, value in manifest.inputs.items() if name in _TOKENIZERS}
        for manifest in (old, new)
    ]
    return hashes[0] == hashes[1]


def _clear(directory: Path, *, keeps_map: bool) -> None:
    """Remove what is stale; the manifest first, so that a kill leaves nothing that looks whole."""
    (directory / MANIFEST).unlink(missing_ok=True)
    for path in directory.glob("model*.bin"):
        path.unlink()
    if not keeps_map:
        (directory / VOCABULARY_MAP).unlink(missing_ok=True)


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Within, no other process makes an export of the same model, if the system can see to it."""
    try:
        import fcntl

        descriptor = os.open(directory, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
