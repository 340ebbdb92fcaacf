"""Preview of a run's training data, without building a model or importing torch."""

from pathlib import Path

from mtcli.config.sections import Config
from mtcli.data.cache import DataCache
from mtcli.data.corpus import CorpusReader
from mtcli.training.preparation import Preparation, read_split
from mtcli.training.streaming import StreamPreparation


def preview_data(config: Config, reader: CorpusReader, cache: Path | None) -> tuple[str, ...]:
    """Return the notices that data preparation would print, such as those about filters."""
    if config.data.streaming:
        return StreamPreparation(config, DataCache(cache or Path()), reader).summary.notices
    if cache:
        return Preparation(config, DataCache(cache), reader).summary.notices
    notices: list[str] = []
    read_split(config, notices.append, reader)
    return tuple(notices)
