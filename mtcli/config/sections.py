"""What can be set: one class per section, each key with its default, its range and its help."""

import re
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from mtcli.config.architectures import ModelSection
from mtcli.config.section import Beta, Real, Section, Whole
from mtcli.config.transformers import TransformerConfig
from mtcli.options import SEARCH_LIMITS

Pair = tuple[Path, Path]


class DataConfig(Section):
    """Which sentence pairs are learned from, and how they are put into batches."""

    train: Pair
    """Source file and target file, line-aligned; relative to the current directory."""
    dev: Pair | None = None
    """Source and target file to validate on; without it, pairs are held out of `train`."""
    dev_pairs: Whole = Field(1000, gt=0)
    """Pairs to hold out when `dev` is not given (never more than a tenth of the corpus)."""
    max_length: Whole = Field(128, gt=1)
    """Longest side of a training pair, in pieces; longer pairs are counted and left out."""
    batch_tokens: Whole = Field(4096, gt=0)
    """Budget of a batch: its source and target positions, padding included."""
    subword_sampling: Real = Field(0.0, ge=0, le=1)
    """Segment words anew each time (0: never). bpe: share of merges that are dropped, such as 0.1;
    unigram: smoothness of the choice (the larger, the likelier the best segmentation), such as 0.3.
    """
    word_dropout: Real = Field(0.0, ge=0, lt=1)
    """Share of the source and target pieces that the model is not shown in training."""


class TokenizerConfig(Section):
    """How text becomes pieces: SentencePiece, trained on the training text."""

    kind: Literal["unigram", "bpe"] = "unigram"
    """SentencePiece's algorithm."""
    vocab_size: Whole = Field(4000, gt=8, lt=2**31)
    """Pieces in the vocabulary (in each of the two if not shared)."""
    is_shared: bool = True
    """One vocabulary for both languages, or one for each."""
    byte_fallback: bool = True
    """Spell what is not in the vocabulary in bytes, so that nothing is ever unknown."""
    character_coverage: Real = Field(0.9995, ge=0.98, le=1)
    """Share of the text's characters that get a piece of their own; the rest goes to bytes."""
    normalization: Literal["nmt_nfkc", "nfkc", "identity"] = "nmt_nfkc"
    """SentencePiece's rule for unifying characters before anything else."""
    sample_lines: Whole = Field(2_000_000, gt=0)
    """Lines to learn the pieces from; larger corpora are sampled evenly."""


