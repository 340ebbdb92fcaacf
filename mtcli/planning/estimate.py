"""What a configuration will cost: parameters, memory, time. Estimates, and said to be so."""

import math
from dataclasses import dataclass

from mtcli.config import Config, Maps
from mtcli.planning.machine import Machine
from mtcli.planning.survey import Survey

# Calibrated with 3+3 layers of width 256 and 8,000 pieces on a core of 145 GFLOP/s: 3,400 tokens
# a second; two threads are 1.6 times as fast as one.
_EFFICIENCY = 0.95
_THREAD_LOSS = 0.32
_OVERHEAD = 1_100  # FLOPs in whose time a number of a map's output passes norms, dropout and sums
_FILLED = 0.96  # of a batch; the rest is padding
_GPU_GFLOPS = 20_000  # what small models get out of one; a guess, for nothing is tried out
_GPU_STEP_SECONDS = 0.03  # to start its many small programs, however little there is to do

_BASE_MEMORY = 350_000_000  # torch itself
_STRING = 60  # bytes that Python needs for a string besides its characters
_NUMBER = 4  # bytes of a float and of an id


@dataclass(frozen=True)
class Estimate:
    """What to expect of a training."""

    n_parameters: int
    memory: int  # bytes at the most, in the memory where the model is trained
    tokens_per_second: float  # source and target
    steps: int  # as configured, or as many as fit into the minutes
    seconds: float  # validations included
    epochs: float  # times that each pair is seen


@dataclass(frozen=True)
class Workload:
    """How many tokens there are, for a given vocabulary."""

    source_pieces: float  # of a line, the end symbol included
    target_pieces: float
    n_pairs: int

    @property
    def tokens(self) -> float:
        """Of the corpus, both sides."""
        return self.n_pairs * (self.source_pieces + self.target_pieces)

    @property
    def target_share(self) -> float:
        """The part of all tokens that is target."""
        return self.target_pieces / (self.source_pieces + self.target_pieces)


def workload(config: Config, survey: Survey) -> Workload:
    """The corpus in the pieces of `config`."""
    tokenizer = config.tokenizer
    source, target = survey.pieces(tokenizer.vocab_size, is_shared=tokenizer.is_shared)
    return Workload(source + 1, target + 1, survey.n_pairs)


def estimate(config: Config, survey: Survey, machine: Machine) -> Estimate:
    """What training with `config` takes, for a corpus and on a machine like these."""
    work = workload(config, survey)
    seconds_per_step = step_seconds(config, work, machine)
    per_step = step_tokens(config, work)
    validation = _validation_seconds(config, work, per_step / seconds_per_step)
    interval = config.train.validate_every
    if config.train.minutes is None:
        steps = config.train.steps
        seconds = steps * seconds_per_step + -(-steps // interval) * validation
    else:
        seconds = config.train.minutes * 60
        steps = max(1, int(seconds / (seconds_per_step + validation / interval)))
    size = config.tokenizer.vocab_size
    return Estimate(
        n_parameters=config.model.n_parameters(size, size),
        memory=_memory(config, survey, work, is_on_gpu=machine.gpu is not None),
        tokens_per_second=per_step / seconds_per_step,
        steps=steps,
        seconds=seconds,
        epochs=steps * per_step / work.tokens,
    )


def step_tokens(config: Config, work: Workload) -> float:
    """Tokens that one step reads: a corpus smaller than a batch is read whole."""
    batch = min(work.tokens, _FILLED * config.data.batch_tokens)
    return config.train.accumulate * batch


def step_seconds(config: Config, work: Workload, machine: Machine) -> float:
    """How long one step takes."""
    model = config.model
    tokens = step_tokens(config, work)
    targets = tokens * work.target_share
    sides = {"source": tokens - targets, "target": targets}
    n_guesses = sum(sides[side] for side in model.guesses)
    flops = n_guesses * 6 * config.tokenizer.vocab_size * model.d_model
    for maps in model.maps():
        n_tokens = sum(sides[side] for side in maps.reads)
        # Two for each weight that a token meets, once forward and twice backward.
        flops += n_tokens * maps.n * maps.rows * (6 * maps.columns + _OVERHEAD)
        if config.train.optimizer == "muon":
            flops += maps.n * _newton_schulz(maps)
    return flops / _speed(machine) + (_GPU_STEP_SECONDS if machine.gpu else 0)


def _speed(machine: Machine) -> float:
    """FLOPs a second of training."""
    if machine.gpu:
        return _GPU_GFLOPS * 1e9
    return _EFFICIENCY * machine.gflops * 1e9 / math.pow(machine.cores, _THREAD_LOSS)


def _newton_schulz(maps: Maps) -> float:
    """Five iterations for one of the matrices."""
    short, long = sorted((maps.rows, maps.columns))
    return 5 * (4 * short**2 * long + 2 * short**3)


def _validation_seconds(config: Config, work: Workload, tokens_per_second: float) -> float:
    """The loss of all dev pairs, a third of a training step, and greedy search for some."""
    pairs = min(config.data.dev_pairs, max(1, work.n_pairs // 10))
    tokens = pairs * (work.source_pieces + work.target_pieces)
    searched = min(pairs, config.train.validate_pairs) * work.target_pieces
    return (tokens / 3 + searched) / tokens_per_second


_LOGITS = 3 * 2**22  # that the loss holds at once


def _memory(config: Config, survey: Survey, work: Workload, *, is_on_gpu: bool) -> int:
    """Weights, gradients and two states of the optimizer; activations; the corpus."""
    model, size = config.model, config.tokenizer.vocab_size
    copies = 4 if config.train.ema is None else 5
    tokens = min(work.tokens, config.data.batch_tokens)
    targets = tokens * work.target_share
    sides = {"source": tokens - targets, "target": targets}
    outputs = sum(m.n * m.rows * sum(sides[side] for side in m.reads) for m in model.maps())
    # Calibrated like the speed, with 4,096 tokens: a peak of 1.0 GB.
    activations = 3.3 * outputs + _LOGITS
    corpus = work.tokens * _NUMBER + work.n_pairs * (
        survey.source.characters + survey.target.characters + 2 * _STRING
    )
    numbers = copies * model.n_parameters(size, size) + activations
    return round(_BASE_MEMORY + numbers * _NUMBER + (0 if is_on_gpu else corpus))
