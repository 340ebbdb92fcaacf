"""SentencePiece tokenizers: training, files, and conversion between text, pieces and ids."""

import io
import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import sentencepiece

from mtcli.errors import COPY_AGAIN, CheckpointError, ConfigError

if TYPE_CHECKING:
    from mtcli.config.tokenizer import TokenizerConfig

IGNORE_INDEX = -100  # label of positions that the loss ignores
WORD_START = "▁"  # SentencePiece's symbol for the space before a word
# Files in a model directory: one shared vocabulary, or one per language.
_SHARED, _SEPARATE = "tokenizer.model", ("source.model", "target.model")
TOKENIZERS = (_SHARED, *_SEPARATE)

MAX_PIECE_LENGTH = 16  # characters; SentencePiece's default (max_sentencepiece_length)


@dataclass(frozen=True)
class SpecialIds:
    """Ids of the special tokens. Vocabularies that mtcli trains use the defaults."""

    pad: int = 0
    unk: int = 1
    bos: int = 2
    eos: int = 3


DEFAULT_SPECIAL_IDS = SpecialIds()


class Tokenizer:
    """Tokenizer for one or both languages; treats symbols such as </s> in text as ordinary text."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.vocabulary: list[str] = self.ids_to_pieces(range(self._processor.get_piece_size()))

    def __len__(self) -> int:
        return len(self.vocabulary)

    @property
    def special(self) -> SpecialIds:
        """Ids of the special tokens of this vocabulary."""
        processor = self._processor
        return SpecialIds(
            processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()
        )

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """Control symbols such as <2de>, except <pad>, <s> and </s>.

        Encoding a text never produces these symbols.
        """
        symbols = [(i, p) for i, p in enumerate(self.vocabulary) if p[:1] + p[-1:] == "<>"]
        special = astuple(self.special)
        is_control = self._processor.is_control
        return tuple(piece for i, piece in symbols if is_control(i) and i not in special)

    def tokenize(self, text: str) -> list[str]:
        """Return the pieces of `text`."""
        return self.tokenize_batch([text])[0]

    def tokenize_batch(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the pieces of each text.

        The text is first converted to ids. If SentencePiece returned strings, they would include
        unknown characters unchanged, and a </s> among them would end the sentence.
        """
        rows = self._processor.encode([replace_surrogates(text) for text in texts], num_threads=1)
        return [[self.vocabulary[i] for i in row] for row in rows]

    def pieces_to_ids(self, pieces: Sequence[str]) -> list[int]:
        """Return the ids of `pieces`, without BOS and EOS."""
        return self._processor.piece_to_id(list(pieces))

    def encode(self, lines: Sequence[str] | Sequence[bytes]) -> list[list[int]]:
        """Return the ids of each line, without BOS and EOS. This method is thread-safe.

        Lines may be strings or UTF-8 bytes.
        """
        ids = self._processor.encode(cast(list[str], list(lines)), num_threads=1)
        return cast(list[list[int]], ids)

    def encode_to_buffers(self, lines: Sequence[str] | Sequence[bytes]) -> list[Any]:
        """Return the ids of each line, with EOS, as a buffer of int32. This method is thread-safe.

        With two threads, this takes two thirds of the time of `encode`, which creates an object
        for each id. SentencePiece's public method for buffers, `encode_as_numpy`, is slower than
        both. Versions of SentencePiece without buffers use `encode`.
        """
        processor: Any = self._processor
        try:
            to_buffers = processor._processor._EncodeAsBufferBatch
            # Threads, thread pool, sampling (three arguments), add BOS, add EOS, reverse.
            return list(to_buffers(list(lines), 1, None, False, 0, 0.1, False, True, False))
        except (AttributeError, TypeError):
            eos = self.special.eos
            return [array("i", [*row, eos]) for row in self.encode(lines)]

    @property
    def is_bpe(self) -> bool:
        """Whether this is a BPE model rather than a unigram model."""
        # BPE scores are negative merge ranks (0, -1, ...); unigram scores are log-probabilities.
        scores = [self.score(i) for i in range(len(self)) if self.is_plain(i)]
        return all(score == round(score) for score in scores)

    def score(self, piece_id: int) -> float:
        """Return the score of a piece: BPE merge priority or unigram log-probability."""
        return self._processor.get_score(piece_id)

    def is_plain(self, piece_id: int) -> bool:
        """Return whether a piece is ordinary text, not a byte or a special symbol."""
        processor = self._processor
        return not (
            processor.is_control(piece_id)
            or processor.is_unknown(piece_id)
            or processor.is_byte(piece_id)
            or processor.is_unused(piece_id)
        )

    def ids_to_pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the pieces of `ids`."""
        return self._processor.id_to_piece(list(ids))

    def detokenize(self, pieces: Sequence[str]) -> str:
        """Return the text of `pieces`."""
        return self.detokenize_batch([pieces])[0]

    def detokenize_batch(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """Return the text of each row of pieces."""
        # SentencePiece cannot decode []: it checks whether the first element is a piece or an id.
        non_empty = [list(row) for row in rows if row]
        texts = iter(self._processor.decode(non_empty, num_threads=1) if non_empty else [])
        return [cast(str, next(texts)) if row else "" for row in rows]


@dataclass(frozen=True)
class Tokenizers:
    """Tokenizers of source and target; the same object if the vocabulary is shared."""

    source: Tokenizer
    target: Tokenizer

    @property
    def is_shared(self) -> bool:
        """Whether both languages use one vocabulary."""
        return self.source is self.target

    @property
    def special(self) -> SpecialIds:
        """Ids of the special tokens, which are the same in both vocabularies."""
        return self.target.special

    def files(self) -> dict[str, bytes]:
        """Return the names and contents of the files for a model directory."""
        if self.is_shared:
            return {_SHARED: self.source.model}
        return dict(zip(_SEPARATE, (self.source.model, self.target.model), strict=True))


def replace_surrogates(text: str) -> str:
    """Return `text` with U+FFFD for unpaired surrogates, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def normalizer(rule: str) -> Callable[[str], str]:
    """Return the normalization function that SentencePiece applies before tokenization."""
    normalize: Callable[[str], str] = sentencepiece.SentencePieceNormalizer(
        rule_name=rule
    ).normalize
    return normalize


