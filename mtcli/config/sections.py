"""Sections of the configuration, and `Config`, which combines them.

`ModelSection` is the union of the architectures; `model.arch` selects one. Field docstrings become
the comments in configs/reference.yaml.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from mtcli.config.base import Beta, Float, Int, ModelConfig, Section
from mtcli.config.corpora import CorpusSource
from mtcli.config.filters import FilterConfig
from mtcli.config.metrics import BLEU_TOKENIZERS
from mtcli.config.rnn import RnnConfig
from mtcli.config.search import SEARCH_LIMITS, SearchOptions
from mtcli.config.tags import Symbols, symbols_for
from mtcli.config.tokenizer import TokenizerConfig
from mtcli.config.transformers import DecoderOnlyConfig, TransformerConfig
from mtcli.counts import format_count


def _arch_of(value: Any) -> Any:
    if isinstance(value, dict):
        return str(value.get("arch", "transformer"))
    return getattr(value, "arch", None)


OrthogonalizationMethod = Literal["gram", "plain"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]
ModelSection = Annotated[
    Annotated[TransformerConfig, Tag("transformer")]
    | Annotated[DecoderOnlyConfig, Tag("decoder_only")]
    | Annotated[RnnConfig, Tag("rnn")],
    Discriminator(_arch_of),
]

ARCHITECTURES: dict[str, type[ModelConfig]] = {
    get_args(section)[1].tag: get_args(section)[0]
    for section in get_args(get_args(ModelSection)[0])
}


class DataConfig(Section):
    """Training and dev data, and batching."""

    train: CorpusSource
    """Training corpus: two line-aligned files, the name of a corpus in another format, or a list of
    mappings such as {corpus: NAME, weight: 2, tag: bt, to: de} for several corpora or directions
    (docs/mixing.md). Paths are relative to the current directory."""
    dev: CorpusSource | None = None
    """Dev corpus for validation, in any format, or a list of mappings such as {name: NAME, corpus:
    NAME} for several dev sets. null: hold out pairs from `train`."""
    temperature: Float | None = Field(None, ge=1, le=100)
    """Temperature for mixing several corpora. Their shares are proportional to weight * size **
    (1 / temperature). 1 keeps the original shares. Larger values use small corpora more often.
    null: same as 1."""
    source_lang: str | None = Field(None, min_length=1)
    """Language code of the source, such as en or pt-BR. null: taken from the file suffixes or the
    corpus."""
    target_lang: str | None = Field(None, min_length=1)
    """Language code of the target. null: taken from the file suffixes or the corpus."""
    dev_pairs: Int = Field(1000, gt=0)
    """Number of pairs to hold out if `dev` is null, limited to 10% of the corpus."""
    max_length: Int = Field(128, gt=1)
    """Maximum length of each side of a training pair, in pieces. mtcli skips longer pairs and
    reports their number."""
    batch_tokens: Int = Field(4096, gt=0)
    """Batch size in source and target positions, including padding."""
    subword_sampling: Float = Field(0.0, ge=0, le=1)
    """Subword regularization: sample a new segmentation of every pair in each epoch. 0 disables it.
    bpe: probability of skipping a merge, such as 0.1. unigram: exponent of the segmentation
    probabilities, such as 0.3; larger values favor the best segmentation."""
    word_dropout: Float = Field(0.0, ge=0, lt=1)
    """Probability of replacing an input piece of the encoder or decoder with the unknown piece."""
    streaming: bool = False
    """Train directly from the corpus, without counting or storing its pairs. Pairs are shuffled
    only within blocks. If `dev` is null, the first pairs become the dev set. Requires
    `train.steps` or `train.minutes`."""

    @field_validator("train")
    @classmethod
    def _check_targets(cls, train: CorpusSource) -> CorpusSource:
        without = [i for i, entry in enumerate(train.entries, start=1) if not entry.to]
        if train.targets and without:
            raise ValueError(
                f"item {without[0]}: the key `to` is missing; set it for all corpora or for none"
            )
        return train

    @field_validator("dev")
    @classmethod
    def _check_dev_weights(cls, dev: CorpusSource | None) -> CorpusSource | None:
        for number, entry in enumerate(dev.entries if dev else (), start=1):
            if entry.weight != 1:
                raise ValueError(f"item {number}: weight has no effect on a dev set; remove it")
        return dev

    @model_validator(mode="after")
    def _check_mixing(self) -> Self:
        if self.streaming and self.is_mixed:
            raise ValueError(
                "streaming cannot mix corpora by weight or temperature: their sizes are unknown; "
                "remove the weights and data.temperature, or data.streaming"
            )
        if self.train.targets and (self.source_lang or self.target_lang):
            raise ValueError(
                "source_lang and target_lang cannot be combined with `to`; set them in the entries "
                "of data.train"
            )
        return self

    @property
    def is_mixed(self) -> bool:
        """Whether weights or a temperature change the shares of the corpora."""
        has_temperature = len(self.train.entries) > 1 and (self.temperature or 1) != 1
        return has_temperature or any(entry.weight != 1 for entry in self.train.entries)

    @property
    def symbols(self) -> Symbols:
        """Symbols of all target languages and tags in `train`."""
        languages = [symbol for to in self.train.targets for symbol in symbols_for(to, None)]
        return *languages, *(symbol for tag in self.train.tags for symbol in symbols_for(None, tag))

    @property
    def languages(self) -> tuple[str, str] | None:
        """Language codes of source and target, or the names of their files; None if unknown."""
        if self.source_lang and self.target_lang:
            return self.source_lang, self.target_lang
        return self.train.languages


class TrainConfig(Section):
    """Optimization, validation and checkpoints."""

    seed: Int = Field(1, ge=0, lt=2**63)
    """Random seed. On the same machine, with the same number of threads, the trained weights depend
    only on the data, the settings and the seed."""
    device: str = "auto"
    """Device: auto, cpu, mps, cuda or cuda:N. auto selects a GPU if one is available."""
    steps: Int = Field(1_500, gt=0)
    """Number of optimizer updates. The learning rate decay ends at the last step."""
    minutes: Float | None = Field(None, gt=0)
    """Time budget in minutes. mtcli measures the training speed and sets `steps` accordingly."""
    start_from: Path | None = None
    """Model directory to initialize weights and vocabulary from. null: random initialization."""
    freeze: tuple[str, ...] = ()
    """Names of parameters to exclude from training. They may contain wildcards: encoder.* excludes
    the encoder."""
    accumulate: Int = Field(1, gt=0)
    """Number of batches per step. k batches are equivalent to one batch k times as large."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """Optimizer. muon: Muon for the weight matrices of the layers, and AdamW for all other
    parameters. adamw: AdamW for all parameters."""
    orthogonalization: OrthogonalizationMethod = "gram"
    """Computation of Muon's Newton-Schulz iteration. gram: in float32, iterate on the Gram matrices
    of wide and tall matrices, which needs fewer operations. plain: multiply the matrices
    themselves, as earlier versions did. The results differ only by rounding."""
    learning_rate: Float = Field(4e-3, gt=0)
    """Peak learning rate of AdamW."""
    matrix_learning_rate: Float = Field(0.02, gt=0)
    """Peak learning rate of Muon."""
    weight_decay: Float = Field(0.05, ge=0)
    """Weight decay of the layers' weight matrices. Embeddings, norms and biases have none."""
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    """AdamW's decay rates for the first and second moments."""
    schedule: Literal["trapezoid", "cosine", "inverse_sqrt"] = "trapezoid"
    """Learning rate schedule after a linear warmup. trapezoid: constant, then linear decay (also
    called warmup-stable-decay). cosine: cosine decay. inverse_sqrt: the schedule of Vaswani et al.
    (2017), with a final linear decay if `decay_share` is set."""
    warmup: Int = Field(100, ge=0)
    """Number of warmup steps. trapezoid and cosine use at most 10% of all steps."""
    decay_share: Float | None = Field(None, ge=0, le=1)
    """Share of all steps in the final linear decay. null: 0.6 for trapezoid, 0 for inverse_sqrt.
    cosine ignores this key."""
    final_rate: Float = Field(0.0, ge=0, le=1)
    """Learning rate at the end of the decay, as a fraction of the peak."""
    label_smoothing: Float = Field(0.1, ge=0, lt=1)
    """Label smoothing: probability taken from each label and spread over the vocabulary."""
    max_norm: Float | None = Field(1.0, gt=0)
    """Maximum gradient norm; larger gradients are clipped. null disables clipping."""
    validate_every: Int = Field(500, gt=0)
    """Number of steps between validations. Each validation writes a checkpoint."""
    validate_pairs: Int = Field(500, gt=0)
    """Number of dev pairs to translate with greedy search in each validation, for BLEU and chrF."""
    metric: Literal["bleu", "chrf", "chrf++", "ter", "loss"] = "bleu"
    """Dev metric that selects the best weights and that `patience` monitors. Validation computes
    BLEU, chrF and this metric."""
    bleu_tokenizer: str | None = None
    """BLEU tokenizer for validation, by its sacreBLEU name. null: depends on the target
    language; 13a for languages with spaces between words."""
    dev_rule: Literal["mean", "worst", "first"] = "mean"
    """With several dev sets, the score that selects the weights. mean: mean of all sets; worst: the
    lowest score (the highest loss); first: the score of the first set."""
    patience: Int | None = Field(None, gt=0)
    """Stop after this many validations without improvement. null disables early stopping."""
    ema: Beta | None = None
    """Decay rate of an exponential moving average of the weights, such as 0.999. mtcli validates
    and saves the average instead of the weights themselves. null disables averaging."""
    average: Int = Field(1, gt=0)
    """Number of validated checkpoints to average at the end of training. The average is used if it
    is better on the dev set."""
    average_of: Literal["best", "last"] = "last"
    """Validated checkpoints to average: the best or the last ones."""
    keep_checkpoints: Int = Field(2, gt=0)
    """Number of most recent checkpoints to keep."""
    save_minutes: Float = Field(15, gt=0)
    """Maximum time between two checkpoints, in minutes."""
    max_rollbacks: Int = Field(3, ge=0)
    """Maximum number of rollbacks to the last checkpoint when training diverges. Each rollback
    halves the learning rate."""
    precision: Precision = "auto"
    """Precision of matrix products; weights, softmax and loss are float32. auto: bfloat16 on GPUs
    and CPUs that support it in hardware (CPUs: AVX512_BF16 or AMX, except for recurrent models),
    otherwise float32."""
    workers: Int | None = Field(None, gt=0)
    """Number of processes that share each step on a CPU (Linux only). Every batch is split into
    this many parts, so the trained weights depend on it. null: chosen from the number of threads,
    the batch size and the model size when the run starts."""
    compile: bool = False
    """Compile the model with torch.compile. Steps are faster, but compiling takes minutes."""
    sharding: Literal["none", "full"] = "none"
    """Distribution of the model across processes. none: each process holds the full model.
    full: each process holds a shard (FSDP2)."""

    @field_validator("bleu_tokenizer")
    @classmethod
    def _check_bleu_tokenizer(cls, name: str | None) -> str | None:
        if name is not None and name not in BLEU_TOKENIZERS:
            raise ValueError(f"must be one of {', '.join(BLEU_TOKENIZERS)} (got {name!r})")
        return name

    @field_validator("device")
    @classmethod
    def _check_device(cls, name: str) -> str:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name):
            raise ValueError(f"must be auto, cpu, mps, cuda or cuda:N (got {name!r})")
        return name

    def summary(self, batch_tokens: int) -> str:
        """Return a one-line description of the training settings."""
        batches = f"{self.accumulate} x " if self.accumulate > 1 else ""
        tokens = f"up to {batches}{batch_tokens:,} tokens"
        return f"{format_count(self.steps, 'step')} of {tokens} with {self.optimizer}"


