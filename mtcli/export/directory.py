"""The export inside a model directory: created when it is missing, rebuilt when it is stale."""

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mtcli.checkpoint.files import check_contained, remove_partial, write_file
from mtcli.errors import COPY_AGAIN, CheckpointError, EngineError
from mtcli.export.manifest import (
    EXPORT,
    MANIFEST,
    Manifest,
    Shortlist,
    fingerprints,
    have_same_content,
    read_manifest,
    read_previous,
    weights_name,
)
from mtcli.options import QUANTIZATIONS, SearchOptions
from mtcli.tokenizer import TOKENIZERS, Tokenizers, load_tokenizers, tokenizer_names

VOCABULARY_MAP = "vmap.txt"  # CTranslate2's name for it
_DEFAULT = QUANTIZATIONS[0]


class NotExportableError(EngineError):
    """CTranslate2 has no words for a model."""


@dataclass(frozen=True)
class Export:
    """Files for CTranslate2, in memory, and their manifest."""

    manifest: Manifest
    files: dict[str, bytes]
    shortlist: bytes | None = None  # the vocabulary map, if it is used


def open_export(model: Path, quantization: str, *, shortlist: bool | None = None) -> Export:
    """Return the export of a model directory, created now if necessary.

    `shortlist` says whether to use the vocabulary map; None leaves it to the model.
    """
    check_contained(model)
    export = _open(model, quantization)
    manifest = export.manifest
    if manifest.vocabulary_map is None or not manifest.uses_shortlist(shortlist):
        return export
    return replace(export, shortlist=_read_vocabulary_map(model, manifest))


def _open(model: Path, quantization: str) -> Export:
    directory = model / EXPORT
    with suppress(OSError):  # it may go away while it is read: another process rebuilds it
        if export := _loaded(model, directory, quantization):
            _refresh(model, export.manifest)
            return export
    with _alone_in(model):
        try:
            # The process that had the lock before may have made it.
            if export := _loaded(model, directory, quantization):
                return export
            _make(model, directory, quantization)
            if export := _loaded(model, directory, quantization):
                return export
            raise OSError("the export has changed since it was written")
        except (CheckpointError, OSError):
            # The directory cannot be written to: use another one, this time only.
            with TemporaryDirectory() as scratch:
                _make(model, Path(scratch), quantization)
                if export := _loaded(model, Path(scratch), quantization):
                    return export
            raise


def make_export(model: Path, quantization: str = _DEFAULT) -> Manifest:
    """Write the weights of a model in CTranslate2's format, beside its own."""
    check_contained(model)
    with _alone_in(model):
        return _make(model, model / EXPORT, quantization)


def write_vocabulary_map(model: Path, vocabulary_map: str) -> None:
    """Add a vocabulary map to the export of a model; it is not used by default."""
    _write_map(model, vocabulary_map, None)


def write_shortlist(model: Path, vocabulary_map: str, shortlist: Shortlist) -> None:
    """Add a vocabulary map to the export of a model, and the decision whether to use it."""
    _write_map(model, vocabulary_map, shortlist)


def _write_map(model: Path, vocabulary_map: str, shortlist: Shortlist | None) -> None:
    check_contained(model)
    directory, content = model / EXPORT, vocabulary_map.encode()
    with _alone_in(model):
        remove_partial(directory)
        manifest = read_manifest(directory)
        if manifest is None or not manifest.is_fresh(model):
            manifest = _make(model, directory, _DEFAULT)
        # Until the last write the manifest has no map, so that a kill leaves no wrong checksum.
        manifest = replace(manifest, vocabulary_map=None, shortlist=None)
        manifest.write(directory)
        write_file(directory / VOCABULARY_MAP, content)
        crc = zlib.crc32(content)
        replace(manifest, vocabulary_map=crc, shortlist=shortlist).write(directory)


def _make(model: Path, directory: Path, quantization: str) -> Manifest:
    remove_partial(directory)
    old = read_manifest(directory)
    files, manifest = _converted(model, quantization)
    if old and old.is_fresh(model):  # another quantization of the same weights
        manifest = replace(old, files={**old.files, **manifest.files})
    else:
        manifest = _with_old_map(model, directory, old, manifest)
        _clear(directory, keeps_map=manifest.vocabulary_map is not None)
    for name, content in files.items():
        write_file(directory / name, content)
    manifest.write(directory)
    return manifest


def _with_old_map(
    model: Path, directory: Path, old: Manifest | None, manifest: Manifest
) -> Manifest:
    """Return the manifest of a new export with the vocabulary map of the old one, if it fits.

    The map depends on the vocabulary, not on the weights. Its effect on quality does depend on
    them, so that it is off until it is measured again.
    """
    content = _content(directory / VOCABULARY_MAP)
    crc, new = zlib.crc32(content), manifest.inputs
    if old is not None:
        is_kept = old.vocabulary_map == crc and have_same_content(old.inputs, new, TOKENIZERS)
        return replace(manifest, vocabulary_map=crc if is_kept else None)
    # Version 4 had no checksum of the map.
    inputs, shortlist = read_previous(directory)
    is_same = bool(inputs) and have_same_content(inputs, new, TOKENIZERS)
    if not is_same or not _is_map(content, load_tokenizers(model)):
        return manifest
    is_measured = have_same_content(inputs, new, new)  # with these weights
    return replace(manifest, vocabulary_map=crc, shortlist=shortlist if is_measured else None)


