"""State of a run: model, data, optimizers and log, built from a configuration and a dataset."""

import os
import platform
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtcli import __version__
from mtcli.config.sections import Config
from mtcli.counts import format_count
from mtcli.data.augmentation import Augmentation
from mtcli.data.batches import BatchStream, DataPosition, Group, Shard
from mtcli.data.cache import DataCache
from mtcli.data.corpus import CorpusReader
from mtcli.data.mixing import CorpusParts, Mixture, mix
from mtcli.data.prefetch import prefetch
from mtcli.distributed import SINGLE, Processes, local_rank
from mtcli.errors import ConfigError
from mtcli.files import write_file
from mtcli.hardware import is_out_of_memory
from mtcli.model_dir.directory import WeightsInfo
from mtcli.model_dir.layout import CACHE, CONFIG, LOG, REPORT
from mtcli.model_dir.weights import load_into, load_model, save_weights
from mtcli.models import build_model
from mtcli.models.base import TrainableModel, parameters_of
from mtcli.reporting.events import Event
from mtcli.reporting.html_report import report_html
from mtcli.reporting.log import EventLog, as_logged, read_events
from mtcli.training.dataset import Dataset, DevScores, DevSet, combine
from mtcli.training.optimizers import MovingAverage, build_optimizers, freeze, swapped_weights
from mtcli.training.sharding import is_sharded, reshard_after, shard
from mtcli.training.step import LossModule, TrainStep

Listener = Callable[[Event], None]


@dataclass(frozen=True)
class RunOptions:
    """Options for one `mtcli train` command that do not change the trained model."""

    fresh: bool = False  # start over, even if the directory contains a run
    stop_after: float | None = None  # minutes
    threads: int | None = None  # CPU threads of this process; None: one per core
    tensorboard: bool = False  # also write TensorBoard event files
    plan: tuple[str, ...] = ()  # lines that describe the settings chosen for a new run
    check_data: bool = True  # check that a completed run was trained on the same corpus
    reader: CorpusReader | None = None  # corpora that planning has already read
    cache: Path | None = None  # data cache to share with other runs; None: one in the run directory


DEFAULTS = RunOptions()


@dataclass(frozen=True)
class RunContext:
    """Environment of a run, such as its directory, device, processes, listener and cache."""

    directory: Path
    device: torch.device
    processes: Processes
    listener: Listener
    started_at: float = field(default_factory=time.monotonic)
    reader: CorpusReader = field(default_factory=CorpusReader)
    shared_cache: Path | None = None  # data cache that other runs may also use

    @property
    def cache(self) -> DataCache:
        """Cache of the prepared data."""
        return DataCache(self.shared_cache or self.directory / CACHE)

    def remove_cache(self, *, keep: tuple[str, ...] = ()) -> None:
        """Remove this run's cache, except the entries in `keep`; never remove a shared cache.

        Rank 0 removes the cache on its file system. On a machine with a separate file system, the
        first process of that machine removes it.
        """
        has_separate_cache = local_rank() == 0 and not (self.directory / CONFIG).exists()
        if self.shared_cache is None and (self.processes.is_first or has_separate_cache):
            self.cache.remove_all(keep=keep)


@dataclass(frozen=True)
class BestScores:
    """BLEU on the dev set, with its signature; if there are several dev sets, also BLEU on each."""

    bleu: float
    signature: str
    sets: Mapping[str, float]