def _search_field(name: str) -> Any:
    """Return a field with the default and the limits of the search option `name`."""
    limits = SEARCH_LIMITS[name]
    return Field(getattr(SearchOptions, name), ge=limits.low, le=limits.high)


class SearchConfig(Section):
    """Default search options of the model."""

    beam_size: Int = _search_field("beam_size")
    """Number of hypotheses in the beam. 1 is greedy search."""
    n_best: Int = _search_field("n_best")
    """Number of translations per sentence."""
    length_penalty: Float = _search_field("length_penalty")
    """Exponent a in score = log_prob / length**a (CTranslate2's definition)."""
    max_length: Int = _search_field("max_length")
    """Maximum length of a translation, in pieces."""
    max_length_ratio: Float | None = _search_field("max_length_ratio")
    """Maximum length of a translation as a multiple of the source length, rounded up to a multiple
    of 8 pieces. null: only max_length applies."""
    no_repeat_ngram: Int = _search_field("no_repeat_ngram")
    """Never repeat an n-gram of this many pieces in a translation. 0 allows repeats."""
    repetition_penalty: Float = _search_field("repetition_penalty")
    """Penalty for repeated pieces. 1 disables it."""

    @model_validator(mode="after")
    def _check_n_best(self) -> Self:
        if self.n_best > self.beam_size:
            raise ValueError(f"n_best={self.n_best} is larger than beam_size={self.beam_size}")
        return self


