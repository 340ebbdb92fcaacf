"""Hugging Face datasets: Parquet and Arrow files, saved datasets, and the hub."""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from mtcli.data.formats.base import CorpusFormat, Location, OpenedCorpus, Row, join_lines
from mtcli.data.formats.fields import NESTED, FieldChoice, choose_fields
from mtcli.data.formats.languages import languages_from_names
from mtcli.errors import DataError, MtcliError

_BATCH_ROWS = 1000
_LANGUAGE_PAIR = re.compile(r"[A-Za-z]{2,3}(_[A-Za-z]+)?-[A-Za-z]{2,3}(_[A-Za-z]+)?")
_REVISION = re.compile(r"[0-9a-f]{40}")
_TEXT_TYPES = ("string", "large_string", "string_view", "null")
_DOWNLOAD_HINT = (
    "download it on a machine with access, save it with save_to_disk, and pass that directory"
)


def _import_datasets() -> Any:
    """Import `datasets` without its progress bars and warnings."""
    import datasets
    from huggingface_hub.utils.tqdm import disable_progress_bars

    datasets.disable_progress_bars()
    disable_progress_bars()
    datasets.logging.set_verbosity_error()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    return datasets


class _FileFormat(CorpusFormat):
    """Base class of formats that consist of a single file."""

    reads_streams = False
    builder: ClassVar[str]  # name of a builder in the `datasets` package
    magic: ClassVar[tuple[bytes, ...]]

    def recognizes(self, location: Location, head: bytes) -> bool:
        """Return whether the content starts with the magic bytes of the format."""
        del location
        return head.startswith(self.magic)

    def open(self, location: Location) -> OpenedCorpus:
        """Open a file; the selection consists of column names."""
        head = location.head()  # also raises `DataError` if the file is missing
        if not head.startswith(self.magic):
            raise DataError(
                f"{location} is not {self.name.capitalize()} data", hint="check the file name"
            )
        datasets = _import_datasets()
        try:
            # Even when streaming, the builder creates a lock file in its cache directory.
            with TemporaryDirectory() as cache:
                dataset = datasets.load_dataset(
                    self.builder,
                    data_files=[str(location.path.absolute())],
                    split="train",
                    streaming=True,
                    cache_dir=cache,
                )
                features = _features(dataset)
        except Exception as error:  # raised by pyarrow, fsspec or datasets
            raise _unreadable(location, error) from error
        opened = _open_dataset(dataset, features, location, self.name.capitalize())
        return replace(opened, files=location.files)


class ParquetFormat(_FileFormat):
    """A Parquet file."""

    name = "parquet"
    suffixes = (".parquet",)
    builder = "parquet"
    magic = (b"PAR1",)


class ArrowFormat(_FileFormat):
    """An Arrow IPC file or stream; Feather version 2 is the same format."""

    name = "arrow"
    suffixes = (".arrow", ".feather")
    builder = "arrow"
    magic = (b"ARROW1", b"\xff\xff\xff\xff")


class DatasetFormat(CorpusFormat):
    """A directory saved with `save_to_disk`; the selection is a split, two columns, or both."""

    name = "dataset"
    reads_streams = False

    def recognizes(self, location: Location, head: bytes) -> bool:
        """Return whether the directory contains a saved dataset."""
        del head
        return any((location.path / name).is_file() for name in _SAVED_FILES)

    def open(self, location: Location) -> OpenedCorpus:
        """Open the directory."""
        if not location.path.exists():
            raise DataError(f"no such directory: {location}", hint="check the name")
        if not self.recognizes(location, b""):
            raise DataError(
                f"{location} is not a saved dataset: it has no {' or '.join(_SAVED_FILES)}",
                hint="save it with save_to_disk, or pass its files: 'DIRECTORY/*.parquet'",
            )
        datasets = _import_datasets()
        selected = _split_selection(location)
        try:
            dataset = datasets.load_from_disk(location.name)
        except Exception as error:  # raised by pyarrow, fsspec or datasets
            raise _unreadable(location, error) from error
        split = ""
        if isinstance(dataset, dict):
            split = _choose_split(list(dataset), selected.split, location)
            dataset = dataset[split]
        elif selected.split and selected.split != str(dataset.split):
            raise DataError(
                f"{location}: no split {selected.split}; the dataset has no splits",
                hint=f"omit the split: {location}",
            )
        opened = _open_dataset(
            dataset, _features(dataset), selected.location, "saved dataset", split
        )
        return replace(opened, files=_files(location.path))


_SAVED_FILES = ("dataset_dict.json", "state.json")


class HubFormat(CorpusFormat):
    """A dataset on the Hugging Face hub: NAMESPACE/NAME[/CONFIG][@REVISION][#SPLIT]."""

    name = "hf"
    reads_streams = False
    reads_files = False

    def open(self, location: Location) -> OpenedCorpus:
        """Open a dataset on the hub for streaming."""
        selected = _split_selection(location)
        try:
            builder = load_builder(_parse_hub_name(location))
            dataset = builder.as_streaming_dataset(split=selected.split or "train")
            features = _features(dataset)
        except MtcliError:
            raise
        except Exception as error:  # raised by datasets, huggingface_hub, fsspec or HTTP
            raise _hub_error(location, error) from error
        split = selected.split or "train"
        opened = _open_dataset(dataset, features, selected.location, "Hugging Face hub", split)
        revision = str(builder.hash or "")
        return replace(opened, version=revision if _REVISION.fullmatch(revision) else "")


@dataclass(frozen=True)
class HubName:
    """Parts of a dataset name on the hub."""

    repository: str
    config: str | None = None
    revision: str | None = None


