"""CTranslate2 export of a model directory, rebuilt if it is missing, stale or damaged."""

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mtcli.config.search import QUANTIZATIONS, SearchOptions
from mtcli.errors import COPY_AGAIN, CheckpointError, EngineError
from mtcli.files import remove_partial, write_file
from mtcli.model_dir.layout import EXPORT, WEIGHTS
from mtcli.model_dir.manifest import (
    MANIFEST,
    Manifest,
    Shortlist,
    fingerprints,
    have_same_hashes,
    read_manifest,
    read_version_4,
    weights_name,
)
from mtcli.model_dir.safety import check_contained
from mtcli.tokenizer import TOKENIZERS, Tokenizers, load_tokenizers, tokenizer_names

VOCABULARY_MAP = "vmap.txt"  # CTranslate2 expects this name
_DEFAULT_QUANTIZATION = QUANTIZATIONS[0]


class NotExportableError(EngineError):
    """CTranslate2 does not support the model."""


@dataclass(frozen=True)
class Export:
    """Files of an export, read into memory, and their manifest."""

    manifest: Manifest
    files: dict[str, bytes]
    vocabulary_map: bytes | None = None  # contents of vmap.txt, if it is used


def open_export(model: Path, quantization: str, *, shortlist: bool | None = None) -> Export:
    """Return the export of a model directory; build it first if necessary.

    `shortlist` controls whether the vocabulary map is used; None means the model's default.
    """
    check_contained(model)
    export = _open(model, quantization)
    manifest = export.manifest
    if manifest.vocabulary_map is None or not manifest.uses_shortlist(shortlist):
        return export
    return replace(export, vocabulary_map=_read_vocabulary_map(model, manifest))


def _open(model: Path, quantization: str) -> Export:
    directory = model / EXPORT
    with suppress(OSError):  # another process may be rebuilding the export
        if export := _load_if_fresh(model, directory, quantization):
            _refresh(model, export.manifest)
            return export
    with _export_lock(model):
        try:
            # The previous holder of the lock may have built the export.
            if export := _load_if_fresh(model, directory, quantization):
                return export
            _build(model, directory, quantization)
            if export := _load_if_fresh(model, directory, quantization):
                return export
            raise OSError("the export changed after it was written")
        except (CheckpointError, OSError):
            # The model directory may not be writable, so build in a temporary directory.
            with TemporaryDirectory() as scratch:
                _build(model, Path(scratch), quantization)
                if export := _load_if_fresh(model, Path(scratch), quantization):
                    return export
            raise


def make_export(model: Path, quantization: str = _DEFAULT_QUANTIZATION) -> Manifest:
    """Export a model to the subdirectory `ctranslate2` and return the manifest."""
    check_contained(model)
    with _export_lock(model):
        return _build(model, model / EXPORT, quantization)


def write_vocabulary_map(
    model: Path, vocabulary_map: str, shortlist: Shortlist | None = None
) -> None:
    """Add a vocabulary map to the export of a model.

    `shortlist` records whether to use the map by default; with None, it is not used by default.
    """
    check_contained(model)
    directory, content = model / EXPORT, vocabulary_map.encode()
    with _export_lock(model):
        remove_partial(directory)
        manifest = read_manifest(directory)
        if manifest is None or not manifest.is_fresh(model):
            manifest = _build(model, directory, _DEFAULT_QUANTIZATION)
        # The manifest lists no map until the last write, so a killed process cannot leave a wrong
        # checksum.
        manifest = replace(manifest, vocabulary_map=None, shortlist=None)
        manifest.write(directory)
        write_file(directory / VOCABULARY_MAP, content)
        crc = zlib.crc32(content)
        replace(manifest, vocabulary_map=crc, shortlist=shortlist).write(directory)