class TrainConfig(Section):
    """How the weights are found."""

    seed: Whole = Field(1, ge=0, lt=2**63)
    """A run is a function of its data, its settings and this number."""
    device: str = "auto"
    """auto, cpu, mps, cuda or cuda:N; auto takes a GPU if there is one."""
    steps: Whole = Field(1_500, gt=0)
    """Updates of the weights; schedules that decay end exactly here."""
    minutes: Real | None = Field(None, gt=0)
    """Time for the training; `steps` becomes what fits into it, measured once at the start."""
    start_from: Path | None = None
    """Model directory whose weights and vocabulary training begins with; null: from nothing."""
    freeze: tuple[str, ...] = ()
    """Parameters that stay as they are, by patterns such as encoder.* or *_embedding.*"""
    accumulate: Whole = Field(1, gt=0)
    """Batches per step: k small batches make the same step as one that is k times larger."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """muon: Muon for the matrices of the layers, AdamW for the rest. adamw: AdamW for all."""
    learning_rate: Real = Field(4e-3, gt=0)
    """AdamW's highest learning rate."""
    matrix_learning_rate: Real = Field(0.02, gt=0)
    """Muon's highest learning rate."""
    weight_decay: Real = Field(0.05, ge=0)
    """Pull of the layers' matrices towards zero; embeddings, norms and biases have none."""
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    """AdamW's memory of gradients and of their squares."""
    schedule: Literal["trapezoid", "cosine", "inverse_sqrt"] = "trapezoid"
    """trapezoid: up, level, down (also called warm-up-stable-decay). cosine: up, then down along a
    cosine. inverse_sqrt: the paper's, which falls to an end only where `decay_share` says so.
    """
    warmup: Whole = Field(100, ge=0)
    """Steps in which the learning rate rises; trapezoid and cosine use at most a tenth of all."""
    decay_share: Real | None = Field(None, ge=0, le=1)
    """Last part of the steps, in which the rate falls to its end; null: 0.6 for trapezoid, none for
    inverse_sqrt. cosine falls all the time."""
    final_rate: Real = Field(0.0, ge=0, le=1)
    """Where a falling rate ends, as a share of what it would be otherwise."""
    label_smoothing: Real = Field(0.1, ge=0, lt=1)
    """Probability mass that the loss spreads over the whole vocabulary."""
    max_norm: Real | None = Field(1.0, gt=0)
    """Longest gradient that is not scaled down; null never scales."""
    validate_every: Whole = Field(500, gt=0)
    """Steps between validations; each of them writes a checkpoint."""
    validate_pairs: Whole = Field(500, gt=0)
    """Dev pairs that are translated (greedily) for the BLEU of a validation."""
    metric: Literal["bleu", "chrf", "loss"] = "bleu"
    """What the best model is best in, and what `patience` waits for."""
    patience: Whole | None = Field(None, gt=0)
    """Validations without a better one after which training stops; null never stops early."""
    ema: Beta | None = None
    """Decay of a moving average of the weights, such as 0.999, which is then what is validated
    and kept; null: the weights themselves are."""
    average: Whole = Field(1, gt=0)
    """Validated weights whose mean is tried as the final weights; the better ones on dev stay."""
    average_of: Literal["best", "last"] = "last"
    """Which validated weights go into that mean."""
    keep_checkpoints: Whole = Field(2, gt=0)
    """Latest checkpoints to keep."""
    save_minutes: Real = Field(15, gt=0)
    """Longest time without a checkpoint."""
    max_rollbacks: Whole = Field(3, ge=0)
    """Times that training, when it diverges, may go back to the last checkpoint and try again
    with half the learning rate."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the arithmetic; auto: bfloat16 on GPUs that have it, else float32. Weights are float32."""
    compile: bool = False
    """Let torch.compile make the model faster: minutes at the start, less for each step."""
    sharding: Literal["none", "full"] = "none"
    """With several processes: every one holds the whole model, or its share of it (FSDP2)."""

    @field_validator("device")
    @classmethod
    def _names_a_device(cls, name: str) -> str:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name):
            raise ValueError(f"must be auto, cpu, mps, cuda or cuda:N (got {name!r})")
        return name

    def summary(self, batch_tokens: int) -> str:
        """The training in a few words."""
        batches = f"{self.accumulate} x " if self.accumulate > 1 else ""
        tokens = f"up to {batches}{batch_tokens:,} tokens"
        return f"{self.steps:,} steps of {tokens} with {self.optimizer}"


def _limited(name: str, default: float | None) -> Any:
    """Return the field of a search option, with the limits that `SearchOptions` has."""
    limits = SEARCH_LIMITS[name]
    return Field(default, ge=limits.low, le=limits.high)


class SearchConfig(Section):
    """How a translation is looked for."""

    beam_size: Whole = _limited("beam_size", 4)
    """Hypotheses kept at each step; 1 is greedy search."""
    n_best: Whole = _limited("n_best", 1)
    """Translations returned per sentence."""
    length_penalty: Real = _limited("length_penalty", 1.0)
    """Exponent a in score = log_prob / length**a, which is CTranslate2's definition."""
    max_length: Whole = _limited("max_length", 256)
    """Pieces after which a hypothesis is cut off."""
    max_length_ratio: Real | None = _limited("max_length_ratio", None)
    """Pieces after which it is cut off, for each piece of the source; null: max_length alone."""
    no_repeat_ngram: Whole = _limited("no_repeat_ngram", 0)
    """No sequence of so many pieces comes twice in a translation; 0 allows all."""
    repetition_penalty: Real = _limited("repetition_penalty", 1.0)
    """Above 1, pieces that a translation already has become less likely."""

    @model_validator(mode="after")
    def _beam_holds_n_best(self) -> Self:
        if self.n_best > self.beam_size:
            raise ValueError(f"n_best={self.n_best} is larger than beam_size={self.beam_size}")
        return self


class Config(Section):
    """Everything that a run depends on."""

    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelSection = TransformerConfig()
    train: TrainConfig = TrainConfig()
    search: SearchConfig = SearchConfig()

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        if self.model.tied_embeddings == "all" and not self.tokenizer.is_shared:
            raise ValueError(
                "model.tied_embeddings=all needs one vocabulary; "
                "set model.tied_embeddings=target or tokenizer.is_shared=true"
            )
        if self.search.max_length < self.data.max_length:
            raise ValueError(
                f"search.max_length={self.search.max_length} would cut off translations as long as "
                f"those of the corpus; data.max_length is {self.data.max_length}"
            )
        self.model.check_length(max(self.data.max_length + 1, self.search.max_length))
        return self
