"""Datasets on the Hugging Face Hub."""

import re
from dataclasses import dataclass, replace
from typing import Any

from mtcli.data.formats.base import CorpusFormat, Location, OpenedCorpus
from mtcli.data.formats.hf import (
    features_of,
    first_line,
    import_datasets,
    open_dataset,
    split_selection,
)
from mtcli.errors import DataError, MtcliError

_LANGUAGE_PAIR = re.compile(r"[A-Za-z]{2,3}(_[A-Za-z]+)?-[A-Za-z]{2,3}(_[A-Za-z]+)?")
_REVISION = re.compile(r"[0-9a-f]{40}")
_DOWNLOAD_HINT = (
    "download it on a machine with access, save it with save_to_disk, and pass that directory"
)


class HubFormat(CorpusFormat):
    """A dataset on the Hugging Face Hub: NAMESPACE/NAME[/CONFIG][@REVISION][#SPLIT]."""

    name = "hf"
    reads_streams = False
    reads_files = False

    def open(self, location: Location) -> OpenedCorpus:
        """Open a dataset on the Hub for streaming."""
        selected = split_selection(location)
        try:
            builder = load_builder(_parse_hub_name(location))
            dataset = builder.as_streaming_dataset(split=selected.split or "train")
            features = features_of(dataset)
        except MtcliError:
            raise
        except Exception as error:  # from datasets, huggingface_hub, fsspec or an HTTP client
            raise _hub_error(location, error) from error
        split = selected.split or "train"
        info = (builder.info.splits or {}).get(split)
        n_rows = (info.num_examples or None) if info else None
        selected = replace(selected, split=split, n_rows=n_rows)
        opened = open_dataset(dataset, features, selected, "Hugging Face Hub")
        revision = str(builder.hash or "")
        return replace(opened, version=revision if _REVISION.fullmatch(revision) else "")


@dataclass(frozen=True)
class HubName:
    """Parts of a dataset name on the Hub."""

    repository: str
    config: str | None = None
    revision: str | None = None


def load_builder(name: HubName) -> Any:
    """Return the builder of a dataset on the Hub."""
    datasets = import_datasets()
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


def _hub_error(location: Location, error: Exception) -> DataError:
    text = str(error).lower()
    kind = type(error).__name__.lower()
    if "script" in text:
        problem = "it requires a loading script, which the datasets library no longer runs"
    elif "gated" in text or "gated" in kind or "401" in text:
        problem = (
            "access is restricted; accept the dataset's conditions on its Hugging Face page, then "
            "log in with `hf auth login`"
        )
    elif "notfound" in kind and "data" in kind:
        problem = "no such dataset, or no access to it"
    elif "split" in text or "config" in text:
        problem = first_line(error)
    else:
        problem = f"the Hub cannot be reached ({first_line(error)})"
    return DataError(f"cannot open hf:{location}: {problem}", hint=_DOWNLOAD_HINT)
