"""Configuration and metadata of a model directory, read and written without torch."""

import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors import SafetensorError, safe_open

from mtcli import __version__
from mtcli.config.alignment import AlignmentHeads
from mtcli.config.base import ModelConfig
from mtcli.config.load import METADATA_KEYS, to_yaml, validate, with_saved_defaults
from mtcli.config.sections import Config
from mtcli.errors import COPY_AGAIN, CheckpointError
from mtcli.files import is_partial, remove_partial, write_file
from mtcli.model_dir.layout import (
    CACHE,
    CARD,
    CHECKPOINTS,
    CONFIG,
    EXPORT,
    INTERIM_CHECKPOINT,
    LOCK,
    LOG,
    REPORT,
    TENSORBOARD,
    WEIGHTS,
    WORD_COUNTS,
)
from mtcli.model_dir.safety import check_contained, read_record
from mtcli.model_dir.saved_tree import check_has_weights, read_saved_tree

# Format of the model directory, saved in config.yaml. Increment it if older versions of mtcli
# cannot read the new format. Versions 0.1.0 and 0.2.0 wrote format 1, and development versions of
# 0.3.0 wrote formats 2 to 4.
FORMAT = 5
_READABLE = (1, 2, 3, 4, FORMAT)
# Keys in the header of model.safetensors. FORMAT is also the version of this metadata: mtcli
# rejects unknown fields, so a new field requires a new FORMAT.
METADATA, CHECKSUMS = "mtcli", "checksums"
_COMMENT = "# "
_VERSION_LINE = re.compile(rb"^mtcli:", re.MULTILINE)
_TOKENIZERS = ("tokenizer.model", "source.model", "target.model")


@dataclass(frozen=True)
class WeightsInfo:
    """Metadata of model.safetensors. Field names are part of the file format."""

    n_parameters: int
    step: int
    bleu: float | None  # on the dev set; None for an average of several models
    signature: str
    n_pairs: int  # training pairs
    weights: str = ""  # origin of averaged weights, such as "the mean of steps 800 and 1000"
    alignment: AlignmentHeads | None = None  # selected at the end of training
    sets: Mapping[str, float] = field(default_factory=dict)  # BLEU per dev set, if several

    def to_metadata(self) -> dict[str, object]:
        """Return the fields to save, without `n_parameters`, which the tensors determine."""
        metadata = asdict(self)
        del metadata["n_parameters"]
        for name in ("alignment", "sets"):
            if not metadata[name]:
                del metadata[name]
        return metadata


def save_config(directory: Path, config: Config, plan: Sequence[str] = ()) -> None:
    """Write the resolved configuration, the directory format and the mtcli version.

    `plan` explains the chosen settings. It is written as a comment at the top of the file.
    """
    comment = "".join(f"{_COMMENT}{line}\n" for line in plan)
    versions = f"format: {FORMAT}\nmtcli: {__version__}\n"
    write_file(directory / CONFIG, comment + versions + to_yaml(strip_absolute_paths(config)))


def saved_plan(directory: Path) -> list[str]:
    """Return the plan that `save_config` wrote, or [] if there is none."""
    path = directory / CONFIG
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [line.removeprefix(_COMMENT) for line in lines if line.startswith(_COMMENT)]


def load_saved_config(directory: Path) -> Config:
    """Return the configuration of a model directory.

    Raise `CheckpointError` if its format is unknown.
    """
    path = directory / CONFIG
    tree = read_saved_tree(path)
    creator, saved_format = tree.pop("mtcli", "an unknown version"), tree.pop("format", None)
    if saved_format not in _READABLE:
        raise CheckpointError(
            f"{directory} has format {saved_format}, written by mtcli {creator}; this is mtcli "
            f"{__version__}, which reads formats {', '.join(map(str, _READABLE))}",
            hint="use the version of mtcli that wrote it, or a newer one",
        )
    return validate(with_saved_defaults(tree), origin=str(path))


def mtcli_version(directory: Path) -> str:
    """Return the version of mtcli that started the run in `directory`."""
    return str(read_saved_tree(directory / CONFIG).get("mtcli", "unknown"))


def is_run(directory: Path) -> bool:
    """Return whether mtcli created `directory`: its config.yaml has a format and a version."""
    path = directory / CONFIG
    if path.is_symlink():
        check_contained(directory)
    if not path.is_file() or not _VERSION_LINE.search(path.read_bytes()):
        return False
    return set(METADATA_KEYS).issubset(read_saved_tree(path))


def check_is_run(directory: Path) -> None:
    """Raise `CheckpointError` unless `directory` is a run or a run can be created there."""
    if not directory.exists():
        parent = next(path for path in directory.absolute().parents if path.exists())
        _check_can_write(parent, f"cannot create {directory}")
        return
    is_used = not directory.is_dir() or any(
        not is_partial(path) and path.name not in (LOCK, CACHE) for path in directory.iterdir()
    )
    if is_used and not is_run(directory):
        raise CheckpointError(
            f"{directory} already exists and is not an mtcli run",
            hint="choose another --out; mtcli has not changed this directory",
        )
    if not is_used:
        _check_can_write(directory, f"cannot write to {directory}")


