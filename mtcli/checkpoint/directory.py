"""The files of a model directory, as far as they can be read without torch."""

import json
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from safetensors import SafetensorError, safe_open

from mtcli import __version__
from mtcli.checkpoint.files import check_contained, is_partial, remove_partial, write_file
from mtcli.checkpoint.lock import LOCK
from mtcli.checkpoint.records import read_record
from mtcli.config import HEAD, YAML_ERRORS, Config, differences, to_yaml, validate, yaml_mistake
from mtcli.errors import COPY_AGAIN, CheckpointError

_COMMENT = "# "
_HEAD = re.compile(rb"^mtcli:", re.MULTILINE)
FORMAT = 1  # of the directory; raised when a change makes older versions of mtcli unable to read it

CONFIG, WEIGHTS, CARD, LOG, CHECKPOINTS = (
    "config.yaml",
    "model.safetensors",
    "README.md",
    "log.jsonl",
    "checkpoints",
)
PAUSE = f"{CHECKPOINTS}/pause.safetensors"  # a checkpoint between validations
REPORT, TENSORBOARD = "report.html", "tensorboard"
METADATA, CHECKSUMS = "mtcli", "checksums"  # keys in the header of model.safetensors
_OTHERS = ("tokenizer.model", "source.model", "target.model", REPORT, "ctranslate2", TENSORBOARD)


@dataclass(frozen=True)
class WeightsInfo:
    """What model.safetensors says of itself."""

    n_parameters: int
    step: int
    bleu: float | None  # on the dev set; not known of what was averaged later
    signature: str
    n_pairs: int  # trained on
    weights: str = ""  # whose they are, if not those of `step`: "the mean of steps 800 and 1,000"

    def facts(self) -> dict[str, object]:
        """Return the fields that are saved; the tensors themselves give `n_parameters`."""
        facts = asdict(self)
        del facts["n_parameters"]
        return facts


def save_config(directory: Path, config: Config, plan: Sequence[str] = ()) -> None:
    """Write the resolved configuration, its format and the version of mtcli that made it.

    `plan` says in words how it came about; it stands above, as a comment.
    """
    comment = "".join(f"{_COMMENT}{line}\n" for line in plan)
    head = f"format: {FORMAT}\nmtcli: {__version__}\n"
    write_file(directory / CONFIG, comment + head + to_yaml(portable(config)))


def saved_plan(directory: Path) -> list[str]:
    """The plan that `save_config` has written down."""
    path = directory / CONFIG
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [line.removeprefix(_COMMENT) for line in lines if line.startswith(_COMMENT)]


def load_saved_config(directory: Path) -> Config:
    """The configuration of a model directory; an unknown format is refused by name."""
    path = directory / CONFIG
    tree = read_saved_tree(path)
    made_by, version = tree.pop("mtcli", "an unknown version"), tree.pop("format", None)
    if version != FORMAT:
        raise CheckpointError(
            f"{directory} has format {version}, made by mtcli {made_by}; this is mtcli "
            f"{__version__}, which reads format {FORMAT}",
            hint="use the version of mtcli that made it, or a newer one",
        )
    return validate(tree, origin=str(path))


def made_by(directory: Path) -> str:
    """Return the version of mtcli that started a run."""
    return str(read_saved_tree(directory / CONFIG).get("mtcli", "unknown"))


def is_run(directory: Path) -> bool:
    """Return whether mtcli has made `directory`: its config.yaml names the version of mtcli."""
    path = directory / CONFIG
    if path.is_symlink():
        check_contained(directory)
    if not path.is_file() or not _HEAD.search(path.read_bytes()):
        return False
    return set(HEAD).issubset(read_saved_tree(path))


def check_is_run(directory: Path) -> None:
    """Raise `CheckpointError` if `directory` is neither empty nor a run, or cannot be created."""
    if not directory.exists():
        _check_can_be_made(directory)
        return
    is_used = not directory.is_dir() or any(
        not is_partial(path) and path.name != LOCK for path in directory.iterdir()
    )
    if is_used and not is_run(directory):
        raise CheckpointError(
            f"{directory} already exists and is not a run of mtcli",
            hint="choose another --out; nothing in it was touched",
        )


def _check_can_be_made(directory: Path) -> None:
    above = next(path for path in directory.absolute().parents if path.exists())
    try:
        # Only trying tells: in /proc, for instance, nobody can make a directory.
        with TemporaryDirectory(dir=above, prefix=".mtcli-"):
            pass
    except OSError as error:
        raise CheckpointError(
            f"cannot make {directory}: {error.strerror}",
            hint="choose another --out, inside a directory that you may write to",
        ) from error


def check_settings(directory: Path, config: Config) -> None:
    """Refuse a run that has begun with other settings than `config`."""
    if not has_begun(directory):
        return
    if changed := _differences(directory, config):
        lines = "".join(f"\n  {line}" for line in changed)
        raise CheckpointError(
            f"{directory} holds a run with other settings:{lines}",
            hint="choose another --out, take the settings back, or start over with --fresh",
        )


def fixed_steps(directory: Path, config: Config) -> int | None:
    """The number of steps that an earlier start of this run has found to fit into its minutes."""
    if config.train.minutes is None or not is_run(directory) or _differences(directory, config):
        return None
    return load_saved_config(directory).train.steps


def has_settings(directory: Path, config: Config) -> bool:
    """Whether the run in `directory` has the settings of `config`."""
    return not _differences(directory, config)


