"""Sizes of models, from small to large, and which of them suits a corpus and a budget.

The rows follow published recipes: about 30,000 pairs (Multi30k) are learned best by 2 to 4 million
parameters and 2,000 to 4,000 pieces, 160,000 (IWSLT) with 8,000 to 10,000 pieces, half a million
with 8,000 to 16,000, and millions (WMT) by the base model of Vaswani et al. with 32,000.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from mtcli.config import Config, DataConfig, TokenizerConfig, TransformerConfig
from mtcli.planning.estimate import step_seconds, step_tokens, workload
from mtcli.planning.machine import Machine
from mtcli.planning.survey import Survey

CPU_MINUTES = 120.0  # for a training that nobody gave a budget
GPU_MINUTES = 24 * 60.0

# The size follows from the number of cores and not from their measured speed, which is never
# twice the same: the same corpus and machine get the same model.
_CORE_GFLOPS = 100.0

Value = TypeVar("Value")
Table = Sequence[tuple[int, Value]]  # from so many on, this


@dataclass(frozen=True)
class Rung:
    """A size, with what goes with it."""

    from_pairs: int
    vocab_size: int
    width: int
    n_encoder_layers: int
    n_decoder_layers: int
    step_tokens: int


RUNGS = (
    Rung(0, 500, 64, 2, 2, 1_024),
    Rung(1_000, 1_000, 96, 2, 2, 2_048),
    Rung(5_000, 2_000, 128, 3, 2, 3_072),
    Rung(10_000, 3_000, 160, 3, 3, 3_072),
    Rung(15_000, 4_000, 192, 4, 3, 4_096),
    Rung(100_000, 8_000, 256, 4, 3, 6_144),
    Rung(300_000, 12_000, 384, 6, 3, 8_192),
    Rung(1_000_000, 16_000, 512, 6, 4, 16_384),
    Rung(3_000_000, 32_000, 512, 6, 6, 32_768),
)


@dataclass(frozen=True)
class Fit:
    """The rung that was found, and why it is not a higher one."""

    rung: Rung
    minutes: float
    is_cut_by_time: bool  # the corpus would feed a larger model
    budget: str  # the minutes in words


def look_up(table: Table[Value], number: int) -> Value:
    """The value of the last row that begins at `number` or below."""
    return [value for start, value in table if start <= number][-1]


def find_rung(survey: Survey, machine: Machine, minutes: float | None) -> Fit:
    """The largest model that the corpus can feed and that reads enough in the time there is."""
    limit = GPU_MINUTES if machine.gpu else CPU_MINUTES
    budget = minutes or limit
    fed = [rung for rung in RUNGS if rung.from_pairs <= survey.n_pairs]
    nominal = nominal_machine(machine)
    in_time = [rung for rung in fed if _reads_enough(rung, survey, nominal, budget)]
    rung = in_time[-1] if in_time else fed[0]
    words = f"{minutes:g} minutes" if minutes else f"{limit / 60:.0f} hours (no --minutes)"
    return Fit(rung, budget, is_cut_by_time=rung != fed[-1], budget=words)


def nominal_machine(machine: Machine) -> Machine:
    """`machine`, as fast as its cores usually are."""
    return replace(machine, gflops=machine.cores * _CORE_GFLOPS)


def _reads_enough(rung: Rung, survey: Survey, machine: Machine, minutes: float) -> bool:
    """Whether the model reads at least as many tokens as it has parameters.

    That is little, but enough: 36.6 BLEU on Multi30k took 1.4 times as many.
    """
    config = _config(rung)
    work = workload(config, survey)
    n_steps = minutes * 60 / step_seconds(config, work, machine)
    n_parameters = config.model.n_parameters(rung.vocab_size, rung.vocab_size)
    return n_steps * step_tokens(config, work) >= n_parameters


def _config(rung: Rung) -> Config:
    unread = Path("-")
    return Config(
        data=DataConfig(train=(unread, unread), batch_tokens=rung.step_tokens),
        tokenizer=TokenizerConfig(vocab_size=rung.vocab_size),
        model=TransformerConfig(
            d_model=rung.width,
            n_heads=1,
            n_encoder_layers=rung.n_encoder_layers,
            n_decoder_layers=rung.n_decoder_layers,
            d_feed_forward=4 * rung.width,
        ),
    )
