"""All that training works with, made from a configuration and from data."""

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtcli.checkpoint.directory import LOG, WeightsInfo
from mtcli.checkpoint.weights import load_into, load_model, save_weights
from mtcli.config import Config
from mtcli.distributed import Processes, whole
from mtcli.feed import Augmentation, Feed, Group, Position, Share, prepared_ahead
from mtcli.models import TrainableModel, build_model, parameters_of
from mtcli.optim import MovingAverage, build_optimizers, exchanged, freeze
from mtcli.report import Event, EventLog
from mtcli.training.learner import Learner, Objective
from mtcli.training.preparation import Prepared
from mtcli.training.sharding import is_sharded, shard
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

    def validated_weights(self) -> dict[str, Tensor]:
        """The weights that are validated and kept: the moving average's if there is one."""
        weights = self.average.weights if self.average else parameters_of(self.model)
        return {name: whole(weight) for name, weight in weights.items()}

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

    def measure(self, weights: Mapping[str, Tensor] | None = None) -> Measured:
        """How good the validated weights are on the dev set, or others."""
        if weights is None and (self.average or is_sharded(self.model)):
            weights = self.validated_weights()
        if weights is None:
            return self._measure(self.model)
        if is_sharded(self.model):
            return self._measure(self._whole_model(weights))
        with exchanged(self.model, weights):
            return self._measure(self.model)

    def _measure(self, model: TrainableModel[Any]) -> Measured:
        data = self.data
        return data.dev_set.measure(model, data.tokenizers, self.config, self.processes)

    def _whole_model(self, weights: Mapping[str, Tensor]) -> TrainableModel[Any]:
        """A model of one piece: search does not know how to work with a share of one."""
        tokenizers = self.data.tokenizers
        model = build_model(self.config.model, len(tokenizers.source), len(tokenizers.target))
        load_into(model, weights, origin=self.directory)
        return model.to(self.place.device)

    def rehearse_validation(self) -> float:
        """Seconds that a validation takes with a model that knows where to end."""
        data = self.data
        model = self.model
        if is_sharded(model):
            model = self._whole_model(self.validated_weights())
        return data.dev_set.rehearse(model, data.tokenizers, self.config, self.processes)

    def steps_from(self, position: Position) -> Generator[Group]:
        """The training data of all steps to come, prepared in the background."""
        options = self.config.data
        is_augmented = options.subword_sampling or options.word_dropout
        feed = Feed(
            self.data.train_set,
            options.batch_tokens,
            self.config.train.seed,
            self.config.train.accumulate,
            Share(self.processes.rank, self.processes.size),
            Augmentation(self.data.tokenizers, options) if is_augmented else None,
        )
        groups = feed.groups(position)
        if self.learner.device.type == "cuda":
            groups = map(_pinned, groups)
        return prepared_ahead(groups)


def build_run(config: Config, place: Place, data: Prepared) -> Run:
    """A new run: a function of its data, its settings and its seed."""
    torch.manual_seed(config.train.seed)
    sizes = len(data.tokenizers.source), len(data.tokenizers.target)
    model = build_model(config.model, *sizes).to(place.device)
    if config.train.start_from:
        parent = load_model(config.train.start_from, place.device).model
        load_into(model, parameters_of(parent), origin=config.train.start_from)
    freeze(model, config.train.freeze)
    objective = Objective(model, config.train.label_smoothing)
    if config.train.sharding == "full" and place.processes.size > 1:
        shard(objective)
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
    return Group(
        [batch.pinned() for batch in group.batches],
        group.after,
        group.n_words,
        group.n_tokens,
        group.n_positions,
    )
