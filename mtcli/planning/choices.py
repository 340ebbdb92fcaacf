"""Choose the settings that the user has not set, based on corpus statistics and hardware."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mtcli.config.load import load_config
from mtcli.config.sections import ARCHITECTURES, Config
from mtcli.config.transformers import TransformerConfig
from mtcli.counts import format_count
from mtcli.hardware import Hardware
from mtcli.planning.corpus_stats import CorpusStats
from mtcli.planning.estimate import (
    estimate,
    estimate_workload,
    round_to_digits,
    step_seconds,
    step_tokens,
)
from mtcli.planning.model_sizes import SizeChoice, Table, choose_size, look_up, nominal_hardware

# Number of epochs, and dropout in tenths, by number of pairs.
_EPOCHS: Table[int] = (
    (0, 100),
    (1_000, 60),
    (5_000, 40),
    (10_000, 25),
    (15_000, 20),
    (100_000, 15),
    (300_000, 12),
    (1_000_000, 10),
)
_DROPOUT_TENTHS: Table[int] = ((0, 3), (15_000, 2), (300_000, 1))
# Added to the dropout, by number of epochs: more epochs cause more overfitting.
_EXTRA_DROPOUT_TENTHS: Table[int] = ((0, -1), (5, 0), (30, 1))
_MAX_DROPOUT_TENTHS = 3
# Learning rate and head width, by model width.
_LEARNING_RATE: Table[float] = ((0, 4e-3), (320, 3e-3), (448, 2e-3))
_FINE_TUNING_RATE, _FINE_TUNING_MATRIX_RATE = 1e-3, 5e-3
_HEAD_WIDTH: Table[int] = ((0, 32), (384, 64))

_MAX_HEADS = 1_000
_SECTIONS = ("tokenizer", "model", "data", "train", "search")  # display order
_MAX_LENGTHS = (128, 192, 256)  # candidates for data.max_length, in pieces
MAX_LENGTH = _MAX_LENGTHS[-1]
_MAX_DEV_PAIRS = 1_000
_MIN_DEV_PAIRS = 100
_MIN_STEPS = 500
_N_VALIDATIONS, _N_SHORT_VALIDATIONS = 15, 6
_SHORT_MINUTES = 60  # a run with a smaller time budget has fewer validations
_STEPS_PER_WARMUP_STEP = 20
_MAX_WARMUP = 4_000
_MEMORY_SHARE = 0.7  # of the available memory; the rest is a safety margin

Fixed = Mapping[str, Any]  # values that the user has set, by dotted key


@dataclass(frozen=True)
class Choice:
    """A chosen setting and its reason."""

    key: str
    value: Any
    reason: str


@dataclass
class _Draft:
    """The settings chosen so far; settings in `fixed` keep their values."""

    fixed: Fixed
    choices: list[Choice] = field(default_factory=list)

    def add(self, key: str, value: Any, reason: str) -> None:
        if key not in self.fixed:
            self.choices.append(Choice(key, value, reason))

    def config(self) -> Config:
        chosen = [(choice.key, choice.value) for choice in self.choices]
        return load_config(None, [("data.train", ("-", "-")), *chosen, *self.fixed.items()])


def choose(stats: CorpusStats, hardware: Hardware, fixed: Fixed) -> list[Choice]:
    """Return a choice for each relevant setting that is not in `fixed`.

    The model size also depends on the time budget: `train.minutes` in `fixed`, or the default.
    """
    size = choose_size(stats, hardware, _fixed_number(fixed, "train.minutes"))
    draft = _Draft(fixed)
    _choose_vocabulary(draft, stats, size)
    _choose_model(draft, stats, hardware, size)
    _choose_max_length(draft, stats, size)
    _choose_dev_and_batch_size(draft, stats, size)
    _fit_batch_in_memory(draft, stats, hardware)
    _choose_dropout(draft, stats, hardware, size)
    _choose_steps(draft, stats, hardware, size)
    _choose_schedule(draft, stats, hardware)
    return sorted(draft.choices, key=lambda choice: _SECTIONS.index(choice.key.partition(".")[0]))


def _choose_vocabulary(draft: _Draft, stats: CorpusStats, size: SizeChoice) -> None:
    preferred, minimum = size.tier.vocab_size, 500 * math.ceil(stats.min_vocab_size / 500)
    reason = _size_reason(stats, size, "more pieces would be too rare in")
    if minimum > preferred:
        reason = f"the text has {stats.alphabet_size:,} distinct characters"
    draft.add("tokenizer.vocab_size", max(preferred, minimum), reason)
    if draft.fixed.get("tokenizer.is_shared") is False:
        reason = "source and target have separate vocabularies"
        draft.add("model.tied_embeddings", "target", reason)


def _choose_model(draft: _Draft, stats: CorpusStats, hardware: Hardware, size: SizeChoice) -> None:
    tier = size.tier
    width = _fixed_int(draft.fixed, "model.d_model")
    if width is None:
        width = _round_width(tier.width, _fixed_int(draft.fixed, "model.n_heads") or 1)
        reason = _size_reason(stats, size, "a wider model would overfit")
        draft.add("model.d_model", width, reason)
    architecture = ARCHITECTURES.get(draft.fixed.get("model.arch", ""), TransformerConfig)
    n_heads = 1
    if "n_heads" in architecture.model_fields:
        n_heads = _choose_n_heads(width, draft.fixed)
        draft.add("model.n_heads", n_heads, f"{width // n_heads} dimensions per head")
    if architecture is TransformerConfig:
        n_heads = _fixed_int(draft.fixed, "model.n_heads") or n_heads
        can_rotate = width // n_heads % 2 == 0
        _choose_blocks(draft, "rotary" if hardware.gpu and can_rotate else "relative")
    depth_reason = _size_reason(stats, size, "more layers do not help with")
    reasons = {
        "d_feed_forward": "four times the width",
        "n_decoder_layers": "decoder layers take most of the translation time",
    }
    settings = architecture.settings_for_size(width, tier.n_encoder_layers, tier.n_decoder_layers)
    for key, value in settings.items():
        if key != "d_model":
            draft.add(f"model.{key}", value, reasons.get(key, depth_reason))


def _choose_blocks(draft: _Draft, positions: str) -> None:
    """Choose the positions, norms and biases of a transformer."""
    draft.add("model.positions", positions, "learns faster than added positions")
    draft.add("model.norm_kind", "rms", "as good as layer norm, with fewer operations")
    draft.add("model.biases", False, "linear layers do not need them")


def _choose_max_length(draft: _Draft, stats: CorpusStats, size: SizeChoice) -> None:
    """Choose data.max_length; raise search.max_length if the user's data.max_length is larger."""
    default, largest = _MAX_LENGTHS[0], _MAX_LENGTHS[-1]
    fixed_length = _fixed_int(draft.fixed, "data.max_length")
    if fixed_length is not None and fixed_length > largest:
        draft.add("search.max_length", fixed_length, "must not be smaller than data.max_length")
    vocab_size = _fixed_int(draft.fixed, "tokenizer.vocab_size") or size.tier.vocab_size
    p99 = stats.estimate_p99_pieces(vocab_size)
    limit = _fixed_int(draft.fixed, "search.max_length") or largest
    suitable = [n for n in _MAX_LENGTHS if p99 <= n <= limit] or [min(limit, largest)]
    reason = f"99% of the lines have at most {p99} pieces"
    if suitable[0] == limit:
        reason = f"limited by search.max_length={limit}"
    if suitable[0] != default:
        draft.add("data.max_length", suitable[0], reason)


