"""Model sizes from small to large, and the choice of a size for a corpus and a time budget.

The tiers follow published recipes. A corpus of about 30,000 pairs (Multi30k) works best with 2 to 4
million parameters and 2,000 to 4,000 pieces. A corpus of 160,000 pairs (IWSLT) works best with
8,000 to 10,000 pieces, and one of half a million pairs with 8,000 to 16,000 pieces. Corpora of
millions of pairs (WMT) work best with 32,000 pieces and the base model of Vaswani et al. (2017).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from mtcli.config.sections import Config, DataConfig
from mtcli.config.tokenizer import TokenizerConfig
from mtcli.config.transformers import TransformerConfig
from mtcli.counts import format_count
from mtcli.hardware import Hardware
from mtcli.planning.corpus_stats import CorpusStats
from mtcli.planning.estimate import estimate_workload, step_seconds, step_tokens

CPU_MINUTES = 120.0  # default time budget
GPU_MINUTES = 24 * 60.0

# The model size depends on the number of cores and on bfloat16 instructions, not on the measured
# speed. It varies, but the same corpus on the same machine must always result in the same model.
_CORE_GFLOPS = 100.0

Value = TypeVar("Value")
Table = Sequence[tuple[int, Value]]  # lower bounds in ascending order, with their values


@dataclass(frozen=True)
class SizeTier:
    """Model size, vocabulary size and batch size for corpora of at least `min_pairs` pairs."""

    min_pairs: int
    vocab_size: int
    width: int
    n_encoder_layers: int
    n_decoder_layers: int
    batch_tokens: int


SIZE_TIERS = (
    SizeTier(0, 500, 64, 2, 2, 1_024),
    SizeTier(1_000, 1_000, 96, 2, 2, 2_048),
    SizeTier(5_000, 2_000, 128, 3, 2, 3_072),
    SizeTier(10_000, 3_000, 160, 3, 3, 3_072),
    SizeTier(15_000, 4_000, 192, 4, 3, 4_096),
    SizeTier(100_000, 8_000, 256, 4, 3, 6_144),
    SizeTier(300_000, 12_000, 384, 6, 3, 8_192),
    SizeTier(1_000_000, 16_000, 512, 6, 4, 16_384),
    SizeTier(3_000_000, 32_000, 512, 6, 6, 32_768),
)


@dataclass(frozen=True)
class SizeChoice:
    """The chosen tier, and the time budget that it was chosen for."""

    tier: SizeTier
    minutes: float
    is_limited_by_time: bool  # the corpus is large enough for a larger tier
    budget: str  # the time budget as text


def look_up(table: Table[Value], number: int) -> Value:
    """Return the value of the last row whose lower bound is at most `number`."""
    return [value for start, value in table if start <= number][-1]


def choose_size(stats: CorpusStats, hardware: Hardware, minutes: float | None) -> SizeChoice:
    """Return the largest size that suits the corpus and the time budget, or else the smallest."""
    default = GPU_MINUTES if hardware.gpu else CPU_MINUTES
    budget = minutes or default
    suitable = [tier for tier in SIZE_TIERS if tier.min_pairs <= stats.n_pairs]
    nominal = nominal_hardware(hardware)
    affordable = [tier for tier in suitable if _is_affordable(tier, stats, nominal, budget)]
    tier = affordable[-1] if affordable else suitable[0]
    text = f"{default / 60:.0f} hours (the default)"
    if minutes:
        text = format_count(minutes, "minute")
    return SizeChoice(tier, budget, is_limited_by_time=tier != suitable[-1], budget=text)


def nominal_hardware(hardware: Hardware) -> Hardware:
    """Return `hardware` with a nominal speed, so that choices do not depend on the measured one."""
    return replace(hardware, gflops=hardware.cores * _CORE_GFLOPS)


def _is_affordable(tier: SizeTier, stats: CorpusStats, hardware: Hardware, minutes: float) -> bool:
    """Return whether the model can be trained on at least one token per parameter in `minutes`.

    This threshold is low but sufficient: a model trained on 1.4 tokens per parameter reached 36.6
    BLEU on Multi30k.
    """
    config = _tier_config(tier)
    work = estimate_workload(config, stats)
    n_steps = minutes * 60 / step_seconds(config, work, hardware)
    n_parameters = config.model.n_parameters(tier.vocab_size, tier.vocab_size)
    return n_steps * step_tokens(config, work) >= n_parameters


def _tier_config(tier: SizeTier) -> Config:
    unused = Path("-")
    return Config(
        data=DataConfig(train=(unused, unused), batch_tokens=tier.batch_tokens),
        tokenizer=TokenizerConfig(vocab_size=tier.vocab_size),
        model=TransformerConfig(
            d_model=tier.width,
            n_heads=1,
            n_encoder_layers=tier.n_encoder_layers,
            n_decoder_layers=tier.n_decoder_layers,
            d_feed_forward=4 * tier.width,
        ),
    )