def _check_can_write(directory: Path, message: str) -> None:
    try:
        # Checking permissions is not enough: even root cannot create a directory in /proc.
        with TemporaryDirectory(dir=directory, prefix=".mtcli-"):
            pass
    except OSError as error:
        raise CheckpointError(
            f"{message}: {error.strerror}",
            hint="choose another --out, in a directory that you can write to",
        ) from error


def has_saved_weights(directory: Path) -> bool:
    """Return whether `directory` contains trained weights or a checkpoint."""
    paths = [directory / WEIGHTS, directory / INTERIM_CHECKPOINT, *checkpoint_paths(directory)]
    return any(path.exists() for path in paths)


def checkpoint_paths(directory: Path) -> list[Path]:
    """Return the paths of the checkpoints that a run saved after validations, oldest first."""
    return sorted((directory / CHECKPOINTS).glob("step-*.safetensors"))


def strip_absolute_paths(config: Config) -> Config:
    """Return `config` with file names instead of absolute paths, which a model must not reveal."""
    data = config.data
    names = {
        "train": data.train.strip_absolute_paths(),
        "dev": data.dev.strip_absolute_paths() if data.dev else None,
    }
    tokenizer, train = config.tokenizer, config.train
    sections = {
        "data": data.model_copy(update=names),
        "tokenizer": tokenizer.model_copy(update={"model": _name(tokenizer.model)}),
        "train": train.model_copy(update={"start_from": _name(train.start_from)}),
    }
    return config.model_copy(update=sections)


def remove_run(directory: Path) -> None:
    """Remove the files of a run, but no other files; do nothing if `directory` is not a run."""
    if not is_run(directory):
        return
    remove_partial(directory)
    # Remove config.yaml last: a partially removed directory must still count as a run.
    others = CARD, LOG, CHECKPOINTS, *_TOKENIZERS, WORD_COUNTS, REPORT, EXPORT, TENSORBOARD
    for name in (WEIGHTS, *others, CONFIG):
        path = directory / name
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot remove {path}: {error.strerror}") from error


def weights_info(directory: Path) -> WeightsInfo:
    """Return the metadata of the weights from the header of model.safetensors."""
    check_has_weights(directory)
    path = directory / WEIGHTS
    try:
        with safe_open(path, framework="numpy") as file:
            slices = [file.get_slice(name) for name in file.keys()]  # noqa: SIM118
            shapes = [tensor.get_shape() for tensor in slices]
            if any(tensor.get_dtype() != "F32" for tensor in slices):
                raise ValueError("not all of its tensors are float32")
        metadata = read_metadata(path)
        metadata.pop(CHECKSUMS, None)
        n_parameters = sum(math.prod(shape) for shape in shapes)
        info = read_record(WeightsInfo, {**metadata, "n_parameters": n_parameters})
        return replace(info, alignment=_read_alignment(info.alignment))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is damaged or was not written by mtcli: {error}", hint=COPY_AGAIN
        ) from error


def _read_alignment(value: Any) -> AlignmentHeads | None:
    """Return the alignment heads in the metadata; raise `ValueError` if they are invalid."""
    if value is None:
        return None
    found = read_record(AlignmentHeads, value)
    heads = found.heads
    if not isinstance(heads, list) or not heads or not all(type(head) is int for head in heads):
        raise ValueError("alignment.heads must be a list of integers")
    if heads != sorted(set(heads)) or min(found.layer, heads[0]) < 0:
        raise ValueError("the numbers in alignment must be sorted, distinct and not negative")
    return AlignmentHeads(found.layer, tuple(heads))


def alignment_heads(directory: Path, config: ModelConfig) -> AlignmentHeads | None:
    """Return the alignment heads that training selected, or None for the model's default."""
    found = weights_info(directory).alignment
    if found is None:
        return None
    default = config.default_alignment_heads
    if (
        default is None
        or found.layer >= config.n_alignment_layers
        or not (set(found.heads) <= set(default.heads))
    ):
        raise CheckpointError(
            f"{directory / WEIGHTS} is damaged: the model does not have the alignment heads "
            f"{list(found.heads)} in layer {found.layer}",
            hint=COPY_AGAIN,
        )
    return found


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata of model.safetensors: the fields of `WeightsInfo` and the checksums.

    The metadata is one JSON string, because safetensors 0.8 writes multiple keys in random order.
    """
    with safe_open(path, framework="numpy") as file:
        return dict(json.loads((file.metadata() or {})[METADATA]))


def _name(path: Path | None) -> Path | None:
    return Path(path.name) if path and path.is_absolute() else path