def _build(model: Path, directory: Path, quantization: str) -> Manifest:
    remove_partial(directory)
    old = read_manifest(directory)
    files, manifest = _convert(model, quantization)
    if old and old.is_fresh(model):  # only the quantization differs
        manifest = replace(old, files={**old.files, **manifest.files})
    else:
        manifest = _keep_vocabulary_map(model, directory, old, manifest)
        _remove_stale(directory, keep_map=manifest.vocabulary_map is not None)
    for name, content in files.items():
        write_file(directory / name, content)
    manifest.write(directory)
    return manifest


def _keep_vocabulary_map(
    model: Path, directory: Path, old: Manifest | None, manifest: Manifest
) -> Manifest:
    """Return the manifest of a new export with the old export's vocabulary map, if it matches.

    The map depends only on the vocabulary, but its effect on quality depends on the weights. The
    map is therefore not used by default until it has been evaluated again.
    """
    content = _read_if_possible(directory / VOCABULARY_MAP)
    crc, new = zlib.crc32(content), manifest.inputs
    if old is not None:
        is_kept = old.vocabulary_map == crc and have_same_hashes(old.inputs, new, TOKENIZERS)
        return replace(manifest, vocabulary_map=crc if is_kept else None)
    # Version 4 manifests have no checksum of the map.
    inputs, shortlist = read_version_4(directory)
    is_same = bool(inputs) and have_same_hashes(inputs, new, TOKENIZERS)
    if not is_same or not _is_vocabulary_map(content, load_tokenizers(model)):
        return manifest
    is_evaluated = have_same_hashes(inputs, new, new)  # the map was evaluated with these weights
    return replace(manifest, vocabulary_map=crc, shortlist=shortlist if is_evaluated else None)


def _is_vocabulary_map(content: bytes, tokenizers: Tokenizers) -> bool:
    """Return whether `content` maps source pieces to pieces of the target vocabulary."""
    try:
        rows = [line.split("\t") for line in content.decode().removesuffix("\n").split("\n")]
    except UnicodeDecodeError:
        return False
    known = set(tokenizers.target.vocabulary)
    return _is_well_formed(content) and all(
        len(row) == 2 and known.issuperset(row[1].split(" ")) for row in rows
    )


def _is_well_formed(content: bytes) -> bool:
    """Return whether CTranslate2 4.8 can read a vocabulary map without crashing.

    Each line must be `source<TAB>candidates`, and at least one line must have a source.
    """
    lines = content.splitlines(keepends=True)
    return any(not line.startswith(b"\t") for line in lines) and all(
        line.count(b"\t") == 1 and line.endswith(b"\n") for line in lines
    )


def _read_vocabulary_map(model: Path, manifest: Manifest) -> bytes:
    path = model / EXPORT / VOCABULARY_MAP
    content = _read_if_possible(path)
    if zlib.crc32(content) != manifest.vocabulary_map:
        with _export_lock(model):  # another process may have replaced both files: read them again
            manifest = read_manifest(model / EXPORT) or manifest
            content = _read_if_possible(path)
    if zlib.crc32(content) == manifest.vocabulary_map and _is_well_formed(content):
        return content
    raise CheckpointError(
        f"{path} is damaged" if path.is_file() else f"{path} is missing",
        hint="copy the model again from an intact source, or use --no-shortlist",
    )