class Config(Section):
    """Complete configuration of a run."""

    data: DataConfig
    filters: FilterConfig = FilterConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelSection = TransformerConfig()
    train: TrainConfig = TrainConfig()
    search: SearchConfig = SearchConfig()

    def cpu_precision(self, *, has_bfloat16: bool) -> Precision:
        """Return the precision for training on a CPU with or without bfloat16 instructions."""
        if self.train.precision != "auto":
            return self.train.precision
        return "bfloat16" if has_bfloat16 and self.model.has_cpu_bfloat16_kernels else "float32"

    @model_validator(mode="after")
    def _check_sections(self) -> Self:
        if self.model.tied_embeddings == "all" and not self.tokenizer.is_shared:
            raise ValueError(
                "model.tied_embeddings=all requires a shared vocabulary; "
                "set model.tied_embeddings=target or tokenizer.is_shared=true"
            )
        if self.data.streaming and self.filters.duplicates:
            raise ValueError(
                "data.streaming cannot find duplicates; set filters.duplicates=null or "
                "data.streaming=false"
            )
        self._check_dev_tags()
        if self.search.max_length < self.data.max_length:
            raise ValueError(
                f"search.max_length={self.search.max_length} is smaller than "
                f"data.max_length={self.data.max_length}; raise search.max_length"
            )
        self.model.check_length(max(self.data.max_length + 1, self.search.max_length))
        return self

    def _check_dev_tags(self) -> None:
        """Raise `ValueError` if a dev set has a language or tag that no training corpus has."""
        if self.train.start_from or self.tokenizer.model or self.data.dev is None:
            return  # checked after the existing vocabulary has been loaded
        train = self.data.train
        for number, entry in enumerate(self.data.dev.entries, start=1):
            if entry.to and entry.to not in train.targets:
                raise ValueError(
                    f"data.dev: item {number}: no training corpus has `to: {entry.to}`"
                )
            if entry.tag and entry.tag not in train.tags:
                raise ValueError(
                    f"data.dev: item {number}: no training corpus has `tag: {entry.tag}`"
                )
