"""Text becomes pieces and ids, and comes back: SentencePiece, trained by mtcli itself."""

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import sentencepiece

from mtcli.errors import COPY_AGAIN, CheckpointError, ConfigError

if TYPE_CHECKING:
    from mtcli.config import TokenizerConfig

# Every vocabulary begins with these four, on both sides and in every model.
PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
# The files of a model directory: one shared vocabulary, or one for each language.
_SHARED, _SEPARATE = "tokenizer.model", ("source.model", "target.model")
TOKENIZERS = (_SHARED, *_SEPARATE)

MAX_PIECE_LENGTH = 16  # characters; SentencePiece's default (max_sentencepiece_length)


class Tokenizer:
    """One vocabulary: text <-> pieces <-> ids. Symbols such as </s> in a text are plain text."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.vocabulary: list[str] = self.pieces_of(range(self._processor.get_piece_size()))

    def __len__(self) -> int:
        return len(self.vocabulary)

    def pieces(self, text: str) -> list[str]:
        """The subwords of `text`."""
        return self.pieces_of_each([text])[0]

    def pieces_of_each(self, texts: Sequence[str]) -> list[list[str]]:
        """The subwords of many texts.

        By way of their ids: asked for strings, SentencePiece gives what it does not know as it
        stands in the text, and a </s> made of unknown characters would then end the sentence.
        """
        rows = self._processor.encode([_encodable(text) for text in texts], num_threads=1)
        return [[self.vocabulary[i] for i in row] for row in rows]

    def ids(self, pieces: Sequence[str]) -> list[int]:
        """The numbers of `pieces`, with nothing added."""
        return self._processor.piece_to_id(list(pieces))

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of many lines, computed on all cores."""
        return cast(list[list[int]], self._processor.encode(list(lines), num_threads=-1))

    @property
    def is_bpe(self) -> bool:
        """Whether pieces were found by byte pair encoding; else by a unigram language model."""
        # Of a merge the score is its rank, counted down from 0; of a unigram it is a logarithm.
        scores = [self.score(i) for i in range(len(self)) if self.is_plain(i)]
        return all(score == round(score) for score in scores)

    def score(self, piece_id: int) -> float:
        """How early a piece was merged (the higher), or the logarithm of its probability."""
        return self._processor.get_score(piece_id)

    def is_plain(self, piece_id: int) -> bool:
        """Whether a piece stands for its characters: not for a byte, nor for a symbol."""
        processor = self._processor
        return not (
            processor.is_control(piece_id)
            or processor.is_unknown(piece_id)
            or processor.is_byte(piece_id)
            or processor.is_unused(piece_id)
        )

    def pieces_of(self, ids: Iterable[int]) -> list[str]:
        """The pieces that `ids` stand for."""
        return self._processor.id_to_piece(list(ids))

    def text(self, pieces: Sequence[str]) -> str:
        """The text that `pieces` spell."""
        return self.text_of_each([pieces])[0]

    def text_of_each(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """The texts that many rows of pieces spell."""
        spelt = [list(row) for row in rows if row]  # SentencePiece cannot tell what [] is made of
        texts = iter(self._processor.decode(spelt, num_threads=1) if spelt else [])
        return [cast(str, next(texts)) if row else "" for row in rows]


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of both languages; one and the same object if the vocabulary is shared."""

    source: Tokenizer
    target: Tokenizer

    @property
    def is_shared(self) -> bool:
        """Whether one vocabulary serves both languages."""
        return self.source is self.target

    def files(self) -> dict[str, bytes]:
        """What a model directory keeps: file names and contents."""
        if self.is_shared:
            return {_SHARED: self.source.model}
        return dict(zip(_SEPARATE, (self.source.model, self.target.model), strict=True))


def _encodable(text: str) -> str:
    """`text` with U+FFFD for what UTF-8 cannot say: halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def normalizer(rule: str) -> Callable[[str], str]:
    """Return SentencePiece's normalization, the first thing that happens to a text."""
    normalize: Callable[[str], str] = sentencepiece.SentencePieceNormalizer(
        rule_name=rule
    ).normalize
    return normalize


def train_tokenizers(
    source: Sequence[str], target: Sequence[str], options: "TokenizerConfig"
) -> Tokenizers:
    """Learn the pieces of the given lines: one vocabulary for both languages, or one for each."""
    if options.is_shared:
        limit = max(1, options.sample_lines // 2)
        shared = _train([*_sampled(source, limit), *_sampled(target, limit)], options)
        return Tokenizers(shared, shared)
    limit = options.sample_lines
    return Tokenizers(
        _train(_sampled(source, limit), options), _train(_sampled(target, limit), options)
    )


def tokenizers_of(files: Mapping[str, bytes]) -> Tokenizers:
    """The tokenizers that `Tokenizers.files` has told of."""
    if _SHARED in files:
        shared = Tokenizer(files[_SHARED])
        return Tokenizers(shared, shared)
    source, target = (Tokenizer(files[name]) for name in _SEPARATE)
    return Tokenizers(source, target)


def tokenizer_names(directory: Path) -> tuple[str, ...]:
    """Return the names of the tokenizer files that `load_tokenizers` reads; none is an error."""
    names = (_SHARED,) if (directory / _SHARED).exists() else _SEPARATE
    return names if any((directory / name).exists() for name in names) else ()


def load_tokenizers(directory: Path) -> Tokenizers:
    """Return the tokenizers of a model directory."""
    names = tokenizer_names(directory)
    if not names:
        raise CheckpointError(f"{directory} has no {_SHARED}", hint=COPY_AGAIN)
    loaded = [_load(directory / name) for name in names]
    return Tokenizers(loaded[0], loaded[-1])


def _load(path: Path) -> Tokenizer:
    try:
        return Tokenizer(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot read the tokenizer {path}: {error.strerror}") from error
    except RuntimeError as error:
        raise CheckpointError(
            f"{path} is not a SentencePiece model, or is damaged",
            hint=COPY_AGAIN,
        ) from error


def _sampled(lines: Sequence[str], limit: int) -> Sequence[str]:
    """At most `limit` lines, taken evenly from all parts of the corpus."""
    stride = -(-len(lines) // limit)
    return lines[::stride] if stride > 1 else lines


def _train(lines: Sequence[str], options: "TokenizerConfig") -> Tokenizer:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=options.kind,
            vocab_size=options.vocab_size,
            hard_vocab_limit=False,  # a small corpus gets a smaller vocabulary, not an error
            byte_fallback=options.byte_fallback,
            character_coverage=options.character_coverage,
            normalization_rule_name=options.normalization,
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            # SentencePiece passes over longer lines; its own limit is a paragraph's length.
            max_sentence_length=max(4192, max(len(line.encode()) for line in lines)),
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _too_small(options, str(error)) from error
    return Tokenizer(model.getvalue())


def _too_small(options: "TokenizerConfig", reason: str) -> ConfigError:
    needed = re.search(r"smaller than required_chars\. \d+ vs (\d+)", reason)
    if needed is None:
        return ConfigError(f"SentencePiece cannot learn from this text: {reason.strip()}")
    return ConfigError(
        f"tokenizer.vocab_size={options.vocab_size} is too small: the bytes and the characters of "
        f"this text need {needed[1]} pieces",
        hint="raise tokenizer.vocab_size, or lower tokenizer.character_coverage",
    )
