"""Preview of a run's training data, without building a model or importing torch."""

from dataclasses import dataclass
from pathlib import Path

from mtcli.config.sections import Config
from mtcli.data.cache import DataCache
from mtcli.data.corpus import CorpusReader
from mtcli.training.preparation import Preparation, read_split
from mtcli.training.streaming import StreamPreparation


@dataclass(frozen=True)
class DataPreview:
    """Training data of a run that has not been started."""

    n_training: int | None  # training pairs; None if the corpus is streamed
    notices: tuple[str, ...]  # as printed by data preparation, such as those about filters


def preview_data(config: Config, reader: CorpusReader, cache: Path | None) -> DataPreview:
    """Return the size of the training set and the notices of data preparation."""
    if config.data.streaming:
        stream = StreamPreparation(config, DataCache(cache or Path()), reader)
        return DataPreview(None, stream.summary.notices)
    if cache:
        preparation = Preparation(config, DataCache(cache), reader)
        notices = preparation.summary.notices
        return DataPreview(len(preparation.split.train), notices)
    found: list[str] = []
    split = read_split(config, found.append, reader)
    return DataPreview(len(split.train), tuple(found))
