"""How many steps fit into the minutes there are: tried out before training begins."""

import time
from contextlib import closing

from mtcli.config import Config
from mtcli.errors import ConfigError
from mtcli.feed import Position
from mtcli.training.loop import fit
from mtcli.training.preparation import Prepared
from mtcli.training.setup import Place, build_run

_SHARE, _MOST = 0.03, 60.0  # of the time, and seconds, for trying it out
_FEWEST = 4  # steps to try, not counting the very first, which is slower; no fewer can be asked for
_SOME = 100  # steps, to tell somebody who gives too little time
_MARGIN = 0.95  # of the time is given away; the rest is for the export, and for slower hours


def steps_that_fit(config: Config, place: Place, data: Prepared) -> int:
    """The number of steps for which `config.train.minutes` are enough, validations included.

    Real steps are made with a model that is thrown away, so that the training itself is a function
    of its seed and of this number alone. All processes get the same.
    """
    seconds = (config.train.minutes or 0.0) * 60
    run = build_run(config, place, data)
    began = time.perf_counter()
    spent: list[float] = []
    with closing(run.steps_from(Position())) as groups:
        for step in fit(run.learner, groups):
            if step.number > 1:
                spent.append(step.seconds)
            is_enough = time.perf_counter() - began > min(_SHARE * seconds, _MOST)
            if place.processes.from_first(is_enough and len(spent) >= _FEWEST):
                break
    validation = run.rehearse_validation()
    step_seconds = sum(spent) / len(spent) + validation / config.train.validate_every
    needed = time.monotonic() - place.began + validation  # besides steps
    steps = place.processes.from_first(int((seconds * _MARGIN - needed) / step_seconds))
    if steps < _FEWEST:
        minutes = (needed + _SOME * step_seconds) / _MARGIN / 60
        raise ConfigError(
            f"train.minutes={config.train.minutes:g} is too little: with all that comes before, "
            f"there is time for less than {_FEWEST} steps",
            hint=f"{_SOME} steps would fit into about {minutes:.2g} minutes",
        )
    return steps