def _differences(directory: Path, config: Config) -> list[str]:
    """What counts: the pairs themselves, not the names of their files.

    Where minutes are given, the steps follow from them.
    """
    saved = load_saved_config(directory)
    before, now = saved.train, config.train
    same: dict[str, object] = {}
    if before.start_from and now.start_from and _end_alike(before.start_from, now.start_from):
        same["start_from"] = before.start_from
    if before.minutes is not None or now.minutes is not None:
        same["steps"] = before.steps
    files = {"train": saved.data.train, "dev": saved.data.dev}
    data, train = config.data.model_copy(update=files), now.model_copy(update=same)
    return differences(saved, config.model_copy(update={"data": data, "train": train}))


def has_begun(directory: Path) -> bool:
    """Whether something in `directory` has been learned that could be lost."""
    paths = [directory / WEIGHTS, directory / PAUSE, *checkpoint_paths(directory)]
    return any(path.exists() for path in paths)


def checkpoint_paths(directory: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((directory / CHECKPOINTS).glob("step-*.safetensors"))


def portable(config: Config) -> Config:
    """`config` without absolute paths: a model can be sent without telling where it was made."""
    data = config.data
    names = {"train": _names(data.train), "dev": _names(data.dev) if data.dev else None}
    parent = config.train.start_from
    train = config.train.model_copy(update={"start_from": _name(parent) if parent else None})
    return config.model_copy(update={"data": data.model_copy(update=names), "train": train})


def clear(directory: Path) -> None:
    """Remove the files of a run, and nothing else; what is not a run is left alone."""
    if not is_run(directory):
        return
    remove_partial(directory)
    # The configuration goes last: as long as anything of the run is left, it is known as a run.
    for name in (WEIGHTS, CARD, LOG, CHECKPOINTS, *_OTHERS, CONFIG):
        path = directory / name
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot remove {path}: {error.strerror}") from error


def weights_info(directory: Path) -> WeightsInfo:
    """The size and the origin of the weights, read from the head of their file."""
    path = directory / WEIGHTS
    if not path.is_file():
        raise CheckpointError(
            f"{directory} has no {WEIGHTS}: its training has not come to a validation yet, or it "
            "was not copied whole",
            hint="run the same `mtcli train` command again to go on, or copy it again",
        )
    try:
        with safe_open(path, framework="numpy") as file:
            slices = [file.get_slice(name) for name in file.keys()]  # noqa: SIM118
            shapes = [tensor.get_shape() for tensor in slices]
            if any(tensor.get_dtype() != "F32" for tensor in slices):
                raise ValueError("not all of its tensors are float32")
        facts = read_facts(path)
        facts.pop(CHECKSUMS, None)
        size = {"n_parameters": sum(math.prod(shape) for shape in shapes)}
        return read_record(WeightsInfo, {**facts, **size})
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is damaged or not made by mtcli: {error}", hint=COPY_AGAIN
        ) from error


def read_facts(path: Path) -> dict[str, Any]:
    """Return the metadata of model.safetensors: the fields of `WeightsInfo`, and checksums.

    They are one JSON text, because safetensors 0.8 writes several keys in random order.
    """
    with safe_open(path, framework="numpy") as file:
        return dict(json.loads((file.metadata() or {})[METADATA]))


def describe(directory: Path) -> list[tuple[str, str]]:
    """Return names and values that describe a model."""
    config, info = load_saved_config(directory), weights_info(directory)
    source, target = config.data.train
    vocabulary = "shared" if config.tokenizer.is_shared else "one for each language"
    return [
        ("trained on", f"{info.n_pairs:,} sentence pairs of {source} and {target}"),
        ("architecture", config.model.summary()),
        ("parameters", f"{info.n_parameters:,}"),
        ("vocabulary", f"SentencePiece {config.tokenizer.kind}, {vocabulary}"),
        ("training", f"at most {config.train.steps:,} steps, {config.train.optimizer}"),
        ("weights", info.weights or f"those of step {info.step:,}"),
        *_score(info),
    ]


def _score(info: WeightsInfo) -> list[tuple[str, str]]:
    if info.bleu is None:
        return []
    return [("dev BLEU", f"{info.bleu:.2f} with greedy search"), ("signature", info.signature)]


class _LoaderWithoutAliases(yaml.SafeLoader):
    """YAML without aliases: a few lines of them can stand for billions of values."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose the next node."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=mark)
        return super().compose_node(parent, index)


def read_saved_tree(path: Path) -> dict[str, object]:
    """Return the sections of a config.yaml as they stand in the file, without validation."""
    if not path.is_file():
        raise CheckpointError(
            f"{path.parent} is not a model directory: it has no {path.name}",
            hint="name the directory that was given to `mtcli train --out`",
        )
    # Everything that uses a model or a run reads its configuration first, so check here.
    check_contained(path.parent)
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader=_LoaderWithoutAliases)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    except YAML_ERRORS as error:
        raise _damaged(path, yaml_mistake(error)) from error
    if not isinstance(tree, dict):
        raise _damaged(path, "it has no settings")
    return tree


def _damaged(path: Path, how: str) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged: {how}",
        hint=f"copy it again; or, to retrain, remove {path.parent} or choose another --out",
    )


def _end_alike(one: Path, other: Path) -> bool:
    """Whether two paths can mean the same: one may be the name alone, or seen from elsewhere."""
    ends = [takewhile(lambda part: part != "..", reversed(path.parts)) for path in (one, other)]
    return all(a == b for a, b in zip(*ends, strict=False))


def _names(files: tuple[Path, Path]) -> tuple[Path, Path]:
    source, target = map(_name, files)
    return source, target


def _name(path: Path) -> Path:
    return Path(path.name) if path.is_absolute() else path
