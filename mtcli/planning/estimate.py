"""Estimates of the parameter count, memory use and training time of a configuration."""

import math
import sys
from dataclasses import dataclass

from mtcli.config.base import LinearGroup
from mtcli.config.sections import Config
from mtcli.hardware import Hardware
from mtcli.planning.corpus_stats import CorpusStats

# Calibrated with 3+3 layers of width 256 and 8,000 pieces: 3,400 tokens per second on a core with
# 145 GFLOP/s. Two threads are 1.6 times as fast as one.
_EFFICIENCY = 0.95
_THREAD_LOSS = 0.32
_WORKER_LOSS = 0.15  # exponent for processes instead of threads: two are 1.8 times as fast
_OVERHEAD = 1_100  # cost of norms, dropout and additions per output of a linear layer, in FLOPs
_BFLOAT16_SPEEDUP = 1.6  # of a training step, measured with a transformer of width 192
_FILL_RATE = 0.96  # fraction of the positions in a batch that are not padding
_GPU_GFLOPS = 20_000  # assumed for small models, because mtcli does not measure GPUs
_GPU_STEP_SECONDS = 0.03  # kernel launch overhead of a step

_MIN_POSITIONS = 1_024  # per process and batch; with fewer, the exchange takes too long
_MIN_PARAMETERS = 1_000_000  # of the model; the steps of smaller models are too short
_MAX_WORKERS = 8

_BASE_MEMORY = 350_000_000  # bytes that torch itself uses
_PAIR_MEMORY = 48  # bytes per pair to shuffle and sort an epoch; text and ids are on disk
_TRAINER_MEMORY = 27  # bytes per character of the text that SentencePiece trains on
_NUMBER_SIZE = 4  # bytes per float
_OFFSET_SIZE = 8  # bytes per sentence for its start offset in the file of ids
_KERNEL_MEMORY = 100_000_000  # bytes that oneDNN uses for its bfloat16 kernels
_WORKER_MEMORY = 300_000_000  # bytes that a worker uses beside its share of the activations
_LOGITS = 3 * 2**22  # logits in memory at once; the loss computes them in chunks


