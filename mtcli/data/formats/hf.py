"""Datasets in files: Parquet, Arrow, and directories saved by the `datasets` library."""

import logging
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from mtcli.data.formats.base import (
    CorpusFormat,
    Location,
    OpenedCorpus,
    ReadProgress,
    Row,
    join_lines,
)
from mtcli.data.formats.fields import NESTED, FieldChoice, choose_fields
from mtcli.data.formats.languages import languages_from_names
from mtcli.errors import DataError

_BATCH_ROWS = 1000
_TEXT_TYPES = ("string", "large_string", "string_view", "null")


def import_datasets() -> Any:
    """Return the `datasets` module, with its progress bars and warnings disabled."""
    import datasets
    from huggingface_hub.utils.tqdm import disable_progress_bars

    datasets.disable_progress_bars()
    disable_progress_bars()
    datasets.logging.set_verbosity_error()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    return datasets


class _FileFormat(CorpusFormat):
    """Base class for formats that store a dataset in a single file."""

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
        datasets = import_datasets()
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
                selected = Selected(location, n_rows=self.count_rows(location.path))
                features = features_of(dataset)
        except Exception as error:  # raised by pyarrow, fsspec or datasets
            raise _unreadable(location, error) from error
        opened = open_dataset(dataset, features, selected, self.name.capitalize())
        return replace(opened, files=location.files)

    @abstractmethod
    def count_rows(self, path: Path) -> int:
        """Return the number of rows in a file, without reading their content."""


class ParquetFormat(_FileFormat):
    """A Parquet file."""

    name = "parquet"
    suffixes = (".parquet",)
    builder = "parquet"
    magic = (b"PAR1",)

    def count_rows(self, path: Path) -> int:
        """Return the number of rows according to the metadata."""
        from pyarrow import parquet

        return int(parquet.read_metadata(path).num_rows)


class ArrowFormat(_FileFormat):
    """An Arrow IPC file or stream; Feather version 2 is the same format."""

    name = "arrow"
    suffixes = (".arrow", ".feather")
    builder = "arrow"
    magic = (b"ARROW1", b"\xff\xff\xff\xff")

    def count_rows(self, path: Path) -> int:
        """Return the total number of rows in all record batches, without reading their content."""
        import pyarrow

        with pyarrow.memory_map(str(path)) as file:
            if file.read(len(self.magic[0])) == self.magic[0]:
                reader = pyarrow.ipc.open_file(file)
                batches = map(reader.get_batch, range(reader.num_record_batches))
            else:
                file.seek(0)
                batches = iter(pyarrow.ipc.open_stream(file))
            return sum(batch.num_rows for batch in batches)


class DatasetFormat(CorpusFormat):
    """A directory saved with `save_to_disk`; the selection is a split, two columns, or both."""

    name = "dataset"
    reads_streams = False

    def recognizes(self, location: Location, head: bytes) -> bool:
        """Return whether the directory contains a saved dataset."""
        del head
        return any((location.path / name).is_file() for name in _SAVED_FILES)

    def open(self, location: Location) -> OpenedCorpus:
        """Open the dataset that the directory contains."""
        if not location.path.exists():
            raise DataError(f"no such directory: {location}", hint="check the name")
        if not self.recognizes(location, b""):
            raise DataError(
                f"{location} is not a saved dataset: it has no {' or '.join(_SAVED_FILES)}",
                hint="save it with save_to_disk, or pass its files: 'DIRECTORY/*.parquet'",
            )
        datasets = import_datasets()
        selected = split_selection(location)
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
        selected = replace(selected, split=split, n_rows=len(dataset))
        opened = open_dataset(dataset, features_of(dataset), selected, "saved dataset")
        return replace(opened, files=_files(location.path))


_SAVED_FILES = ("dataset_dict.json", "state.json")


@dataclass(frozen=True)
class Selected:
    """The selected split, its size, and the location, whose selection contains only columns."""

    location: Location
    split: str = ""
    n_rows: int | None = None  # None if unknown


def split_selection(location: Location) -> Selected:
    """Return the split and the columns of a selection, which may name one or both."""
    n_names = len(location.selection)
    split = location.selection[0] if n_names in (1, 3) else ""
    return Selected(replace(location, selection=location.selection[bool(split) :]), split)


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


def features_of(dataset: Any) -> dict[str, Any]:
    """Return the features of a dataset, derived from the first row if they are unknown."""
    if dataset.features is not None:
        return dict(dataset.features)
    first: dict[str, Any] = next(iter(dataset.take(1)), {})
    return {name: value if isinstance(value, dict) else None for name, value in first.items()}


def open_dataset(
    dataset: Any, features: dict[str, Any], selected: Selected, kind: str
) -> OpenedCorpus:
    """Choose the columns of a dataset and return it as an open corpus."""
    location = selected.location
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
    facts = [kind, f"split {selected.split}" if selected.split else "", f"columns {choice}"]
    progress = ReadProgress.in_rows(selected.n_rows)
    return OpenedCorpus(
        rows=_rows(dataset, choice, location, progress),
        descriptions=(f"{location}: {', '.join(fact for fact in facts if fact)}",),
        languages=languages_from_names((choice.source, choice.target), location.languages),
        progress=(progress,),
    )


def _nested_features(features: dict[str, Any]) -> dict[str, Any]:
    feature = features.get(NESTED)
    if isinstance(feature, dict):
        return feature
    return dict.fromkeys(getattr(feature, "languages", None) or ())  # `Translation` feature


def _rows(
    dataset: Any, choice: FieldChoice, location: Location, progress: ReadProgress
) -> Iterator[Row]:
    names = [NESTED] if choice.is_nested else [choice.source, choice.target]
    number = 0
    tables = dataset.select_columns(names).with_format("arrow").iter(batch_size=_BATCH_ROWS)
    while True:
        try:
            table = next(tables, None)
        except Exception as error:  # from pyarrow, fsspec, datasets or an HTTP client
            raise _unreadable(location, error, f"row {number + 1:,}") from error
        if table is None:
            return
        progress.add(table.num_rows)
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


def first_line(error: Exception) -> str:
    """Return the first line of an error message, or the name of the error if it is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _unreadable(location: Location, error: Exception, place: str = "") -> DataError:
    where = f"{location}, {place}" if place else str(location)
    return DataError(
        f"cannot read {where}: {first_line(error)}",
        hint="check the file with another program, or copy or download it again",
    )
