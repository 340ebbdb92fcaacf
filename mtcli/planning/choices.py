"""Settings that nobody made, chosen from the corpus and the machine, each with its reason."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mtcli.config import ARCHITECTURES, Config, TransformerConfig, load_config
from mtcli.planning.estimate import estimate, step_seconds, step_tokens, workload
from mtcli.planning.ladder import Fit, Table, find_rung, look_up, nominal_machine
from mtcli.planning.machine import Machine
from mtcli.planning.survey import Survey

# By the number of pairs: how often each is to be seen, and tenths of the numbers to leave out.
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
_DROPOUT: Table[int] = ((0, 3), (15_000, 2), (300_000, 1))
# By how often each is seen: what is seen seldom is not learned by heart, and what often is, is.
_MORE_DROPOUT: Table[int] = ((0, -1), (5, 0), (30, 1))
_MOST_DROPOUT = 3
# By the width of the model.
_LEARNING_RATE: Table[float] = ((0, 4e-3), (320, 3e-3), (448, 2e-3))
_GENTLE_RATE, _GENTLE_MATRIX_RATE = 1e-3, 5e-3  # for a model that has been trained already
_HEAD_WIDTH: Table[int] = ((0, 32), (384, 64))

_MOST_HEADS = 1_000
_SECTIONS = ("tokenizer", "model", "data", "train", "search")  # in the order they are told
_LENGTHS = (128, 192, 256)  # limits for a line, in pieces
MAX_LENGTH = _LENGTHS[-1]
_MOST_DEV_PAIRS = 1_000
_FEW_DEV_PAIRS = 100
_LEAST_STEPS = 500
_VALIDATIONS = 15
_WARMUP_SHARE = 20  # a twentieth of the steps
_MOST_WARMUP = 4_000
_MEMORY_SHARE = 0.7  # of the memory; the rest is for the unforeseen

Fixed = Mapping[str, Any]  # dotted keys that the user has set


@dataclass(frozen=True)
class Choice:
    """A setting, and why it is so."""

    key: str
    value: Any
    reason: str


@dataclass
class _Draft:
    """The choices so far, under what the user has set, which is never chosen."""

    fixed: Fixed
    choices: list[Choice] = field(default_factory=list)

    def add(self, key: str, value: Any, reason: str) -> None:
        if key not in self.fixed:
            self.choices.append(Choice(key, value, reason))

    def config(self) -> Config:
        chosen = [(choice.key, choice.value) for choice in self.choices]
        return load_config(None, [("data.train", ("-", "-")), *chosen, *self.fixed.items()])


def choose(survey: Survey, machine: Machine, fixed: Fixed) -> list[Choice]:
    """A value for whatever matters and is not `fixed`; `train.minutes` in it is the budget."""
    fit = find_rung(survey, machine, _number(fixed, "train.minutes"))
    draft = _Draft(fixed)
    _choose_vocabulary(draft, survey, fit)
    _choose_model(draft, survey, fit)
    _choose_longest(draft, survey, fit)
    _choose_data(draft, survey, fit)
    _choose_batches(draft, survey, machine)
    _choose_dropout(draft, survey, machine, fit)
    _choose_length(draft, survey, machine, fit)
    _choose_rates(draft, survey, machine)
    return sorted(draft.choices, key=lambda choice: _SECTIONS.index(choice.key.partition(".")[0]))


def _choose_vocabulary(draft: _Draft, survey: Survey, fit: Fit) -> None:
    wanted, least = fit.rung.vocab_size, 500 * math.ceil(survey.least_vocabulary / 500)
    reason = _because(survey, fit, "more pieces would be too rare to learn")
    if least > wanted:
        reason = f"the text has {survey.alphabet:,} different characters"
    draft.add("tokenizer.vocab_size", max(wanted, least), reason)
    if draft.fixed.get("tokenizer.is_shared") is False:
        reason = "source and target have vocabularies of their own"
        draft.add("model.tied_embeddings", "target", reason)


def _choose_model(draft: _Draft, survey: Survey, fit: Fit) -> None:
    rung = fit.rung
    width = _whole(draft.fixed, "model.d_model")
    if width is None:
        width = _width(rung.width, _whole(draft.fixed, "model.n_heads") or 1)
        reason = _because(survey, fit, "a wider model would learn them by heart")
        draft.add("model.d_model", width, reason)
    architecture = ARCHITECTURES.get(draft.fixed.get("model.arch", ""), TransformerConfig)
    if "n_heads" in architecture.model_fields:
        n_heads = _n_heads(width, draft.fixed)
        draft.add("model.n_heads", n_heads, f"the width in parts of {width // n_heads}")
    depth = _because(survey, fit, "more layers would not pay")
    reasons = {
        "d_feed_forward": "four times the width",
        "n_decoder_layers": "no more, for translating spends most of its time in them",
    }
    size = architecture.of_size(width, rung.n_encoder_layers, rung.n_decoder_layers)
    for key, value in size.items():
        if key != "d_model":
            draft.add(f"model.{key}", value, reasons.get(key, depth))


def _choose_longest(draft: _Draft, survey: Survey, fit: Fit) -> None:
    """The longest line that is learned from; search must not give up before."""
    usual, most = _LENGTHS[0], _LENGTHS[-1]
    given = _whole(draft.fixed, "data.max_length")
    if given is not None and given > most:
        draft.add("search.max_length", given, "translations may be as long as the lines")
    long = survey.long_pieces(_whole(draft.fixed, "tokenizer.vocab_size") or fit.rung.vocab_size)
    limit = _whole(draft.fixed, "search.max_length") or most
    fitting = [n for n in _LENGTHS if long <= n <= limit] or [min(limit, most)]
    reason = f"pieces; 99 % of the lines have at most {long}"
    if fitting[0] == limit:
        reason = f"pieces; search.max_length={limit} would cut off longer ones"
    if fitting[0] != usual:
        draft.add("data.max_length", fitting[0], reason)


def _choose_data(draft: _Draft, survey: Survey, fit: Fit) -> None:
    n_pairs = survey.n_pairs
    if draft.fixed.get("data.dev") is None:
        n_dev = min(_MOST_DEV_PAIRS, max(n_pairs // 20, min(_FEW_DEV_PAIRS, n_pairs // 10)))
        reason = "held out at random, always the same, never trained on"
        draft.add("data.dev_pairs", max(1, n_dev), reason)
    n_steps = math.ceil(workload(draft.config(), survey).tokens / fit.rung.step_tokens)
    steps = f"about {n_steps:,} steps" if n_steps > 1 else "one step"
    reason = f"{steps} for each pass through the corpus"
    draft.add("data.batch_tokens", fit.rung.step_tokens, reason)


def _choose_batches(draft: _Draft, survey: Survey, machine: Machine) -> None:
    """Cut batches that do not fit into memory, and make a step of as many as before the cut."""
    if {"data.batch_tokens", "train.accumulate"} & draft.fixed.keys():
        return
    *others, last = draft.choices
    room = _MEMORY_SHARE * machine.training_memory
    tokens, n_batches = last.value, 1
    while tokens > 1_024 and estimate(draft.config(), survey, machine).memory > room:
        tokens, n_batches = tokens // 2, n_batches * 2
        reason = f"more would not fit into {machine.training_memory / 1e9:.0f} GB of memory"
        draft.choices = [*others, Choice(last.key, tokens, reason)]
    if n_batches > 1:
        draft.add("train.accumulate", n_batches, f"batches a step: {last.value:,} tokens in all")


def _choose_dropout(draft: _Draft, survey: Survey, machine: Machine, fit: Fit) -> None:
    config = draft.config()
    work = workload(config, survey)
    seconds = step_seconds(config, work, nominal_machine(machine))
    epochs = fit.minutes * 60 / seconds * step_tokens(config, work) / work.tokens
    if _number(draft.fixed, "train.minutes") is None:
        epochs = min(epochs, look_up(_EPOCHS, survey.n_pairs))
    tenths = look_up(_DROPOUT, survey.n_pairs) + look_up(_MORE_DROPOUT, int(epochs))
    times = f"about {epochs:.0f} times" if epochs >= 2 else "hardly twice"
    reason = f"{survey.n_pairs:,} pairs, each seen {times}"
    draft.add("model.dropout", max(0, min(_MOST_DROPOUT, tenths)) / 10, reason)


def _choose_length(draft: _Draft, survey: Survey, machine: Machine, fit: Fit) -> None:
    """Steps: as many as the corpus wants, and no more than fit into the time."""
    if _number(draft.fixed, "train.minutes") is not None:
        return
    config = draft.config()
    work = workload(config, survey)
    epochs = look_up(_EPOCHS, survey.n_pairs)
    wanted = max(_LEAST_STEPS, math.ceil(epochs * work.tokens / step_tokens(config, work)))
    # Validations take some of the time, too.
    possible = int(0.95 * fit.minutes * 60 / step_seconds(config, work, machine))
    reason = f"about {epochs} times through the corpus"
    if wanted == _LEAST_STEPS:
        reason = "few pairs, but a model needs some hundred steps"
    if possible < wanted:
        reason = f"what fits into {fit.budget}"
    draft.add("train.steps", _rounded(min(wanted, max(1, possible)), digits=2), reason)


def _choose_rates(draft: _Draft, survey: Survey, machine: Machine) -> None:
    config = draft.config()
    rate = look_up(_LEARNING_RATE, config.model.d_model)
    if config.train.start_from:
        _choose_gentle_rates(draft, config)
    elif rate != _LEARNING_RATE[0][1]:
        draft.add("train.learning_rate", rate, f"a width of {config.model.d_model} wants less")
    draft.add("train.schedule", "trapezoid", "the rate falls to zero just when training ends")
    steps = estimate(config, survey, nominal_machine(machine)).steps
    warmup = _rounded(min(_MOST_WARMUP, max(1, steps // _WARMUP_SHARE)), digits=1)
    draft.add(
        "train.warmup", warmup, f"steps in which the rate rises, of {_rounded(steps, digits=2):,}"
    )
    interval = _rounded(max(1, steps // _VALIDATIONS), digits=1)
    draft.add("train.validate_every", interval, f"about {_VALIDATIONS} looks at the dev pairs")


def _choose_gentle_rates(draft: _Draft, config: Config) -> None:
    reason = "less than usual, to keep what the parent has learned"
    draft.add("train.learning_rate", _GENTLE_RATE, reason)
    if config.train.optimizer == "muon":
        draft.add("train.matrix_learning_rate", _GENTLE_MATRIX_RATE, reason)


def _because(survey: Survey, fit: Fit, limit: str) -> str:
    if fit.is_cut_by_time:
        return f"{fit.budget}; a larger model would read too little"
    return f"{survey.n_pairs:,} pairs; {limit}"


def _width(wanted: int, n_heads: int) -> int:
    """The width next to `wanted` that is even and that `n_heads` divides."""
    unit = math.lcm(2, n_heads)
    return unit * max(1, round(wanted / unit))


def _n_heads(width: int, fixed: Fixed) -> int:
    """The number of heads that makes them nearest to their usual width, and goes with the rest."""
    usual = look_up(_HEAD_WIDTH, width)
    served = _whole(fixed, "model.n_kv_heads") or 1
    unit = 2 if fixed.get("model.positions") == "rotary" else 1
    divisors = [n for n in range(1, min(width, _MOST_HEADS) + 1) if width % n == 0]
    fitting = [n for n in divisors if n % served == 0 and width // n % unit == 0]
    return min(fitting or divisors, key=lambda n: abs(math.log(width / n / usual)))


def _number(fixed: Fixed, key: str) -> float | None:
    """What the user has set, if it can be calculated with; nobody has checked it yet."""
    value = fixed.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 < value < math.inf else None


def _whole(fixed: Fixed, key: str) -> int | None:
    value = _number(fixed, key)
    return value if isinstance(value, int) else None


def _rounded(number: int, *, digits: int) -> int:
    """`number` with so many digits that are not zero: 4,713 becomes 4,700."""
    return int(float(f"{number:.{digits - 1}e}"))
