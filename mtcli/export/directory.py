"""The export inside a model directory: made when it is missing, and anew when it is stale."""

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from mtcli.checkpoint.files import write_file
from mtcli.errors import CheckpointError, EngineError
from mtcli.export.manifest import EXPORT, MANIFEST, Manifest, fingerprints, read_manifest

VOCABULARY_MAP = "vmap.txt"  # CTranslate2's name for it
_DEFAULT = "int8"
_TOKENIZERS = ("tokenizer.model", "source.model", "target.model")


@dataclass(frozen=True)
class Export:
    """What CTranslate2 loads, in memory, and what mtcli knows of it."""

    manifest: Manifest
    files: dict[str, bytes]
    shortlist: bytes | None  # the vocabulary map, if there is one


def open_export(model: Path, quantization: str) -> Export:
    """The export of a model directory, made now if need be."""
    directory = model / EXPORT
    manifest = read_manifest(directory)
    if manifest and manifest.is_fresh(model) and (directory / weights_name(quantization)).is_file():
        return _load(directory, manifest, quantization)
    try:
        return _load(directory, make_export(model, quantization), quantization)
    except (
        CheckpointError,
        OSError,
    ):  # the directory cannot be written to: for this once, elsewhere
        with TemporaryDirectory() as scratch:
            manifest = make_export(model, quantization, into=Path(scratch))
            return _load(Path(scratch), manifest, quantization)


def make_export(model: Path, quantization: str = _DEFAULT, *, into: Path | None = None) -> Manifest:
    """Write the weights of a model in CTranslate2's format, by default beside its own."""
    directory = into or model / EXPORT
    old = read_manifest(directory)
    files, manifest = _converted(model, quantization)
    if old and old.is_fresh(model):
        manifest = old  # another quantization of the same weights
    else:
        # Which pieces translate which is a matter of the vocabulary, not of the weights.
        keeps_shortlist = old is not None and _have_same_vocabulary(old, manifest)
        _clear(directory, keeps_shortlist=keeps_shortlist)
        manifest = replace(manifest, shortlist=old.shortlist if old and keeps_shortlist else None)
    for name, content in files.items():
        write_file(directory / name, content)
    manifest.write(directory)
    return manifest


def weights_name(quantization: str) -> str:
    """The file of the weights; int8 is what CTranslate2 finds when it is given the directory."""
    return "model.bin" if quantization == _DEFAULT else f"model.{quantization}.bin"


def is_export_possible(model: Path) -> bool:
    """Whether CTranslate2 can run the model."""
    manifest = read_manifest(model / EXPORT)
    return (manifest is not None and manifest.is_fresh(model)) or not _obstacles(model)


def _obstacles(model: Path) -> list[str]:
    from mtcli.checkpoint.directory import load_saved_config
    from mtcli.export.spec import obstacles

    return obstacles(load_saved_config(model).model)


def _converted(model: Path, quantization: str) -> tuple[dict[str, bytes], Manifest]:
    """The files of an export, and its manifest."""
    from safetensors.numpy import load_file

    from mtcli.checkpoint.directory import CONFIG, WEIGHTS, load_saved_config, weights_info
    from mtcli.export.spec import transformer_spec
    from mtcli.tokenizer import load_tokenizers

    if reasons := _obstacles(model):
        lines = "".join(f"\n  {reason}" for reason in reasons)
        raise EngineError(f"CTranslate2 cannot run {model}:{lines}", hint="use --engine torch")
    config, tokenizers = load_saved_config(model), load_tokenizers(model)
    weights_info(model)  # refuses what is missing or damaged
    n_positions = (
        config.model.max_positions
        if config.model.positions == "learned"
        else max(1024, config.data.max_length + 1, config.search.max_length)
    )
    spec = transformer_spec(
        config.model,
        load_file(model / WEIGHTS),
        (tokenizers.source.vocabulary, tokenizers.target.vocabulary),
        n_positions=n_positions,
    )
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    with TemporaryDirectory() as scratch:
        spec.save(scratch)
        files = {path.name: path.read_bytes() for path in sorted(Path(scratch).iterdir())}
    files = {weights_name(quantization): files.pop("model.bin"), **files}
    return files, Manifest(
        inputs=fingerprints(model, (WEIGHTS, CONFIG, *_TOKENIZERS)),
        max_pieces=config.data.max_length,
        n_positions=n_positions,
        search=config.search.model_dump(),
        files=tuple(name for name in files if not name.endswith(".bin")),
    )


def _load(directory: Path, manifest: Manifest, quantization: str) -> Export:
    files = {name: (directory / name).read_bytes() for name in manifest.files}
    files["model.bin"] = (directory / weights_name(quantization)).read_bytes()
    shortlist = directory / VOCABULARY_MAP
    return Export(manifest, files, shortlist.read_bytes() if shortlist.is_file() else None)


def _have_same_vocabulary(old: Manifest, new: Manifest) -> bool:
    hashes = [
        {name: value.sha256 for name, value in manifest.inputs.items() if name in _TOKENIZERS}
        for manifest in (old, new)
    ]
    return hashes[0] == hashes[1]


def _clear(directory: Path, *, keeps_shortlist: bool) -> None:
    """Remove what is stale; the manifest first, so that a kill leaves nothing that looks whole."""
    (directory / MANIFEST).unlink(missing_ok=True)
    for path in directory.glob("model*.bin"):
        path.unlink()
    if not keeps_shortlist:
        (directory / VOCABULARY_MAP).unlink(missing_ok=True)
