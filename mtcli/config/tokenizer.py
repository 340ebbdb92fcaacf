"""Settings of the SentencePiece tokenizer."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from mtcli.config.base import Float, Int, Section


class TokenizerConfig(Section):
    """SentencePiece tokenizer, trained on the training data."""

    kind: Literal["unigram", "bpe"] = "unigram"
    """SentencePiece algorithm."""
    vocab_size: Int = Field(4000, gt=8, lt=2**31)
    """Vocabulary size. If the vocabularies are separate, each of them has this size."""
    is_shared: bool = True
    """Use one vocabulary for both languages instead of one per language."""
    byte_fallback: bool = True
    """Encode characters outside the vocabulary as bytes instead of the unknown piece."""
    character_coverage: Float = Field(0.9995, ge=0.98, le=1)
    """Share of the characters in the training data that the vocabulary covers. `byte_fallback`
    determines how the rest is encoded."""
    normalization: Literal["nmt_nfkc", "nfkc", "identity"] = "nmt_nfkc"
    """SentencePiece normalization rule, applied before tokenization."""
    sample_lines: Int = Field(200_000, gt=0)
    """Maximum number of lines to train the tokenizer on. If the corpus is larger, mtcli uses a
    random sample. The unigram trainer needs about 7 GB of memory per million lines."""
    model: Path | None = None
    """SentencePiece model to use for both languages instead of training one."""