def _choose_dev_and_batch_size(draft: _Draft, stats: CorpusStats, size: SizeChoice) -> None:
    n_pairs = stats.n_pairs
    if draft.fixed.get("data.dev") is None:
        n_dev = min(_MAX_DEV_PAIRS, max(n_pairs // 20, min(_MIN_DEV_PAIRS, n_pairs // 10)))
        reason = "fixed random sample, excluded from training"
        if draft.fixed.get("data.streaming"):
            reason = "the first pairs, excluded from training"
        draft.add("data.dev_pairs", max(1, n_dev), reason)
    n_steps = math.ceil(estimate_workload(draft.config(), stats).tokens / size.tier.batch_tokens)
    reason = f"about {format_count(n_steps, 'step')} per epoch"
    draft.add("data.batch_tokens", size.tier.batch_tokens, reason)


def _fit_batch_in_memory(draft: _Draft, stats: CorpusStats, hardware: Hardware) -> None:
    """Halve the batch size until it fits in memory, and accumulate batches to compensate."""
    if {"data.batch_tokens", "train.accumulate"} & draft.fixed.keys():
        return
    *others, last = draft.choices
    available = _MEMORY_SHARE * hardware.training_memory
    tokens, n_batches = last.value, 1
    while tokens > 1_024 and estimate(draft.config(), stats, hardware).memory > available:
        tokens, n_batches = tokens // 2, n_batches * 2
        reason = f"larger batches do not fit in {hardware.training_memory / 1e9:.0f} GB of memory"
        draft.choices = [*others, Choice(last.key, tokens, reason)]
    if n_batches > 1:
        draft.add("train.accumulate", n_batches, f"{last.value:,} tokens per step")


def _choose_dropout(
    draft: _Draft, stats: CorpusStats, hardware: Hardware, size: SizeChoice
) -> None:
    config = draft.config()
    work = estimate_workload(config, stats)
    seconds = step_seconds(config, work, nominal_hardware(hardware))
    epochs = size.minutes * 60 / seconds * step_tokens(config, work) / work.tokens
    if _fixed_number(draft.fixed, "train.minutes") is None:
        epochs = min(epochs, look_up(_EPOCHS, stats.n_pairs))
    tenths = look_up(_DROPOUT_TENTHS, stats.n_pairs)
    tenths += look_up(_EXTRA_DROPOUT_TENTHS, int(epochs))
    duration = f"about {epochs:.0f} epochs" if epochs >= 2 else "fewer than 2 epochs"
    reason = f"{format_count(stats.n_pairs, 'pair')}, {duration}"
    draft.add("model.dropout", max(0, min(_MAX_DROPOUT_TENTHS, tenths)) / 10, reason)


def _choose_steps(draft: _Draft, stats: CorpusStats, hardware: Hardware, size: SizeChoice) -> None:
    """Choose enough steps for the corpus, but no more than fit in the time budget."""
    if _fixed_number(draft.fixed, "train.minutes") is not None:
        return
    config = draft.config()
    work = estimate_workload(config, stats)
    epochs = look_up(_EPOCHS, stats.n_pairs)
    desired = max(_MIN_STEPS, math.ceil(epochs * work.tokens / step_tokens(config, work)))
    # Reserve 5% of the time for validations.
    possible = int(0.95 * size.minutes * 60 / step_seconds(config, work, hardware))
    reason = f"about {epochs} epochs"
    if desired == _MIN_STEPS:
        reason = "minimum for a small corpus"
    if possible < desired:
        reason = f"maximum for {size.budget}"
    draft.add("train.steps", round_to_digits(min(desired, max(1, possible)), digits=2), reason)


def _choose_schedule(draft: _Draft, stats: CorpusStats, hardware: Hardware) -> None:
    config = draft.config()
    rate = look_up(_LEARNING_RATE, config.model.d_model)
    if config.train.start_from:
        _choose_fine_tuning_rates(draft, config)
    elif rate != _LEARNING_RATE[0][1]:
        draft.add("train.learning_rate", rate, f"reduced for d_model={config.model.d_model}")
    draft.add("train.schedule", "trapezoid", "the learning rate reaches zero at the last step")
    steps = estimate(config, stats, nominal_hardware(hardware)).steps
    warmup = round_to_digits(min(_MAX_WARMUP, max(1, steps // _STEPS_PER_WARMUP_STEP)), digits=1)
    draft.add(
        "train.warmup", warmup, f"of {format_count(round_to_digits(steps, digits=2), 'step')}"
    )
    minutes = config.train.minutes or math.inf
    n_validations = _N_SHORT_VALIDATIONS if minutes < _SHORT_MINUTES else _N_VALIDATIONS
    interval = round_to_digits(max(1, steps // n_validations), digits=1)
    draft.add("train.validate_every", interval, f"about {n_validations} validations")


def _choose_fine_tuning_rates(draft: _Draft, config: Config) -> None:
    reason = "reduced for fine-tuning, to limit forgetting"
    draft.add("train.learning_rate", _FINE_TUNING_RATE, reason)
    if config.train.optimizer == "muon":
        draft.add("train.matrix_learning_rate", _FINE_TUNING_MATRIX_RATE, reason)


def _size_reason(stats: CorpusStats, size: SizeChoice, corpus_reason: str) -> str:
    if size.is_limited_by_time:
        return f"a larger model needs more than {size.budget}"
    return f"{corpus_reason} {format_count(stats.n_pairs, 'pair')}"


def _round_width(width: int, n_heads: int) -> int:
    """Return the even number closest to `width` that `n_heads` divides."""
    unit = math.lcm(2, n_heads)
    return unit * max(1, round(width / unit))


def _choose_n_heads(width: int, fixed: Fixed) -> int:
    """Return the valid number of heads for which the head width is closest to the usual one."""
    usual = look_up(_HEAD_WIDTH, width)
    n_kv_heads = _fixed_int(fixed, "model.n_kv_heads") or 1
    unit = 2 if fixed.get("model.positions") == "rotary" else 1
    divisors = [n for n in range(1, min(width, _MAX_HEADS) + 1) if width % n == 0]
    valid = [n for n in divisors if n % n_kv_heads == 0 and width // n % unit == 0]
    return min(valid or divisors, key=lambda n: abs(math.log(width / n / usual)))


def _fixed_number(fixed: Fixed, key: str) -> float | None:
    """Return the user's value if it is a positive finite number, else None."""
    value = fixed.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 < value < math.inf else None


def _fixed_int(fixed: Fixed, key: str) -> int | None:
    value = _fixed_number(fixed, key)
    return value if isinstance(value, int) else None
