"""The plan of a training: what was chosen and why, what it will cost, and how it is told."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mtcli.config import Config, Setting, flat, load_config
from mtcli.data import Corpus
from mtcli.planning.choices import Choice, choose
from mtcli.planning.estimate import Estimate, estimate
from mtcli.planning.machine import Machine, look_at_machine
from mtcli.planning.survey import Survey, survey
from mtcli.report.wording import duration


@dataclass(frozen=True)
class Plan:
    """A complete configuration, with what it follows from and what to expect of it."""

    choices: Sequence[Choice]  # none, if the user has decided everything
    config: Config
    estimate: Estimate
    survey: Survey
    machine: Machine


def make_plan(corpus: Corpus, settings: Sequence[Setting], machine: Machine | None = None) -> Plan:
    """Choose what `settings` leave open; `data.train` and `train.minutes` are among them.

    What the user sets is never chosen, and what hangs on it follows it. Only `train.steps`, with
    the intervals that are shares of it, depends on how fast the machine turns out to be just now.
    """
    fixed = flat(settings)  # a whole section must not hide what it leaves open
    seen, machine = survey(corpus), _in_use(machine or look_at_machine(), fixed)
    choices = choose(seen, machine, fixed)
    chosen = [(choice.key, choice.value) for choice in choices]
    config = load_config(None, [*chosen, *fixed.items()])
    return Plan(choices, config, estimate(config, seen, machine), seen, machine)


def review(corpus: Corpus, config: Config, machine: Machine | None = None) -> Plan:
    """What to expect of a configuration in which nothing is left to choose."""
    fixed = {"train.device": config.train.device}
    seen, machine = survey(corpus), _in_use(machine or look_at_machine(), fixed)
    return Plan((), config, estimate(config, seen, machine), seen, machine)


def lines(plan: Plan) -> list[str]:
    """The plan in words: every choice with its reason, the expected cost, and how to object."""
    facts = {
        "machine": _machine(plan.machine),
        "model": f"{plan.estimate.n_parameters:,} parameters: {plan.config.model.summary()}",
        "memory": _memory(plan),
        "time": _time(plan),
    }
    told = [corpus_line(plan), *(_line(name, text) for name, text in facts.items())]
    if not plan.choices:
        return told
    how = "--set KEY=VALUE changes any choice, for instance --set model.dropout=0.1"
    return ["chosen for this corpus and this machine:", *_table(plan.choices), *told, how]


def _table(choices: Sequence[Choice]) -> Iterator[str]:
    key_width = max(len(choice.key) for choice in choices)
    value_width = max(len(str(choice.value)) for choice in choices)
    for choice in choices:
        yield f"  {choice.key:<{key_width}}  {choice.value!s:>{value_width}}  {choice.reason}"


def _line(name: str, text: str) -> str:
    return f"{name:<9}{text}"


def corpus_line(plan: Plan) -> str:
    """What the corpus is like; the same for the same corpus."""
    seen, tokenizer = plan.survey, plan.config.tokenizer
    source, target = seen.pieces(tokenizer.vocab_size, is_shared=tokenizer.is_shared)
    characters = f"{seen.source.characters:.0f} and {seen.target.characters:.0f} characters"
    pieces = f"about {source:.0f} and {target:.0f} pieces"
    return _line("corpus", f"{seen.n_pairs:,} pairs; a line has {characters}, {pieces}")


def _machine(machine: Machine) -> str:
    if machine.gpu:
        return f"{machine.gpu.name}, {machine.gpu.memory / 1e9:.0f} GB"
    cores = "1 core" if machine.cores == 1 else f"{machine.cores} cores"
    return f"{cores}, {machine.memory / 1e9:.0f} GB of memory, {machine.gflops:.0f} GFLOP/s; no GPU"


_STATE = 4  # numbers for each parameter: itself, its gradient, and two of the optimizer


def _memory(plan: Plan) -> str:
    needed, there = plan.estimate.memory, plan.machine.training_memory
    too_large = "data.batch_tokens"
    if 4 * _STATE * plan.estimate.n_parameters > there:
        too_large = "model.d_model, or the number of layers"
    warning = f"; that may be too much: lower {too_large}" if needed > there else ""
    return f"about {needed / 1e9:.1f} GB of {there / 1e9:.0f}{warning}"


def _time(plan: Plan) -> str:
    expected = plan.estimate
    pace = f"{_roughly(expected.tokens_per_second):,} tokens/s"
    seen = f"each pair seen {_times(expected.epochs)}"
    if plan.config.train.minutes is not None:
        steps = f"about {_steps(_roughly(expected.steps))} at {pace}"
        return f"{duration(expected.seconds)}, as asked: {steps}; {seen}"
    guess = " (a guess)" if plan.machine.gpu else ""  # only a CPU's speed is measured
    steps = f"{_steps(expected.steps)} at {pace}"
    return f"about {duration(expected.seconds)}{guess}: {steps}; {seen}"


def _steps(n: int) -> str:
    return "1 step" if n == 1 else f"{n:,} steps"


def _times(epochs: float) -> str:
    if epochs > 1_000:
        return "over 1,000 times"
    return f"{epochs:.0f} times" if epochs >= 1.5 else "once" if epochs >= 0.75 else "not even once"


def _roughly(number: float) -> int:
    """Two digits: an estimate has no more."""
    return int(float(f"{number:.1e}"))


def _in_use(machine: Machine, fixed: Mapping[str, Any]) -> Machine:
    """The machine without its GPU, if that is not to be used."""
    return replace(machine, gpu=None) if fixed.get("train.device") == "cpu" else machine