def _read_if_possible(path: Path) -> bytes:
    """Return the contents of a file, or b"" if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def write_standalone(model: Path, quantization: str, directory: Path) -> None:
    """Write an export that CTranslate2 can run without mtcli, including the tokenizers."""
    check_contained(model)
    files, _ = _convert(model, quantization)
    files["model.bin"] = files.pop(weights_name(quantization))
    for name, content in files.items():
        write_file(directory / name, content)
    for name in tokenizer_names(model):
        write_file(directory / name, (model / name).read_bytes())


def _convert(model: Path, quantization: str) -> tuple[dict[str, bytes], Manifest]:
    """Return the files of an export and its manifest."""
    from mtcli.config.transformers import AttentionConfig
    from mtcli.export.compatibility import incompatibilities
    from mtcli.export.ct2_spec import model_spec
    from mtcli.export.quantization import quantize
    from mtcli.model_dir.directory import alignment_heads, load_saved_config
    from mtcli.model_dir.integrity import load_arrays

    # Hash before reading, so that the export counts as stale if a file changes in between.
    inputs = fingerprints(model)
    config = load_saved_config(model)
    architecture, reasons = config.model, incompatibilities(config.model)
    if reasons or not isinstance(architecture, AttentionConfig):
        raise _not_exportable(model, reasons)
    tokenizers = load_tokenizers(model)
    weights = load_arrays(model)
    _check_weights(model, weights, tokenizers)
    longest = max(1024, config.data.max_length + 1, config.search.max_length)
    n_positions = architecture.n_positions or longest
    vocabularies = tokenizers.source.vocabulary, tokenizers.target.vocabulary
    heads = alignment_heads(model, architecture)
    spec = model_spec(
        architecture, weights, vocabularies, n_positions=n_positions, alignment_heads=heads
    )
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


def _check_weights(model: Path, weights: Mapping[str, Any], tokenizers: Tokenizers) -> None:
    """Raise `CheckpointError` if the weights are not finite or do not match the vocabulary."""
    import numpy as np

    path = model / WEIGHTS
    if not all(np.isfinite(weight).all() for weight in weights.values()):
        raise CheckpointError(
            f"{path} is damaged: some weights are NaN or infinite", hint=COPY_AGAIN
        )
    sizes = {
        "source_embedding.weight": len(tokenizers.source),
        "target_embedding.weight": len(tokenizers.target),
        "to_logits.weight": len(tokenizers.target),
    }
    for name, size in sizes.items():
        if name in weights and len(weights[name]) != size:
            names = " and ".join(str(model / name) for name in tokenizer_names(model))
            raise CheckpointError(
                f"{path} does not match {names}: the tokenizer has {size:,} pieces, but {name} has "
                f"{len(weights[name]):,} rows",
                hint=COPY_AGAIN,
            )


def _not_exportable(model: Path, reasons: list[str]) -> NotExportableError:
    lines = "".join(f"\n  {reason}" for reason in reasons)
    return NotExportableError(
        f"CTranslate2 cannot run {model}:{lines}",
        hint="translate with --engine torch, or without --engine",
    )


def _load_if_fresh(model: Path, directory: Path, quantization: str) -> Export | None:
    """Return the export in `directory`, or None if it is missing, stale or damaged."""
    manifest = read_manifest(directory)
    if manifest is None or weights_name(quantization) not in manifest.files:
        return None
    return _load(directory, manifest, quantization) if manifest.is_fresh(model) else None


def _refresh(model: Path, manifest: Manifest) -> None:
    """Record the new modification times of the inputs, so that the next start skips hashing."""
    if manifest.is_fresh_by_stat(model):
        return
    with _export_lock(model), suppress(CheckpointError, OSError):
        remove_partial(model / EXPORT)
        if read_manifest(model / EXPORT) == manifest:  # no other process has changed it
            replace(manifest, inputs=fingerprints(model)).write(model / EXPORT)


def _load(directory: Path, manifest: Manifest, quantization: str) -> Export | None:
    """Return the export with the contents of its files, or None if a checksum is wrong."""
    files = {}
    for name, checksum in manifest.files.items():
        is_weights = name.endswith(".bin")
        if is_weights and name != weights_name(quantization):
            continue
        content = _read_if_possible(directory / name)
        if zlib.crc32(content) != checksum:
            return None
        files["model.bin" if is_weights else name] = content
    return Export(manifest, files)


def _remove_stale(directory: Path, *, keep_map: bool) -> None:
    """Remove stale files, starting with the manifest: without it, the export counts as missing."""
    (directory / MANIFEST).unlink(missing_ok=True)
    for path in directory.glob("model*.bin"):
        path.unlink()
    if not keep_map:
        (directory / VOCABULARY_MAP).unlink(missing_ok=True)


@contextmanager
def _export_lock(directory: Path) -> Iterator[None]:
    """Run the block with an exclusive lock on the export, if `flock` is supported."""
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
