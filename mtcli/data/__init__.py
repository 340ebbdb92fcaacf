"""Two line-aligned files become sentence pairs, and ids. Nothing here needs torch."""

from mtcli.data.corpus import (
    Corpus,
    EncodedCorpus,
    drop_overlong,
    encode,
    hold_out,
    read_corpus,
)

__all__ = ["Corpus", "EncodedCorpus", "drop_overlong", "encode", "hold_out", "read_corpus"]
