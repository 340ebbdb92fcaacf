"""Target languages and tags of a model directory."""

from pathlib import Path

from mtcli.config.tags import ModelTags
from mtcli.tokenizer import Tokenizers


def model_tags(directory: Path, tokenizers: Tokenizers) -> ModelTags:
    """Return the target languages and tags that users of the model can choose from."""
    symbols = tokenizers.source.tags
    if not symbols:
        return ModelTags()
    from mtcli.model_dir.directory import load_saved_config  # imports pydantic

    config = load_saved_config(directory)
    # A vocabulary from another tool may contain symbols that the model was not trained with.
    return ModelTags.from_symbols(config.data.symbols if config.tokenizer.model else symbols)