@dataclass(frozen=True)
class Run:
    """A run in memory: settings, data, model, optimizers and log."""

    config: Config
    context: RunContext
    data: Dataset
    train_step: TrainStep
    average: MovingAverage | None
    log: EventLog

    @property
    def directory(self) -> Path:
        """The model directory."""
        return self.context.directory

    @property
    def model(self) -> TrainableModel[Any]:
        """The model being trained."""
        return self.train_step.model

    @property
    def processes(self) -> Processes:
        """The process group."""
        return self.context.processes

    @property
    def n_parameters(self) -> int:
        """The number of parameters of the model."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def report(self, event: Event) -> None:
        """On rank 0, log an event and pass it to the listener; on other ranks, do nothing."""
        if self.processes.is_first:
            self.log(event)
            self.context.listener(event)

    def save_best_weights(
        self,
        weights: Mapping[str, Tensor],
        *,
        step: int,
        scores: BestScores,
        name: str = "",
    ) -> None:
        """Save `weights` as the model's weights.

        `name` describes weights that do not come from a single step.
        """
        info = WeightsInfo(
            n_parameters=self.n_parameters,
            step=step,
            bleu=scores.bleu,
            signature=scores.signature,
            n_pairs=self.data.n_pairs,
            weights=name,
            sets=scores.sets,
        )
        save_weights(self.directory, weights, info)

    def measure(self, weights: Iterable[tuple[str, Tensor]] | None = None) -> DevScores:
        """Return the dev scores of `weights`.

        By default, score the moving average if there is one, or else the current weights.
        """
        if weights is None and self.average:
            weights = self.average.weights.items()
        if weights is None:
            return self._measure()
        with swapped_weights(self.model, weights):
            return self._measure()

    def time_validation(self) -> float:
        """Return the duration in seconds of a validation with translations of typical length."""
        return self._measure(lambda dev_set: dev_set.mean_length()).seconds

    def _measure(self, max_pieces: Callable[[DevSet], int | None] = lambda _: None) -> DevScores:
        # All processes must gather each layer of a sharded model at the same time. They therefore
        # cannot split the dev set, so each process translates all of it.
        processes = SINGLE if is_sharded(self.model) else self.processes
        data = self.data
        with reshard_after(self.model):
            measured = {
                dev_set.name: dev_set.measure(
                    self.model, data.tokenizers, self.config, processes, max_pieces(dev_set)
                )
                for dev_set in data.dev_sets
            }
        return combine(measured, self.config.train.dev_rule)

    def groups_from(self, position: DataPosition) -> Generator[Group]:
        """Probe the memory; return a generator of prefetched batch groups, from `position` on."""
        stream = self.batch_stream()
        self.train_step.start_workers()  # before the thread of `prefetch`
        self.train_step.probe_memory(stream.largest)
        groups = stream.groups(position)
        if self.train_step.device.type == "cuda":
            groups = map(_pin_memory, groups)
        return prefetch(groups)

    def batch_stream(self) -> BatchStream:
        """Return the stream of training batches for this process."""
        options = self.config.data
        is_augmented = options.subword_sampling or options.word_dropout
        return BatchStream(
            self.data.stream or self.data.train_set,
            options.batch_tokens,
            self.config.train.seed,
            self.config.train.accumulate,
            Shard(self.processes.rank, self.processes.size),
            Augmentation(self.data.tokenizers, options) if is_augmented else None,
            self.mixture,
        )

    @cached_property
    def parts(self) -> CorpusParts:
        """The training set rows that belong to each corpus."""
        return CorpusParts(self.data.train_set, len(self.config.data.train.entries))

    @cached_property
    def mixture(self) -> Mixture | None:
        """The mixture of the corpora; None if each epoch contains every pair once."""
        options = self.config.data
        if not options.is_mixed:
            return None
        weights = [entry.weight for entry in options.train.entries]
        counts = mix(self.parts.sizes, weights, options.temperature)
        return Mixture(self.parts.starts, counts, self.config.train.seed)


def build_run(config: Config, context: RunContext, data: Dataset) -> Run:
    """Return a new run; its initial weights depend only on the data, the settings and the seed."""
    torch.manual_seed(config.train.seed)
    sizes = len(data.tokenizers.source), len(data.tokenizers.target)
    try:
        model = build_model(config.model, *sizes, data.tokenizers.special)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise ConfigError(
            "the model does not fit in memory",
            hint="lower model.d_model, the number of layers or tokenizer.vocab_size",
        ) from error
    if config.train.start_from:
        parent = load_model(config.train.start_from, torch.device("cpu")).model
        load_into(model, parameters_of(parent).items(), origin=config.train.start_from)
    freeze(model, config.train.freeze)
    if config.train.sharding == "full" and context.processes.size > 1:
        shard(model)  # also moves the shards to the device; the full model may not fit there
    else:
        model.to(context.device)
    loss_module = LossModule(model, config.train.label_smoothing)
    optimizers = build_optimizers(model, config.train, context.processes)
    return Run(
        config=config,
        context=context,
        data=data,
        train_step=TrainStep(loss_module, optimizers, config.train, context.processes),
        average=MovingAverage(model, config.train.ema) if config.train.ema else None,
        log=EventLog(context.directory / LOG),
    )


def _pin_memory(group: Group) -> Group:
    return Group([batch.pin_memory() for batch in group.batches], group.after)


_LIBRARIES = ("sentencepiece", "sacrebleu", "ctranslate2")


def write_report(run: Run, *new_events: Event) -> None:
    """Write report.html from the log and from `new_events`, which are not logged yet."""
    config_yaml = (run.directory / CONFIG).read_text(encoding="utf-8")
    events = [*read_events(run.directory / LOG), *map(as_logged, new_events)]
    page = report_html(events, config_yaml, environment(run))
    write_file(run.directory / REPORT, page)


def environment(run: Run) -> dict[str, str]:
    """Return the versions, system, device and processes of a run for its report."""
    device = run.train_step.device
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    cores = format_count(os.cpu_count() or 1, "core")
    threads = format_count(torch.get_num_threads(), "thread")
    return {
        "mtcli": __version__,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        **{name: version(name) for name in _LIBRARIES},
        "system": f"{platform.system()} on {platform.machine()}, {cores}",
        "device": gpu or str(device),
        "processes": f"{run.processes.size} with {threads} each",
    }