def train_tokenizers(
    source: Sequence[str],
    target: Sequence[str],
    options: "TokenizerConfig",
    tags: Sequence[str] = (),
) -> Tokenizers:
    """Train one tokenizer for both languages, or one for each.

    `tags` become control symbols in the source vocabulary.
    """
    if options.is_shared:
        shared = _train([*source, *target], options, tags)
        return Tokenizers(shared, shared)
    return Tokenizers(_train(source, options, tags), _train(target, options))


def load_trained_tokenizer(path: Path) -> Tokenizers:
    """Load the user's SentencePiece model as the tokenizer for both languages.

    Missing special symbols are added: by default, SentencePiece defines no padding symbol.
    """
    try:
        tokenizer = Tokenizer(path.read_bytes())
        special = tokenizer.special
        symbols = (("<pad>", special.pad), ("<s>", special.bos), ("</s>", special.eos))
        missing = b"".join(_control_piece(symbol) for symbol, i in symbols if i < 0)
        tokenizer = Tokenizer(tokenizer.model + missing)
    except OSError as error:
        raise ConfigError(f"tokenizer.model: cannot read {path}: {error.strerror}") from error
    except RuntimeError as error:
        raise ConfigError(
            f"tokenizer.model: {path} is not a SentencePiece model",
            hint="use a file that spm_train or mtcli wrote, such as tokenizer.model",
        ) from error
    return Tokenizers(tokenizer, tokenizer)


def _control_piece(symbol: str) -> bytes:
    """Return the bytes that add a control symbol when appended to a serialized SentencePiece model.

    Appending to a serialized protocol buffer adds elements to its repeated fields. Field 1 of a
    model is a piece. A piece has three fields: 1 is its text, 2 its score, and 3 its type (3 for
    control symbols).
    """
    name = symbol.encode()
    piece = b"\x0a" + bytes([len(name)]) + name + b"\x15" + bytes(4) + b"\x18\x03"
    return b"\x0a" + bytes([len(piece)]) + piece


def tokenizers_from_files(files: Mapping[str, bytes]) -> Tokenizers:
    """Create the tokenizers from file contents, as returned by `Tokenizers.files`."""
    if _SHARED in files:
        shared = Tokenizer(files[_SHARED])
        return Tokenizers(shared, shared)
    source, target = (Tokenizer(files[name]) for name in _SEPARATE)
    return Tokenizers(source, target)


def tokenizer_names(directory: Path) -> tuple[str, ...]:
    """Return the names of the files that `load_tokenizers` reads, or () if there are none."""
    names = (_SHARED,) if (directory / _SHARED).exists() else _SEPARATE
    return names if any((directory / name).exists() for name in names) else ()


def load_tokenizers(directory: Path) -> Tokenizers:
    """Load the tokenizers of a model directory."""
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


def _train(lines: Sequence[str], options: "TokenizerConfig", tags: Sequence[str] = ()) -> Tokenizer:
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
            pad_id=DEFAULT_SPECIAL_IDS.pad,
            unk_id=DEFAULT_SPECIAL_IDS.unk,
            bos_id=DEFAULT_SPECIAL_IDS.bos,
            eos_id=DEFAULT_SPECIAL_IDS.eos,
            # Do not use user_defined_symbols: text could contain them.
            control_symbols=list(tags),
            # SentencePiece skips lines that are longer than this; the default is 4192 bytes.
            max_sentence_length=max(4192, max(len(line.encode()) for line in lines)),
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _training_error(options, str(error)) from error
    return Tokenizer(model.getvalue())


def _training_error(options: "TokenizerConfig", reason: str) -> ConfigError:
    required = re.search(r"smaller than required_chars\. \d+ vs (\d+)", reason)
    if required is None:
        return ConfigError(f"SentencePiece cannot train on this text: {reason.strip()}")
    return ConfigError(
        f"tokenizer.vocab_size={options.vocab_size} is too small: the bytes and characters of "
        f"this text require {required[1]} pieces",
        hint="raise tokenizer.vocab_size, or lower tokenizer.character_coverage",
    )