def load_builder(name: HubName) -> Any:
    """Return the builder of a dataset on the hub."""
    datasets = _import_datasets()
    return datasets.load_dataset_builder(name.repository, name.config, revision=name.revision)


def _parse_hub_name(location: Location) -> HubName:
    name, _, revision = location.name.partition("@")
    parts = name.split("/")
    if len(parts) == 3 or (len(parts) == 2 and _LANGUAGE_PAIR.fullmatch(parts[1])):
        hub_name = HubName("/".join(parts[:-1]), parts[-1], revision or None)
    else:
        hub_name = HubName(name, None, revision or None)
    if len(parts) > 3 or not all(parts):
        raise DataError(
            f"hf:{location} is not a valid dataset name",
            hint="write hf:NAMESPACE/NAME/CONFIG#SPLIT, for example hf:wmt/wmt14/de-en#validation",
        )
    return hub_name


@dataclass(frozen=True)
class _Selected:
    """A selected split, and the location with only the columns in its selection."""

    split: str
    location: Location


def _split_selection(location: Location) -> _Selected:
    """Separate the split from the columns; a selection has a split, two columns, or both."""
    n_names = len(location.selection)
    split = location.selection[0] if n_names in (1, 3) else ""
    return _Selected(split, replace(location, selection=location.selection[bool(split) :]))


def _choose_split(splits: list[str], selected: str, location: Location) -> str:
    split = selected or ("train" if "train" in splits or len(splits) != 1 else splits[0])
    if split not in splits:
        raise DataError(
            f"{location}: no split {split}; its splits are {', '.join(splits)}",
            hint=f"select one: {location}#{splits[0] if splits else 'SPLIT'}",
        )
    return split


def _files(directory: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in directory.rglob("*") if path.is_file()))


def _features(dataset: Any) -> dict[str, Any]:
    """Return the features of a dataset; if they are unknown, derive them from the first row."""
    if dataset.features is not None:
        return dict(dataset.features)
    first: dict[str, Any] = next(iter(dataset.take(1)), {})
    return {name: value if isinstance(value, dict) else None for name, value in first.items()}


def _open_dataset(
    dataset: Any, features: dict[str, Any], location: Location, kind: str, split: str = ""
) -> OpenedCorpus:
    """Choose the columns of a dataset and return its rows."""
    nested = _nested_features(features)
    choice = choose_fields(list(features), location, list(nested))
    types = nested if choice.is_nested else features
    for name in (choice.source, choice.target):
        type_ = getattr(types[name], "dtype", None)
        if isinstance(type_, str) and type_ not in _TEXT_TYPES:
            raise DataError(
                f"{location}: the column {name} has the type {type_}, not text",
                hint=f"select other columns: {location}#SOURCE,TARGET",
            )
    facts = [kind, f"split {split}" if split else "", f"columns {choice}"]
    return OpenedCorpus(
        rows=_rows(dataset, choice, location),
        descriptions=(f"{location}: {', '.join(fact for fact in facts if fact)}",),
        languages=languages_from_names((choice.source, choice.target), location.languages),
    )


def _nested_features(features: dict[str, Any]) -> dict[str, Any]:
    feature = features.get(NESTED)
    if isinstance(feature, dict):
        return feature
    return dict.fromkeys(getattr(feature, "languages", None) or ())  # `Translation` feature


def _rows(dataset: Any, choice: FieldChoice, location: Location) -> Iterator[Row]:
    names = [NESTED] if choice.is_nested else [choice.source, choice.target]
    number = 0
    tables = dataset.select_columns(names).with_format("arrow").iter(batch_size=_BATCH_ROWS)
    while True:
        try:
            table = next(tables, None)
        except Exception as error:  # raised by pyarrow, fsspec, datasets or HTTP
            raise _unreadable(location, error, f"row {number + 1:,}") from error
        if table is None:
            return
        for row in zip(*(_column(table, name, choice) for name in _sides(choice)), strict=True):
            number += 1
            yield tuple(_text(value, location, number) for value in row)


def _sides(choice: FieldChoice) -> tuple[str, str]:
    return choice.source, choice.target


def _column(table: Any, name: str, choice: FieldChoice) -> list[Any]:
    from pyarrow import compute

    if choice.is_nested:
        values = compute.struct_field(table.column(NESTED), name)
    else:
        values = table.column(name)
    return list(values.to_pylist())


def _text(value: Any, location: Location, number: int) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return join_lines(value)
    raise DataError(
        f"{location}, row {number:,}: {str(value)[:40]} is not text",
        hint=f"select other columns: {location}#SOURCE,TARGET",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _unreadable(location: Location, error: Exception, place: str = "") -> DataError:
    where = f"{location}, {place}" if place else str(location)
    return DataError(
        f"cannot read {where}: {_first_line(error)}",
        hint="check the file with another program, or copy or download it again",
    )


def _hub_error(location: Location, error: Exception) -> DataError:
    text = str(error).lower()
    kind = type(error).__name__.lower()
    if "script" in text:
        problem = "it needs a loading script, which the datasets library no longer runs"
    elif "gated" in text or "gated" in kind or "401" in text:
        problem = "access is restricted; log in with `hf auth login` and accept its conditions"
    elif "notfound" in kind and "data" in kind:
        problem = "no such dataset, or no access to it"
    elif "split" in text or "config" in text:
        problem = _first_line(error)
    else:
        problem = f"the hub cannot be reached ({_first_line(error)})"
    return DataError(f"cannot open hf:{location}: {problem}", hint=_DOWNLOAD_HINT)
