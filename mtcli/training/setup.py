"""All that training works with, made from a configuration and from data."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtcli.checkpoint.directory import LOG, WeightsInfo
from mtcli.checkpoint.weights import load_into, load_model, save_weights
from mtcli.config import Config
from mtcli.distributed import ALONE, Processes
from mtcli.engines.pytorch import is_out_of_memory
from mtcli.errors import ConfigError
from mtcli.feed import Augmentation, Feed, Group, Position, Share, prepared_ahead
from mtcli.models import TrainableModel, build_model, parameters_of
from mtcli.optim import MovingAverage, build_optimizers, exchanged, freeze
from mtcli.report import Event, EventLog
from mtcli.training.learner import Learner, Objective
from mtcli.training.preparation import Prepared
from mtcli.training.sharding import gathered_in_use, is_sharded, shard
from mtcli.training.validation import Measured

Show = Callable[[Event], None]


@dataclass(frozen=True)
class Place:
    """Where a run happens: its directory, its device, its processes, and who watches."""

    directory: Path
    device: torch.device
    processes: Processes
    show: Show
    began: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Run:
    """All that training works with."""

    config: Config
    place: Place
    data: Prepared
    learner: Learner
    average: MovingAverage | None
    log: EventLog

    @property
    def directory(self) -> Path:
        """Where the model is made."""
        return self.place.directory

    @property
    def model(self) -> TrainableModel[Any]:
        """What is trained."""
        return self.learner.model

    @property
    def processes(self) -> Processes:
        """Who trains it."""
        return self.place.processes

    @property
    def n_parameters(self) -> int:
        """How many numbers the model has."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def report(self, event: Event) -> None:
        """Tell programs and people, once."""
        if self.processes.is_first:
            self.log(event)
            self.place.show(event)

    def keep(
        self,
        weights: Mapping[str, Tensor],
        *,
        step: int,
        bleu: float,
        signature: str,
        name: str = "",
    ) -> None:
        """Make `weights` those to translate with; `name` says whose, if not those of `step`."""
        info = WeightsInfo(
            n_parameters=self.n_parameters,
            step=step,
            bleu=bleu,
            signature=signature,
            n_pairs=len(self.data.train_set),
            weights=name,
        )
        save_weights(self.directory, weights, info)

    def measure(self, weights: Iterable[tuple[str, Tensor]] | None = None) -> Measured:
        """How good the validated weights are on the dev set, or others."""
        if weights is None and self.average:
            weights = self.average.weights.items()
        if weights is None:
            return self._measure()
        with exchanged(self.model, weights):
            return self._measure()

    def rehearse_validation(self) -> float:
        """Seconds that a validation takes with a model that knows where to end."""
        return self._measure(self.data.dev_set.usual_length()).seconds

    def _measure(self, longest: int | None = None) -> Measured:
        """Of a model that is shared out, each part comes together from all processes when it is
        used: then all of them do all the work, in step.
        """
        team = ALONE if is_sharded(self.model) else self.processes
        data = self.data
        with gathered_in_use(self.model):
            return data.dev_set.measure(self.model, data.tokenizers, self.config, team, longest)

    def steps_from(self, position: Position) -> Generator[Group]:
        """The training data of all steps to come, prepared in the background."""
        feed = self._feed()
        self.learner.settle(feed.largest)
        groups = feed.groups(position)
        if self.learner.device.type == "cuda":
            groups = map(_pinned, groups)
        return prepared_ahead(groups)

    def _feed(self) -> Feed:
        options = self.config.data
        is_augmented = options.subword_sampling or options.word_dropout
        return Feed(
            self.data.train_set,
            options.batch_tokens,
            self.config.train.seed,
            self.config.train.accumulate,
            Share(self.processes.rank, self.processes.size),
            Augmentation(self.data.tokenizers, options) if is_augmented else None,
        )


def build_run(config: Config, place: Place, data: Prepared) -> Run:
    """A new run: a function of its data, its settings and its seed."""
    torch.manual_seed(config.train.seed)
    sizes = len(data.tokenizers.source), len(data.tokenizers.target)
    try:
        model = build_model(config.model, *sizes)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise ConfigError(
            "the model itself does not fit into memory",
            hint="lower model.d_model, the number of layers or tokenizer.vocab_size",
        ) from error
    if config.train.start_from:
        parent = load_model(config.train.start_from, torch.device("cpu")).model
        load_into(model, parameters_of(parent).items(), origin=config.train.start_from)
    freeze(model, config.train.freeze)
    if config.train.sharding == "full" and place.processes.size > 1:
        shard(model)  # which brings them to the device part by part: it need not hold them all
    else:
        model.to(place.device)
    objective = Objective(model, config.train.label_smoothing)
    optimizers = build_optimizers(model, config.train, place.processes)
    return Run(
        config=config,
        place=place,
        data=data,
        learner=Learner(objective, optimizers, config.train, place.processes),
        average=MovingAverage(model, config.train.ema) if config.train.ema else None,
        log=EventLog(place.directory / LOG),
    )


def _pinned(group: Group) -> Group:
    return Group([batch.pinned() for batch in group.batches], group.after)