def choose_n_workers(n_threads: int, *, batch_tokens: int, n_parameters: int) -> int:
    """Return the number of processes, including the main process, that should share a step."""
    if n_parameters < _MIN_PARAMETERS:
        return 1
    limit = max(1, min(n_threads, batch_tokens // _MIN_POSITIONS, _MAX_WORKERS))
    # Each process gets the same number of threads: leave as few as possible unused.
    return max(range(1, limit + 1), key=lambda n: (n_threads // n * n, n))


@dataclass(frozen=True)
class Estimate:
    """Expected cost of a training run."""

    n_parameters: int
    flops: float  # of all matrix products in the forward and backward passes
    memory: int  # peak, in bytes, on the device that trains the model
    tokens_per_second: float  # source and target tokens
    steps: int  # as configured, or the number that fits in train.minutes
    seconds: float  # including validations
    epochs: float


@dataclass(frozen=True)
class Workload:
    """Size of the corpus in tokens, for a given vocabulary."""

    source_pieces: float  # mean per line, including EOS
    target_pieces: float
    n_pairs: int

    @property
    def tokens(self) -> float:
        """Number of source and target tokens in the corpus."""
        return self.n_pairs * (self.source_pieces + self.target_pieces)

    @property
    def target_share(self) -> float:
        """Target tokens as a fraction of all tokens."""
        return self.target_pieces / (self.source_pieces + self.target_pieces)


def estimate_workload(config: Config, stats: CorpusStats) -> Workload:
    """Estimate the size of the corpus in pieces, for the vocabulary size in `config`."""
    tokenizer = config.tokenizer
    source, target = stats.estimate_pieces(tokenizer.vocab_size, is_shared=tokenizer.is_shared)
    return Workload(source + 1, target + 1, stats.n_pairs)


def estimate(config: Config, stats: CorpusStats, hardware: Hardware) -> Estimate:
    """Return the expected cost of training with `config`."""
    work = estimate_workload(config, stats)
    seconds_per_step = step_seconds(config, work, hardware)
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
        flops=steps * step_flops(config, work),
        memory=_peak_memory(config, stats, work, hardware),
        tokens_per_second=per_step / seconds_per_step,
        steps=steps,
        seconds=seconds,
        epochs=steps * per_step / work.tokens,
    )


def step_tokens(config: Config, work: Workload) -> float:
    """Return the number of tokens per step; a batch is never larger than the corpus."""
    batch = min(work.tokens, _FILL_RATE * config.data.batch_tokens)
    return config.train.accumulate * batch


def step_flops(config: Config, work: Workload) -> float:
    """Return the FLOPs of one step: linear layers, output layer and attention.

    A multiplication and an addition count as two FLOPs. The backward pass has twice the FLOPs of
    the forward pass. Embedding lookups, norms, activations and the optimizer are not counted.
    """
    model, tokens = config.model, step_tokens(config, work)
    tokens_of = _tokens_by_side(tokens, work)
    n_predicted = sum(tokens_of[side] for side in model.predicted_sides)
    forward = n_predicted * 2 * config.tokenizer.vocab_size * model.d_model
    for group in model.linear_groups():
        n_tokens = sum(tokens_of[side] for side in group.sides)
        forward += n_tokens * 2 * group.n_layers * group.rows * group.columns
    n_pairs = tokens / (work.source_pieces + work.target_pieces)
    forward += n_pairs * model.attention_flops(work.source_pieces, work.target_pieces)
    return 3 * forward


def step_seconds(config: Config, work: Workload, hardware: Hardware) -> float:
    """Return the expected duration of one step."""
    model = config.model
    tokens_of = _tokens_by_side(step_tokens(config, work), work)
    n_predicted = sum(tokens_of[side] for side in model.predicted_sides)
    flops = n_predicted * 6 * config.tokenizer.vocab_size * model.d_model
    for group in model.linear_groups():
        n_tokens = sum(tokens_of[side] for side in group.sides)
        # Per token and weight: 2 FLOPs in the forward pass and 4 in the backward pass.
        flops += n_tokens * group.n_layers * group.rows * (6 * group.columns + _OVERHEAD)
        if config.train.optimizer == "muon":
            flops += group.n_layers * _newton_schulz_flops(group)
    if hardware.gpu:
        return flops / (_GPU_GFLOPS * 1e9) + _GPU_STEP_SECONDS
    speedup = _BFLOAT16_SPEEDUP if _uses_cpu_bfloat16(config, hardware) else 1.0
    return flops / (speedup * _flops_per_second(hardware, _n_workers(config, hardware)))


def round_to_digits(number: float, *, digits: int) -> int:
    """Round `number` to `digits` significant digits: with two, 4,713 becomes 4,700."""
    return int(float(f"{number:.{digits - 1}e}"))


def _tokens_by_side(tokens: float, work: Workload) -> dict[str, float]:
    target = tokens * work.target_share
    return {"source": tokens - target, "target": target}


def _flops_per_second(hardware: Hardware, n_workers: int) -> float:
    """Return the expected FLOPs per second of a CPU in training, in float32."""
    n_threads = max(1, hardware.cores // n_workers)  # per worker
    loss = math.pow(n_workers, _WORKER_LOSS) * math.pow(n_threads, _THREAD_LOSS)
    return _EFFICIENCY * hardware.gflops * 1e9 / loss


def _n_workers(config: Config, hardware: Hardware) -> int:
    """Return the number of processes that share a step."""
    size, options = config.tokenizer.vocab_size, config.train
    if hardware.gpu or options.compile or not sys.platform.startswith("linux"):
        return 1
    n_parameters = config.model.n_parameters(size, size)
    tokens = config.data.batch_tokens
    return options.workers or choose_n_workers(
        hardware.cores, batch_tokens=tokens, n_parameters=n_parameters
    )


def _uses_cpu_bfloat16(config: Config, hardware: Hardware) -> bool:
    precision = config.cpu_precision(has_bfloat16=hardware.has_bfloat16)
    return hardware.gpu is None and precision == "bfloat16"


def _newton_schulz_flops(group: LinearGroup) -> float:
    """Return the FLOPs of Muon's five Newton-Schulz iterations for one matrix of the group."""
    short, long = sorted((group.rows, group.columns))
    return 5 * (4 * short**2 * long + 2 * short**3)


def _validation_seconds(config: Config, work: Workload, tokens_per_second: float) -> float:
    """Return the expected duration of one validation.

    Per token, the loss costs a third of a training step, and greedy search as much as a full step.
    """
    pairs = min(config.data.dev_pairs, max(1, work.n_pairs // 10))
    tokens = pairs * (work.source_pieces + work.target_pieces)
    translated = min(pairs, config.train.validate_pairs) * work.target_pieces
    return (tokens / 3 + translated) / tokens_per_second


def _peak_memory(config: Config, stats: CorpusStats, work: Workload, hardware: Hardware) -> int:
    """Return the expected peak memory use in bytes, including weights, activations and data.

    On a CPU, training the vocabulary may need more memory than training the model.
    """
    model, size = config.model, config.tokenizer.vocab_size
    # Weights, gradients, two optimizer states and the moving average.
    copies = 4 if config.train.ema is None else 5
    tokens_of = _tokens_by_side(min(work.tokens, config.data.batch_tokens), work)
    outputs = sum(
        group.n_layers * group.rows * sum(tokens_of[side] for side in group.sides)
        for group in model.linear_groups()
    )
    n_workers = _n_workers(config, hardware)
    # Calibrated with the same model as the speed: the peak for 4,096 tokens is 1.0 GB.
    activations = 3.3 * outputs + n_workers * _LOGITS
    copies += 2 * (n_workers - 1)  # gradients of each worker, and their copy in shared memory
    numbers = copies * model.n_parameters(size, size) + activations
    if hardware.gpu:
        return round(_BASE_MEMORY + numbers * _NUMBER_SIZE)
    kernels = _KERNEL_MEMORY if _uses_cpu_bfloat16(config, hardware) else 0
    processes = n_workers * kernels + (n_workers - 1) * _WORKER_MEMORY
    training = numbers * _NUMBER_SIZE + work.n_pairs * _PAIR_MEMORY + processes
    n_characters = stats.source.characters + stats.target.characters
    trainer = _TRAINER_MEMORY * n_characters * _vocabulary_pairs(config, work.n_pairs)
    return round(_BASE_MEMORY + max(training, trainer))


def _vocabulary_pairs(config: Config, n_pairs: int) -> int:
    """Return the number of pairs that the tokenizer is trained on."""
    options = config.tokenizer
    if options.model or config.train.start_from:
        return 0
    return min(n_pairs, options.sample_lines // 2 if options.is_shared else options.sample_lines)


def disk_space(config: Config, stats: CorpusStats) -> int:
    """Return the disk space in bytes that prepared data needs while the corpus is being encoded."""
    if config.data.streaming:
        return 0
    work = estimate_workload(config, stats)
    id_size = 2 if config.tokenizer.vocab_size <= 2**16 else 4
    ids = work.tokens * id_size + work.n_pairs * 2 * _OFFSET_SIZE
    text = work.n_pairs * (stats.source.bytes + stats.target.bytes + 2)
    return round(ids + text)
