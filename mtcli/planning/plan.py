"""Training plan: chosen settings with their reasons, and the expected cost of the run."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mtcli.config.load import Setting, flatten, load_config
from mtcli.config.sections import Config
from mtcli.counts import format_count
from mtcli.hardware import Hardware, detect_hardware
from mtcli.planning.choices import Choice, choose
from mtcli.planning.corpus_stats import CorpusStats
from mtcli.planning.estimate import Estimate, disk_space, estimate, round_to_digits
from mtcli.reporting.messages import format_duration, format_size

_WIDTH = 100  # of a line, in characters
_UNFILTERED = " before filtering"
_BYTES_PER_PARAMETER = 4 * 4  # weight, gradient and two optimizer states in float32


@dataclass(frozen=True)
class Plan:
    """A configuration with its chosen settings, the corpus, the hardware, and the expected cost."""

    choices: Sequence[Choice]  # empty if the user has set everything
    config: Config
    estimate: Estimate
    stats: CorpusStats
    hardware: Hardware
    n_training: int | None = None  # pairs that filters and the dev set leave; None if unknown


def make_plan(
    stats: CorpusStats, settings: Sequence[Setting], hardware: Hardware | None = None
) -> Plan:
    """Return a plan that chooses the settings missing from `settings`; `data.train` is required.

    The plan keeps the user's settings and adapts the chosen settings to them. Only
    `train.steps` and the settings derived from it depend on the measured speed of the machine.
    """
    fixed = flatten(settings)  # by key, because the user may set only part of a section
    hardware = _hardware_in_use(hardware, fixed)
    choices = choose(stats, hardware, fixed)
    chosen = [(choice.key, choice.value) for choice in choices]
    config = load_config(None, [*chosen, *fixed.items()])
    return Plan(choices, config, estimate(config, stats, hardware), stats, hardware)


def estimate_config(stats: CorpusStats, config: Config, hardware: Hardware | None = None) -> Plan:
    """Return the plan for a complete configuration; it contains no choices."""
    hardware = _hardware_in_use(hardware, {"train.device": config.train.device})
    return Plan((), config, estimate(config, stats, hardware), stats, hardware)


def with_training_pairs(plan: Plan, n_pairs: int) -> Plan:
    """Return `plan` with the cost of training on `n_pairs` pairs (filtered, without dev pairs)."""
    stats = replace(plan.stats, n_pairs=n_pairs)
    cost = estimate(plan.config, stats, plan.hardware)
    return replace(plan, estimate=cost, n_training=n_pairs)


def plan_lines(plan: Plan) -> list[str]:
    """Return the plan as text: choices with reasons, expected cost, and how to change a choice."""
    facts = {
        "machine": _describe_hardware(plan.hardware),
        "model": f"{plan.estimate.n_parameters:,} parameters: {plan.config.model.summary()}",
        "compute": f"about {plan.estimate.flops:.1e} FLOPs in matrix products",
        "memory": _describe_memory(plan),
        "disk": _describe_disk(plan),
        "time": _describe_time(plan),
    }
    lines = [corpus_line(plan), *_training_line(plan)]
    for name, text in facts.items():
        lines += textwrap.wrap(_line(name, text), _WIDTH, subsequent_indent=_line("", ""))
    if not plan.choices:
        return lines
    advice = "change any choice with --set KEY=VALUE, for example --set model.dropout=0.1"
    return ["chosen for this corpus and this machine:", *_table(plan.choices), *lines, advice]


def _table(choices: Sequence[Choice]) -> Iterator[str]:
    key_width = max(len(choice.key) for choice in choices)
    value_width = max(len(str(choice.value)) for choice in choices)
    for choice in choices:
        yield f"  {choice.key:<{key_width}}  {choice.value!s:>{value_width}}  {choice.reason}"


def _line(name: str, text: str) -> str:
    return f"{name:<9}{text}"


def corpus_line(plan: Plan) -> str:
    """Return the line of the plan that shows the corpus statistics.

    The text must not change, because mtcli compares it with lines in saved plans (`is_in_plan`).
    """
    stats, tokenizer = plan.stats, plan.config.tokenizer
    source, target = stats.estimate_pieces(tokenizer.vocab_size, is_shared=tokenizer.is_shared)
    characters = f"{stats.source.characters:.0f} and {stats.target.characters:.0f} characters"
    pieces = f"about {source:.0f} and {target:.0f} pieces"
    first = "first " if plan.config.data.streaming else ""
    pairs = format_count(stats.n_pairs, "pair") + _UNFILTERED
    return _line("corpus", f"{first}{pairs}; a line has {characters}, {pieces}")


def is_in_plan(line: str, saved_lines: Sequence[str]) -> bool:
    """Return whether a saved plan contains `line`, with or without " before filtering".

    mtcli 0.2.0 wrote the line without these words.
    """
    return line in saved_lines or line.replace(_UNFILTERED, "") in saved_lines


def _training_line(plan: Plan) -> list[str]:
    if plan.n_training is None:
        return []
    pairs = format_count(plan.n_training, "pair")
    return [_line("training", f"{pairs} after filtering, without dev pairs")]


def _describe_hardware(hardware: Hardware) -> str:
    if hardware.gpu:
        return f"{hardware.gpu.name}, {hardware.gpu.memory / 1e9:.0f} GB"
    cores = format_count(hardware.cores, "core")
    memory = f"{hardware.memory / 1e9:.0f} GB of memory"
    return f"{cores}, {memory}, {hardware.gflops:.0f} GFLOP/s, no GPU"


def _describe_memory(plan: Plan) -> str:
    needed, available = plan.estimate.memory, plan.hardware.training_memory
    text = f"about {needed / 1e9:.1f} of {available / 1e9:.0f} GB"
    if needed <= available:
        return text
    is_model_too_large = _BYTES_PER_PARAMETER * plan.estimate.n_parameters > available
    cause = "model.d_model or the number of layers" if is_model_too_large else "data.batch_tokens"
    return f"{text}; may not fit: reduce {cause}"


def _describe_disk(plan: Plan) -> str:
    needed = disk_space(plan.config, plan.stats)
    if not needed:
        return "checkpoints only: the corpus is streamed"
    return f"about {format_size(needed)} for prepared data, besides checkpoints"


def _describe_time(plan: Plan) -> str:
    expected = plan.estimate
    speed = f"{round_to_digits(expected.tokens_per_second, digits=2):,} tokens/s"
    epochs = _describe_epochs(expected.epochs)
    if plan.config.train.minutes is not None:
        steps = format_count(round_to_digits(expected.steps, digits=2), "step")
        time = format_duration(expected.seconds)
        return f"{time} (train.minutes): about {steps} at {speed}, {epochs}"
    rough = " (rough estimate)" if plan.hardware.gpu else ""  # only the speed of CPUs is measured
    steps = format_count(expected.steps, "step")
    return f"about {format_duration(expected.seconds)}{rough}: {steps} at {speed}, {epochs}"


def _describe_epochs(epochs: float) -> str:
    if epochs > 1_000:
        return "over 1,000 epochs"
    if epochs >= 1.5:
        return f"{epochs:.0f} epochs"
    return "1 epoch" if epochs >= 0.75 else "less than 1 epoch"


def _hardware_in_use(hardware: Hardware | None, fixed: Mapping[str, Any]) -> Hardware:
    """Return `hardware` (default: this machine), without its GPU if `train.device` is cpu."""
    hardware = hardware or detect_hardware()
    return replace(hardware, gpu=None) if fixed.get("train.device") == "cpu" else hardware
