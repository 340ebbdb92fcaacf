"""Base classes of the config sections: field types, `CorpusSource`, `Section`, `ModelConfig`."""

import re
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from mtcli.config.alignment import AlignmentHeads


def _reject_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("YAML reads no, yes, on and off as booleans; expected a number")
    return value


Int = Annotated[int, BeforeValidator(_reject_boolean)]
Float = Annotated[float, BeforeValidator(_reject_boolean)]
Beta = Annotated[Float, Field(ge=0, lt=1)]


_NAME = re.compile(r"([a-z]+:)?(.*?)(#[^/]*)?", re.DOTALL)

CorpusNames = tuple[str, ...]  # one corpus: its name, or two line-aligned text files


@dataclass(frozen=True)
class CorpusSource:
    """Corpora of a training or dev set, read one after the other.

    In YAML, this is a corpus name, a list of two text files, or a list of mappings with the key
    `corpus`. `docs/corpora.md` describes the names.
    """

    corpora: tuple[CorpusNames, ...]

    def __str__(self) -> str:
        return ", ".join(" and ".join(names) for names in self.corpora)

    @property
    def text_files(self) -> tuple[Path, ...]:
        """Files of all corpora that consist of two text files."""
        return tuple(Path(name) for names in self.corpora if len(names) == 2 for name in names)

    @property
    def languages(self) -> tuple[str, str] | None:
        """Languages of two text files, taken from the file names; None for other corpora."""
        if len(self.corpora[0]) != 2:
            return None
        source, target = (Path(name).name for name in self.corpora[0])
        return _language(source), _language(target)

    def strip_absolute_paths(self) -> "CorpusSource":
        """Replace absolute paths with file names."""
        return CorpusSource(tuple(tuple(map(_strip_directory, names)) for names in self.corpora))

    def to_yaml(self) -> Any:
        """Return the corpora in the form used in configuration files."""
        values = [list(names) if len(names) == 2 else names[0] for names in self.corpora]
        return values[0] if len(values) == 1 else [{"corpus": value} for value in values]

    @classmethod
    def parse(cls, value: Any) -> "CorpusSource":
        """Return the corpora in a configuration value; raise `ValueError` if it is invalid."""
        if isinstance(value, CorpusSource):
            return value
        is_list = isinstance(value, list) and any(isinstance(item, dict) for item in value)
        names = [
            (corpus,) if isinstance(corpus, str) else corpus
            for corpus in (map(_mapped_corpus, value) if is_list else [value])
        ]
        if not all(_is_corpus(c) for c in names):
            has_boolean = any(isinstance(name, bool) for c in names if _is_list(c) for name in c)
            reason = "; YAML reads no, yes, on and off as booleans; put names in quotes"
            raise ValueError(
                "must be a corpus name, two files [source, target], or a list of mappings such as "
                f"{{corpus: NAME}} (got {value!r}){reason if has_boolean else ''}"
            )
        return cls(tuple(tuple(map(str, c)) for c in names))

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse,
            serialization=core_schema.plain_serializer_function_ser_schema(cls.to_yaml),
        )


def _mapped_corpus(item: Any) -> Any:
    """Return the value of {corpus: VALUE}; None if `item` has a different form."""
    return item["corpus"] if isinstance(item, dict) and item.keys() == {"corpus"} else None


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_corpus(names: Any) -> bool:
    return (
        _is_list(names)
        and len(names) in (1, 2)
        and all(isinstance(name, str | Path) and str(name) for name in names)
    )


def _strip_directory(name: str) -> str:
    """Remove the directory from a corpus name `[FORMAT:]PATH[#SELECTION]` with an absolute path."""
    prefix, path, selection = _NAME.fullmatch(name).groups("")  # type: ignore[union-attr]
    return f"{prefix}{Path(path).name}{selection}" if Path(path).is_absolute() else name


def _language(file_name: str) -> str:
    suffix = file_name.rpartition(".")[2]
    return suffix if len(suffix) in (2, 3) and suffix != "txt" else file_name


class Section(BaseModel):
    """Base class of all config sections: immutable and typed; unknown keys are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


Side = Literal["source", "target"]


@dataclass(frozen=True)
class LinearGroup:
    """Linear layers that have the same shape and process the same tokens."""

    rows: int
    columns: int
    sides: tuple[Side, ...]  # sides whose tokens each layer processes
    n_layers: int = 1
    n_biases: int = 1  # bias vectors per layer

    @property
    def n_parameters(self) -> int:
        """Total number of parameters in all layers."""
        return self.n_layers * self.rows * (self.columns + self.n_biases)


class ModelConfig(Section):
    """Settings that all architectures share."""

    arch: str
    """Architecture. It determines the other keys of this section."""
    d_model: Int = Field(192, gt=0, multiple_of=2)
    """Width of the layer inputs and outputs. Must be even: sines and cosines come in pairs."""
    tied_embeddings: Literal["all", "target", "none"] = "all"
    """Embeddings that share a matrix. all: source, target and output; target: target and output;
    none: every matrix is separate."""
    dropout: Float = Field(0.2, ge=0, lt=1)
    """Dropout on the embeddings and on the output of every sub-layer."""

    @abstractmethod
    def summary(self) -> str:
        """Return a one-line description of the architecture."""

    @abstractmethod
    def linear_groups(self) -> list[LinearGroup]:
        """Return the linear layers between the embeddings and the output layer."""

    @property
    def predicted_sides(self) -> tuple[Side, ...]:
        """Sides whose tokens count in the training loss."""
        return ("target",)

    @abstractmethod
    def n_other_parameters(self) -> int:
        """Return the number of parameters outside linear layers and embeddings."""

    @staticmethod
    @abstractmethod
    def settings_for_size(
        width: int, n_encoder_layers: int, n_decoder_layers: int
    ) -> dict[str, int]:
        """Return the settings of a model of about the given size."""

    @property
    def n_positions(self) -> int | None:
        """Maximum length of a source or target; None means unlimited."""
        return None

    @property
    def default_alignment_heads(self) -> AlignmentHeads | None:
        """Heads that give the alignment unless training chose others; None: nothing to choose."""
        return None

    @property
    def n_alignment_layers(self) -> int:
        """Number of layers whose attention to the source can give the alignment."""
        return 0

    def check_length(self, max_length: int) -> None:
        """Raise `ValueError` if the model has no positions for `max_length` pieces."""
        del max_length

    def n_parameters(self, source_size: int, target_size: int) -> int:
        """Return the number of parameters with vocabularies of the given sizes."""
        n_vectors = {
            "all": source_size,
            "target": source_size + target_size,
            "none": source_size + 2 * target_size,
        }[self.tied_embeddings]
        n_linear = sum(group.n_parameters for group in self.linear_groups())
        return n_linear + n_vectors * self.d_model + self.n_other_parameters()