def _is_map(content: bytes, tokenizers: Tokenizers) -> bool:
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
    """Return whether CTranslate2 4.8 can read a vocabulary map without a crash.

    It needs lines `source<TAB>candidates` and at least one with a source.
    """
    lines = content.splitlines(keepends=True)
    return any(not line.startswith(b"\t") for line in lines) and all(
        line.count(b"\t") == 1 and line.endswith(b"\n") for line in lines
    )


def _read_vocabulary_map(model: Path, manifest: Manifest) -> bytes:
    path = model / EXPORT / VOCABULARY_MAP
    content = _content(path)
    if zlib.crc32(content) != manifest.vocabulary_map:
        with _alone_in(model):  # another process may have changed it: look again
            newer = read_manifest(model / EXPORT) or manifest
            content = _content(path)
    else:
        newer = manifest
    if zlib.crc32(content) == newer.vocabulary_map and _is_well_formed(content):
        return content
    raise CheckpointError(
        f"{path} is damaged" if path.is_file() else f"{path} is missing",
        hint="copy the model again from an intact source, or use --no-shortlist",
    )


def _content(path: Path) -> bytes:
    """Return the content of a file, or nothing if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def write_plain(model: Path, quantization: str, directory: Path) -> None:
    """Write what CTranslate2 needs to run the model without mtcli, the tokenizers included."""
    check_contained(model)
    files, _ = _converted(model, quantization)
    files["model.bin"] = files.pop(weights_name(quantization))
    for name, content in files.items():
        write_file(directory / name, content)
    for name in tokenizer_names(model):
        write_file(directory / name, (model / name).read_bytes())


def _converted(model: Path, quantization: str) -> tuple[dict[str, bytes], Manifest]:
    """Return the files of an export, and its manifest."""
    from mtcli.checkpoint.directory import load_saved_config
    from mtcli.checkpoint.integrity import load_arrays
    from mtcli.config import AttentionConfig
    from mtcli.export.obstacles import obstacles
    from mtcli.export.quantization import quantize
    from mtcli.export.spec import model_spec

    # Before anything is read: if it changes meanwhile, the export is stale and known to be.
    inputs = fingerprints(model)
    config = load_saved_config(model)
    shape, reasons = config.model, obstacles(config.model)
    if reasons or not isinstance(shape, AttentionConfig):
        raise _refusal(model, reasons)
    tokenizers = load_tokenizers(model)
    weights = load_arrays(model)
    _check_weights(model, weights, tokenizers)
    longest = max(1024, config.data.max_length + 1, config.search.max_length)
    n_positions = shape.n_positions or longest
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


def _check_weights(model: Path, weights: Mapping[str, Any], tokenizers: Tokenizers) -> None:
    """Raise `CheckpointError` if weights are not numbers, or belong to another vocabulary."""
    import numpy as np

    from mtcli.checkpoint.directory import WEIGHTS

    path = model / WEIGHTS
    if not all(np.isfinite(weight).all() for weight in weights.values()):
        raise CheckpointError(
            f"{path} is damaged: not all of its weights are numbers", hint=COPY_AGAIN
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
                f"{names} does not belong to {path}: it has {size:,} pieces, but {name} has "
                f"{len(weights[name]):,} rows",
                hint=COPY_AGAIN,
            )


def _refusal(model: Path, reasons: list[str]) -> NotExportableError:
    lines = "".join(f"\n  {reason}" for reason in reasons)
    return NotExportableError(
        f"CTranslate2 cannot run {model}:{lines}",
        hint="`mtcli translate` uses torch for it, with --engine torch or without --engine",
    )


def _loaded(model: Path, directory: Path, quantization: str) -> Export | None:
    """Return the export as it is, or None if it cannot be used."""
    manifest = read_manifest(directory)
    if manifest is None or weights_name(quantization) not in manifest.files:
        return None
    return _load(directory, manifest, quantization) if manifest.is_fresh(model) else None


def _refresh(model: Path, manifest: Manifest) -> None:
    """Record the times of files that were copied, so that the next start need not hash them."""
    if manifest.is_fresh_at_a_glance(model):
        return
    with _alone_in(model), suppress(CheckpointError, OSError):
        remove_partial(model / EXPORT)
        if read_manifest(model / EXPORT) == manifest:  # no other process has changed it
            replace(manifest, inputs=fingerprints(model)).write(model / EXPORT)


def _load(directory: Path, manifest: Manifest, quantization: str) -> Export | None:
    """Return the files in memory, or None if they are not what was written."""
    files = {}
    for name, checksum in manifest.files.items():
        is_weights = name.endswith(".bin")
        if is_weights and name != weights_name(quantization):
            continue
        content = _content(directory / name)
        if zlib.crc32(content) != checksum:
            return None
        files["model.bin" if is_weights else name] = content
    return Export(manifest, files)


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
